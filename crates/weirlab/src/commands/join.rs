//! `weirlab join`.
use crate::join::prices::Prices;
use crate::join::{self, Join};
use crate::result::{Run, store};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Runs by the names of their machines, such as c7g=output/RUN; the first is what rates are compared with
    #[arg(required = true, num_args = 2.., value_name = "NAME=RUN", value_parser = named)]
    runs: Vec<(String, PathBuf)>,
    /// What each machine costs for an hour: adds the cost of a million requests
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Where the page is written
    #[arg(long)]
    out: PathBuf,
}

/// Writes the joined report, and prints its figures.
///
/// # Errors
/// What failed, and how to fix it.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let read =
        |(name, path): (String, PathBuf)| Ok((name, store::read(&path).map_err(|error| error.to_string())?));
    let runs = args.runs.into_iter().map(read).collect::<Result<Vec<_>, String>>()?;
    report(&runs, args.prices.as_deref(), &args.out)?;
    Ok(ExitCode::SUCCESS)
}

/// A name and a path, as `NAME=PATH`.
///
/// # Errors
/// When it is not of this form.
pub(super) fn named(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok((name.to_owned(), path.into())),
        _ => Err("write it as NAME=PATH, such as c7g=output/RUN".to_owned()),
    }
}

/// The prices of these machines, if a file was given.
///
/// # Errors
/// When the file cannot be read, or lacks one.
pub(super) fn prices(file: Option<&Path>, machines: &[&str]) -> Result<Option<Prices>, String> {
    file.map(|file| Prices::read(file, machines)).transpose().map_err(|error| error.to_string())
}

/// Writes the joined report of runs, and prints its figures.
///
/// # Errors
/// When two have one name, prices are missing, or it cannot be written.
pub(super) fn report(runs: &[(String, Run)], file: Option<&Path>, out: &Path) -> Result<(), String> {
    let names: Vec<&str> = runs.iter().map(|(name, _)| name.as_str()).collect();
    check_names(&names)?;
    let join = Join::of(runs, prices(file, &names)?.as_ref());
    join::write(&join, out).map_err(|error| error.to_string())?;
    let mut stdout = io::stdout().lock();
    // A reader such as `head` may have closed the pipe.
    let _ = writeln!(stdout, "{}\n\n{}", join::text::render(&join), out.join("index.html").display());
    Ok(())
}

/// Each machine has a name of its own.
///
/// # Errors
/// When two have the same.
pub(super) fn check_names(names: &[&str]) -> Result<(), String> {
    let twice = names.iter().enumerate().find(|(index, name)| names[..*index].contains(name));
    match twice {
        Some((_, name)) => Err(format!("{name} is the name of two machines: give each its own")),
        None => Ok(()),
    }
}
