//! Metrics of the process, under the names of Prometheus' client libraries, and under Kong's if one of them means the
//! same here.

use super::exposition::{Text, escaped};
use super::facts::{NodeFacts, SharedStore};
use crate::proxy_cache;
use std::time::Duration;
use weir_plugin::BodyMemoryUsage;
use weir_plugin::Retained;

/// What the memory for responses that proxy-cache keeps is named.
const PROXY_CACHE: &str = "proxy_cache";

/// The process as the system sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub id: u32,
    /// When it was started, since 1970.
    pub started: Duration,
    /// The CPU time of all threads.
    pub cpu: Duration,
    /// Its resident memory.
    pub resident_bytes: u64,
    /// The number of open file descriptors.
    pub open_files: u64,
    /// The limit of open file descriptors, if there is one.
    pub most_open_files: Option<u64>,
}

/// Bodies that plugins read.
pub(super) fn write_bodies(text: &mut Text, usage: &BodyMemoryUsage) {
    let BodyMemoryUsage { bytes, limit, rejected, skipped } = *usage;
    text.metric("weir_held_body_bytes", "gauge", "Memory that bodies which plugins read take");
    text.line(format_args!("weir_held_body_bytes {bytes}"));
    if let Some(limit) = limit {
        text.metric("weir_held_body_max_bytes", "gauge", "Memory that bodies which plugins read may take");
        text.line(format_args!("weir_held_body_max_bytes {limit}"));
    }
    let name = "weir_held_body_shortages_total";
    text.metric(name, "counter", "Bodies that there was no memory for, by what became of their requests");
    text.line(format_args!("{name}{{effect=\"refused\"}} {rejected}"));
    text.line(format_args!("{name}{{effect=\"passed\"}} {skipped}"));
}

pub(super) fn write(text: &mut Text, facts: &NodeFacts<'_>, retained: &Retained) {
    let Process { id: pid, started, cpu, resident_bytes, open_files, most_open_files } = facts.process;
    let node = format!("node_id=\"{}\"", escaped(facts.node_id));
    text.metric("process_cpu_seconds_total", "counter", "CPU time that the process has used");
    text.line(format_args!("process_cpu_seconds_total {}", cpu.as_secs_f64()));
    text.metric("process_resident_memory_bytes", "gauge", "Memory that the process holds");
    text.line(format_args!("process_resident_memory_bytes {resident_bytes}"));
    text.metric("process_open_fds", "gauge", "Files and connections that the process has open");
    text.line(format_args!("process_open_fds {open_files}"));
    if let Some(most) = most_open_files {
        text.metric("process_max_fds", "gauge", "Files and connections that the process may have open");
        text.line(format_args!("process_max_fds {most}"));
    }
    text.metric("process_start_time_seconds", "gauge", "When the process was started, since 1970");
    text.line(format_args!("process_start_time_seconds {}", started.as_secs_f64()));
    let name = "kong_memory_workers_lua_vms_bytes";
    text.metric(name, "gauge", "Memory that the Lua VMs of all workers hold");
    let bytes = facts.lua_vms_bytes;
    text.line(format_args!("{name}{{{node},pid=\"{pid}\",kong_subsystem=\"http\"}} {bytes}"));
    write_stores(text, &node, &stores(facts, retained));
}

/// Stores of bounded size that all workers share: the shared dictionaries of Lua, and proxy-cache, which has one in Kong.
fn stores(facts: &NodeFacts<'_>, retained: &Retained) -> Vec<SharedStore> {
    let (bytes, max_bytes) = proxy_cache::usage(retained)();
    let own = SharedStore { name: PROXY_CACHE.to_owned(), bytes, max_bytes };
    // Each series must be there once.
    let dicts = facts.shared_dicts.iter().filter(|dict| dict.name != PROXY_CACHE);
    [own].into_iter().chain(dicts.cloned()).collect()
}

fn write_stores(text: &mut Text, node: &str, stores: &[SharedStore]) {
    let mut write = |name, help, value: fn(&SharedStore) -> usize| {
        text.metric(name, "gauge", help);
        for store in stores {
            let labels = format!("{node},shared_dict=\"{}\",kong_subsystem=\"http\"", escaped(&store.name));
            text.line(format_args!("{name}{{{labels}}} {}", value(store)));
        }
    };
    write("kong_memory_lua_shared_dict_bytes", "Bytes that a shared store holds", |store| store.bytes);
    write("kong_memory_lua_shared_dict_total_bytes", "Bytes that a shared store may hold", |store| {
        store.max_bytes
    });
}
