//! The HTTP client of commands that ask other servers.
use crate::settings::verify_by_system;
use std::sync::Arc;
use weir_net::dialer::{Dialer, NodeResolver};
use weir_net::resolve::{Resolver, ResolverOptions};
use weir_net::tls;
use weir_plugin::HttpClient;

/// The longest response body.
const MAX_BODY_LEN: usize = 64 * 1024 * 1024;

/// A client that trusts the system's authorities, or, if `insecure`, every server.
pub(super) fn client(insecure: bool) -> Result<HttpClient, String> {
    let config =
        tls::client_config((!insecure).then(verify_by_system), None).map_err(|error| error.to_string())?;
    let resolver = Resolver::new(ResolverOptions::default()).map_err(|error| error.to_string())?;
    let node = Arc::new(NodeResolver::default());
    node.provide(&Arc::new(resolver));
    Ok(HttpClient::new(Dialer::new(node).with_tls(Ok(config), "--insecure")).with_max_body_len(MAX_BODY_LEN))
}
