//! `weirlab flame`.
use super::measuring::{self, Common};
use crate::flame::{FlameError, Profile, differential, save, write};
use crate::result::Flame;
use crate::session::{self, Assignment, Entry, Session, Watching};

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// The command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The scenario, such as kong/plain-1.
    pub scenario: String,
    /// Targets, each with a graph of its own; from the second on also with one of the difference to the first.
    #[arg(long, value_delimiter = ',', default_value = "weir")]
    pub targets: Vec<String>,
    /// Versions of Weir to draw instead, such as git:main,git:HEAD.
    #[arg(long, value_delimiter = ',')]
    pub versions: Vec<String>,
    /// http, https, h2 (HTTP/2 over TLS) or h2c (in clear).
    #[arg(long, default_value = "http", value_parser = ["http", "https", "h2", "h2c"])]
    pub scheme: String,
    /// How long each target is watched.
    #[arg(long, default_value = "10s", value_parser = crate::duration::some)]
    pub duration: Duration,
    /// Samples a second.
    #[arg(long, default_value_t = 499)]
    pub frequency: u32,
    /// What all commands that measure have in common.
    #[command(flatten)]
    pub common: Common,
}

/// What is recorded of each target.
#[derive(Clone, Copy, Debug)]
pub struct Recording<'a> {
    /// What graphs say that they are of.
    pub what: &'a str,
    /// What the names of their files have, before the target's; nothing if only one case is drawn.
    pub name: &'a str,
    /// How long each target is watched.
    pub duration: Duration,
    /// Samples a second.
    pub frequency: u32,
}

/// Records and draws each of `labels`. `under_load` starts a target by its label and puts load on it, calls what it is
/// given with the processes of its tree, and ends both.
///
/// # Errors
/// What failed, and how to fix it.
pub fn perform(
    recording: &Recording<'_>,
    labels: &[String],
    folder: &Path,
    mut under_load: impl FnMut(&str, &mut Watching<'_>) -> Result<(), String>,
) -> Result<Vec<Flame>, String> {
    let mut profiles = Vec::new();
    for label in labels {
        under_load(label, &mut |host, pids| {
            let name = format!("flame-{}", file_name(&recording.named(label)));
            let stacks = host
                .stacks(pids, recording.duration, recording.frequency)
                .map_err(|error| error.to_string())?;
            let title = format!("{label}, {}", recording.what);
            let profile = save(&stacks, folder, &name, &title).map_err(|error| error.to_string())?;
            profiles.push((label.clone(), profile));
            Ok(())
        })?;
    }
    draw(recording, &profiles, folder).map_err(|error| error.to_string())
}

impl Recording<'_> {
    fn named(&self, label: &str) -> String {
        if self.name.is_empty() { label.to_owned() } else { format!("{} {label}", self.name) }
    }
}

/// Draws the differences of all profiles to the first, and lists all graphs for the run's data.
///
/// # Errors
/// When a difference cannot be drawn.
pub fn draw(
    recording: &Recording<'_>,
    profiles: &[(String, Profile)],
    folder: &Path,
) -> Result<Vec<Flame>, FlameError> {
    let scenario = recording.what;
    let mut flames = Vec::new();
    for (label, profile) in profiles {
        let file =
            profile.graph.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        flames.push(Flame { file, title: format!("{label}, {scenario}") });
    }
    let Some(((first, before), others)) = profiles.split_first() else { return Ok(flames) };
    for (label, after) in others {
        let title = format!("{label} compared with {first}, {scenario}");
        let file = format!("flame-{}-to-{}.svg", file_name(&recording.named(first)), file_name(label));
        write(&folder.join(&file), &differential(&before.folded, &after.folded, &title)?)?;
        flames.push(Flame { file, title });
    }
    Ok(flames)
}

fn file_name(label: &str) -> String {
    label
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' })
        .collect()
}

/// Puts each target under load and draws what it does.
///
/// # Errors
/// What failed, and how to fix it.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let stop = measuring::interruptible()?;
    let assignment = assignment(&args)?;
    let labels: Vec<String> = assignment.contenders.iter().map(|contender| contender.label.clone()).collect();
    let mut session = Session::open(assignment, 1, &stop).map_err(|error| error.to_string())?;
    let folder = session.folder().to_owned();
    let index = |label: &str| labels.iter().position(|known| known == label).unwrap_or_default();
    let recording =
        Recording { what: &args.scenario, name: "", duration: args.duration, frequency: args.frequency };
    let flames = perform(&recording, &labels, &folder, |label, watch| {
        session.under_load(0, index(label), args.duration, watch)
    })?;
    session.note_flames(flames).map_err(|error| error.to_string())?;
    let (run, folder) = session.close().map_err(|error| error.to_string())?;
    measuring::conclude(&run, &folder, &args.common)?;
    measuring::exit_code(&run)
}

fn assignment(args: &Args) -> Result<Assignment, String> {
    let catalogue = args.common.catalogue()?;
    let targets = if args.versions.is_empty() { args.targets.as_slice() } else { &[] };
    let contenders = args.common.contenders(targets, &args.versions)?;
    let schemes = measuring::schemes(Some(&args.scheme));
    let case = measuring::single(&args.scenario, &schemes, &catalogue)?;
    let all: Vec<usize> = (0..contenders.len()).collect();
    let profile = session::Profile::named("full").ok_or("there is no profile full")?;
    args.common.assignment("flame", contenders, vec![Entry { case, contenders: all }], profile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_become_file_names() {
        assert_eq!(file_name("weir@git:main"), "weir-git-main");
        assert_eq!(file_name("../x"), "..-x");
    }
}
