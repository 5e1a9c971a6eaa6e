//! What plugins change of how the service is reached, for one request: Kong's `kong.service`.

use super::Exchange;
use std::fmt;
use std::net::Ipv6Addr;

/// How many bytes of a model's name are logged: more than any real one has.
const MAX_MODEL_NAME: usize = 100;

/// What plugins have changed of how the service is reached. What is none stays as it is configured.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServiceOverride {
    /// Where the request goes.
    pub target: Option<ServiceTarget>,
    /// Whether TLS is spoken there.
    pub tls: Option<bool>,
    /// How often the request may be sent again.
    pub retries: Option<u16>,
    /// Milliseconds to connect, between two writes, between two reads.
    pub timeouts: Option<[u32; 3]>,
    /// The language model that is there, as logs name it.
    pub model: Option<Box<str>>,
}

/// Where a plugin sends a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceTarget {
    /// A name, an address, or the name of an upstream.
    pub host: Box<str>,
    /// The port; none where an upstream's targets have their own.
    pub port: Option<u16>,
}

/// Why a request cannot be sent there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetError {
    /// There is no upstream of this name.
    NoUpstream(String),
    /// The text is neither a host name nor an address.
    Host(String),
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Kong's text.
            Self::NoUpstream(name) => write!(f, "could not find an Upstream named '{name}'"),
            Self::Host(host) => write!(f, "'{host}' is neither a host name nor an address"),
        }
    }
}

impl std::error::Error for TargetError {}

impl Exchange {
    /// Sends the request to this host and port in the place of the service's, and asks for this host there, until
    /// [`Exchange::set_upstream_host`] names another. The name of an upstream leads to its targets. For access hooks.
    pub fn set_target(&mut self, host: &str, port: u16) -> Result<(), TargetError> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let is_ipv6 = bare.parse::<Ipv6Addr>().is_ok();
        let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if bare.is_empty() || !(is_ipv6 || bare.bytes().all(is_name_byte)) {
            return Err(TargetError::Host(host.to_owned()));
        }
        let host = if is_ipv6 { format!("[{bare}]") } else { bare.to_owned() };
        self.set_upstream_host(&host);
        self.override_service().target = Some(ServiceTarget { host: host.into(), port: Some(port) });
        Ok(())
    }

    /// Sends the request to the targets of this upstream in the place of the service's host. For access hooks.
    pub fn set_upstream(&mut self, name: &str) -> Result<(), TargetError> {
        if !self.engine.configuration.has_upstream(name) {
            return Err(TargetError::NoUpstream(name.to_owned()));
        }
        self.override_service().target = Some(ServiceTarget { host: name.into(), port: None });
        Ok(())
    }

    /// Has TLS spoken to the upstream, or not, as the service's other fields say. The port stays. For access hooks.
    pub fn set_upstream_tls(&mut self, tls: bool) {
        self.override_service().tls = Some(tls);
    }

    /// How often the request may be sent again, in the place of the service's `retries`. For access hooks.
    pub fn set_retries(&mut self, retries: u16) {
        self.override_service().retries = Some(retries);
    }

    /// Milliseconds to connect, between two writes and between two reads, in the place of the service's timeouts. Zero is
    /// one. For access hooks.
    pub fn set_timeouts(&mut self, connect: u32, write: u32, read: u32) {
        self.override_service().timeouts = Some([connect, write, read].map(|timeout| timeout.max(1)));
    }

    /// Has logs name the language model that the request is sent to. Clients may have chosen the name, so that a long one is cut,
    /// also where [`Exchange::service_override`] has it. For access hooks.
    pub fn set_upstream_model(&mut self, name: &str) {
        let shown = &name[..name.floor_char_boundary(MAX_MODEL_NAME)];
        let model = if shown.len() < name.len() { format!("{shown}…").into() } else { name.into() };
        self.override_service().model = Some(model);
    }

    /// What plugins have changed of how the service is reached.
    pub fn service_override(&self) -> Option<&ServiceOverride> {
        self.engine.extras.as_ref()?.service.as_ref()
    }

    fn override_service(&mut self) -> &mut ServiceOverride {
        self.engine.extras().service.get_or_insert_default()
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Gateway, entity, id};
    use serde_json::json;

    #[test]
    fn a_target_is_a_host_and_sets_the_host_that_is_asked_for() {
        let mut exchange = Gateway::new(&[]).exchange("GET /");
        assert_eq!(exchange.service_override(), None);
        for (host, named) in
            [("a_b.test", "a_b.test"), ("192.0.2.1", "192.0.2.1"), ("::1", "[::1]"), ("[::1]", "[::1]")]
        {
            exchange.set_target(host, 81).unwrap();
            assert_eq!(exchange.upstream_host(), Some(named));
            let target = exchange.service_override().unwrap().target.clone().unwrap();
            assert_eq!((&*target.host, target.port), (named, Some(81)));
        }
        for wrong in ["", "unix:/run/a.sock", "a b", "a/b", "a:80", "a\r\nb", "user@a"] {
            assert!(exchange.set_target(wrong, 80).is_err(), "{wrong}");
        }
        assert_eq!(exchange.upstream_host(), Some("[::1]"));
    }

    #[test]
    fn an_upstream_must_exist() {
        let mut gateway = Gateway::new(&[]);
        gateway.document.upstreams = vec![entity(json!({ "id": id(0x71), "name": "blue" }))];
        let mut exchange = gateway.exchange("GET /");
        let error = exchange.set_upstream("red").unwrap_err();
        assert_eq!(error.to_string(), "could not find an Upstream named 'red'");
        exchange.set_upstream("blue").unwrap();
        exchange.set_retries(3);
        exchange.set_timeouts(0, 2, 3);
        let changed = exchange.service_override().unwrap();
        assert_eq!((changed.retries, changed.timeouts, changed.tls), (Some(3), Some([1, 2, 3]), None));
        assert_eq!(exchange.upstream_host(), None);
    }
    #[test]
    fn a_long_name_of_a_model_is_cut() {
        let mut exchange = Gateway::new(&[]).exchange("GET /");
        let mut logged = |name: &str| {
            exchange.set_upstream_model(name);
            exchange.service_override().unwrap().model.clone().unwrap().into_string()
        };
        assert_eq!(logged("openai/gpt-4o"), "openai/gpt-4o");
        assert_eq!(logged(&"a".repeat(100)), "a".repeat(100));
        assert_eq!(logged(&format!("b{}", "ü".repeat(1000))), format!("b{}…", "ü".repeat(49)));
    }
}
