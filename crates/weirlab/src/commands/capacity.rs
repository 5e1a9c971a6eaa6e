//! `weirlab capacity`.
use super::measuring::{self, Common};
use crate::analysis::Sample;
use crate::capacity::judge;
use crate::capacity::search::{CURVE, Found, Probe, Search, Slo};
use crate::load::Pace;
use crate::result::{Block, Capacity, CapacityPoint};
use crate::session::{Assignment, Entry, Profile, Session};

use std::process::ExitCode;
use std::time::Duration;

/// The command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Scenarios
    #[arg(required = true)]
    pub scenarios: Vec<String>,
    /// The service level to hold: quantiles of the response time, and the share of errors
    #[arg(long, default_value = "p99=5ms")]
    pub slo: String,
    /// Targets
    #[arg(long, value_delimiter = ',', default_value = "weir,nginx")]
    pub targets: Vec<String>,
    /// Versions of Weir to put before the other targets
    #[arg(long, value_delimiter = ',')]
    pub versions: Vec<String>,
    /// `http`, `https`, `h2` or `h2c`
    #[arg(long, default_value = "https", value_parser = ["http", "https", "h2", "h2c"])]
    pub scheme: String,
    /// The measured window of a probe; longer where the quantiles need it
    #[arg(long, default_value = "2s", value_parser = crate::duration::some)]
    pub duration: Duration,
    /// How close to the capacity the answer must be, in per cent
    #[arg(long, default_value = "4")]
    pub tolerance: f64,
    /// What all commands that measure have in common
    #[command(flatten)]
    pub common: Common,
}

/// Searches and draws the curve below what was found.
///
/// # Errors
/// What failed, and how to fix it.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let stop = measuring::interruptible()?;
    let slo = Slo::parse(&args.slo)?;
    let assignment = assignment(&args)?;
    let places: Vec<(usize, usize)> = assignment
        .entries
        .iter()
        .enumerate()
        .flat_map(|(case, entry)| (0..entry.contenders.len()).map(move |target| (case, target)))
        .collect();
    let mut session = Session::open(assignment, 30, &stop).map_err(|error| error.to_string())?;
    for place in places {
        if session.stopped() {
            break;
        }
        if let Some(capacity) = capacity(&mut session, place, &slo, &args) {
            session.note_capacity(capacity).map_err(|error| error.to_string())?;
        }
    }
    let (run, folder) = session.close().map_err(|error| error.to_string())?;
    measuring::conclude(&run, &folder, &args.common)?;
    measuring::exit_code(&run)
}

fn assignment(args: &Args) -> Result<Assignment, String> {
    let catalogue = args.common.catalogue()?;
    let contenders = args.common.contenders(&args.targets, &args.versions)?;
    let all: Vec<usize> = (0..contenders.len()).collect();
    let cases =
        measuring::expand(&args.scenarios, &measuring::schemes(Some(&args.scheme)), "full", &catalogue)?;
    measuring::under_load(cases.iter())?;
    let cases = cases.iter().flat_map(|case| measuring::scaled(case, &args.common.workers));
    let mut profile = Profile::named("full").ok_or("there is no profile full")?;
    profile.measured = args.duration;
    profile.restart = false;
    let entries = cases.map(|case| Entry { case, contenders: all.clone() }).collect();
    args.common.assignment("capacity", contenders, entries, profile)
}

/// The capacity of one cell; none where it cannot be measured.
fn capacity(session: &mut Session<'_>, cell: (usize, usize), slo: &Slo, args: &Args) -> Option<Capacity> {
    let (case, target) = cell;
    let mut points = Vec::new();
    let (closed, _) = session.probe(case, target, Pace::Closed, args.duration)?;
    // Saturation is the highest that any service level could allow; half of it is a safe beginning.
    let start = Sample::of(&closed).rps / 2.0;
    let search = Search { start, tolerance: args.tolerance / 100.0, max_probes: 24 };
    let found: Found = search
        .run(|rate| {
            let window = match judge::window(slo, rate, args.duration) {
                Ok(window) => window,
                Err(why) => return Ok(Probe::Void(why)),
            };
            let (block, layout) = session.probe(case, target, Pace::Poisson(rate), window).ok_or(())?;
            let outcome = judge::judge(slo, &block, &layout);
            session.progress.line(&format!("{rate:.0} requests/s: {outcome}"));
            points.push(point(&block, rate, slo, &outcome, None));
            Ok::<_, ()>(outcome)
        })
        .ok()?;
    points.extend(curve(session, cell, slo, args, found.rate));
    let (name, label, workers) = session.cell_names(case, target);
    Some(Capacity {
        case: name,
        target: label,
        slo: slo.to_string(),
        workers,
        rate: found.rate,
        confirmed: found.confirmed,
        limited_by: found.limited_by,
        points,
    })
}

/// Points below the rate that was found, as far as they can be measured.
fn curve(
    session: &mut Session<'_>,
    (case, target): (usize, usize),
    slo: &Slo,
    args: &Args,
    found: f64,
) -> Vec<CapacityPoint> {
    let mut points = Vec::new();
    for share in CURVE.iter().filter(|_| found > 0.0) {
        let rate = found * share;
        let window = judge::window(slo, rate, args.duration).unwrap_or(args.duration);
        let Some((block, layout)) = session.probe(case, target, Pace::Poisson(rate), window) else { break };
        let outcome = judge::judge(slo, &block, &layout);
        points.push(point(&block, rate, slo, &outcome, Some(*share)));
    }
    points
}

fn point(block: &Block, offered: f64, slo: &Slo, outcome: &Probe, share: Option<f64>) -> CapacityPoint {
    CapacityPoint {
        offered,
        achieved: Sample::of(block).rps,
        share,
        holds: !block.overloaded && judge::holds(slo, block).unwrap_or(false),
        latencies: block.latencies.clone(),
        cpu_us_per_request: Sample::of(block).cpu_us,
        void: match outcome {
            Probe::Void(why) => Some(why.clone()),
            Probe::Holds | Probe::Fails => None,
        },
    }
}
