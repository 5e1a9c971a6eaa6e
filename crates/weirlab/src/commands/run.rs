//! `weirlab run`.
use super::flame::{self, Recording};
use super::machines;
use super::measuring::{
    self, Common, conclude, exit_code, expand, interruptible, scaled, schemes, under_load,
};
use crate::generator::{Generator, Kind, Script};
use crate::load::Pace;
use crate::result::Run;
use crate::scenario::{CasePlan, Given, Suite};
use crate::session::{Assignment, Contender, Entry, Profile, Session, contenders};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The command line.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Scenarios: folders, or names below `scenarios/` such as `kong/plain-1` or `kong`
    pub scenarios: Vec<String>,
    /// A list of scenarios and targets below `suites/`, such as `bench`
    #[arg(long, conflicts_with = "scenarios")]
    pub suite: Option<String>,
    /// A parameter of the suite, instead of its own value: `NAME=VALUE`, or `NAME=VALUE,VALUE` to repeat runs; may be
    /// repeated
    #[arg(long = "parameter", value_name = "NAME=VALUES")]
    pub parameters: Vec<Given>,
    /// Targets, the baseline first; `name@version` for a version of one [default: weir,nginx, or none beside versions]
    #[arg(long, value_delimiter = ',', conflicts_with = "suite")]
    pub targets: Vec<String>,
    /// Versions of Weir to put before the other targets: `git:main`, a tag, `worktree`, a path to a binary
    #[arg(long, value_delimiter = ',')]
    pub versions: Vec<String>,
    /// http, https, or both, h2 (HTTP/2 over TLS) or h2c (in clear); of each scenario those that it offers [default: what
    /// the scenario prefers, mostly https]
    #[arg(long, value_parser = ["http", "https", "both", "h2", "h2c"], conflicts_with = "suite")]
    pub scheme: Option<String>,
    /// How long and how often: quick, full or kong
    #[arg(long, default_value = "quick", value_parser = Profile::NAMES)]
    pub profile: String,
    /// Blocks of each cell, instead of the profile's
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// The measured window of a block, such as 2s, instead of the profile's
    #[arg(long, value_parser = crate::duration::some)]
    pub duration: Option<Duration>,
    /// Requests per second, evenly spaced, whatever the answers do, instead of the case's pace: an open loop
    #[arg(long, value_parser = rate, conflicts_with = "suite")]
    pub rate: Option<f64>,
    /// What generates the load: each of them before each target, the first one's before the baseline
    #[arg(long = "generator", value_enum, value_delimiter = ',', default_value = "weirlab")]
    pub generators: Vec<Kind>,
    /// A script that k6 runs as it is, instead of the requests of the case; its hosts become the target
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// Leave out the A/A control: the baseline a second time
    #[arg(long)]
    pub no_control: bool,
    /// Leave targets running between their blocks instead of starting them anew
    #[arg(long)]
    pub keep_running: bool,
    /// Have a Prometheus of this machine scrape targets and generator meanwhile; `weirlab observe` shows what it kept
    #[arg(long)]
    pub observe: bool,
    /// Machines or kernels in one report, such as c7g=c7g.toml,c6i=output/RUN,mine=here: of each, a file of `--hosts` or
    /// `here` to measure on, or the folder of an earlier run. Builds are `--versions`, in one run
    #[arg(long, value_name = "NAME=SOURCE", value_delimiter = ',', value_parser = machines::named, conflicts_with_all = ["hosts", "driver"])]
    pub machines: Vec<(String, PathBuf)>,
    /// What each machine costs for an hour: the joined report has the cost of a million requests
    #[arg(long, value_name = "FILE", requires = "machines")]
    pub prices: Option<PathBuf>,
    /// What all commands that measure have in common
    #[command(flatten)]
    pub common: Common,
}

/// Samples a second of flame graphs.
const FREQUENCY: u32 = 499;

/// Measures, and leaves a run folder.
///
/// # Errors
/// What failed, and how to fix it.
pub fn run(args: Args) -> Result<ExitCode, String> {
    check(&args)?;
    let stop = interruptible()?;
    if !args.machines.is_empty() {
        return machines::run(&args, &stop);
    }
    let (run, folder) = measure(&args, &stop)?;
    conclude(&run, &folder, &args.common)?;
    exit_code(&run)
}

/// Refuses arguments that do not go together, before anything is done.
fn check(args: &Args) -> Result<(), String> {
    if args.scenarios.is_empty() && args.suite.is_none() {
        return Err("name scenarios, such as `weirlab run kong/plain-1`, or a suite, such as `weirlab run --suite bench`; \
                    `weirlab list` shows both"
            .to_owned());
    }
    if !args.parameters.is_empty() && args.suite.is_none() {
        return Err("--parameter is of a suite: name it with --suite, or leave --parameter out".to_owned());
    }
    contenders::distinct(&args.targets)?;
    match &args.script {
        Some(script) if !script.is_file() => Err(format!(
            "--script {}: there is no such file; name the script that k6 is to run",
            script.display()
        )),
        _ => Ok(()),
    }
}

/// Makes one run.
pub(super) fn measure(args: &Args, stop: &AtomicBool) -> Result<(Run, PathBuf), String> {
    let (assignment, drawn) = assignment(args)?;
    let rounds = assignment.profile.rounds;
    let mut session = Session::open(assignment, rounds, stop).map_err(|error| error.to_string())?;
    if args.observe {
        session.observe().map_err(|error| error.to_string())?;
    }
    let mut done = 0;
    while done < rounds && !session.stopped() {
        session.rounds(rounds - done).map_err(|error| error.to_string())?;
        done += 2;
    }
    for drawn in &drawn {
        drawn.flames(&mut session)?;
    }
    session.close().map_err(|error| error.to_string())
}

fn assignment(args: &Args) -> Result<(Assignment, Vec<Drawn>), String> {
    let catalogue = args.common.catalogue()?;
    let suite = args.suite.as_deref().map(|name| Suite::find(name, &args.parameters, &catalogue));
    let suite = suite.transpose().map_err(|error| error.to_string())?;
    let chosen = match &suite {
        Some(suite) => of_suite(suite, &args.profile, &catalogue)?,
        None => named(args, &catalogue)?,
    };
    let mut names: Vec<String> = Vec::new();
    for name in chosen.iter().flat_map(|chosen| &chosen.targets) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let found = args.common.contenders(&names, &args.versions)?;
    let mut contenders = contenders::under(&generators(args, &chosen)?, &found);
    let baseline = contenders.first().ok_or("name at least one target or version")?;
    if !args.no_control {
        contenders.insert(1, contenders::control(baseline));
    }
    let (mut entries, mut drawn) = (Vec::new(), Vec::new());
    for Chosen { mut case, targets, flame } in chosen {
        script(args, &mut case);
        if let Some(rate) = args.rate {
            case.load.pace = Pace::Constant(rate);
        }
        let taking = taking(&contenders, &targets);
        for case in scaled(&case, &args.common.workers) {
            let labels = taking.iter().map(|index| &contenders[*index]);
            if let Some(duration) = flame {
                let labels = labels.map(|one| (!one.control).then(|| one.label.clone())).collect();
                drawn.push(Drawn { entry: entries.len(), case: case.case.name.clone(), labels, duration });
            }
            entries.push(Entry { case, contenders: taking.clone() });
        }
    }
    let profile = profile(args, suite.as_ref())?;
    Ok((args.common.assignment("run", contenders, entries, profile)?, drawn))
}

/// Flame graphs to draw of an entry.
struct Drawn {
    entry: usize,
    case: String,
    /// The labels of its contenders; none for the control.
    labels: Vec<Option<String>>,
    duration: Duration,
}

impl Drawn {
    /// Records and draws each contender that was measured. What cannot be drawn is said, and is no reason to lose what was measured.
    fn flames(&self, session: &mut Session<'_>) -> Result<(), String> {
        let folder = session.folder().to_owned();
        let recording =
            Recording { what: &self.case, name: &self.case, duration: self.duration, frequency: FREQUENCY };
        let measured = |label: &&String| {
            let cells = &mut session.result().cells.iter();
            cells.any(|cell| cell.case == self.case && cell.target == **label && !cell.blocks.is_empty())
        };
        let labels: Vec<String> = self.labels.iter().flatten().filter(measured).cloned().collect();
        let nth = |label: &str| self.labels.iter().position(|known| known.as_deref() == Some(label));
        let flames = flame::perform(&recording, &labels, &folder, |label, watch| {
            session.under_load(self.entry, nth(label).unwrap_or_default(), self.duration, watch)
        });
        match flames {
            Ok(flames) => session.note_flames(flames).map_err(|error| error.to_string()),
            Err(why) => {
                session.progress.line(&format!("no flame graph of {}: {why}", self.case));
                Ok(())
            }
        }
    }
}

/// The generators. Those of other hosts are found there once these are connected.
fn generators(args: &Args, chosen: &[Chosen]) -> Result<Vec<Generator>, String> {
    let others = args.generators.iter().any(|kind| *kind != Kind::Weirlab);
    if others {
        under_load(chosen.iter().map(|chosen| &chosen.case))?;
    }
    if args.script.is_some() && !args.generators.contains(&Kind::K6) {
        return Err("--script is for k6: add --generator k6, or weirlab,k6 for both".to_owned());
    }
    let find = |kind: &Kind| match args.common.hosts {
        Some(_) => Ok(Generator::wanted(*kind)),
        None => Generator::find(*kind).map_err(|error| error.to_string()),
    };
    args.generators.iter().map(find).collect()
}

/// Such as 2000.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| format!("{text}: write requests per second, such as 2000"))
}

/// The script of the command line takes the place of the case's own; the environment stays.
fn script(args: &Args, case: &mut CasePlan) {
    if let Some(file) = &args.script {
        case.load.script.get_or_insert_with(Script::default).file.clone_from(file);
    }
}

fn profile(args: &Args, suite: Option<&Suite>) -> Result<Profile, String> {
    let mut profile =
        Profile::named(&args.profile).ok_or_else(|| format!("there is no profile {}", args.profile))?;
    let of_suite = suite.map(|suite| (suite.rounds, suite.duration)).unwrap_or_default();
    profile.rounds = args.rounds.or(of_suite.0).unwrap_or(profile.rounds);
    profile.measured = args.duration.or(of_suite.1).unwrap_or(profile.measured);
    profile.restart = !args.keep_running;
    Ok(profile)
}

/// A case to measure.
struct Chosen {
    case: CasePlan,
    /// The names of the targets that are put before it.
    targets: Vec<String>,
    /// How long each target is watched for a flame graph afterwards, if it is.
    flame: Option<Duration>,
}

/// The cases of a suite.
fn of_suite(suite: &Suite, profile: &str, catalogue: &Path) -> Result<Vec<Chosen>, String> {
    let mut chosen = Vec::new();
    for entry in &suite.entries {
        let names = [entry.scenario.clone()];
        let cases = measuring::expand_changed(&names, entry.scheme, &entry.change, profile, catalogue)?;
        let targets = &entry.targets;
        chosen.extend(cases.into_iter().map(|case| Chosen {
            case,
            targets: targets.clone(),
            flame: entry.flame,
        }));
    }
    Ok(chosen)
}

/// The cases of the command line.
fn named(args: &Args, catalogue: &Path) -> Result<Vec<Chosen>, String> {
    let targets = match (args.targets.as_slice(), args.versions.as_slice()) {
        ([], []) => vec!["weir".to_owned(), "nginx".to_owned()],
        (targets, _) => targets.to_vec(),
    };
    let found = expand(&args.scenarios, &schemes(args.scheme.as_deref()), &args.profile, catalogue)?;
    Ok(found.into_iter().map(|case| Chosen { case, targets: targets.clone(), flame: None }).collect())
}

/// The contenders that take part in a case: those it names, every version, and the control beside its baseline.
fn taking(contenders: &[Contender], targets: &[String]) -> Vec<usize> {
    let named = |contender: &Contender| contender.named.as_ref().is_none_or(|name| targets.contains(name));
    (0..contenders.len()).filter(|index| named(&contenders[*index])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn refused(words: &[&str]) -> String {
        let line = Line::try_parse_from([&["run"], words].concat());
        line.map_err(|error| error.to_string()).and_then(|line| check(&line.args)).unwrap_err()
    }

    #[test]
    fn what_does_not_go_together_is_refused_with_the_way_out() {
        for (words, said) in [
            (&[][..], "--suite bench"),
            (&["a", "--parameter", "n=1"], "name it with --suite"),
            (&["a", "--duration", "0s"], "no time"),
            (&["a", "--targets", "weir,nginx,weir"], "the target weir is named twice"),
            (
                &["a", "--generator", "k6", "--script", "/no/such.js"],
                "--script /no/such.js: there is no such file",
            ),
        ] {
            let error = refused(words);
            assert!(error.contains(said), "{words:?}: {error}");
        }
        assert_eq!(check(&Line::try_parse_from(["run", "a"]).unwrap().args), Ok(()));
    }
}
