//! A target's configuration in front of a case: templates become files, words become a command.
use super::file::{ControlPlaneFile, ListenerName, TargetFile};
use super::{Launch, Listeners, Ready, Reload, Target, TargetError};
use crate::catalogue::{self, read_text, render};
use crate::scenario::{CasePlan, Document, Endpoint, FlatRoute};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

/// What a control plane listens on.
const CONTROL_PLANE_LISTENERS: [ListenerName; 3] =
    [ListenerName::Cluster, ListenerName::Admin, ListenerName::Status];

/// The declarative file in the folder of a launch.
const KONG_YML: &str = "kong.yml";

/// What a target is prepared for.
#[derive(Clone, Copy, Debug)]
pub struct Preparation<'a> {
    /// Its label in the run.
    pub label: &'a str,
    /// Its program.
    pub binary: &'a Path,
    /// The case.
    pub case: &'a CasePlan,
    /// The case's declarative file, rendered for the upstream below.
    pub document: &'a Document,
    /// A folder of its own, which exists and is empty.
    pub folder: &'a Path,
    /// How many workers it gets.
    pub workers: usize,
    /// Where the upstream listens.
    pub upstream: &'a [SocketAddr],
    /// Where the upstream listens for TLS: what a target without a process has clients speak to.
    pub upstream_tls: &'a [SocketAddr],
    /// The listeners' certificate and key, as PEM files.
    pub certificate: Certificate<'a>,
    /// Where the control plane listens for gateways, if there is one.
    pub control_plane: Option<SocketAddr>,
    /// Whether it will run in a container of its own image rather than as a process here.
    pub container: bool,
}

/// A certificate in PEM files.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Certificate<'a> {
    /// The certificate.
    pub certificate: &'a Path,
    /// Its key.
    pub key: &'a Path,
    /// Both in one file, the certificate first.
    pub combined: &'a Path,
}

/// What templates may use.
#[derive(Serialize)]
struct Context<'a> {
    binary: &'a Path,
    folder: &'a Path,
    target: &'a Path,
    workers: usize,
    scheme: &'a str,
    listeners: BTreeMap<&'static str, Address>,
    control_plane: Option<Address>,
    certificate: &'a Path,
    key: &'a Path,
    combined: &'a Path,
    /// For languages that want it inline, as `key_text`.
    certificate_text: String,
    key_text: String,
    upstream: Vec<Address>,
    routes: &'a [FlatRoute],
    prefixes: Vec<Prefix<'a>>,
    pools: Vec<Pool<'a>>,
    document: &'a serde_json::Value,
    kong_yml: &'a Path,
    connections: usize,
    variables: &'a BTreeMap<String, serde_json::Value>,
}

/// An address in the parts that configuration languages ask for.
#[derive(Serialize)]
struct Address {
    address: SocketAddr,
    host: String,
    port: u16,
}

/// A path of a route.
#[derive(Serialize)]
struct Prefix<'a> {
    path: &'a str,
    /// The path without slashes at its ends.
    stem: &'a str,
    /// Whether it is cut off.
    cut: bool,
    route: &'a FlatRoute,
}

/// Endpoints that some routes share.
#[derive(Serialize)]
struct Pool<'a> {
    name: &'a str,
    endpoints: Vec<PoolEndpoint>,
}

#[derive(Serialize)]
struct PoolEndpoint {
    #[serde(flatten)]
    at: Address,
    weight: u32,
}

impl Target {
    /// Renders its files into the folder and says how it is started there, on ports that are free now.
    ///
    /// # Errors
    /// When a template is wrong, a file cannot be written, or no port is free.
    pub fn prepare(&self, preparation: &Preparation<'_>) -> Result<Launch, TargetError> {
        if !self.has_process() {
            return Ok(bare(preparation));
        }
        let (listeners, context) = self.settle(preparation, &self.file.listeners)?;
        let manifest = self.folder.join("target.toml");
        let fill = |text: &str| render(&manifest, text, &context);
        let mut files = vec![PathBuf::from(KONG_YML)];
        for file in &self.file.file {
            let template = self.folder.join(&file.template);
            let text = render(&template, &read_text(&template)?, &context)?;
            let path = fill(&file.path)?;
            write(&preparation.folder.join(&path), &text)?;
            files.push(PathBuf::from(path));
        }
        Ok(Launch { files, ..self.launch(preparation, listeners, fill)? })
    }

    /// Says how its control plane is started in the folder; none for a target, or a case, without one.
    ///
    /// # Errors
    /// When a template is wrong, a file cannot be written, or no port is free.
    pub fn prepare_control_plane(
        &self,
        preparation: &Preparation<'_>,
    ) -> Result<Option<Launch>, TargetError> {
        let Some(file) = self.control_plane(preparation.case) else { return Ok(None) };
        let (listeners, context) = self.settle(preparation, &CONTROL_PLANE_LISTENERS)?;
        let manifest = self.folder.join("target.toml");
        let fill = |word: &String| render(&manifest, word, &context);
        Ok(Some(Launch {
            label: format!("the control plane of {}", preparation.label),
            command: file.command.iter().map(fill).collect::<Result<_, _>>()?,
            folder: preparation.folder.to_owned(),
            listeners,
            ready: Ready { within: self.file.ready.within.0, ..Ready::default() },
            stop_signal: self.file.stop.clone(),
            ..Launch::default()
        }))
    }

    /// The control plane that a case needs.
    fn control_plane(&self, case: &CasePlan) -> Option<&ControlPlaneFile> {
        self.file.control_plane.as_ref().filter(|_| case.needs.contains("hybrid"))
    }

    /// Chooses listeners, writes the declarative file, and gathers what templates may use.
    fn settle(
        &self,
        preparation: &Preparation<'_>,
        names: &[ListenerName],
    ) -> Result<(Listeners, minijinja::Value), TargetError> {
        let listeners = choose(names).map_err(TargetError::Ports)?;
        let kong_yml = preparation.folder.join(KONG_YML);
        write(&kong_yml, &preparation.document.text)?;
        let context = catalogue::context(context(self, preparation, &listeners, &kong_yml)?);
        Ok((listeners, context))
    }

    /// The command for a case: where one of the features that it needs has a command of its own, that one.
    fn command(&self, case: &CasePlan) -> &[String] {
        case.needs.iter().find_map(|need| self.file.command_for.get(need)).unwrap_or(&self.file.command)
    }

    fn launch(
        &self,
        preparation: &Preparation<'_>,
        listeners: Listeners,
        fill: impl Fn(&str) -> Result<String, TargetError>,
    ) -> Result<Launch, TargetError> {
        let docker = self.file.docker.as_ref().filter(|_| preparation.container);
        let command = docker.map_or_else(|| self.command(preparation.case), |docker| &docker.command);
        let of_image = docker.map(|docker| &docker.environment).into_iter().flatten();
        let environment = self.file.environment.iter().chain(of_image);
        let filled = |words: &[String]| words.iter().map(|word| fill(word)).collect::<Result<Vec<_>, _>>();
        Ok(Launch {
            label: preparation.label.to_owned(),
            command: filled(command)?,
            environment: environment
                .map(|(name, value)| Ok((name.clone(), fill(value)?)))
                .collect::<Result<_, _>>()?,
            folder: preparation.folder.to_owned(),
            files: Vec::new(),
            listeners,
            ready: Ready {
                path: self.file.ready.path.clone(),
                status_path: self.control_plane(preparation.case).map(|file| file.served.clone()),
                within: self.file.ready.within.0,
            },
            reload: reload(&self.file, &fill)?,
            stop_signal: self.file.stop.clone(),
            stop_command: filled(&self.file.stop_command)?,
            pid_file: self.file.pid_file.as_ref().map(|path| preparation.folder.join(path)),
            error_logs: self.file.error_logs.iter().map(|path| preparation.folder.join(path)).collect(),
            image: docker.map(|docker| docker.image.clone()),
        })
    }
}

/// What stands for a target without a process: the upstream.
fn bare(preparation: &Preparation<'_>) -> Launch {
    Launch {
        label: preparation.label.to_owned(),
        folder: preparation.folder.to_owned(),
        listeners: Listeners {
            http: preparation.upstream.first().copied(),
            https: preparation.upstream_tls.first().copied(),
            ..Listeners::default()
        },
        ..Launch::default()
    }
}

fn context<'a>(
    target: &'a Target,
    preparation: &'a Preparation<'a>,
    listeners: &Listeners,
    kong_yml: &'a Path,
) -> Result<Context<'a>, TargetError> {
    let named = [
        ("http", listeners.http),
        ("https", listeners.https),
        ("admin", listeners.admin),
        ("status", listeners.status),
        ("cluster", listeners.cluster),
    ];
    Ok(Context {
        binary: preparation.binary,
        folder: preparation.folder,
        target: &target.folder,
        workers: preparation.workers,
        scheme: &preparation.case.case.scheme,
        listeners: named.into_iter().filter_map(|(name, address)| Some((name, in_parts(address?)))).collect(),
        control_plane: preparation.control_plane.map(in_parts),
        certificate: preparation.certificate.certificate,
        key: preparation.certificate.key,
        combined: preparation.certificate.combined,
        certificate_text: read_text(preparation.certificate.certificate)?,
        key_text: read_text(preparation.certificate.key)?,
        upstream: preparation.upstream.iter().copied().map(in_parts).collect(),
        routes: &preparation.document.routes,
        prefixes: prefixes(&preparation.document.routes),
        pools: pools(preparation.document),
        document: &preparation.document.data,
        kong_yml,
        connections: preparation.case.load.connections,
        variables: &preparation.case.config.variables,
    })
}

fn in_parts(address: SocketAddr) -> Address {
    Address { address, host: address.ip().to_string(), port: address.port() }
}

/// The longest first, for languages that take the first that matches.
fn prefixes(routes: &[FlatRoute]) -> Vec<Prefix<'_>> {
    let pairs = routes.iter().flat_map(|route| route.paths.iter().map(move |path| (route, path)));
    let mut prefixes: Vec<Prefix<'_>> = pairs
        .map(|(route, path)| {
            let stem = path.trim_matches('/');
            Prefix { path, stem, cut: route.strip_path && !stem.is_empty(), route }
        })
        .collect();
    prefixes.sort_by_key(|prefix| std::cmp::Reverse(prefix.path.len()));
    prefixes
}

fn pools(document: &Document) -> Vec<Pool<'_>> {
    let named: BTreeMap<&str, &[Endpoint]> =
        document.routes.iter().map(|route| (route.pool.as_str(), route.endpoints.as_slice())).collect();
    let endpoint =
        |endpoint: &Endpoint| PoolEndpoint { at: in_parts(endpoint.address), weight: endpoint.weight };
    named
        .into_iter()
        .map(|(name, all)| Pool { name, endpoints: all.iter().map(endpoint).collect() })
        .collect()
}

fn reload(
    file: &TargetFile,
    fill: impl Fn(&str) -> Result<String, TargetError>,
) -> Result<Option<Reload>, TargetError> {
    let Some(reload) = &file.reload else { return Ok(None) };
    if let Some(signal) = &reload.signal {
        return Ok(Some(Reload::Signal(signal.clone())));
    }
    let command = reload.command.iter().map(|word| fill(word)).collect::<Result<_, _>>()?;
    Ok(Some(Reload::Command(command)))
}

/// Ports that were free a moment ago. All are held until the last is chosen, so that they differ.
fn choose(names: &[ListenerName]) -> std::io::Result<Listeners> {
    let mut listeners = Listeners::default();
    let mut held = Vec::new();
    for name in names {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = Some(socket.local_addr()?);
        held.push(socket);
        match name {
            ListenerName::Http => listeners.http = address,
            ListenerName::Https => listeners.https = address,
            ListenerName::Admin => listeners.admin = address,
            ListenerName::Status => listeners.status = address,
            ListenerName::Cluster => listeners.cluster = address,
        }
    }
    Ok(listeners)
}

fn write(path: &PathBuf, text: &str) -> Result<(), TargetError> {
    let failed = |error| TargetError::Unwritable(path.clone(), error);
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    std::fs::write(path, text).map_err(failed)
}
