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
use clap::Args;
use difference::differences;
use exchange::{Gateway, Sender};
use recorded::{Recorded, Request};
use rules::Rules;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use summary::{Outcome, Summary};
use tokio::task::JoinSet;

/// What is compared, and how.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The base URL of the gateway that is the reference, such as Kong's proxy: `http://kong:8000`.
    #[arg(long, value_name = "URL", required_unless_present = "print_rules")]
    a: Option<String>,
    /// The base URL of the other gateway.
    #[arg(long, value_name = "URL", required_unless_present = "print_rules")]
    b: Option<String>,
    /// The requests: a list or an HTTP file (`GET /path`, headers, a body), an access log, records of file-log, or a HAR
    /// file; `-` is the standard input.
    #[arg(required_unless_present = "print_rules")]
    requests: Option<PathBuf>,
    /// Rules of what is not compared, in TOML; they come before the built-in ones.
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Print the built-in rules.
    #[arg(long)]
    print_rules: bool,
    /// Where to write the HTML page.
    #[arg(long, value_name = "FILE", default_value = "compare.html")]
    report: PathBuf,
    /// A header that each request gets unless it has one of that name, as `name: value`; may be given several times.
    #[arg(short = 'H', long = "header", value_name = "NAME:VALUE", value_parser = crate::cli::name_and_value)]
    headers: Vec<(String, String)>,
    /// Send requests of all methods. Without it, only those of GET, HEAD and OPTIONS are sent, because others may change data.
    #[arg(long)]
    unsafe_methods: bool,
    /// Do not send safe requests to `a` twice. The second response shows what varies by itself, which is not compared.
    #[arg(long)]
    once: bool,
    /// How many requests are under way at a time.
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    connections: u16,
    /// How long a response may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    timeout: u64,
    /// Do not verify certificates.
    #[arg(short = 'k', long)]
    insecure: bool,
}

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
    let mut under_way: JoinSet<(Request, Outcome)> = JoinSet::new();
    for mut request in recorded.requests {
        if !arguments.unsafe_methods && !request.is_safe() {
            summary.skip(&format!("{} may change data: add --unsafe-methods to send it", request.method));
            continue;
        }
        request.add_missing(&arguments.headers);
        if under_way.len() >= usize::from(arguments.connections) {
            summary.add_next(&mut under_way).await;
        }
        let (sender, client, rules) = (sender.clone(), client.clone(), rules.clone());
        under_way.spawn(async move {
            let outcome = match sender.send(&client, &request).await {
                Ok(responses) => Outcome::Compared(differences(&responses, &rules)),
                Err(failure) => Outcome::Failed(failure),
            };
            (request, outcome)
        });
    }
    while !under_way.is_empty() {
        summary.add_next(&mut under_way).await;
    }
    Ok(summary)
}
