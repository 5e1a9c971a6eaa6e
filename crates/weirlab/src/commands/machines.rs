//! `weirlab run --machines`: the same run on several machines, and one report of all.
use super::join;
use super::measuring::{conclude, exit_code};
use super::run::{Args, measure};
use crate::result::{Run, store};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

/// Stands for this machine, where a hosts file would stand.
const HERE: &str = "here";

/// Where the run of a machine comes from.
enum Source {
    /// It is made on this machine.
    Here,
    /// It is made on the machines of a hosts file.
    Hosts(PathBuf),
    /// It was made before.
    Earlier(Box<Run>),
}

/// A machine and its source, as `NAME=SOURCE`.
///
/// # Errors
/// When it is not of this form.
pub(super) fn named(text: &str) -> Result<(String, PathBuf), String> {
    join::named(text).map_err(|_| {
        "write NAME=HOSTS.toml, NAME=output/RUN for a run that was made before, or NAME=here. Builds and versions are \
         no machines: compare them in one run, by --versions git:main,git:HEAD or --targets weir,nginx@PATH"
            .to_owned()
    })
}

fn source(name: &str, path: &Path) -> Result<Source, String> {
    if path == Path::new(HERE) {
        return Ok(Source::Here);
    }
    if path.is_dir() {
        return match store::read(path) {
            Ok(run) => Ok(Source::Earlier(Box::new(run))),
            Err(error) => Err(format!("--machines {name}={}: {error}", path.display())),
        };
    }
    if path.is_file() {
        return Ok(Source::Hosts(path.to_owned()));
    }
    Err(format!(
        "--machines {name}={}: there is neither a hosts file nor the folder of a run; name one of them, or {HERE} for \
         this machine",
        path.display()
    ))
}

/// Makes a run on each machine that has none yet, and one report of all.
///
/// # Errors
/// When a machine, its run or the prices are wrong, which is found out before anything is measured; or when a run fails.
pub(super) fn run(args: &Args, stop: &AtomicBool) -> Result<ExitCode, String> {
    let names: Vec<&str> = args.machines.iter().map(|(name, _)| name.as_str()).collect();
    join::check_names(&names)?;
    join::prices(args.prices.as_deref(), &names)?;
    let sources: Vec<(&str, Source)> = args
        .machines
        .iter()
        .map(|(name, path)| Ok((name.as_str(), source(name, path)?)))
        .collect::<Result<_, String>>()?;
    if sources.iter().all(|(_, source)| matches!(source, Source::Earlier(_))) {
        let fix = "join them by weirlab join NAME=output/RUN …";
        return Err(format!("--machines: all of these are runs that were made before; {fix}"));
    }
    let mut runs = Vec::new();
    for (name, source) in sources {
        let hosts = match source {
            Source::Earlier(run) => {
                runs.push((name.to_owned(), *run));
                continue;
            }
            Source::Here => None,
            Source::Hosts(file) => Some(file),
        };
        let mut args = args.clone();
        args.common.hosts = hosts;
        let (run, folder) = measure(&args, stop)?;
        conclude(&run, &folder, &args.common)?;
        if run.interrupted {
            return exit_code(&run);
        }
        runs.push((name.to_owned(), run));
    }
    // The newest is of this command, so that no report of before is overwritten.
    let newest = runs.iter().map(|(_, run)| run.id.as_str()).max().unwrap_or_default();
    let out = args.common.out.join(format!("{newest}-machines"));
    join::report(&runs, args.prices.as_deref(), &out)?;
    exit_code(&runs[0].1)
}
