//! Load generators of other makers, beside our own: the same plan as each of them takes it, and what they print as the
//! same outcome. `docs/laboratory/generators.md` says what each of them knows.
//!
//! ```text
//! plan ─► requests as a list ─► command and script of a generator ─► its output ─► outcome
//! ```
mod error;
mod h2load;
mod k6;
mod lua;
mod oha;
mod process;
mod quantiles;
mod wrk;
mod wrk2;

pub use error::GeneratorError;

use crate::load::validity::{Evidence, judge};
use crate::load::{self, Edge, ListedRequest, Outcome, Pace, Plan, Protocol};
use crate::result::{Histogram, Latencies};
use process::Ended;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Which generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum Kind {
    /// Our own.
    Weirlab,
    /// wrk.
    Wrk,
    /// wrk2.
    Wrk2,
    /// oha.
    Oha,
    /// h2load.
    H2load,
    /// k6.
    K6,
}

/// A generator on the machine that the load comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// Which one.
    pub kind: Kind,
    /// Its program there; empty for our own, and until it is found.
    program: PathBuf,
    /// What it says of its version; empty for our own, and where it does not say.
    pub version: String,
}

/// A script of k6 that is run as it is, instead of the plan's requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Script {
    /// The file.
    pub file: PathBuf,
    /// The environment that it reads.
    pub environment: BTreeMap<String, String>,
    /// What is in the file, where k6 runs on another machine than the file is on.
    pub text: Option<String>,
}

/// A load and what generates it.
#[derive(Clone, Copy)]
pub struct Task<'a> {
    /// The load.
    pub plan: &'a Plan,
    /// What generates it.
    pub generator: &'a Generator,
    /// What k6 runs instead of the plan's requests.
    pub script: Option<&'a Script>,
}

/// What a generator is asked to do.
struct Job<'a> {
    plan: &'a Plan,
    requests: Vec<ListedRequest>,
    script: Option<&'a Script>,
    /// Where its files go.
    folder: &'a Path,
}

/// What the output of a generator says. What it does not know is empty.
#[derive(Debug, Default, PartialEq)]
struct Reading {
    measured: Duration,
    answers: u64,
    good: u64,
    bytes: u64,
    statuses: BTreeMap<u16, u64>,
    errors: BTreeMap<String, u64>,
    /// From the scheduled instant.
    response: Histogram,
    /// From the instant of sending.
    service: Histogram,
}

impl Kind {
    /// Its name, which is that of its program.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Weirlab => "weirlab",
            Kind::Wrk => "wrk",
            Kind::Wrk2 => "wrk2",
            Kind::Oha => "oha",
            Kind::H2load => "h2load",
            Kind::K6 => "k6",
        }
    }

    /// The environment variable that may name its program.
    #[must_use]
    pub fn variable(self) -> String {
        format!("WEIRLAB_{}", self.name().to_uppercase())
    }

    /// Its program on this machine: the one that the environment names, else that of the PATH.
    #[must_use]
    pub fn program(self) -> Option<PathBuf> {
        let found = self.named_program().or_else(|| process::on_path(self.name()))?;
        // It is started in a folder of its own.
        std::path::absolute(found).ok().filter(|program| program.is_file())
    }

    /// The program that the environment names, if it does.
    #[must_use]
    pub fn named_program(self) -> Option<PathBuf> {
        std::env::var_os(self.variable()).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// How to install it.
    #[must_use]
    pub fn installation(self) -> &'static str {
        match self {
            Kind::Weirlab => "it is a part of weirlab",
            Kind::Wrk => "apt-get install wrk",
            Kind::Wrk2 => {
                "no distribution has it; build https://github.com/giltene/wrk2 and name its program wrk2"
            }
            Kind::Oha => "cargo install oha",
            Kind::H2load => "apt-get install nghttp2-client",
            Kind::K6 => "go install go.k6.io/k6@latest, or a package of https://k6.io",
        }
    }

    fn command(self, job: &Job<'_>, program: &Path) -> Result<Command, GeneratorError> {
        match self {
            Kind::Weirlab | Kind::Wrk => wrk::command(job, program),
            Kind::Wrk2 => wrk2::command(job, program),
            Kind::Oha => oha::command(job, program),
            Kind::H2load => h2load::command(job, program),
            Kind::K6 => k6::command(job, program),
        }
    }

    fn read(self, job: &Job<'_>, ended: &Ended) -> Result<Reading, GeneratorError> {
        match self {
            Kind::Weirlab | Kind::Wrk => wrk::read(job, ended),
            Kind::Wrk2 => wrk2::read(job, ended),
            Kind::Oha => oha::read(job, ended),
            Kind::H2load => h2load::read(job, ended),
            Kind::K6 => k6::read(job, ended),
        }
    }
}

impl Generator {
    /// Our own generator.
    #[must_use]
    pub fn own() -> Generator {
        Generator::wanted(Kind::Weirlab)
    }

    /// A generator that is yet to be found on the machine that the load comes from.
    #[must_use]
    pub fn wanted(kind: Kind) -> Generator {
        Generator { kind, program: PathBuf::new(), version: String::new() }
    }

    /// The generator as this program of this machine.
    #[must_use]
    pub fn at(kind: Kind, program: PathBuf) -> Generator {
        let version = process::version(kind, &program);
        Generator { kind, program, version }
    }

    /// The generator on this machine: the program that `WEIRLAB_NAME` in the environment names, or that of the PATH.
    ///
    /// # Errors
    /// When it is not installed.
    pub fn find(kind: Kind) -> Result<Generator, GeneratorError> {
        if kind == Kind::Weirlab {
            return Ok(Generator::own());
        }
        let missing = || GeneratorError::Missing {
            name: kind.name(),
            install: kind.installation(),
            variable: kind.variable(),
        };
        kind.program().map(|program| Generator::at(kind, program)).ok_or_else(missing)
    }

    /// Whether it is our own.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.kind == Kind::Weirlab
    }
}

impl Task<'_> {
    /// Generates the load from this machine. `observer` is called before the generator begins and after it has ended: what
    /// the target did for it lies between. Its files go into a folder below `folder`, and what is started there bears the
    /// mark of it, so that the guard of a session that was killed ends it.
    ///
    /// # Errors
    /// When the plan is not for this generator, or what it says cannot be read.
    pub fn run(
        &self,
        folder: &Path,
        observer: &mut dyn FnMut(Edge),
        stop: &AtomicBool,
    ) -> Result<Outcome, GeneratorError> {
        let (plan, kind) = (self.plan, self.generator.kind);
        if self.generator.is_own() {
            return load::run(plan, observer, stop).map_err(GeneratorError::Load);
        }
        if plan.first_byte {
            return Err(GeneratorError::Unsupported {
                name: kind.name(),
                what: "requests and time the first byte of bodies".to_owned(),
            });
        }
        let folder =
            tempfile::tempdir_in(folder).map_err(|error| GeneratorError::System(kind.name(), error))?;
        let requests = load::list(plan).map_err(GeneratorError::Load)?;
        let script = self.script.filter(|_| kind == Kind::K6);
        let job = Job { plan, requests, script, folder: folder.path() };
        let command = kind.command(&job, &self.generator.program)?;
        warm_up(plan, stop)?;
        observer(Edge::Begin);
        let ended = process::run(kind.name(), command, &job, stop)?;
        observer(Edge::End);
        let reading = kind.read(&job, &ended)?;
        Ok(outcome(plan, reading, &ended))
    }
}

/// Warms the target up by our own generator, because few others leave a warm-up out of what they count.
fn warm_up(plan: &Plan, stop: &AtomicBool) -> Result<(), GeneratorError> {
    let brief = Plan { pace: Pace::Closed, duration: Duration::from_millis(1), live: None, ..plan.clone() };
    load::run(&brief, &mut |_| (), stop).map(|_| ()).map_err(GeneratorError::Load)
}

fn outcome(plan: &Plan, reading: Reading, ended: &Ended) -> Outcome {
    let offered = match plan.pace {
        Pace::Closed => None,
        Pace::Constant(rate) | Pace::Poisson(rate) => Some(rate),
    };
    let due = offered.map_or(0.0, |rate| rate * reading.measured.as_secs_f64());
    let mut outcome = Outcome {
        measured: reading.measured,
        warm_up: plan.warm_up.at_least,
        steady: None,
        answers: reading.answers,
        good: reading.good,
        bytes: reading.bytes,
        statuses: reading.statuses,
        errors: reading.errors,
        latencies: Latencies { response: reading.response, service: reading.service, ..Latencies::default() },
        lateness: Histogram::default(),
        connect: Histogram::default(),
        offered,
        connections_opened: None,
        generator_cpu: ended.cpu,
        series: Vec::new(),
        void: None,
        overloaded: false,
    };
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let cpus = if plan.cpus.is_empty() { available } else { plan.cpus.len() };
    judge(&mut outcome, &Evidence { cpus, arrivals: due as u64, outstanding: plan.connections as u64 });
    outcome
}

impl Job<'_> {
    /// Where a path of the target is.
    fn url(&self, path: &str) -> String {
        let scheme = if self.plan.tls { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.plan.host)
    }

    /// The window in whole seconds, because some generators know no others.
    fn seconds(&self) -> u64 {
        self.plan.duration.as_secs_f64().ceil().max(1.0) as u64
    }

    /// Refuses what a generator cannot do.
    fn refuse(&self, kind: Kind, what: &str) -> Result<(), GeneratorError> {
        Err(GeneratorError::Unsupported { name: kind.name(), what: what.to_owned() })
    }

    /// Refuses what none of the others can do, and an open loop unless the generator has one.
    fn check(&self, kind: Kind, has_rate: bool) -> Result<(), GeneratorError> {
        match (self.plan.protocol, self.plan.pace) {
            (Protocol::Grpc { .. }, _) => self.refuse(kind, "calls of gRPC"),
            (Protocol::WebSocket, _) => self.refuse(kind, "messages of a WebSocket"),
            (_, Pace::Poisson(_)) => {
                self.refuse(kind, "Poisson arrivals (arrivals = \"constant\" are possible with a rate)")
            }
            (_, Pace::Constant(_)) if !has_rate => self.refuse(kind, "a rate"),
            _ => Ok(()),
        }
    }

    /// Refuses answers that a generator counts as errors although the plan expects them.
    fn expects_success(&self, kind: Kind) -> Result<(), GeneratorError> {
        let success = |status: &u16| (200..400).contains(status);
        match self.requests.iter().flat_map(|request| &request.expect.status).find(|status| !success(status))
        {
            None => Ok(()),
            Some(status) => self.refuse(kind, &format!("the status {status} as a right answer")),
        }
    }

    /// The headers, if all requests have the same ones, method and body; else refuses.
    fn common(&self, kind: Kind) -> Result<&ListedRequest, GeneratorError> {
        let first = &self.requests[0];
        let same = |other: &ListedRequest| {
            (&other.method, &other.headers, &other.body) == (&first.method, &first.headers, &first.body)
        };
        if !self.requests.iter().all(same) {
            self.refuse(kind, "requests whose headers, methods or bodies differ")?;
        }
        Ok(first)
    }

    /// Latencies on the clock that the pace has: in a closed loop both clocks are the same.
    fn both(&self, histogram: Histogram) -> (Histogram, Histogram) {
        match self.plan.pace {
            Pace::Closed => (histogram.clone(), histogram),
            _ => (Histogram::default(), histogram),
        }
    }
}
