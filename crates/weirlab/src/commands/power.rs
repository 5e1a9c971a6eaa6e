//! `weirlab power`.
use crate::power::{PAIRS, noise, power};
use crate::result::store;
use crate::stats;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// The command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Runs that measured an A/A control, each by its folder or its data.json
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// The effect, in CPU time per request
    #[arg(long, default_value = "5%", value_parser = super::gate::percentage)]
    effect: f64,
}

/// Says how many pairs of blocks an effect takes to show.
///
/// # Errors
/// What failed, and how to fix it.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let mut recorded = Vec::new();
    for path in &args.runs {
        recorded.extend(noise(&store::read(path).map_err(|error| error.to_string())?));
    }
    let spread = stats::deviation(&recorded)
        .ok_or("no pair of blocks of an A/A control counts; name runs without --no-control")?;
    let mut text = format!(
        "{} pairs of an A/A control scatter by {:.1} %.\nA difference of {} % would show in\n",
        recorded.len(),
        spread * 100.0,
        args.effect * 100.0,
    );
    for pairs in PAIRS {
        let share = power(&recorded, args.effect, pairs, 1) * 100.0;
        text.push_str(&format!("{share:>5.0} % of measurements with {pairs} pairs\n"));
    }
    match io::stdout().write_all(text.as_bytes()) {
        // A reader such as `head` may have closed the pipe.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot write: {error}")),
        _ => Ok(ExitCode::SUCCESS),
    }
}
