//! Scenarios: folders with a `scenario.toml`, a Kong declarative file and a `WHY.md`. A scenario becomes one or more
//! cases, one for each scheme and each value of its sweep.
use crate::generator::Script;
use crate::load::{Pace, Protocol, Requests};
use crate::result::Case;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

mod document;
mod expand;
mod file;
mod fill;
mod folder;
mod suite;

pub use crate::catalogue::CatalogueError as ScenarioError;
pub use file::Scheme;
pub use folder::{Scenario, find};
pub use suite::{Change, Given, Suite, SuiteEntry};

/// A scenario with scheme and variables set: all that a cell needs to know of it.
#[derive(Clone, Debug)]
pub struct CasePlan {
    /// What the result says of it.
    pub case: Case,
    /// What of it is measured.
    pub measure: Measure,
    /// The features a target must have: what the scenario declares (`needs`), the scheme, each plugin in its
    /// declarative file (by name), and `balancer`, `regex-routes` and the like where the file uses them.
    pub needs: BTreeSet<String>,
    /// The upstream that it is put in front of.
    pub upstream: UpstreamPlan,
    /// The gateway's shape.
    pub gateway: GatewayPlan,
    /// The load.
    pub load: LoadPlan,
    /// What must be so before it is measured.
    pub parity: Vec<ParityCheck>,
    /// What happens while it is measured.
    pub actions: Vec<Action>,
    /// The template of the declarative file, and the variables it is rendered with.
    pub config: ConfigTemplate,
}

impl CasePlan {
    /// Whether clients speak TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.case.scheme.parse().is_ok_and(Scheme::is_tls)
    }

    /// Whether the case counts instances: then there is a front before a single one too.
    #[must_use]
    pub fn has_front(&self) -> bool {
        self.gateway.instances > 1 || self.case.variables.contains_key("instances")
    }

    /// What runs beside gateways, upstream and generator.
    #[must_use]
    pub fn beside(&self) -> Vec<&'static str> {
        let control_plane = self.needs.contains("hybrid").then_some("control plane");
        control_plane.into_iter().chain(self.has_front().then_some("front")).collect()
    }
}

/// What is measured of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Requests under load.
    #[default]
    Load,
    /// The time from a target's start to its first right answer.
    Start,
    /// The time until the target says that a changed configuration is active.
    Reload,
    /// The memory that each idle connection takes.
    IdleConnections,
}

/// What the upstream does.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamPlan {
    /// Addresses it listens on (targets of a balancer); at least 1.
    pub listeners: usize,
    /// The length of each body.
    pub body_bytes: u64,
    /// Arguments for `weirlab upstream` beyond these, such as `--delay 5ms`.
    pub arguments: Vec<String>,
}

/// The gateway's shape.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayPlan {
    /// Gateway processes; more than one stand behind a front that spreads connections.
    pub instances: usize,
    /// Workers of each; none for what the profile says.
    pub workers: Option<usize>,
}

/// The load, but for addresses, threads' CPUs and durations.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// Over all threads.
    pub connections: usize,
    /// Threads, as the scenario's source has them; the session may use fewer on a small machine.
    pub threads: usize,
    /// The protocol.
    pub protocol: Protocol,
    /// Whether connections are kept.
    pub keep_alive: bool,
    /// Whether it is noted when the first byte of each body comes.
    pub first_byte: bool,
    /// Closed, or a rate.
    pub pace: Pace,
    /// What is asked.
    pub requests: Requests,
    /// How long an answer may take.
    pub timeout: Duration,
    /// What k6 runs instead of the requests.
    pub script: Option<Script>,
}

/// One request and what must come back.
#[derive(Clone, Debug, PartialEq)]
pub struct ParityCheck {
    /// Such as `GET`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Request headers.
    pub headers: Vec<(String, String)>,
    /// The request's body.
    pub body: String,
    /// The status that must come.
    pub status: u16,
    /// Headers that must be there.
    pub with_headers: Vec<String>,
    /// The status of the call that must come in the trailers of gRPC.
    pub grpc_status: Option<u16>,
    /// Whether the body must be the upstream's.
    pub upstream_body: bool,
}

/// Something that happens again and again during a load.
#[derive(Clone, Debug, PartialEq)]
pub struct Action {
    /// What the report calls it.
    pub name: String,
    /// The time between two beginnings.
    pub every: Duration,
    /// What is done.
    pub kind: ActionKind,
}

/// What an action does.
#[derive(Clone, Debug, PartialEq)]
pub enum ActionKind {
    /// An HTTP call to one of the target's listeners.
    Http {
        /// `proxy`, `admin` or `status`.
        listener: String,
        /// Such as `PATCH`.
        method: String,
        /// Path, with `{random}` for a number drawn anew each time, `{n}` for how often it has been done.
        path: String,
        /// Request headers.
        headers: Vec<(String, String)>,
        /// The body, with the same places.
        body: String,
        /// Below this `{random}` is drawn.
        random: u64,
    },
    /// The target's own way to reload its configuration.
    Reload,
    /// A signal to the target's main process, such as `HUP`.
    Signal(String),
}

/// A declarative file that is yet to be rendered.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigTemplate {
    /// The file.
    pub path: PathBuf,
    /// Variables, beside `upstreams`: the list of the upstream's addresses, and `upstream`, the first.
    pub variables: BTreeMap<String, serde_json::Value>,
    /// Whether it is somebody's own: such a file may hold secrets, so that a run keeps its hash alone.
    pub private: bool,
}

/// A rendered declarative file.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// As text, for gateways that read Kong's format.
    pub text: String,
    /// As data, for the templates of those that do not.
    pub data: serde_json::Value,
    /// Routes with all that they inherit, for templates.
    pub routes: Vec<FlatRoute>,
}

/// A route with its service's target and its active plugins.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct FlatRoute {
    /// A name that is unique in the document and safe in any configuration language: letters, digits, `_`.
    pub name: String,
    /// Path prefixes, `~` and a regex as Kong writes it.
    pub paths: Vec<String>,
    /// Hosts; none for all.
    pub hosts: Vec<String>,
    /// Methods; none for all.
    pub methods: Vec<String>,
    /// What the service speaks: `http`, `https`, `grpc` or `grpcs`.
    pub protocol: String,
    /// Whether the matched prefix is cut off.
    pub strip_path: bool,
    /// The path of the service's URL, without a slash at its end.
    pub service_path: String,
    /// The name of its endpoints, the same for routes with the same ones; safe as `name` is.
    pub pool: String,
    /// Addresses with weights: of the service's upstream, or its own.
    pub endpoints: Vec<Endpoint>,
    /// Active plugins: route's, service's, global; name to configuration.
    pub plugins: BTreeMap<String, serde_json::Value>,
}

/// An address behind a route.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Endpoint {
    /// Address and port.
    pub address: SocketAddr,
    /// Weight.
    pub weight: u32,
}
