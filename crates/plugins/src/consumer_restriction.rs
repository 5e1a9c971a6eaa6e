//! Allows or denies requests by their consumer, its group, the route or the service. Like APISIX's plugin of this name.
//!
//! ```yaml
//! plugins:
//!   - name: consumer-restriction
//!     route: reports
//!     config:
//!       whitelist: [alice, bob]
//! ```
//!
//! `type` says what the lists name: consumers by username, consumer groups, routes or services. Groups, routes and
//! services of APISIX's objects are named by the ids that they have there, others by their names or ids.
//! `allowed_by_methods` lists users with the methods that each may use. The plugin runs after those that authenticate.
//!
//! ## Responses
//!
//! | status | message | when |
//! |---|---|---|
//! | 401 | `The request is rejected, please check the consumer_name for this request` | the request has no consumer |
//! | `rejected_code` | `The consumer_name is forbidden.`, or `rejected_msg` | it is not allowed |

use crate::shared::variables::{route_id, service_id};
use std::borrow::Cow;
use weir_plugin::{
    AccessEffect, BuildContext, Exchange, FieldError, Flow, Hooks, LocalResponse, Phases, Plugin, Record,
    Uuid,
};

/// Which requests pass.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// What the lists name.
    #[field(default = "consumer_name", one_of = ["consumer_name", "consumer_group_id", "service_id", "route_id"])]
    pub r#type: String,
    /// Those that may pass. All others may not.
    #[field(len_min = 1)]
    pub whitelist: Option<Vec<String>>,
    /// Those that may not pass.
    #[field(len_min = 1)]
    pub blacklist: Option<Vec<String>>,
    /// Users, and the methods that each may use.
    pub allowed_by_methods: Option<Vec<User>>,
    /// The status of refusals.
    #[field(default = 403, between = [200, 599])]
    pub rejected_code: u16,
    /// The message of refusals.
    pub rejected_msg: Option<String>,
}

/// What a user may do.
#[derive(Debug, Clone, Record)]
pub(super) struct User {
    /// The user.
    pub user: String,
    /// The methods that the user may use.
    #[field(len_min = 1)]
    pub methods: Vec<String>,
}

fn violations(config: &Config) -> Vec<FieldError> {
    let Config { whitelist, blacklist, allowed_by_methods, .. } = config;
    if whitelist.is_none() && blacklist.is_none() && allowed_by_methods.is_none() {
        let message = "set `whitelist`, `blacklist` or `allowed_by_methods`";
        return vec![FieldError::new("", message)];
    }
    Vec::new()
}

/// One configured instance.
pub(super) struct ConsumerRestriction {
    config: Config,
    /// The groups of consumers by what the lists call them.
    groups: Vec<(Uuid, String)>,
}

impl Plugin for ConsumerRestriction {
    const NAME: &'static str = "consumer-restriction";
    const PRIORITY: i32 = 960;
    const FOR_CONSUMER_GROUPS: bool = true;
    const EXTENSION: bool = true;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let groups = if config.r#type == "consumer_group_id" { groups(build) } else { Vec::new() };
        Ok(Self { config, groups })
    }
}

/// The consumers that are in a group, and its name.
fn groups(build: &BuildContext<'_>) -> Vec<(Uuid, String)> {
    let document = build.document();
    let members = document.consumer_group_consumers.iter().filter_map(|member| {
        let group = document.consumer_groups.iter().find(|group| group.id == member.consumer_group)?;
        let name = group.name.strip_prefix("apisix:consumer_groups:").unwrap_or(&group.name);
        Some((member.consumer, name.to_owned()))
    });
    let mut members: Vec<_> = members.collect();
    members.sort();
    members
}

impl Hooks for ConsumerRestriction {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        AccessEffect::Predictable
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let kind = &self.config.r#type;
        let names = self.names(exchange);
        if names.is_empty() {
            let message = format!("The request is rejected, please check the {kind} for this request");
            return Flow::Respond(LocalResponse::message(401, &message));
        }
        if self.admits(&names, exchange.request.method_str()) {
            return Flow::Continue;
        }
        let message = self.config.rejected_msg.clone();
        let message = message.unwrap_or_else(|| format!("The {kind} is forbidden."));
        Flow::Respond(LocalResponse::message(self.config.rejected_code, &message))
    }
}

impl ConsumerRestriction {
    /// What the lists would call the request: a consumer may be in several groups.
    fn names<'e>(&'e self, exchange: &'e Exchange) -> Vec<Cow<'e, str>> {
        let consumer = exchange.consumer().map(|consumer| &consumer.entity);
        let name = match self.config.r#type.as_str() {
            "consumer_name" => consumer.and_then(|consumer| consumer.username.as_deref()).map(Cow::Borrowed),
            "consumer_group_id" => {
                return consumer.map_or(Vec::new(), |consumer| self.groups_of(consumer.id));
            }
            "service_id" => service_id(exchange),
            _ => route_id(exchange),
        };
        name.into_iter().collect()
    }

    fn groups_of(&self, consumer: Uuid) -> Vec<Cow<'_, str>> {
        let first = self.groups.partition_point(|(id, _)| *id < consumer);
        let own = self.groups[first..].iter().take_while(|(id, _)| *id == consumer);
        own.map(|(_, name)| Cow::Borrowed(name.as_str())).collect()
    }

    /// Whether one of the names is allowed, and none denied.
    fn admits(&self, names: &[Cow<'_, str>], method: &str) -> bool {
        let Config { whitelist, blacklist, allowed_by_methods, .. } = &self.config;
        let is_named = |listed: &String| names.iter().any(|name| *name == listed.as_str());
        let is_in = |list: &Vec<String>| list.iter().any(is_named);
        if blacklist.as_ref().is_some_and(is_in) {
            return false;
        }
        let may_use =
            |user: &User| is_named(&user.user) && user.methods.iter().any(|allowed| allowed == method);
        let by_method = allowed_by_methods.as_ref().map(|users| users.iter().any(may_use));
        match (whitelist.as_ref().map(is_in), by_method) {
            (None, None) => true,
            (listed, by_method) => listed.unwrap_or(false) || by_method.unwrap_or(false),
        }
    }
}
