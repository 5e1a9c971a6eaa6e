//! What plugins do on threads that serve no requests.

use crate::gateway::Shared;
use crate::sinks;
use std::fs;
use std::sync::Arc;
use std::time::Duration;
use weir_model::Document;
use weir_plugin as plugin;
use weir_plugins::prometheus::{Connections, NodeFacts, Process, exposition};
use weir_proxy::Retained;

/// The threads beside the one that serves, and what they have left undone.
pub(crate) struct Background {
    retained: Arc<Retained>,
    plugins: Arc<plugin::Background>,
}

impl Background {
    pub(crate) fn new(shared: &Shared) -> Self {
        Self { retained: shared.retained.clone(), plugins: shared.retained.get() }
    }

    /// The nanoseconds of CPU that they have taken so far, without those who play servers.
    pub(crate) fn spent(&self) -> f64 {
        let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let own = std::process::id().to_string();
        let others = tasks.filter(|task| *task.file_name() != *own).filter_map(|task| {
            let name = fs::read_to_string(task.path().join("comm")).ok()?;
            let spent = fs::read_to_string(task.path().join("schedstat")).ok()?;
            (name.trim_end() != sinks::THREAD).then_some(spent)
        });
        others.filter_map(|spent| spent.split(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// Waits until everything is delivered.
    pub(crate) fn finish(&self) {
        assert!(self.plugins.finish(Duration::from_secs(30)), "what plugins deliver does not get there");
    }

    /// The metrics of entries that were not delivered.
    pub(crate) fn dropped(&self) -> Vec<String> {
        let text = exposition(
            &self.retained,
            &NodeFacts {
                node_id: "",
                version: "",
                process: Process::default(),
                costs: &[],
                retries: &[],
                limits: &[],
                upstream_loads: &[],
                ejected_targets: &[],
                worker_cpu: Duration::ZERO,
                body_memory_usage: plugin::BodyMemoryUsage::default(),
                connections: Connections::default(),
                streams: None,
                total_requests: 0,
                http2_requests: 0,
                http3_requests: 0,
                datastore_reachable: true,
                document: &Document::default(),
                lost_log_lines: [("proxy_access_log", 0), ("proxy_stream_access_log", 0)],
                targets: &[],
                lua_vms_bytes: 0,
                shared_dicts: &[],
            },
        );
        let counts = text.lines().filter(|line| line.starts_with("weir_plugin_dropped_total{"));
        // Without a listener at /dev/log, syslog drops everything, at the same cost.
        let counts = counts.filter(|line| !line.ends_with(" 0") && !line.contains("\"syslog\""));
        counts.map(str::to_owned).collect()
    }
}
