//! A gateway in memory, for tests of the engine.

use crate::exchange::WorkerSnapshot;
use crate::exchange::{Exchange, Sampler};
use crate::snapshot::{Compiler, Snapshot};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use weir_net::tls::{CertifiedKey, default_certificate};
use weir_plugin::Definition;
use weir_plugin::testing::{self, complete, connection, heads};
use weir_plugins::PLUGINS;

pub(crate) use weir_plugin::testing::{entity, id};

/// One configuration and what outlives it.
pub(crate) struct Gateway(testing::Gateway);

impl Gateway {
    /// With the bundled plugins.
    pub(crate) fn new() -> Self {
        Self(testing::Gateway::new(PLUGINS))
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.snapshot_with(PLUGINS)
    }

    /// With other plugins than the bundled ones.
    pub(crate) fn snapshot_with(&self, plugins: &'static [Definition]) -> Snapshot {
        static CERTIFICATE: LazyLock<Arc<CertifiedKey>> =
            LazyLock::new(|| default_certificate(None).unwrap());
        let compiler = Compiler {
            workers: 1,
            default_certificate: CERTIFICATE.clone(),
            client_certificate: None,
            trusted_certificates: Vec::new(),
            upstream_verification: Default::default(),
            log_tls_verify: true,
            router_flavor: weir_router::Flavor::default(),
            plugins,
            retained: self.retained.clone(),
        };
        compiler.compile(&self.document).unwrap()
    }

    /// A request that matched the first route: lines of a head, then, after an empty line, the body.
    pub(crate) fn exchange(&self, request: &str) -> Exchange {
        let snapshot = Rc::new(WorkerSnapshot::apart(Arc::new(self.snapshot())));
        let (heads, body) = heads(request);
        let origin = (0, *b"0123456789abcdef0123456789abcdef");
        let mut exchange = Exchange::new(&Rc::new(connection()), snapshot, origin, heads, Sampler::default());
        complete(&mut exchange, body);
        exchange
    }
}

impl Deref for Gateway {
    type Target = testing::Gateway;

    fn deref(&self) -> &testing::Gateway {
        &self.0
    }
}

impl DerefMut for Gateway {
    fn deref_mut(&mut self) -> &mut testing::Gateway {
        &mut self.0
    }
}
