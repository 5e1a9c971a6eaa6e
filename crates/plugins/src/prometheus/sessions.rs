//! The counts of stream sessions, under Kong's names.

use super::exposition::{Labels, Text, Totals, UPSTREAM_BOUNDS};

/// The index of the durations of sessions in a series.
const DURATIONS: usize = 1;

pub(super) fn write(text: &mut Text, totals: &Totals) {
    if totals.0.values().any(|total| !total.requests.is_empty()) {
        let help = "Sessions of streams by service, route and status";
        text.metric("kong_stream_sessions_total", "counter", help);
    }
    for (Labels { service, route, .. }, total) in &totals.0 {
        for ((code, source), count) in &total.requests {
            text.line(format_args!(
                "kong_stream_sessions_total{{service=\"{service}\",route=\"{route}\",code=\"{code}\",\
                 source=\"{source}\",workspace=\"default\"}} {count}"
            ));
        }
    }
    if totals.0.values().any(|total| total.latencies.is_some()) {
        let help = "Milliseconds from a session's begin to its end";
        text.metric("kong_session_duration_ms", "histogram", help);
    }
    for (Labels { service, route, .. }, total) in &totals.0 {
        if let Some(latencies) = &total.latencies {
            let labels = format!("service=\"{service}\",route=\"{route}\",workspace=\"default\"");
            let bounds = (&UPSTREAM_BOUNDS[..], 1_000);
            text.histogram("kong_session_duration_ms", &labels, bounds, &latencies[DURATIONS]);
        }
    }
}
