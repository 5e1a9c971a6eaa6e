//! `weirlab run`.
use crate::analysis::Analysis;
use crate::catalogue;
use crate::driver::Driver;
use crate::driver::docker::Docker;
use crate::driver::process::Process;
use crate::report::{self, text};
use crate::result::{Axis, Run, Status};
use crate::scenario::{self, CasePlan, Measure, Scheme};
use crate::session::contenders::{self, Named};
use crate::session::{Assignment, Contender, Entry, Profile, Session};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// What can be said on the command line.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Scenarios: folders, or names below `scenarios/` such as `kong/plain-1` or `kong`
    #[arg(required_unless_present = "suite")]
    pub scenarios: Vec<String>,
    /// A list of scenarios and targets below `suites/`, such as `bench`
    #[arg(long, conflicts_with = "scenarios")]
    pub suite: Option<String>,
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
    #[arg(long, value_parser = crate::duration::parse)]
    pub duration: Option<Duration>,
    /// Leave out the A/A control: the baseline a second time
    #[arg(long)]
    pub no_control: bool,
    /// Leave targets running between their blocks instead of starting them anew
    #[arg(long)]
    pub keep_running: bool,
    /// What all commands that measure have in common
    #[command(flatten)]
    pub common: Common,
}

/// What all commands that measure have in common.
#[derive(clap::Args, Clone, Debug)]
pub struct Common {
    /// Where the run's folder is made
    #[arg(long, default_value = "output")]
    pub out: PathBuf,
    /// Workers of each target; a list measures each number, for the scaling over cores
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = workers)]
    pub workers: Vec<usize>,
    /// Where targets run: process or docker
    #[arg(long, default_value = "process", value_parser = ["process", "docker"])]
    pub driver: String,
    /// The `weir` to measure; else target/release/weir, else the one on the PATH
    #[arg(long)]
    pub weir: Option<PathBuf>,
    /// The folder with `scenarios/` and `targets/`; else the nearest one around the current folder
    #[arg(long)]
    pub catalogue: Option<PathBuf>,
    /// Where versions are built and kept; else target/weirlab
    #[arg(long)]
    pub cache: Option<PathBuf>,
    /// The seed of the order of blocks; else drawn. What is asked in a round depends on the round alone
    #[arg(long)]
    pub seed: Option<u64>,
}

impl Common {
    /// The folder with scenarios and targets.
    ///
    /// # Errors
    /// When there is none.
    pub fn catalogue(&self) -> Result<PathBuf, String> {
        catalogue::root(self.catalogue.as_deref()).map_err(|error| error.to_string())
    }

    /// What starts targets.
    ///
    /// # Errors
    /// When a container engine was asked for and does not answer.
    pub fn driver(&self) -> Result<Box<dyn Driver>, String> {
        Ok(match self.driver.as_str() {
            "docker" => Box::new(Docker::from_environment().map_err(|error| error.to_string())?),
            _ => Box::new(Process),
        })
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(|| fastrand::u64(..))
    }

    /// The targets and versions that were named; what has to be built is built.
    ///
    /// # Errors
    /// When one is unknown or cannot be had.
    pub fn contenders(&self, targets: &[String], versions: &[String]) -> Result<Vec<Contender>, String> {
        let catalogue = self.catalogue()?;
        let (weir, cache) = (self.weir.as_deref(), self.cache.as_deref());
        contenders::contenders(
            &Named { targets, versions, weir, catalogue: &catalogue, cache },
            &mut |line| {
                // Progress that cannot be shown is no reason to stop.
                let _ = writeln!(io::stderr(), "{line}");
            },
        )
    }

    /// What a session is to do, with all that is common to commands.
    ///
    /// # Errors
    /// When there is no driver.
    pub fn assignment(
        &self,
        kind: &'static str,
        contenders: Vec<Contender>,
        entries: Vec<Entry>,
        profile: Profile,
    ) -> Result<Assignment, String> {
        Ok(Assignment {
            kind,
            entries,
            contenders,
            profile,
            seed: self.seed(),
            out: self.out.clone(),
            driver: self.driver()?,
            workers: self.workers[0],
        })
    }
}

/// Measures, and leaves a run folder.
///
/// # Errors
/// What stood in the way, and how to mend it.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let stop = interruptible()?;
    let assignment = assignment(&args)?;
    let rounds = assignment.profile.rounds;
    let mut session = Session::open(assignment, rounds, &stop).map_err(|error| error.to_string())?;
    let mut done = 0;
    while done < rounds && !session.stopped() {
        session.rounds(rounds - done).map_err(|error| error.to_string())?;
        done += 2;
    }
    let (run, folder) = session.close().map_err(|error| error.to_string())?;
    conclude(&run, &folder, &args.common.catalogue()?)?;
    exit_code(&run)
}

/// 0 for a whole run, 130 for an interrupted one.
///
/// # Errors
/// When nothing was measured.
pub fn exit_code(run: &Run) -> Result<ExitCode, String> {
    if run.interrupted {
        return Ok(ExitCode::from(130));
    }
    let unasked = |status: &Status| matches!(status, Status::Skipped(_));
    let measured = run.cells.iter().any(|cell| !cell.blocks.is_empty()) || !run.capacities.is_empty();
    let told = !run.flames.is_empty() || !run.chains.is_empty();
    if measured || told || run.cells.iter().all(|cell| unasked(&cell.status)) {
        return Ok(ExitCode::SUCCESS);
    }
    Err("nothing was measured; the lines above say why".to_owned())
}

fn workers(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|workers| *workers > 0)
        .ok_or_else(|| format!("{text}: write a number from 1 on"))
}

/// A flag that Ctrl-C and SIGTERM raise; a second one ends the program as usual.
///
/// # Errors
/// When signals cannot be caught.
pub fn interruptible() -> Result<Arc<AtomicBool>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(|error| format!("signals cannot be caught: {error}"))?;
    }
    Ok(stop)
}

/// Writes the report and the text, and prints the answer.
///
/// # Errors
/// When they cannot be written.
pub fn conclude(run: &Run, folder: &Path, catalogue: &Path) -> Result<(), String> {
    let analysis = Analysis::of(run);
    let published = std::fs::read_to_string(catalogue.join("scenarios/kong/published.csv")).ok();
    let page = report::write(run, folder, published.as_deref()).map_err(|error| error.to_string())?;
    std::fs::write(folder.join("result.txt"), text::result(run, &analysis))
        .map_err(|error| format!("{}: {error}", folder.join("result.txt").display()))?;
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{}", text::answer(run, &analysis));
    let _ = writeln!(out, "{}", page.display());
    Ok(())
}

fn assignment(args: &Args) -> Result<Assignment, String> {
    let catalogue = args.common.catalogue()?;
    let cases = cases(args, &catalogue)?;
    let mut names: Vec<String> = Vec::new();
    for name in cases.iter().flat_map(|(_, targets)| targets) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let mut contenders = args.common.contenders(&names, &args.versions)?;
    let baseline = contenders.first().ok_or("name at least one target or version")?;
    if !args.no_control {
        contenders.insert(1, contenders::control(baseline));
    }
    let mut entries = Vec::new();
    for (case, targets) in cases {
        let taking = taking(&contenders, &targets);
        entries.extend(
            scaled(&case, &args.common.workers)
                .into_iter()
                .map(|case| Entry { case, contenders: taking.clone() }),
        );
    }
    args.common.assignment("run", contenders, entries, profile(args)?)
}

fn profile(args: &Args) -> Result<Profile, String> {
    let mut profile =
        Profile::named(&args.profile).ok_or_else(|| format!("there is no profile {}", args.profile))?;
    profile.rounds = args.rounds.unwrap_or(profile.rounds);
    profile.measured = args.duration.unwrap_or(profile.measured);
    profile.restart = !args.keep_running;
    Ok(profile)
}

/// The cases to measure, each with the names of the targets that are put before it.
fn cases(args: &Args, catalogue: &Path) -> Result<Vec<(CasePlan, Vec<String>)>, String> {
    if let Some(name) = &args.suite {
        let suite = scenario::Suite::find(name, catalogue).map_err(|error| error.to_string())?;
        let mut cases = Vec::new();
        for entry in suite.entries {
            let found = expand(&[entry.scenario], &[entry.scheme], &args.profile, catalogue)?;
            cases.extend(found.into_iter().map(|case| (case, entry.targets.clone())));
        }
        return Ok(cases);
    }
    let targets = match (args.targets.as_slice(), args.versions.as_slice()) {
        ([], []) => vec!["weir".to_owned(), "nginx".to_owned()],
        (targets, _) => targets.to_vec(),
    };
    let found = expand(&args.scenarios, &schemes(args.scheme.as_deref()), &args.profile, catalogue)?;
    Ok(found.into_iter().map(|case| (case, targets.clone())).collect())
}

/// The schemes that a word of the command line names.
pub fn schemes(word: Option<&str>) -> Vec<Option<Scheme>> {
    match word {
        Some("both") => vec![Some(Scheme::Https), Some(Scheme::Http)],
        Some(word) => vec![Some(word.parse().unwrap_or(Scheme::Https))],
        None => vec![None],
    }
}

/// The cases of scenarios for each of the schemes that they offer.
///
/// # Errors
/// When a scenario is unknown or wrong.
pub fn expand(
    names: &[String],
    schemes: &[Option<Scheme>],
    profile: &str,
    catalogue: &Path,
) -> Result<Vec<CasePlan>, String> {
    let mut cases = Vec::new();
    for scenario in scenario::find(names, catalogue).map_err(|error| error.to_string())? {
        let scenario = scenario.in_profile(profile);
        for scheme in
            schemes.iter().filter(|scheme| scheme.is_none_or(|scheme| scenario.schemes().contains(&scheme)))
        {
            cases.extend(scenario.cases(*scheme).map_err(|error| error.to_string())?);
        }
    }
    if cases.is_empty() {
        return Err(format!("{} is not offered over that scheme", names.join(", ")));
    }
    Ok(cases)
}

/// Refuses cases whose figures are not of requests under load.
///
/// # Errors
/// When there is one.
pub fn under_load(cases: &[CasePlan]) -> Result<(), String> {
    match cases.iter().find(|case| case.measure != Measure::Load) {
        None => Ok(()),
        Some(case) => Err(format!(
            "{} is not measured under load; use `weirlab run` for it, or name another scenario",
            case.case.name
        )),
    }
}

/// The only case of a scenario.
///
/// # Errors
/// When it is unknown, wrong, or has more cases than one.
pub fn single(name: &str, schemes: &[Option<Scheme>], catalogue: &Path) -> Result<CasePlan, String> {
    let mut cases = expand(&[name.to_owned()], schemes, "quick", catalogue)?;
    under_load(&cases)?;
    match cases.len() {
        1 => Ok(cases.remove(0)),
        n => Err(format!("{name} has {n} cases; name one scenario without a sweep")),
    }
}

/// The contenders that take part in a case: those it names, every version, and the control beside its baseline.
fn taking(contenders: &[Contender], targets: &[String]) -> Vec<usize> {
    let named = |contender: &Contender| contender.named.as_ref().is_none_or(|name| targets.contains(name));
    (0..contenders.len()).filter(|index| named(&contenders[*index])).collect()
}

/// The case with each number of workers, as an axis where there are several.
pub fn scaled(case: &CasePlan, workers: &[usize]) -> Vec<CasePlan> {
    if workers.len() < 2 || case.gateway.workers.is_some() {
        return vec![case.clone()];
    }
    let with = |workers: &usize| {
        let mut case = case.clone();
        case.gateway.workers = Some(*workers);
        case.case.name = format!("{}[workers={workers}]", case.case.name);
        case.case.variables.insert("workers".to_owned(), workers.to_string());
        case.case.axis.get_or_insert(Axis { name: "workers".to_owned(), value: *workers as f64 });
        case
    };
    workers.iter().map(with).collect()
}
