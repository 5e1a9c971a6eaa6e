//! `weirlab report`.
use super::measuring::write_remotely;
use crate::analysis::Analysis;
use crate::report::format::{self, Format};
use crate::report::write;
use crate::result::store;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where Kong's published figures lie in a checkout.
const PUBLISHED: &str = "scenarios/kong/published.csv";

/// The command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The folder of a run, such as output/2026-11-22T10-00-00Z.
    folder: PathBuf,
    /// Kong's published figures, to be put beside ours [default: scenarios/kong/published.csv, where it is].
    #[arg(long, value_name = "FILE")]
    published: Option<PathBuf>,
    /// Print the figures, too: text, csv, json, markdown or wrk.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Write each figure of each block to a Prometheus, such as http://localhost:9090/api/v1/write.
    #[arg(long, value_name = "URL")]
    remote_write: Option<String>,
}

/// Writes the report of a run again from its data, and says where it is or prints the figures.
///
/// # Errors
/// What failed, and how to fix it.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let run = store::read(&args.folder).map_err(|error| error.to_string())?;
    let published = published(args.published.as_deref())?;
    let folder = if args.folder.is_dir() {
        args.folder.as_path()
    } else {
        args.folder.parent().unwrap_or(Path::new("."))
    };
    let page = write(&run, folder, published.as_deref()).map_err(|error| error.to_string())?;
    let said = match args.format {
        None => page.display().to_string(),
        Some(format) => {
            format::print(&run, &Analysis::of(&run), format).map_err(|error| error.to_string())?
        }
    };
    writeln!(io::stdout(), "{}", said.trim_end()).map_err(|error| error.to_string())?;
    args.remote_write.as_deref().map_or(Ok(()), |url| write_remotely(&run, url))?;
    Ok(ExitCode::SUCCESS)
}

fn published(file: Option<&Path>) -> Result<Option<String>, String> {
    let path = file.unwrap_or(Path::new(PUBLISHED));
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(_) if file.is_none() => Ok(None),
        Err(error) => {
            Err(format!("{}: cannot be read: {error}; leave --published out to do without", path.display()))
        }
    }
}
