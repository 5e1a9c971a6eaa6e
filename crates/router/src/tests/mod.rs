//! The index against a linear matcher, and against cases kept as data.
mod cases;
mod properties;
mod reference;

use super::{Query, Router, Scheme};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use weir_model::Uuid;
use weir_model::entity::{PathHandling, Protocol, Route};

/// Workers share a router.
const _: () = {
    const fn assert_shared<T: Send + Sync>() {}
    assert_shared::<Router>();
};

/// A route with Kong's defaults and no criteria.
pub(crate) fn route(id: u128) -> Route {
    Route {
        id: Uuid::from_u128(id),
        name: None,
        protocols: vec![Protocol::Http, Protocol::Https],
        https_redirect_status_code: 426,
        strip_path: true,
        preserve_host: false,
        request_buffering: true,
        response_buffering: true,
        regex_priority: 0,
        path_handling: PathHandling::V0,
        methods: None,
        hosts: None,
        paths: None,
        headers: None,
        snis: None,
        sources: None,
        destinations: None,
        expression: None,
        priority: 0,
        vars: None,
        tags: None,
        service: None,
        created_at: None,
        updated_at: None,
    }
}

/// A request, owned.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) https: bool,
    pub(crate) sni: Option<String>,
    pub(crate) query: String,
    pub(crate) source: SocketAddr,
    pub(crate) destination: IpAddr,
    pub(crate) port: u16,
    pub(crate) headers: BTreeMap<String, Vec<String>>,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            method: "GET".into(),
            host: "example.com".into(),
            path: "/".into(),
            https: false,
            sni: None,
            query: String::new(),
            source: ([192, 0, 2, 1], 40_000).into(),
            destination: [192, 0, 2, 2].into(),
            port: 8000,
            headers: BTreeMap::new(),
        }
    }
}

impl Request {
    /// Calls `f` with the query for this request.
    pub(crate) fn query<T>(&self, f: impl FnOnce(&Query<'_>) -> T) -> T {
        let header = |name: &str, test: &mut dyn FnMut(&[u8]) -> bool| {
            self.headers.get(name).into_iter().flatten().any(|value| test(value.as_bytes()))
        };
        f(&Query {
            method: &self.method,
            host: &self.host,
            path: &self.path,
            scheme: if self.https { Scheme::Https } else { Scheme::Http },
            sni: self.sni.as_deref(),
            query: &self.query,
            source: self.source,
            destination: self.destination,
            dst_port: self.port,
            header: &header,
        })
    }
}
