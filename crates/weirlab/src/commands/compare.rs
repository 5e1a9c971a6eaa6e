//! `weirlab compare`.
use crate::compare::{Comparison, text};
use crate::result::store;
use clap::ValueEnum;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// The command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The run to compare with: its folder or its data.json.
    old: PathBuf,
    /// The run that is compared.
    new: PathBuf,
    /// How it is written.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// How a comparison is written.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// For the terminal.
    Text,
    /// For programs.
    Json,
    /// For a pull request.
    #[value(alias = "md")]
    Markdown,
}

/// Does it.
///
/// # Errors
/// What failed, and how to fix it.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let read = |path| store::read(path).map_err(|error| error.to_string());
    let comparison = Comparison::of(&read(&args.old)?, &read(&args.new)?);
    let written = match args.format {
        Format::Text => text::render(&comparison, ""),
        Format::Markdown => text::render(&comparison, "## "),
        Format::Json => serde_json::to_string_pretty(&comparison).map_err(|error| error.to_string())?,
    };
    match writeln!(io::stdout(), "{written}") {
        // A reader such as `head` may have closed the pipe.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot write: {error}")),
        _ => Ok(ExitCode::SUCCESS),
    }
}
