//! `weirlab run`.
use super::join;
use super::measuring::{Common, conclude, exit_code, expand, interruptible, scaled, schemes, under_load};
use crate::generator::{Generator, Kind, Script};
use crate::result::Run;
use crate::scenario::{self, CasePlan};
use crate::session::{Assignment, Contender, Entry, Profile, Session, contenders};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The command line.
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
    /// Make a run on each of several machines, each a file of `--hosts`, such as c7g=c7g.toml,c6i=c6i.toml, and join them
    #[arg(long, value_name = "NAME=FILE", value_delimiter = ',', value_parser = join::named, conflicts_with_all = ["hosts", "driver"])]
    pub machines: Vec<(String, PathBuf)>,
    /// What each machine costs for an hour: the joined report has the cost of a million requests
    #[arg(long, value_name = "FILE", requires = "machines")]
    pub prices: Option<PathBuf>,
    /// What all commands that measure have in common
    #[command(flatten)]
    pub common: Common,
}

/// Measures, and leaves a run folder.
///
/// # Errors
/// What failed, and how to fix it.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let stop = interruptible()?;
    if !args.machines.is_empty() {
        return on_machines(&args, &stop);
    }
    let (run, folder) = measure(&args, &stop)?;
    conclude(&run, &folder, &args.common)?;
    exit_code(&run)
}

/// Makes a run on each machine, and one report of all.
fn on_machines(args: &Args, stop: &AtomicBool) -> Result<ExitCode, String> {
    let names: Vec<&str> = args.machines.iter().map(|(name, _)| name.as_str()).collect();
    join::check_names(&names)?;
    // What is wrong with the prices is not to be found out after the measurement.
    join::prices(args.prices.as_deref(), &names)?;
    let mut runs = Vec::new();
    for (name, hosts) in &args.machines {
        let mut args = args.clone();
        args.common.hosts = Some(hosts.clone());
        let (run, folder) = measure(&args, stop)?;
        conclude(&run, &folder, &args.common)?;
        if run.interrupted {
            return exit_code(&run);
        }
        runs.push((name.clone(), run));
    }
    let out = args.common.out.join(format!("{}-machines", runs[0].1.id));
    join::report(&runs, args.prices.as_deref(), &out)?;
    exit_code(&runs[0].1)
}

/// Makes one run.
fn measure(args: &Args, stop: &AtomicBool) -> Result<(Run, PathBuf), String> {
    let assignment = assignment(args)?;
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
    session.close().map_err(|error| error.to_string())
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
    let found = args.common.contenders(&names, &args.versions)?;
    let mut contenders = contenders::under(&generators(args, &cases)?, &found);
    let baseline = contenders.first().ok_or("name at least one target or version")?;
    if !args.no_control {
        contenders.insert(1, contenders::control(baseline));
    }
    let mut entries = Vec::new();
    for (mut case, targets) in cases {
        script(args, &mut case);
        let taking = taking(&contenders, &targets);
        entries.extend(
            scaled(&case, &args.common.workers)
                .into_iter()
                .map(|case| Entry { case, contenders: taking.clone() }),
        );
    }
    args.common.assignment("run", contenders, entries, profile(args)?)
}

/// The generators, all of which must be on this machine.
fn generators(args: &Args, cases: &[(CasePlan, Vec<String>)]) -> Result<Vec<Generator>, String> {
    let others = args.generators.iter().any(|kind| *kind != Kind::Weirlab);
    if others {
        if let Some(hosts) = &args.common.hosts {
            return Err(format!(
                "only weirlab generates load from another machine; leave out --generator, or --hosts {}",
                hosts.display()
            ));
        }
        under_load(cases.iter().map(|(case, _)| case))?;
    }
    if args.script.is_some() && !args.generators.contains(&Kind::K6) {
        return Err("--script is for k6: add --generator k6, or weirlab,k6 for both".to_owned());
    }
    args.generators.iter().map(|kind| Generator::find(*kind).map_err(|error| error.to_string())).collect()
}

/// The script of the command line takes the place of the case's own; the environment stays.
fn script(args: &Args, case: &mut CasePlan) {
    if let Some(file) = &args.script {
        case.load.script.get_or_insert_with(Script::default).file.clone_from(file);
    }
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

/// The contenders that take part in a case: those it names, every version, and the control beside its baseline.
fn taking(contenders: &[Contender], targets: &[String]) -> Vec<usize> {
    let named = |contender: &Contender| contender.named.as_ref().is_none_or(|name| targets.contains(name));
    (0..contenders.len()).filter(|index| named(&contenders[*index])).collect()
}
