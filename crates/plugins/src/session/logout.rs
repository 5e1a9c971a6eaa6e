//! Whether a request logs out.

use super::Config;
use crate::shared::body_arguments;
use weir_plugin::{Exchange, Json};

pub(super) fn is_logout(config: &Config, exchange: &Exchange) -> bool {
    let method = exchange.request.method_str();
    config.logout_methods.iter().any(|it| it == method)
        && (exchange.query_arg(&config.logout_query_arg).is_some() || is_in_body(config, exchange))
}

fn is_in_body(config: &Config, exchange: &Exchange) -> bool {
    let is_set = |body: Json| {
        body.get(&config.logout_post_arg)
            .is_some_and(|value| !matches!(value, Json::Null | Json::Bool(false)))
    };
    config.read_body_for_logout && body_arguments::body(exchange).is_ok_and(is_set)
}
