//! `weirlab waterfall`.
use super::measuring::{self, Common};
use crate::result::ChainCost;
use crate::scenario::CasePlan;
use crate::session::{self, Assignment, Contender, Entry, Session};
use crate::waterfall::config::{self, RequestSpec};
use crate::waterfall::read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The command line.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The scenario, such as kong/rate-limiting-key-auth-1
    #[arg(required_unless_present = "config", conflicts_with = "config")]
    pub scenario: Option<String>,
    /// Any declarative file in place of a scenario; its services lead to the laboratory's upstream
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// With --config: method and path of what is asked
    #[arg(long, default_value = "GET /", requires = "config")]
    pub request: String,
    /// With --config: a header of it, as `name: value`; may be given several times
    #[arg(short = 'H', long = "header", value_parser = name_and_value, requires = "config")]
    pub headers: Vec<(String, String)>,
    /// With --config: the status that must come
    #[arg(long, default_value_t = 200, requires = "config")]
    pub status: u16,
    /// With --config: connections
    #[arg(short = 'c', long, default_value_t = 16, requires = "config")]
    pub connections: u32,
    /// The route, by name or id; else the one that is asked most
    #[arg(long)]
    pub route: Option<String>,
    /// Targets, or name@version; each must be able to report what its plugins cost
    #[arg(long, value_delimiter = ',', default_value = "weir")]
    pub targets: Vec<String>,
    /// http, https, h2 or h2c
    #[arg(long, default_value = "http", value_parser = ["http", "https", "h2", "h2c"])]
    pub scheme: String,
    /// How long each target is under load before it is asked
    #[arg(long, default_value = "10s", value_parser = crate::duration::some)]
    pub duration: Duration,
    /// What all commands that measure have in common
    #[command(flatten)]
    pub common: Common,
}

/// Puts each target under load, asks for its costs, and shows them.
///
/// # Errors
/// What failed, and how to fix it.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let stop = measuring::interruptible()?;
    let written = args.config.as_deref().map(|file| config::scenario(file, &asked(&args))).transpose()?;
    let scenario = match (&written, &args.scenario) {
        (Some(written), _) => written.path.display().to_string(),
        (None, Some(scenario)) => scenario.clone(),
        (None, None) => return Err("name a scenario, or a file with --config".to_owned()),
    };
    let (case, contenders) = plan(&args, &scenario)?;
    let name = match &args.config {
        Some(file) => format!("{} of {}", args.request, file.display()),
        None => case.case.name.clone(),
    };
    let labels: Vec<String> = contenders.iter().map(|contender| contender.label.clone()).collect();
    let assignment = assignment(&args, case, contenders)?;
    let mut session = Session::open(assignment, 1, &stop).map_err(|error| error.to_string())?;
    let chains = chains(&args, &mut session, &labels, &name)?;
    session.note_chains(chains).map_err(|error| error.to_string())?;
    let (run, folder) = session.close().map_err(|error| error.to_string())?;
    measuring::conclude(&run, &folder, &args.common)?;
    measuring::exit_code(&run)
}

fn asked(args: &Args) -> RequestSpec<'_> {
    RequestSpec {
        request: &args.request,
        headers: &args.headers,
        status: args.status,
        connections: args.connections,
    }
}

/// What each target reports.
fn chains(
    args: &Args,
    session: &mut Session<'_>,
    labels: &[String],
    case: &str,
) -> Result<Vec<ChainCost>, String> {
    let mut chains = Vec::new();
    for (target, label) in labels.iter().enumerate() {
        let costs = session.costs(0, target, args.duration)?;
        let chain = read(&costs, label, case, args.route.as_deref());
        chains.push(chain.map_err(|why| format!("{label}: {why}"))?);
    }
    Ok(chains)
}

fn plan(args: &Args, scenario: &str) -> Result<(CasePlan, Vec<Contender>), String> {
    let mut case =
        measuring::single(scenario, &measuring::schemes(Some(&args.scheme)), &args.common.catalogue()?)?;
    case.config.private = args.config.is_some();
    let contenders = args.common.contenders(&args.targets, &[])?;
    match contenders.iter().find(|contender| contender.target.costs().is_none()) {
        Some(silent) => {
            Err(format!("{} does not report what its plugins cost; name others as --targets", silent.label))
        }
        None => Ok((case, contenders)),
    }
}

fn assignment(args: &Args, case: CasePlan, contenders: Vec<Contender>) -> Result<Assignment, String> {
    let all: Vec<usize> = (0..contenders.len()).collect();
    let profile = session::Profile::named("full").ok_or("there is no profile full")?;
    args.common.assignment("waterfall", contenders, vec![Entry { case, contenders: all }], profile)
}

fn name_and_value(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it as name: value")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}
