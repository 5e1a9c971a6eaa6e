//! Retried requests, by upstream.

use super::exposition::{Text, escaped};
use super::facts::UpstreamRetries;

pub(super) fn write(text: &mut Text, counts: &[UpstreamRetries]) {
    if counts.is_empty() {
        return;
    }
    let name = "weir_upstream_retries_total";
    text.metric(
        name,
        "counter",
        "Attempts that repeat a request, by upstream and by why the attempt before failed",
    );
    for of in counts {
        let upstream = escaped(&of.upstream);
        for (reason, count) in &of.retries {
            text.line(format_args!("{name}{{upstream=\"{upstream}\",reason=\"{reason}\"}} {count}"));
        }
    }
    let name = "weir_upstream_retry_budget_exhausted_total";
    text.metric(name, "counter", "Attempts that the retry budget of the upstream did not allow");
    for of in counts {
        text.line(format_args!("{name}{{upstream=\"{}\"}} {}", escaped(&of.upstream), of.exhausted));
    }
}
