//! `weirlab reproduce`: makes a run again from what its folder keeps, and puts both beside each other.
use crate::compare::{Comparison, text};
use crate::manifest;
use crate::result::{Run, TargetManifest, store};
use crate::session::CONFIGURATIONS;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{env, fs};

/// The command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The folder of the run
    run: PathBuf,
    /// Where the new run's folder is made [default: beside the run]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Go on although a program is not the one of the run
    #[arg(long)]
    other_programs: bool,
}

/// Options that the new run gets anew, each with a value.
const REPLACED: [&str; 4] = ["--catalogue", "--out", "--seed", "--weir"];

/// The driver of targets on other hosts.
const ELSEWHERE: &str = "ssh";

/// Does it.
///
/// # Errors
/// What failed, and how to fix it.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let old = store::read(&args.run).map_err(|error| error.to_string())?;
    let folder = args.run.canonicalize().map_err(|error| format!("{}: {error}", args.run.display()))?;
    let kept = folder.join(CONFIGURATIONS);
    if is_private(&old) {
        return Err(format!(
            "{}: the run is of a declarative file of its author's, given with --config, which it did not keep because it \
             may hold secrets; repeat its command with that file: {}",
            folder.display(),
            old.manifest.command.join(" ")
        ));
    }
    if !kept.join("scenarios").is_dir() || !kept.join("targets").is_dir() {
        return Err(format!(
            "{}: the run kept no scenarios and targets, as runs of earlier versions; repeat its command: {}",
            kept.display(),
            old.manifest.command.join(" ")
        ));
    }
    let changed = changed_programs(&old);
    if !changed.is_empty() && !args.other_programs {
        let fix = "install what the run measured, or go on with --other-programs";
        return Err(format!("{}; {fix}", changed.join("; ")));
    }
    let out = args.out.unwrap_or_else(|| folder.parent().unwrap_or(Path::new(".")).to_owned());
    let before = folders(&out);
    let status = again(&old, &kept, &out)?;
    let Some(new) = folders(&out).difference(&before).next().cloned() else {
        return Ok(code(status.code()));
    };
    let new = store::read(&new).map_err(|error| error.to_string())?;
    let comparison = Comparison::of(&relabelled(&old), &new);
    let _ = writeln!(io::stdout(), "\n{}", text::render(&comparison, ""));
    Ok(code(status.code()))
}

/// Whether the run is of a file that was given with `--config`.
fn is_private(old: &Run) -> bool {
    let config = |word: &String| word == "--config" || word.starts_with("--config=");
    old.kind == "waterfall" && old.manifest.command.iter().any(config)
}

/// Runs the command line of the run with its seed, from the scenarios and targets that it kept.
fn again(old: &Run, kept: &Path, out: &Path) -> Result<std::process::ExitStatus, String> {
    let program = env::current_exe().map_err(|error| format!("the path of weirlab: {error}"))?;
    let mut command = Command::new(program);
    command.args(arguments(old)?).arg("--catalogue").arg(kept).arg("--out").arg(out);
    command.arg("--seed").arg(old.seed.to_string());
    command.envs(old.manifest.targets.iter().filter_map(|(label, target)| program_variable(label, target)));
    command.status().map_err(|error| format!("weirlab cannot be started again: {error}"))
}

/// The variable that names a target's program, where the run found it on this machine.
fn program_variable(label: &str, target: &TargetManifest) -> Option<(String, String)> {
    let here = target.commit.is_none() && !target.binary.is_empty() && target.driver != ELSEWHERE;
    let name = label.to_uppercase().replace('-', "_");
    (here && !label.contains('@')).then(|| (format!("WEIRLAB_{name}"), expanded(&target.binary)))
}

/// The words behind the program's name: versions as the commits that they were, targets and scenarios that were named by
/// a path as those that are kept.
fn arguments(old: &Run) -> Result<Vec<String>, String> {
    let pins = pins(old)?;
    let mut words = Vec::new();
    let mut rest = old.manifest.command.iter().skip(1);
    while let Some(word) = rest.next() {
        if word.contains("***") {
            return Err(format!("{word}: the run did not keep this secret; repeat its command yourself"));
        }
        let name = word.split('=').next().unwrap_or_default();
        if REPLACED.contains(&name) {
            if name == word {
                rest.next();
            }
            continue;
        }
        let parts: Vec<String> = word.split(',').map(|part| replaced(part, &pins)).collect();
        words.push(parts.join(","));
    }
    Ok(words)
}

fn replaced(part: &str, pins: &[(String, String)]) -> String {
    let path = part.starts_with(['.', '/', '~']) && Path::new(&expanded(part)).is_dir();
    if path {
        return Path::new(part)
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    }
    let pinned = |(version, commit): &(String, String)| {
        let target = part.strip_suffix(version.as_str())?;
        (target.is_empty() || target.ends_with(['@', '='])).then(|| format!("{target}{commit}"))
    };
    pins.iter().find_map(pinned).unwrap_or_else(|| expanded(part))
}

/// Versions as they were written, and as the commits that they were.
fn pins(old: &Run) -> Result<Vec<(String, String)>, String> {
    let versions = old.manifest.targets.iter().filter_map(|(label, target)| {
        Some((label.trim_end_matches(" (in question)").split_once('@')?.1, target))
    });
    let mut pins: Vec<(String, String)> = Vec::new();
    for (version, TargetManifest { commit, dirty, .. }) in versions {
        if *dirty {
            return Err(format!("{version} had changes that are in no commit; it cannot be built again"));
        }
        pins.extend(commit.as_ref().map(|commit| (version.to_owned(), format!("git:{commit}"))));
    }
    Ok(pins)
}

/// The run with labels as those of the new one.
fn relabelled(old: &Run) -> Run {
    let mut run = old.clone();
    for (version, commit) in pins(old).unwrap_or_default() {
        let renamed = |label: &str| label.replace(&format!("@{version}"), &format!("@{commit}"));
        run.baseline = renamed(&run.baseline);
        for cell in &mut run.cells {
            cell.target = renamed(&cell.target);
        }
        let targets = std::mem::take(&mut run.manifest.targets);
        run.manifest.targets = targets.into_iter().map(|(label, target)| (renamed(&label), target)).collect();
    }
    run
}

/// Programs that are missing or not those that were measured; versions of commits are built again.
fn changed_programs(old: &Run) -> Vec<String> {
    let targets = old.manifest.targets.iter();
    let measured = targets.filter(|(_, target)| target.commit.is_none() && !target.binary.is_empty());
    measured.filter_map(|(label, target)| changed_program(label, target)).collect()
}

fn changed_program(label: &str, target: &TargetManifest) -> Option<String> {
    let path = expanded(&target.binary);
    match target.driver.as_str() {
        ELSEWHERE => {
            return Some(format!(
                "{label}: its program was {path} on another host, where its SHA-256 is not checked; it was {}",
                target.version
            ));
        }
        "process" => {}
        _ => return None,
    }
    match manifest::sha256_of(Path::new(&path)) {
        Ok(hash) if hash == target.sha256 => None,
        Ok(hash) => Some(format!(
            "{label}: {path} is not the program that was measured ({}): SHA-256 {hash}, not {}",
            target.version, target.sha256
        )),
        Err(error) => Some(format!("{label}: {path}: {error}; it was {}", target.version)),
    }
}

/// A path with the home directory, which runs do not keep.
fn expanded(path: &str) -> String {
    match (path.strip_prefix("~/"), env::var("HOME")) {
        (Some(rest), Ok(home)) => format!("{home}/{rest}"),
        _ => path.to_owned(),
    }
}

fn folders(out: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(out).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.join(store::DATA).is_file()).collect()
}

fn code(code: Option<i32>) -> ExitCode {
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_become_commits_and_options_of_the_old_place_are_left_out() {
        let pins = [("git:main".to_owned(), "git:0123".to_owned())];
        assert_eq!(replaced("git:main", &pins), "git:0123");
        assert_eq!(replaced("weir@git:main", &pins), "weir@git:0123");
        assert_eq!(replaced("--versions=git:main", &pins), "--versions=git:0123");
        assert_eq!(replaced("nginx", &pins), "nginx");
    }

    #[test]
    fn a_program_on_another_host_is_not_taken_for_one_here() {
        let own = env::current_exe().unwrap();
        let mut target = TargetManifest {
            driver: "process".to_owned(),
            sha256: manifest::sha256_of(&own).unwrap(),
            binary: own.display().to_string(),
            ..TargetManifest::default()
        };
        assert_eq!(changed_program("api-six", &target), None);
        assert_eq!(program_variable("api-six", &target).unwrap().0, "WEIRLAB_API_SIX");
        target.driver = ELSEWHERE.to_owned();
        assert!(changed_program("api-six", &target).unwrap().contains("on another host"));
        assert_eq!(program_variable("api-six", &target), None);
    }
}
