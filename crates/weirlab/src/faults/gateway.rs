//! A gateway in front of the upstream servers of a scenario: its `faults.toml` beside its `target.toml`.
use super::FaultError;
use super::act::Act;
use super::dns::NAME;
use super::scenario::{During, Scenario};
use super::store::MASTER;
use crate::catalogue::{self, read_text, read_toml, render};
use crate::target::{Launch, Listeners, Ready, Reload, Target, TargetError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

const FILE: &str = "faults.toml";
/// Gateways of a debug build start slowly on a machine that is busy.
const READY: Duration = Duration::from_secs(60);

/// A gateway that can take part.
#[derive(Clone, Debug)]
pub struct Gateway {
    target: Target,
    binary: PathBuf,
    file: File,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    features: BTreeSet<String>,
    command: Vec<String>,
    /// Commands for scenarios that need a feature.
    #[serde(default)]
    command_for: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    file: Vec<TemplateFile>,
    /// How it reads its configuration again.
    reload: Option<OrderFile>,
    /// How a new process takes over.
    upgrade: Option<OrderFile>,
    /// What names its main process, where a new one takes over.
    pid_file: Option<String>,
    stop: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TemplateFile {
    template: String,
    path: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OrderFile {
    signal: Option<String>,
    #[serde(default)]
    command: Vec<String>,
}

/// What a gateway is put in front of, and where.
pub(super) struct Surroundings<'a> {
    pub(super) folder: &'a Path,
    pub(super) listeners: [SocketAddr; 3],
    pub(super) upstreams: &'a [SocketAddr],
    /// The certificate that upstream servers are checked against.
    pub(super) ca: Option<&'a Path>,
    pub(super) resolver: Option<SocketAddr>,
    /// The server of counters or of the configuration.
    pub(super) store: Option<SocketAddr>,
    /// The server that takes its place when it fails.
    pub(super) standby: Option<SocketAddr>,
    /// What knows which of Redis' servers takes writes.
    pub(super) sentinel: Option<SocketAddr>,
    /// The folder for what the gateway writes.
    pub(super) disk: Option<&'a Path>,
    pub(super) needs: &'a BTreeSet<String>,
    /// What it is started with, and what starts it.
    pub(super) environment: BTreeMap<String, String>,
    pub(super) wrap: Vec<String>,
}

#[derive(Serialize)]
struct Context<'a> {
    binary: &'a Path,
    folder: &'a Path,
    http: Address,
    admin: Address,
    status: Address,
    upstreams: Vec<Address>,
    tls: bool,
    ca: Option<&'a Path>,
    ca_text: String,
    resolver: Option<Address>,
    name: &'a str,
    store: Option<Address>,
    standby: Option<Address>,
    sentinel: Option<Address>,
    /// What sentinels call the servers that they watch.
    master: &'a str,
    /// Whether the store is for counters.
    redis: bool,
    disk: Option<&'a Path>,
}

#[derive(Serialize)]
struct Address {
    address: SocketAddr,
    host: String,
    port: u16,
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self { address, host: address.ip().to_string(), port: address.port() }
    }
}

impl Gateway {
    /// Reads what a target needs for faults; none if it has no file for them. A given program takes the place of its own.
    ///
    /// # Errors
    /// When its file is wrong or its program is missing.
    pub fn of(target: &Target, program: Option<&Path>) -> Result<Option<Self>, TargetError> {
        let path = target.folder.join(FILE);
        if !path.exists() {
            return Ok(None);
        }
        let file = read_toml(&path)?;
        Ok(Some(Self { target: target.clone(), binary: target.binary(program)?, file }))
    }

    /// The folder's name of its target.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.target.name
    }

    /// What it lacks for a scenario, and for what happens to the gateway besides.
    #[must_use]
    pub fn lacks(&self, scenario: &Scenario, during: Option<During>) -> Option<String> {
        let mut missing: Vec<&str> =
            scenario.needs.difference(&self.file.features).map(String::as_str).collect();
        let steps = scenario.steps_during(during);
        let takes = |act: Act| steps.iter().any(|step| step.act == act);
        if takes(Act::Reload) && self.file.reload.is_none() {
            missing.push("reload");
        }
        if takes(Act::Upgrade) && self.file.upgrade.is_none() {
            missing.push("upgrade");
        }
        (!missing.is_empty()).then(|| format!("has no {} here", missing.join(", ")))
    }

    pub(super) fn prepare(&self, around: &Surroundings<'_>) -> Result<Launch, FaultError> {
        let context = catalogue::context(self.context(around)?);
        let manifest = self.target.folder.join(FILE);
        let fill = |text: &String| render(&manifest, text, &context);
        let mut files = Vec::new();
        for file in &self.file.file {
            let template = self.target.folder.join(&file.template);
            files.push((PathBuf::from(&file.path), render(&template, &read_text(&template)?, &context)?));
        }
        let special = around.needs.iter().find_map(|need| self.file.command_for.get(need));
        let command = words(special.unwrap_or(&self.file.command), fill)?;
        Ok(Launch {
            label: self.name().to_owned(),
            command: around.wrap.iter().cloned().chain(command).collect(),
            environment: around.environment.clone(),
            folder: around.folder.to_owned(),
            listeners: Listeners { http: Some(around.listeners[0]), ..Listeners::default() },
            ready: Ready { within: READY, ..Ready::default() },
            reload: order(self.file.reload.as_ref(), fill)?,
            upgrade: order(self.file.upgrade.as_ref(), fill)?,
            pid_file: self.file.pid_file.as_ref().map(fill).transpose()?.map(PathBuf::from),
            stop_signal: self.file.stop.clone(),
            files,
            ..Launch::default()
        })
    }

    fn context<'a>(&'a self, around: &'a Surroundings<'a>) -> Result<Context<'a>, FaultError> {
        let [http, admin, status] = around.listeners.map(Address::from);
        Ok(Context {
            binary: &self.binary,
            folder: around.folder,
            http,
            admin,
            status,
            upstreams: around.upstreams.iter().copied().map(Address::from).collect(),
            tls: around.ca.is_some(),
            ca: around.ca,
            ca_text: around.ca.map_or(Ok(String::new()), read_text)?,
            resolver: around.resolver.map(Address::from),
            name: NAME,
            store: around.store.map(Address::from),
            standby: around.standby.map(Address::from),
            sentinel: around.sentinel.map(Address::from),
            master: MASTER,
            redis: around.needs.contains("redis"),
            disk: around.disk,
        })
    }
}

fn order(
    file: Option<&OrderFile>,
    fill: impl Fn(&String) -> Result<String, TargetError>,
) -> Result<Option<Reload>, TargetError> {
    let Some(file) = file else { return Ok(None) };
    match &file.signal {
        Some(signal) => Ok(Some(Reload::Signal(signal.clone()))),
        None => Ok(Some(Reload::Command(words(&file.command, fill)?))),
    }
}

/// An argument that a scenario has no use for is empty, and is left out.
fn words(
    words: &[String],
    fill: impl Fn(&String) -> Result<String, TargetError>,
) -> Result<Vec<String>, TargetError> {
    let filled: Vec<String> = words.iter().map(fill).collect::<Result<_, _>>()?;
    Ok(filled.into_iter().filter(|word| !word.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::scenario::find;
    use super::*;

    #[test]
    fn the_access_log_is_on_the_disk_in_each_scenario_that_has_one() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let weir = crate::target::find(&["weir".to_owned()], root).unwrap().remove(0);
        let weir = Gateway::of(&weir, Some(Path::new("/bin/true"))).unwrap().unwrap();
        let scenarios = find(&[], root).unwrap().into_iter().filter(|one| one.needs.contains("disk"));
        let mut names = Vec::new();
        for scenario in scenarios {
            let launch = weir.prepare(&Surroundings {
                folder: Path::new("/run"),
                listeners: [1, 2, 3].map(|port| ([127, 0, 0, 1], port).into()),
                upstreams: &[([127, 0, 0, 1], 4).into()],
                ca: None,
                resolver: None,
                store: None,
                standby: None,
                sentinel: None,
                disk: Some(Path::new("/disk")),
                needs: &scenario.needs,
                environment: BTreeMap::new(),
                wrap: Vec::new(),
            });
            let command = launch.unwrap().command;
            assert!(command.contains(&"proxy_access_log=/disk/access.log".to_owned()), "{command:?}");
            names.push(scenario.name);
        }
        assert_eq!(names, ["disk-full", "disk-read-only", "log-disk-full", "log-disk-read-only"]);
    }
}
