//! A fault scenario, as it is written: a load, what happens meanwhile, and what may be lost.
use super::act::{Act, DiskAct, ProcessAct};
use crate::catalogue::{CatalogueError, Kind, Span, read_toml, select};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

const FAULTS: Kind = Kind { what: "fault scenario", below: "scenarios/faults", marker: "fault.toml" };

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its folder below `scenarios/faults`.
    pub name: String,
    /// What happens, in a sentence.
    pub title: String,
    /// Whether it takes so little time that tests run it.
    pub quick: bool,
    /// What a gateway and the machine must have.
    pub needs: BTreeSet<String>,
    /// How many upstream servers there are.
    pub upstreams: usize,
    /// Whether upstream servers speak TLS, and for how long the first one's certificate is valid from the start on.
    pub tls: Option<Tls>,
    /// What is sent.
    pub load: Load,
    /// What happens meanwhile.
    pub steps: Vec<Step>,
    /// Which requests may be lost.
    pub lost: AllowedLosses,
}

impl Scenario {
    /// Its steps, with what happens to the gateway right after the first of them. A process is started once the server of its
    /// configuration is back or the disk can be written, without which it does not start, and once descriptors are not
    /// limited, since it would have a limit of its own.
    #[must_use]
    pub fn steps_during(&self, during: Option<During>) -> Vec<Step> {
        let soon = |act| Step { when: When::After(Duration::from_millis(50)), act };
        let mut steps = self.steps.clone();
        let first = steps.len().min(1);
        let is_of_process = |step: &Step| {
            matches!(step.act, Act::Disk(DiskAct::Forbid | DiskAct::Allow) | Act::Descriptors(_))
        };
        let hinders = |step: &Step| is_of_process(step) || matches!(step.act, Act::Store(_));
        let back = steps.iter().rposition(hinders).map_or(first, |last| last + 1);
        match during {
            None => {}
            Some(During::Reload) => steps.insert(first, soon(Act::Reload)),
            Some(During::Upgrade) => {
                // Without the server of counters it starts.
                let is_hindered = self.needs.contains("postgres") || steps.iter().any(is_of_process);
                steps.insert(if is_hindered { back } else { first }, soon(Act::Upgrade));
            }
            Some(During::Kill) => {
                steps.insert(back, soon(Act::Gateway(ProcessAct::Start)));
                steps.insert(first, soon(Act::Gateway(ProcessAct::Kill)));
            }
        }
        steps
    }
}

/// What happens to the gateway itself in the middle of each scenario.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum During {
    /// It reads its configuration again.
    Reload,
    /// It is killed and started again.
    Kill,
    /// A new process of the same program takes over.
    Upgrade,
}

impl During {
    /// Why it cannot happen in a scenario.
    #[must_use]
    pub fn is_refused_by(self, scenario: &Scenario) -> Option<&'static str> {
        let is_done_anyway =
            scenario.steps.iter().any(|step| matches!(step.act, Act::Gateway(_) | Act::Upgrade));
        let is_limited = scenario.steps.iter().any(|step| matches!(step.act, Act::Descriptors(_)));
        let has_database = ["postgres", "sqlite"].iter().any(|database| scenario.needs.contains(*database));
        match self {
            _ if is_done_anyway => Some("the scenario itself kills, stops or replaces the gateway"),
            Self::Reload if has_database => Some("a configuration in a database is not read again"),
            Self::Kill if is_limited => Some("the limit of its descriptors ends with the process"),
            _ => None,
        }
    }
}

/// What clients send.
#[derive(Clone, Debug)]
pub struct Load {
    /// How many clients there are; each has one request in flight.
    pub clients: u32,
    /// How many requests they send at least.
    pub requests: usize,
    /// How many of a hundred are POST.
    pub posts: u32,
    /// The length of each body, in both directions.
    pub body: usize,
    /// How long a client rests between two requests.
    pub pause: Duration,
}

/// TLS towards upstream servers.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
    /// For how long the certificate of the first server is valid; for days, unless it is given.
    expires: Option<Span>,
}

impl Tls {
    /// For how long the first server's certificate is valid.
    #[must_use]
    pub fn expires(self) -> Option<Duration> {
        self.expires.map(|span| span.0)
    }
}

/// Something that happens.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// When.
    pub when: When,
    /// What.
    pub act: Act,
}

/// The moment of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// Once so many requests have come to an end.
    Requests(usize),
    /// So long after the step before.
    After(Duration),
}

/// Which requests may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AllowedLosses {
    /// None.
    None,
    /// Those that must not be sent again: POST requests that an upstream server may have read.
    Unsafe,
    /// Those that the fault hit.
    Hit,
    /// Any, because no healthy target exists meanwhile.
    Any,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    #[serde(default)]
    quick: bool,
    #[serde(default)]
    needs: BTreeSet<String>,
    #[serde(default = "two")]
    upstreams: usize,
    tls: Option<Tls>,
    #[serde(default)]
    load: LoadFile,
    step: Vec<StepFile>,
    lost: AllowedLosses,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LoadFile {
    clients: u32,
    requests: usize,
    posts: u32,
    body: usize,
    pause: Span,
}

impl Default for LoadFile {
    fn default() -> Self {
        Self { clients: 8, requests: 1_200, posts: 25, body: 3_000, pause: Span(Duration::from_millis(1)) }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepFile {
    at: Option<usize>,
    after: Option<Span>,
    on: String,
    #[serde(default)]
    number: usize,
    #[serde(rename = "do")]
    act: String,
}

fn two() -> usize {
    2
}

/// The scenarios that names stand for; all of them for no names.
///
/// # Errors
/// When a name stands for nothing, or a file does not say what it should.
pub fn find(names: &[String], root: &Path) -> Result<Vec<Scenario>, CatalogueError> {
    let entries = select(&FAULTS, names, root)?;
    entries.into_iter().map(|entry| read(entry.name, &entry.folder.join(FAULTS.marker))).collect()
}

fn read(name: String, path: &Path) -> Result<Scenario, CatalogueError> {
    let file: File = read_toml(path)?;
    let unfit = |text: String| CatalogueError::Unfit(PathBuf::from(path), text);
    let steps: Vec<Step> = file.step.iter().map(step).collect::<Result<_, _>>().map_err(unfit)?;
    let too_late =
        steps.iter().any(|step| matches!(step.when, When::Requests(at) if at >= file.load.requests));
    if too_late {
        return Err(unfit("a step comes after the last request: give it a lower `at`".to_owned()));
    }
    let LoadFile { clients, requests, posts, body, pause } = file.load;
    Ok(Scenario {
        name,
        title: file.title,
        quick: file.quick,
        needs: file.needs,
        upstreams: file.upstreams,
        tls: file.tls,
        load: Load { clients, requests, posts, body, pause: pause.0 },
        steps,
        lost: file.lost,
    })
}

fn step(file: &StepFile) -> Result<Step, String> {
    let when = match (file.at, file.after) {
        (Some(at), None) => When::Requests(at),
        (None, Some(after)) => When::After(after.0),
        _ => return Err("a step has either `at`, a number of requests, or `after`, a duration".to_owned()),
    };
    Ok(Step { when, act: Act::read(file.on.as_str(), file.number, file.act.as_str())? })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::act::StoreAct;
    use super::*;

    fn scenario(name: &str) -> Scenario {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        find(&[name.to_owned()], root).unwrap().remove(0)
    }

    #[test]
    fn the_gateway_is_killed_in_the_midst_and_started_when_it_can_be() {
        use super::ProcessAct::{Kill, Start};
        let acts = |name| {
            let steps = scenario(name).steps_during(Some(During::Kill));
            steps.into_iter().map(|step| step.act).collect::<Vec<_>>()
        };
        let store = |act| Act::Store(StoreAct::Process(act));
        let expected = [store(Kill), Act::Gateway(Kill), store(Start), Act::Gateway(Start)];
        assert_eq!(acts("postgres-killed"), expected);
        let expected = [Act::Network(true), Act::Gateway(Kill), Act::Gateway(Start), Act::Network(false)];
        assert_eq!(acts("network-cut"), expected);
    }

    #[test]
    fn a_new_process_takes_over_in_the_midst_or_once_it_can_start() {
        use super::ProcessAct::{Kill, Start};
        let acts = |name| {
            let steps = scenario(name).steps_during(Some(During::Upgrade));
            steps.into_iter().map(|step| step.act).collect::<Vec<_>>()
        };
        let store = |act| Act::Store(StoreAct::Process(act));
        assert_eq!(acts("redis-killed"), [store(Kill), Act::Upgrade, store(Start)]);
        assert_eq!(acts("postgres-killed"), [store(Kill), store(Start), Act::Upgrade]);
        let expected = [Act::Disk(DiskAct::Forbid), Act::Disk(DiskAct::Allow), Act::Upgrade];
        assert_eq!(acts("disk-read-only"), expected);
        let steps = acts("descriptors-exhausted");
        assert_eq!(steps[steps.len() - 2..], [Act::Descriptors(None), Act::Upgrade]);
    }

    #[test]
    fn what_cannot_happen_in_a_scenario_is_refused() {
        let refused = |during: During, name| during.is_refused_by(&scenario(name)).is_some();
        assert!(refused(During::Reload, "disk-full") && !refused(During::Kill, "disk-full"));
        assert!(refused(During::Reload, "gateway-stopped") && refused(During::Kill, "gateway-killed"));
        assert!(!refused(During::Reload, "network-cut"));
        assert!(refused(During::Kill, "descriptors-exhausted"));
        assert!(!refused(During::Reload, "descriptors-exhausted"));
        assert!(!refused(During::Upgrade, "disk-slow") && !refused(During::Kill, "disk-slow"));
        assert!(
            refused(During::Upgrade, "gateway-upgraded") && !refused(During::Upgrade, "gateway-reloaded")
        );
    }
}
