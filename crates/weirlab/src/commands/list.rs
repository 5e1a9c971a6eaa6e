//! `weirlab list`.
use crate::catalogue::{CatalogueError, root};
use crate::faults;
use crate::scenario::{self, Scenario, Scheme, Suite};
use crate::target::{self, Target};
use comfy_table::{Table, presets};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// The command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// What to list; all of it, if nothing is named.
    #[arg(value_enum)]
    what: Option<What>,
    /// Write JSON rather than tables.
    #[arg(long)]
    json: bool,
    /// The folder that holds scenarios/ and targets/; else the nearest above the working directory or the program.
    #[arg(long, value_name = "DIR")]
    catalogue: Option<PathBuf>,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq)]
enum What {
    /// Scenarios, and which targets can stand them.
    Scenarios,
    /// Targets, and where their programs are.
    Targets,
    /// Suites, for `weirlab run --suite`.
    Suites,
    /// What `weirlab faults` breaks.
    Faults,
}

#[derive(Serialize)]
struct Listing {
    #[serde(skip_serializing_if = "Option::is_none")]
    scenarios: Option<Vec<ScenarioLine>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    targets: Option<Vec<TargetLine>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suites: Option<Vec<SuiteLine>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    faults: Option<Vec<FaultLine>>,
}

#[derive(Serialize)]
struct SuiteLine {
    name: String,
    title: String,
    /// How many, with its own parameters.
    runs: usize,
}

#[derive(Serialize)]
struct FaultLine {
    name: String,
    title: String,
    /// Whether `--quick` leaves it in.
    quick: bool,
}

#[derive(Serialize)]
struct ScenarioLine {
    name: String,
    title: String,
    source: String,
    schemes: Vec<&'static str>,
    /// How many, over one scheme.
    cases: usize,
    needs: BTreeSet<String>,
    /// What no target has.
    unmet: Vec<String>,
    targets: Vec<String>,
    /// Why the others cannot stand it.
    lacking: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct TargetLine {
    name: String,
    title: String,
    /// None where it is not installed.
    binary: Option<PathBuf>,
    version: Option<String>,
    install: Option<String>,
    image: Option<String>,
    homepage: Option<String>,
    unmeasured: Option<String>,
    features: Vec<String>,
}

/// Does it.
///
/// # Errors
/// What failed, and how to fix it.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let listing = list(&args).map_err(|error| error.to_string())?;
    let text = if args.json {
        serde_json::to_string_pretty(&listing).map_err(|error| error.to_string())? + "\n"
    } else {
        tables(&listing)
    };
    // A reader such as `head` may have closed the pipe.
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}

fn list(args: &Args) -> Result<Listing, CatalogueError> {
    let root = root(args.catalogue.as_deref())?;
    let asked = |what: What| args.what.is_none_or(|only| only == what);
    let targets = target::find(&[], &root)?;
    Ok(Listing {
        scenarios: asked(What::Scenarios).then(|| scenario_lines(&root, &targets)).transpose()?,
        targets: asked(What::Targets).then(|| targets.iter().map(target_line).collect()),
        suites: asked(What::Suites).then(|| suite_lines(&root)).transpose()?,
        faults: asked(What::Faults).then(|| fault_lines(&root)).transpose()?,
    })
}

fn suite_lines(root: &Path) -> Result<Vec<SuiteLine>, CatalogueError> {
    let line = |name: String| {
        let suite = Suite::find(&name, &[], root)?;
        Ok(SuiteLine { name, title: suite.title, runs: suite.entries.len() })
    };
    Suite::names(root).into_iter().map(line).collect()
}

fn fault_lines(root: &Path) -> Result<Vec<FaultLine>, CatalogueError> {
    let line =
        |fault: faults::Scenario| FaultLine { name: fault.name, title: fault.title, quick: fault.quick };
    Ok(faults::find(&[], root)?.into_iter().map(line).collect())
}

fn scenario_lines(root: &Path, targets: &[Target]) -> Result<Vec<ScenarioLine>, CatalogueError> {
    scenario::find(&[], root)?.iter().map(|scenario| scenario_line(scenario, targets)).collect()
}

fn scenario_line(scenario: &Scenario, targets: &[Target]) -> Result<ScenarioLine, CatalogueError> {
    let cases = scenario.cases(None)?;
    let is_scheme = |need: &String| need.parse::<Scheme>().is_ok();
    let needs: BTreeSet<String> =
        cases.iter().flat_map(|case| &case.needs).filter(|need| !is_scheme(need)).cloned().collect();
    let lacking =
        targets.iter().filter_map(|target| Some((target.name.clone(), why_not(target, scenario, &needs)?)));
    let lacking: BTreeMap<String, String> = lacking.collect();
    let missing = |need: &&String| !targets.iter().any(|target| target.features.contains(*need));
    Ok(ScenarioLine {
        name: scenario.name.clone(),
        title: scenario.title.clone(),
        source: scenario.source.clone(),
        schemes: scenario.schemes().iter().map(|scheme| scheme.as_str()).collect(),
        cases: cases.len(),
        targets: targets
            .iter()
            .map(|target| target.name.clone())
            .filter(|name| !lacking.contains_key(name))
            .collect(),
        unmet: needs.iter().filter(missing).cloned().collect(),
        needs,
        lacking,
    })
}

/// None where the target can stand it over one of its schemes.
fn why_not(target: &Target, scenario: &Scenario, needs: &BTreeSet<String>) -> Option<String> {
    let over = |scheme: &Scheme| {
        let mut needs = needs.clone();
        needs.insert(scheme.as_str().to_owned());
        target.lacks(&needs)
    };
    let reasons: Vec<Option<String>> = scenario.schemes().iter().map(over).collect();
    reasons.into_iter().min().flatten()
}

fn target_line(target: &Target) -> TargetLine {
    let binary = target.binary(None).ok().filter(|_| target.has_process());
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    TargetLine {
        name: target.name.clone(),
        title: target.title.clone(),
        version: binary.as_deref().and_then(|binary| version(target, binary)),
        binary,
        install: text(target.install()),
        image: target.image().map(str::to_owned),
        homepage: target.homepage().map(str::to_owned),
        unmeasured: target.unmeasured().map(str::to_owned),
        features: target.features.iter().cloned().collect(),
    }
}

/// The first line with a digit that the program says of its version.
fn version(target: &Target, binary: &Path) -> Option<String> {
    let command = target.version_command(binary).ok()?;
    let (program, arguments) = command.split_first()?;
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    let said = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&said);
    let line = text.lines().find(|line| line.contains(|c: char| c.is_ascii_digit()))?;
    Some(line.trim().to_owned())
}

fn tables(listing: &Listing) -> String {
    let mut tables = Vec::new();
    if let Some(scenarios) = &listing.scenarios {
        let mut table = table(["scenario", "what it asks", "cases", "stood by"]);
        for line in scenarios {
            let stood = if line.targets.is_empty() {
                format!("none: needs {}", line.unmet.join(", "))
            } else {
                line.targets.join(" ")
            };
            table.add_row([line.name.clone(), line.title.clone(), line.cases.to_string(), stood]);
        }
        tables.push(table);
    }
    if let Some(targets) = &listing.targets {
        let mut table = table(["target", "what it is", "here"]);
        for line in targets {
            table.add_row([line.name.clone(), line.title.clone(), here(line)]);
        }
        tables.push(table);
    }
    if let Some(suites) = &listing.suites {
        let mut table = table(["suite", "what it is for", "runs"]);
        for line in suites {
            table.add_row([line.name.clone(), line.title.clone(), line.runs.to_string()]);
        }
        tables.push(table);
    }
    if let Some(faults) = &listing.faults {
        let mut table = table(["fault", "what happens", "quick"]);
        for line in faults {
            let quick = if line.quick { "quick" } else { "" };
            table.add_row([line.name.clone(), line.title.clone(), quick.to_owned()]);
        }
        tables.push(table);
    }
    tables.iter().map(|table| table.trim_fmt() + "\n").collect::<Vec<_>>().join("\n")
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    table
}

fn here(line: &TargetLine) -> String {
    match (&line.binary, &line.version, &line.install) {
        (Some(binary), Some(version), _) => format!("{version} ({})", binary.display()),
        (Some(binary), None, _) => binary.display().to_string(),
        (None, _, Some(install)) => format!("not installed: {install}"),
        (None, _, None) => "always".to_owned(),
    }
}
