//! The upstreams whose targets' health is monitored.

use super::compile::Compilation;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use weir_model::Uuid;
use weir_model::entity::Target;
use weir_net::tls::Certificates;
use weir_upstream::health::{MonitoredUpstream, are_used};

/// Those of last time: what has not changed is kept.
#[derive(Default)]
struct LastMonitored(Mutex<HashMap<Uuid, Arc<MonitoredUpstream>>>);

impl Compilation<'_> {
    /// The upstreams of the document that use health checks.
    pub(super) fn watched(&self, certificates: &Certificates) -> Vec<Arc<MonitoredUpstream>> {
        let retained = &*self.compiler.retained;
        let last = retained.get::<LastMonitored>();
        let mut last = last.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut targets = self.targets_to_watch();
        let watched = self.document.upstreams.iter().filter_map(|upstream| {
            let targets = targets.remove(&upstream.id)?;
            let identity = self.identity(upstream.client_certificate, certificates);
            let same =
                last.get(&upstream.id).filter(|last| last.is_of(upstream, &targets, &identity)).cloned();
            let fresh = || {
                let roots = &self.compiler.trusted_certificates;
                Arc::new(MonitoredUpstream::new(upstream, targets, &retained.get(), (roots, identity)))
            };
            Some(same.unwrap_or_else(fresh))
        });
        let watched: Vec<Arc<MonitoredUpstream>> = watched.collect();
        *last = watched.iter().map(|watched| (watched.upstream.id, watched.clone())).collect();
        watched
    }

    /// The targets of those upstreams.
    fn targets_to_watch(&self) -> HashMap<Uuid, Vec<Arc<Target>>> {
        let upstreams = self.document.upstreams.iter().filter(|upstream| are_used(upstream));
        let mut targets: HashMap<_, Vec<_>> = upstreams.map(|upstream| (upstream.id, Vec::new())).collect();
        if !targets.is_empty() {
            for target in &self.document.targets {
                targets.entry(target.upstream).and_modify(|of| of.push(target.clone()));
            }
        }
        targets
    }
}
