//! Metrics of the process, under the names of Prometheus' client libraries, and under Kong's if one of them means the
//! same here.

use super::exposition::{Text, escaped};
use crate::proxy_cache;
use std::time::Duration;
use weir_plugin::BodyMemoryUsage;
use weir_plugin::Retained;

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

pub(super) fn write(text: &mut Text, process: &Process, node_id: &str, retained: &Retained) {
    let Process { id: pid, started, cpu, resident_bytes, open_files, most_open_files } = *process;
    let node = format!("node_id=\"{}\"", escaped(node_id));
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
    text.metric("kong_memory_workers_lua_vms_bytes", "gauge", "Memory that the process of all workers holds");
    text.line(format_args!(
        "kong_memory_workers_lua_vms_bytes{{{node},pid=\"{pid}\",kong_subsystem=\"http\"}} {resident_bytes}"
    ));
    write_stores(text, &node, retained);
}

/// Stores of bounded size that all workers share; in Kong they are shared dictionaries.
fn write_stores(text: &mut Text, node: &str, retained: &Retained) {
    let (bytes, most) = proxy_cache::usage(retained)();
    let labels = format!("{node},shared_dict=\"proxy_cache\",kong_subsystem=\"http\"");
    text.metric("kong_memory_lua_shared_dict_bytes", "gauge", "Bytes that a shared store holds");
    text.line(format_args!("kong_memory_lua_shared_dict_bytes{{{labels}}} {bytes}"));
    text.metric("kong_memory_lua_shared_dict_total_bytes", "gauge", "Bytes that a shared store may hold");
    text.line(format_args!("kong_memory_lua_shared_dict_total_bytes{{{labels}}} {most}"));
}
