//! The upstreams whose targets' health is watched.

use super::compile::Compiler;
use crate::upstream::health::{Watched, are_used};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use weir_model::entity::Target;
use weir_model::{Document, Uuid};

/// Those of last time: what has not changed is kept.
#[derive(Default)]
struct LastWatched(Mutex<HashMap<Uuid, Arc<Watched>>>);

/// The upstreams of the document that use health checks.
pub(super) fn watched(compiler: &Compiler, document: &Document) -> Vec<Arc<Watched>> {
    let last = compiler.retained.get::<LastWatched>();
    let mut last = last.0.lock().unwrap_or_else(PoisonError::into_inner);
    let mut targets: HashMap<Uuid, Vec<Arc<Target>>> = HashMap::new();
    let upstreams = document.upstreams.iter().filter(|upstream| are_used(upstream));
    upstreams.for_each(|upstream| drop(targets.insert(upstream.id, Vec::new())));
    if !targets.is_empty() {
        for target in &document.targets {
            targets.entry(target.upstream).and_modify(|of| of.push(target.clone()));
        }
    }
    let watched = document.upstreams.iter().filter_map(|upstream| {
        let targets = targets.remove(&upstream.id)?;
        let same = last.get(&upstream.id).filter(|last| last.is_of(upstream, &targets)).cloned();
        let from = (&*compiler.retained, &*compiler.trusted_certificates);
        Some(same.unwrap_or_else(|| Arc::new(Watched::new(upstream, targets, from))))
    });
    let watched: Vec<Arc<Watched>> = watched.collect();
    *last = watched.iter().map(|watched| (watched.upstream.id, watched.clone())).collect();
    watched
}
