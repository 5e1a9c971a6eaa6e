//! A gateway without sockets, and the requests that it is asked.

use crate::traffic::Traffic;
use std::fmt::{self, Write};
use std::rc::Rc;
use std::sync::Arc;
use weir_model::{Document, Format};
use weir_plugins::PLUGINS;
use weir_proxy::in_memory::InMemory;
use weir_proxy::{Compiler, Options, Retained};

/// A configuration, and who asks.
#[derive(Clone)]
pub(crate) struct Gateway {
    /// One alone takes every path.
    pub(crate) routes: usize,
    /// How many paths are asked for.
    pub(crate) paths: usize,
    pub(crate) consumers: usize,
    pub(crate) traffic: Traffic,
    /// As a declarative file lists them.
    pub(crate) plugins: Vec<String>,
}

/// What all gateways share.
pub(crate) struct Shared {
    pub(crate) retained: Arc<Retained>,
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self { retained: Arc::default() }
    }
}

/// A gateway that serves.
pub(crate) struct Prepared {
    engine: InMemory,
    requests: Rc<[Vec<u8>]>,
}

impl Prepared {
    pub(crate) fn serve(&self, count: usize) {
        assert_eq!(self.engine.serve(&self.requests, count), count, "every request is answered 200");
    }
}

impl fmt::Display for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.plugins.iter().filter_map(|plugin| plugin.split([':', ',', '}', '\n']).nth(1));
        let names: Vec<_> = names.map(str::trim).collect();
        let names = if names.is_empty() { "no plugin".to_owned() } else { names.join(", ") };
        write!(f, "{names}, {}", self.traffic.name())
    }
}

impl Gateway {
    pub(crate) fn prepare(&self, shared: &Shared) -> Prepared {
        let issued = self.traffic.login().map(|login| {
            let issuer = Gateway { plugins: self.traffic.issuers(), ..self.clone() };
            let response = issuer.engine(shared, Options::default()).ask(login);
            String::from_utf8(response).expect("a response in text")
        });
        let sampling = std::env::var("COST_SAMPLING").ok().and_then(|sampling| sampling.parse().ok());
        let cost_sampling = sampling.unwrap_or(Options::default().cost_sampling);
        let engine = self.engine(shared, Options { cost_sampling, ..Options::default() });
        let requests =
            self.traffic.requests(self.paths, self.consumers, issued.as_deref().unwrap_or_default());
        Prepared { engine, requests }
    }

    fn engine(&self, shared: &Shared, options: Options) -> InMemory {
        let schemas: Vec<_> = PLUGINS.iter().map(|plugin| plugin.schema).collect();
        let read = Document::read(&self.configuration(), Format::Yaml, &schemas, &|_| None);
        let document = read.unwrap_or_else(|problems| panic!("{problems:?}")).document;
        let compiler = Compiler {
            workers: 1,
            default_certificate: weir_net::tls::default_certificate(None).expect("a certificate"),
            client_certificate: None,
            trusted_certificates: Vec::new(),
            upstream_verification: Default::default(),
            log_tls_verify: true,
            router_flavor: weir_router::Flavor::default(),
            plugins: PLUGINS,
            retained: shared.retained.clone(),
        };
        let snapshot = compiler.compile(&document).unwrap_or_else(|errors| panic!("{errors:?}"));
        InMemory::new(options, snapshot).expect("an engine")
    }

    fn configuration(&self) -> String {
        let mut yaml = String::from(
            "_format_version: \"3.0\"\nservices:\n- name: upstream\n  url: http://127.0.0.1:9\n  routes:\n",
        );
        let path = |route| if self.routes > 1 { format!("/p{route}/") } else { "/".to_owned() };
        for route in 0..self.routes {
            let _ = writeln!(yaml, "  - {{name: r{route}, paths: [{}]}}", path(route));
        }
        yaml.push_str("plugins:\n");
        self.plugins.iter().for_each(|plugin| yaml.push_str(plugin));
        yaml.push_str("consumers:\n");
        for consumer in 0..self.consumers {
            let _ = writeln!(
                yaml,
                "- username: c{consumer}\n  acls: [{{group: readers}}, {{group: group-{consumer}}}]"
            );
            yaml.push_str(&self.traffic.credentials(consumer));
        }
        yaml
    }
}
