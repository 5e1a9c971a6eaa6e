//! A `weir` process in a folder, with the certificate of the fleet.
use super::FleetError;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A running process; killed when dropped.
pub(super) struct Node(Child);

/// The folder of a node, and the program that runs in it.
#[derive(Debug, Clone)]
pub(super) struct Installation {
    weir: PathBuf,
    folder: PathBuf,
    /// What the node is called in messages.
    name: &'static str,
}

impl Installation {
    pub(super) fn new(weir: &Path, folder: &Path, name: &'static str) -> Installation {
        Installation { weir: weir.to_owned(), folder: folder.to_owned(), name }
    }

    /// A file of the folder.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Runs a command of `weir` to its end.
    pub(super) fn command(&self, words: &[&str], arguments: &[&Path]) -> Result<(), FleetError> {
        let mut command = Command::new(&self.weir);
        command.args(words).args(arguments).env("WEIR_PREFIX", self.path(self.name));
        let output = command.env("WEIR_DATABASE", "sqlite").output().map_err(not_started)?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(FleetError::Node(format!("`weir {}`: {said}", words.join(" "))))
    }

    /// Starts the node with these settings, and waits for the line that says where it listens.
    pub(super) fn start(&self, settings: &[(&str, String)]) -> Result<Node, FleetError> {
        let log = self.path(&format!("{}.log", self.name));
        let file = File::create(&log).map_err(|error| FleetError::System("no log for a node", error))?;
        let mut command = Command::new(&self.weir);
        command.arg("run").env("WEIR_PREFIX", self.path(self.name));
        command.env("WEIR_CLUSTER_CERT", self.path("cluster.crt"));
        command.env("WEIR_CLUSTER_CERT_KEY", self.path("cluster.key"));
        let settings = settings.iter().map(|(name, value)| (format!("WEIR_{}", name.to_uppercase()), value));
        let mut child =
            command.envs(settings).stdout(Stdio::piped()).stderr(file).spawn().map_err(not_started)?;
        let mut line = String::new();
        let stdout = child.stdout.take();
        let node = Node(child);
        let read = stdout.map_or(Ok(0), |stdout| BufReader::new(stdout).read_line(&mut line));
        if read.is_ok_and(|length| length > 0) {
            return Ok(node);
        }
        let said = fs::read_to_string(log).unwrap_or_default();
        Err(FleetError::Node(format!("the {} does not start: {}", self.name, said.trim())))
    }
}

impl Node {
    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Kills it, and waits for its end.
    pub(super) fn kill(&mut self) {
        // Fails if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port without a listener.
pub(super) fn free_port() -> Result<u16, FleetError> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(|error| FleetError::System("no free port", error))
}

fn not_started(error: std::io::Error) -> FleetError {
    FleetError::System("`weir` cannot be started; name it with --weir", error)
}
