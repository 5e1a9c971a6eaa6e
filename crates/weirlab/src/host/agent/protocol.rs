//! What a session asks an agent, and what comes back.
use crate::generator::{Generator, Kind, Script};
use crate::host::ClientRequest;
use crate::load::{Edge, Plan};
use crate::target::Launch;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The number of what is sent, which a session and its agents must share. Raise it with each change of the types here, or
/// of a type in them.
pub(in crate::host) const PROTOCOL: u32 = 2;

/// The agent's first line.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::host) struct Hello {
    /// The version of its program.
    pub(in crate::host) version: String,
    /// Its [`PROTOCOL`]; programs from before there was one say nothing.
    #[serde(default)]
    pub(in crate::host) protocol: u32,
    /// The CPUs it may use, by core.
    pub(in crate::host) cores: Vec<Vec<usize>>,
    /// Its folder.
    pub(in crate::host) folder: PathBuf,
    /// Whether another session was running there.
    pub(in crate::host) other_session_running: bool,
}

/// A request with the number that its reply has.
#[derive(Serialize, Deserialize)]
pub(in crate::host) struct Call {
    pub(in crate::host) id: u64,
    pub(in crate::host) request: Request,
}

/// The number of a request that may be of another version.
#[derive(Deserialize)]
pub(in crate::host) struct Numbered {
    pub(in crate::host) id: u64,
}

/// What comes back for a request.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::host) struct Message {
    pub(in crate::host) id: u64,
    pub(in crate::host) body: Body,
}

/// One of the messages for a request; all but edges are the last.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::host) enum Body {
    /// A load's window begins or is over.
    Edge(Edge),
    Done(Value),
    Failed(String),
}

/// A request. Numbers name what an earlier reply has named.
#[derive(Serialize, Deserialize)]
pub(in crate::host) enum Request {
    /// The time of the machine's clock.
    Time,
    /// Change the machine's settings for measurements.
    Prepare,
    /// Wait until the load average for each core is below this.
    AwaitQuiet {
        below: f64,
        at_most: Duration,
    },
    /// What is known of the machine.
    Describe,
    Addresses {
        count: usize,
    },
    /// The first of these programs that is there.
    Find {
        candidates: Vec<String>,
    },
    Program {
        program: PathBuf,
        version: Vec<String>,
    },
    Start {
        launch: Box<Launch>,
        cpus: Vec<usize>,
    },
    Alive {
        running: u64,
    },
    Reload {
        running: u64,
    },
    Signal {
        running: u64,
        name: String,
    },
    Replace {
        running: u64,
        file: String,
        text: String,
    },
    Log {
        running: u64,
    },
    Stop {
        running: u64,
    },
    /// End whatever is named so.
    End {
        id: u64,
    },
    Serve {
        arguments: Vec<String>,
        cpus: Vec<usize>,
    },
    Observe {
        roots: Vec<u32>,
    },
    Sample {
        trees: u64,
    },
    Machine,
    Has {
        pid: u32,
    },
    Family {
        roots: Vec<u32>,
    },
    Connections {
        roots: Vec<u32>,
        ports: Vec<u16>,
    },
    /// A generator of another maker: this program, or the one that is installed there.
    Generator {
        kind: Kind,
        program: Option<PathBuf>,
    },
    Load {
        plan: Box<Plan>,
        generator: Box<Generator>,
        script: Option<Script>,
    },
    /// Stop the load, or the opening of connections, of an earlier request.
    Interrupt {
        id: u64,
    },
    Idle {
        plan: Box<Plan>,
        more: usize,
    },
    Open {
        idle: u64,
        count: usize,
    },
    Ended {
        idle: u64,
    },
    Stacks {
        pids: Vec<u32>,
        duration: Duration,
        frequency: u32,
    },
    Send {
        request: ClientRequest,
    },
}

/// A gateway that was started.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::host) struct Started {
    pub(in crate::host) id: u64,
    pub(in crate::host) pid: u32,
    /// How long ago it was started.
    pub(in crate::host) age: Duration,
}

/// A server that listens.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::host) struct Serving {
    pub(in crate::host) id: u64,
    pub(in crate::host) pid: u32,
    pub(in crate::host) listen: Vec<SocketAddr>,
    pub(in crate::host) listen_tls: Vec<SocketAddr>,
}
