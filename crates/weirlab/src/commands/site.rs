//! `weirlab site`.
use crate::result::store;
use crate::site::{self, Reports};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// The command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The runs: their folders or their data.json, in any order
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Where the site is written
    #[arg(long)]
    out: PathBuf,
    /// Add the report of each run
    #[arg(long)]
    reports: bool,
}

/// Writes the site, and says where it is.
///
/// # Errors
/// What failed, and how to fix it.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let runs = args.runs.iter().map(|run| store::read(run)).collect::<Result<_, _>>();
    let reports = if args.reports { Reports::With } else { Reports::Without };
    site::write(runs.map_err(|error| error.to_string())?, reports, &args.out)
        .map_err(|error| error.to_string())?;
    writeln!(io::stdout(), "{}", args.out.join("index.html").display()).map_err(|error| error.to_string())?;
    Ok(ExitCode::SUCCESS)
}
