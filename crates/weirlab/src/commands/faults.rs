//! `weirlab faults`.
use crate::catalogue::root;
use crate::duration;
use crate::faults::{
    During, FaultError, Gateway, Options, Outcome, Scenario, find, markdown, run as run_one, table,
};
use crate::host::guard::Guard;
use crate::interrupt;
use crate::target;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The gateway whose promises decide the exit status.
const WEIR: &str = "weir";

/// The command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Scenarios below scenarios/faults; * stands for any characters. All of them, if none is named.
    scenarios: Vec<String>,
    /// The gateways to put them before. All that have a faults.toml and are installed, if none is named.
    #[arg(long, value_delimiter = ',')]
    targets: Vec<String>,
    /// The `weir` to put them before; else target/release/weir or the one beside targets/, else the one on the PATH.
    #[arg(long)]
    weir: Option<PathBuf>,
    /// Only scenarios that take few seconds.
    #[arg(long)]
    quick: bool,
    /// What also happens to the gateway itself in the middle of each fault.
    #[arg(long, value_enum)]
    during: Option<During>,
    /// How often each scenario is run.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
    /// How long a client waits for the end of a request before it counts as hung.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = duration::some)]
    patience: Duration,
    /// How to write the outcome.
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// The folder that holds scenarios/ and targets/; else the nearest above the working directory or the program.
    #[arg(long, value_name = "DIR")]
    catalogue: Option<PathBuf>,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq)]
enum Format {
    /// For a terminal, with what was lost below.
    Table,
    /// A table in Markdown.
    #[value(alias = "md")]
    Markdown,
    /// All counts.
    Json,
}

/// Does it.
///
/// # Errors
/// What failed, and how to fix it.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let stop = interrupt::flag().map_err(|error| format!("signals cannot be caught: {error}"))?;
    let root = root(args.catalogue.as_deref()).map_err(|error| error.to_string())?;
    let mut scenarios = find(&args.scenarios, &root).map_err(|error| error.to_string())?;
    scenarios.retain(|scenario| scenario.quick || !args.quick);
    let (gateways, asks_weir) = gateways(&args.targets, args.weir.as_deref(), &root)?;
    let weirlab = std::env::current_exe().map_err(|error| format!("the program's path: {error}"))?;
    let options = Options { weirlab, patience: args.patience, during: args.during };
    let folder = tempfile::tempdir().map_err(|error| format!("a working folder: {error}"))?;
    let _guard =
        Guard::start(&options.weirlab, folder.path(), "process").map_err(|error| error.to_string())?;
    let (mut outcomes, mut has_run) = (Vec::new(), true);
    for scenario in &scenarios {
        for gateway in &gateways {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let has = repeat(args.times, scenario, gateway, &options, folder.path(), &mut outcomes);
            has_run &= has || gateway.name() != WEIR;
        }
    }
    print(&written(args.format, &outcomes)?);
    let is_whole = is_whole(asks_weir, &outcomes, stop.load(Ordering::Relaxed));
    let holds = outcomes.iter().filter(|outcome| outcome.target == WEIR).all(Outcome::holds);
    Ok(if holds && has_run && is_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether there is what the exit status is about.
fn is_whole(asks_weir: bool, outcomes: &[Outcome], is_interrupted: bool) -> bool {
    if is_interrupted {
        note("interrupted: the scenarios that remained were not run");
        return false;
    }
    let is_missing = asks_weir && !outcomes.iter().any(|outcome| outcome.target == WEIR);
    if is_missing {
        note("no scenario was run before weir: nothing says whether it keeps its promises");
    }
    !is_missing
}

/// Those that can take part, and whether Weir was asked for.
fn gateways(names: &[String], weir: Option<&Path>, root: &Path) -> Result<(Vec<Gateway>, bool), String> {
    let mut targets = target::find(names, root).map_err(|error| error.to_string())?;
    if names.is_empty() {
        targets.sort_by_key(|target| target.name != WEIR);
    }
    let mut gateways = Vec::new();
    for target in &targets {
        let given = weir.filter(|_| target.name == WEIR);
        match Gateway::of(target, given) {
            // A program that was named is not left out.
            Err(error) if given.is_some() => return Err(error.to_string()),
            Ok(Some(gateway)) => gateways.push(gateway),
            Ok(None) if names.is_empty() => {}
            Ok(None) => note(&format!("{}: has no faults.toml, and takes no part", target.name)),
            Err(error) => note(&format!("{}: takes no part: {error}", target.name)),
        }
    }
    Ok((gateways, targets.iter().any(|target| target.name == WEIR)))
}

/// Whether it could be run, if the gateway and the machine have what it takes.
fn repeat(
    times: u32,
    scenario: &Scenario,
    gateway: &Gateway,
    options: &Options,
    folder: &Path,
    outcomes: &mut Vec<Outcome>,
) -> bool {
    let refused = || options.during.and_then(|during| during.is_refused_by(scenario)).map(str::to_owned);
    if let Some(lack) = gateway.lacks(scenario, options.during).or_else(refused) {
        note(&format!("{} before {}: {lack}", scenario.name, gateway.name()));
        return true;
    }
    let mut has_run = true;
    for number in 0..times {
        let folder = folder.join(format!("{}-{}-{number}", scenario.name.replace('/', "-"), gateway.name()));
        match run_one(scenario, gateway, options, &folder) {
            Ok(outcome) => {
                note(&format!("{} before {}: {}", scenario.name, gateway.name(), summary(&outcome)));
                outcomes.push(outcome);
            }
            Err(error) => {
                has_run = false;
                note(&failed(scenario, gateway, &error));
            }
        }
    }
    has_run
}

fn failed(scenario: &Scenario, gateway: &Gateway, error: &FaultError) -> String {
    format!("{} before {} could not be run: {error}", scenario.name, gateway.name())
}

fn summary(outcome: &Outcome) -> String {
    let counts = format!("{} sent, {} right, {} lost", outcome.sent, outcome.right, outcome.lost);
    let writes = outcome.writes.map(|writes| {
        format!("{} writes acknowledged, {} failed, {} lost", writes.acknowledged, writes.failed, writes.lost)
    });
    let details = outcome.details.iter().map(|(what, count)| format!("{count} × {what}"));
    std::iter::once(counts).chain(writes).chain(details).collect::<Vec<_>>().join("; ")
}

fn written(format: Format, outcomes: &[Outcome]) -> Result<String, String> {
    match format {
        Format::Table => Ok(table(outcomes) + "\n"),
        Format::Markdown => Ok(markdown(outcomes) + "\n"),
        Format::Json => {
            serde_json::to_string_pretty(outcomes).map(|text| text + "\n").map_err(|error| error.to_string())
        }
    }
}

fn print(text: &str) {
    // A reader such as `head` may have closed the pipe.
    let _ = io::stdout().write_all(text.as_bytes());
}

fn note(text: &str) {
    // What cannot be said changes nothing.
    let _ = writeln!(io::stderr(), "{text}");
}
