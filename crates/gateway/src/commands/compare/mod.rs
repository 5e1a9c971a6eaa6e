//! `weir compare`: sends the same requests to two gateways, and groups the differences of their responses by cause.
//!
//! ```text
//! file ─ recorded ─► request ─ exchange ─► two responses ─ difference ─► causes ─ report ─► a page
//!                                                ▲
//!                                              rules
//! ```
mod difference;
mod exchange;
mod recorded;
mod report;
mod rules;
mod summary;

use super::client::client;
use crate::cli::CompareArgs;
use difference::differences;
use exchange::{Gateway, Sender};
use recorded::{Recorded, Request};
use rules::Rules;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use summary::{Outcome, Summary};
use tokio::task::JoinSet;

/// Compares two gateways; fails if they differ.
pub(crate) fn compare(arguments: CompareArgs, output: &mut dyn Write) -> Result<ExitCode, String> {
    if arguments.print_rules {
        return written(output, rules::BUILT_IN).map(|()| ExitCode::SUCCESS);
    }
    let rules = Arc::new(Rules::read(arguments.rules.as_deref())?);
    let (Some(a), Some(b), Some(file)) = (&arguments.a, &arguments.b, &arguments.requests) else {
        return Err("name --a, --b and the file of requests".to_owned());
    };
    let recorded = recorded::read(file)?;
    let sender = Sender {
        a: Gateway::new("--a", a)?,
        b: Gateway::new("--b", b)?,
        timeout: Duration::from_secs(arguments.timeout),
        twice: !arguments.once,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let summary = runtime.block_on(compare_all(&arguments, sender, rules.clone(), recorded))?;
    std::fs::write(&arguments.report, report::page(&summary, &rules, (a, b))).map_err(|error| {
        format!("{}: {error}: name another file with --report", arguments.report.display())
    })?;
    written(output, &report::text(&summary, &arguments.report))?;
    Ok(if summary.is_equal() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn written(output: &mut dyn Write, text: &str) -> Result<(), String> {
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(|error| error.to_string())
}

async fn compare_all(
    arguments: &CompareArgs,
    sender: Sender,
    rules: Arc<Rules>,
    recorded: Recorded,
) -> Result<Summary, String> {
    let sender = Arc::new(sender);
    let client = client(arguments.insecure)?;
    let mut summary = Summary::of_skipped(recorded.skipped);
    let mut in_flight: JoinSet<(Request, Outcome)> = JoinSet::new();
    for mut request in recorded.requests {
        if !arguments.unsafe_methods && !request.is_safe() {
            summary.skip(&format!("{} may change data: add --unsafe-methods to send it", request.method));
            continue;
        }
        request.add_missing(&arguments.headers);
        if in_flight.len() >= usize::from(arguments.connections) {
            summary.add_next(&mut in_flight).await;
        }
        let (sender, client, rules) = (sender.clone(), client.clone(), rules.clone());
        in_flight.spawn(async move {
            let outcome = match sender.send(&client, &request).await {
                Ok(responses) => Outcome::Compared(differences(&responses, &rules)),
                Err(failure) => Outcome::Failed(failure),
            };
            (request, outcome)
        });
    }
    while !in_flight.is_empty() {
        summary.add_next(&mut in_flight).await;
    }
    Ok(summary)
}
