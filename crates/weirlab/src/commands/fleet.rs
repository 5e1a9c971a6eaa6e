//! `weirlab fleet`.
use crate::duration;
use crate::fleet::{Plan, measure};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The `weir` to run as the control plane, and as a data plane
    #[arg(long, value_name = "FILE", default_value = "weir")]
    weir: PathBuf,
    /// How many data planes to simulate, all of them in this process
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    data_planes: u32,
    /// How many routes the configuration has
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    routes: u32,
    /// How many consumers with a key each a real data plane gets, beside the routes and as many services
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    consumers: u32,
    /// How many changes are made a second
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,
    /// Of how many busy routes each data plane hands in analytics; 0 for none
    #[arg(long, value_name = "ROUTES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=4_000))]
    analytics: u32,
    /// How long changes are made, and how long the idle control plane is watched
    #[arg(short, long, default_value = "10s", value_parser = duration::some)]
    duration: Duration,
    /// Writes the figures into this file too, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Measures how fast changes reach data planes, and what these cost the control plane.
///
/// # Errors
/// What failed, and how to fix it.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let Args { weir, data_planes, routes, consumers, rate, analytics, duration, json } = args;
    let plan = Plan { weir, data_planes, routes, consumers, rate, analytics, duration };
    let figures = measure(&plan).map_err(|error| error.to_string())?;
    if let Some(file) = json {
        let text = serde_json::to_string_pretty(&figures).map_err(|error| error.to_string())?;
        std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let written = writeln!(io::stdout(), "{figures}");
    match written {
        // A reader such as `head` may have closed the pipe.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot write: {error}")),
        _ => Ok(ExitCode::SUCCESS),
    }
}
