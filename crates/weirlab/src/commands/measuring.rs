//! What all commands that measure share: their arguments, the choice of cases, and the end of a run.
use crate::analysis::Analysis;
use crate::catalogue;
use crate::driver::Driver;
use crate::driver::docker::Docker;
use crate::driver::process::Process;
use crate::host::{Site, ssh};
use crate::interrupt;
use crate::report::format::{self, Format};
use crate::report::{self, text};
use crate::result::{Axis, Run, Status, store};
use crate::scenario::{self, CasePlan, Change, Measure, Scheme};
use crate::session::contenders::{self, Named};
use crate::session::{Assignment, Contender, Entry, Profile};
use crate::telemetry::{self, Endpoint};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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
    /// Machines to measure on over ssh, each with its roles: target, upstream, generator
    #[arg(long, value_name = "FILE", conflicts_with = "driver")]
    pub hosts: Option<PathBuf>,
    /// The `weir` to measure; else target/release/weir or the one beside `targets/`, else the one on the PATH
    #[arg(long)]
    pub weir: Option<PathBuf>,
    /// The folder with `scenarios/` and `targets/`; else the nearest one around the current folder, or the program
    #[arg(long)]
    pub catalogue: Option<PathBuf>,
    /// Where versions are built and kept; else target/weirlab
    #[arg(long)]
    pub cache: Option<PathBuf>,
    /// The seed of the order of blocks; else drawn. What is asked in a round depends on the round alone
    #[arg(long)]
    pub seed: Option<u64>,
    /// How the figures are printed: text, csv, json or markdown, or wrk for every block as wrk prints it
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Write each figure of each block to a Prometheus, such as http://localhost:9090/api/v1/write
    #[arg(long, value_name = "URL")]
    pub remote_write: Option<String>,
}

impl Common {
    /// The folder with scenarios and targets.
    ///
    /// # Errors
    /// When there is none.
    pub fn catalogue(&self) -> Result<PathBuf, String> {
        catalogue::root(self.catalogue.as_deref()).map_err(|error| error.to_string())
    }

    /// Where it is measured: on this machine, or on hosts.
    ///
    /// # Errors
    /// When a container engine was asked for and does not answer, or a host cannot be used.
    pub fn site(&self) -> Result<Site, String> {
        if let Some(file) = &self.hosts {
            let workers = self.workers.iter().copied().max().unwrap_or(1);
            return ssh::open(file, workers).map_err(|error| error.to_string());
        }
        let driver: Box<dyn Driver> = match self.driver.as_str() {
            "docker" => Box::new(Docker::from_environment().map_err(|error| error.to_string())?),
            _ => Box::new(Process),
        };
        Site::local(driver).map_err(|error| error.to_string())
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
    /// When there is no place to measure.
    pub fn assignment(
        &self,
        kind: &'static str,
        mut contenders: Vec<Contender>,
        entries: Vec<Entry>,
        profile: Profile,
    ) -> Result<Assignment, String> {
        // An address that is wrong is not to be found out after the measurement.
        self.remote_write.as_deref().map(Endpoint::parse).transpose().map_err(|error| error.to_string())?;
        let site = self.site()?;
        contenders.iter_mut().try_for_each(|contender| settle(contender, &site))?;
        let found =
            contenders.iter_mut().try_for_each(|contender| site.find_generator(&mut contender.generator));
        found.map_err(|error| error.to_string())?;
        Ok(Assignment {
            kind,
            entries,
            contenders,
            profile,
            seed: self.seed(),
            catalogue: self.catalogue()?,
            out: self.out.clone(),
            site,
            workers: self.workers[0],
        })
    }
}

/// Finds the contender's program where it is to run.
fn settle(contender: &mut Contender, site: &Site) -> Result<(), String> {
    if !contender.target.has_process() || !site.is_elsewhere() {
        return Ok(());
    }
    let here = contender.unavailable.is_none().then_some(contender.binary.as_path());
    let found =
        site.program(&contender.target, here, contender.is_named).map_err(|error| error.to_string())?;
    (contender.binary, contender.unavailable) = match found {
        Ok(binary) => (binary, None),
        Err(why) => (PathBuf::new(), Some(why)),
    };
    Ok(())
}

fn workers(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|workers| *workers > 0)
        .ok_or_else(|| format!("{text}: write a number from 1 on"))
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
    let recorded = !run.flames.is_empty() || !run.chains.is_empty();
    if measured || recorded || run.cells.iter().all(|cell| unasked(&cell.status)) {
        return Ok(ExitCode::SUCCESS);
    }
    Err("nothing was measured; the lines above say why".to_owned())
}

/// A flag that Ctrl-C and SIGTERM raise; a second one ends the program as usual.
///
/// # Errors
/// When signals cannot be caught.
pub fn interruptible() -> Result<Arc<AtomicBool>, String> {
    interrupt::flag().map_err(|error| format!("signals cannot be caught: {error}"))
}

/// Writes the report and the text, and prints the figures.
///
/// # Errors
/// When they cannot be written.
pub fn conclude(run: &Run, folder: &Path, common: &Common) -> Result<(), String> {
    let catalogue = common.catalogue()?;
    let analysis = Analysis::of(run);
    let published = std::fs::read_to_string(catalogue.join("scenarios/kong/published.csv")).ok();
    let page = report::write(run, folder, published.as_deref()).map_err(|error| error.to_string())?;
    std::fs::write(folder.join("result.txt"), text::result(run, &analysis))
        .map_err(|error| format!("{}: {error}", folder.join("result.txt").display()))?;
    let figures = format::print(run, &analysis, common.format).map_err(|error| error.to_string())?;
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{}", figures.trim_end());
    // Not among figures that a program reads.
    let _ = match common.format.is_for_people() {
        true => writeln!(out, "\n{}", page.display()),
        false => writeln!(io::stderr(), "{}", page.display()),
    };
    common.remote_write.as_deref().map_or(Ok(()), |url| write_kept(folder, url)).map_err(|error| {
        let folder = folder.display();
        format!(
            "{error}\nThe run is in {folder}; `weirlab report {folder} --remote-write URL` writes it again"
        )
    })
}

/// Writes the figures as they were kept, so that they are the same to the last bit when they are written again from there.
fn write_kept(folder: &Path, url: &str) -> Result<(), String> {
    let run = store::read(folder).map_err(|error| error.to_string())?;
    write_remotely(&run, url)
}

/// Writes the figures of a run to a Prometheus, and says how many.
///
/// # Errors
/// When it cannot be reached, or refuses them.
pub fn write_remotely(run: &Run, url: &str) -> Result<(), String> {
    let written =
        Endpoint::parse(url).and_then(|endpoint| telemetry::write(&endpoint, &telemetry::of_run(run)));
    let count = written.map_err(|error| error.to_string())?;
    // Not among figures that a program reads.
    let _ = writeln!(io::stderr(), "{count} samples written, named weirlab_block_…{{run=\"{}\"}}", run.id);
    Ok(())
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

/// The cases of scenarios with what a run of a suite changes.
///
/// # Errors
/// When a scenario is unknown or wrong, or not offered over the scheme.
pub fn expand_changed(
    names: &[String],
    scheme: Option<Scheme>,
    change: &Change,
    profile: &str,
    catalogue: &Path,
) -> Result<Vec<CasePlan>, String> {
    let mut cases = Vec::new();
    for scenario in scenario::find(names, catalogue).map_err(|error| error.to_string())? {
        if scheme.is_none_or(|scheme| scenario.schemes().contains(&scheme)) {
            let scenario = scenario.in_profile(profile);
            cases.extend(scenario.changed_cases(scheme, change).map_err(|error| error.to_string())?);
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
pub fn under_load<'a>(mut cases: impl Iterator<Item = &'a CasePlan>) -> Result<(), String> {
    match cases.find(|case| case.measure != Measure::Load) {
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
    under_load(cases.iter())?;
    match cases.len() {
        1 => Ok(cases.remove(0)),
        n => Err(format!("{name} has {n} cases; name one scenario without a sweep")),
    }
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
