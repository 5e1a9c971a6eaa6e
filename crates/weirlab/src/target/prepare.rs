//! A target's configuration in front of a case: templates become files, words become a command.
use super::file::{ControlPlaneFile, ListenerName, TargetFile};
use super::{Launch, Listeners, Ready, Reload, Target, TargetError};
use crate::catalogue::{self, read_text, render};
use crate::scenario::{CasePlan, Document, Endpoint, FlatRoute};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What a control plane listens on.
const CONTROL_PLANE_LISTENERS: [ListenerName; 3] =
    [ListenerName::Cluster, ListenerName::Admin, ListenerName::Status];

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
    /// A folder of its own, where it will run.
    pub folder: &'a Path,
    /// Free addresses, one for each of its listeners.
    pub addresses: &'a [SocketAddr],
    /// How many workers it gets.
    pub workers: usize,
    /// Where the upstream listens.
    pub upstream: &'a [SocketAddr],
    /// Where the upstream listens for TLS: what a target without a process has clients speak to.
    pub upstream_tls: &'a [SocketAddr],
    /// The listeners' certificate and key.
    pub certificate: &'a Certificate,
    /// Where the control plane listens for gateways, if there is one.
    pub control_plane: Option<SocketAddr>,
    /// Whether it will run in a container of its own image rather than as a process here.
    pub container: bool,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Certificate {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Certificate").finish_non_exhaustive()
    }
}

/// What the declarative file and the certificate's files are called in the folder of a launch.
const CERTIFICATE: &str = "certificate.pem";
pub(super) const KEY: &str = "key.pem";
const COMBINED: &str = "both.pem";
pub(crate) const KONG_YML: &str = "kong.yml";

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
    certificate: PathBuf,
    key: PathBuf,
    combined: PathBuf,
    /// For languages that want it inline, as `key_text`.
    certificate_text: &'a str,
    key_text: &'a str,
    upstream: Vec<Address>,
    routes: &'a [FlatRoute],
    prefixes: Vec<Prefix<'a>>,
    pools: Vec<Pool<'a>>,
    document: &'a serde_json::Value,
    kong_yml: PathBuf,
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
    /// How many listeners it has.
    #[must_use]
    pub fn listeners(&self) -> usize {
        self.file.listeners.len()
    }

    /// Renders its files and says how it is started with them, on the given addresses.
    ///
    /// # Errors
    /// When a template is wrong.
    pub fn prepare(&self, preparation: &Preparation<'_>) -> Result<Launch, TargetError> {
        if !self.has_process() {
            return Ok(bare(preparation));
        }
        let (listeners, context) = self.settle(preparation, &self.file.listeners);
        let manifest = self.folder.join("target.toml");
        let fill = |text: &str| render(&manifest, text, &context);
        let mut files = common_files(preparation);
        for file in &self.file.file {
            let template = self.folder.join(&file.template);
            let text = render(&template, &read_text(&template)?, &context)?;
            files.push((PathBuf::from(fill(&file.path)?), text));
        }
        Ok(Launch { files, ..self.launch(preparation, listeners, fill)? })
    }

    /// How many listeners the control plane of a case has; none for a target, or a case, without one.
    #[must_use]
    pub fn control_plane_listeners(&self, case: &CasePlan) -> Option<usize> {
        self.control_plane(case).map(|_| CONTROL_PLANE_LISTENERS.len())
    }

    /// Says how its control plane is started in the folder; none for a target, or a case, without one.
    ///
    /// # Errors
    /// When a template is wrong.
    pub fn prepare_control_plane(
        &self,
        preparation: &Preparation<'_>,
    ) -> Result<Option<Launch>, TargetError> {
        let Some(file) = self.control_plane(preparation.case) else { return Ok(None) };
        let (listeners, context) = self.settle(preparation, &CONTROL_PLANE_LISTENERS);
        let manifest = self.folder.join("target.toml");
        let fill = |word: &String| render(&manifest, word, &context);
        Ok(Some(Launch {
            label: format!("the control plane of {}", preparation.label),
            command: file.command.iter().map(fill).collect::<Result<_, _>>()?,
            folder: preparation.folder.to_owned(),
            listeners,
            ready: Ready { within: self.file.ready.within.0, ..Ready::default() },
            files: common_files(preparation),
            stop_signal: self.file.stop.clone(),
            ..Launch::default()
        }))
    }

    /// The control plane that a case needs.
    fn control_plane(&self, case: &CasePlan) -> Option<&ControlPlaneFile> {
        self.file.control_plane.as_ref().filter(|_| case.needs.contains("hybrid"))
    }

    /// Deals the addresses to listeners and gathers what templates may use.
    fn settle(&self, preparation: &Preparation<'_>, names: &[ListenerName]) -> (Listeners, minijinja::Value) {
        let listeners = named(names, preparation.addresses);
        let context = catalogue::context(context(self, preparation, &listeners));
        (listeners, context)
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
            listeners,
            ready: Ready {
                path: self.file.ready.path.clone(),
                status: self.file.ready.status,
                status_path: self.control_plane(preparation.case).map(|file| file.served.clone()),
                within: self.file.ready.within.0,
            },
            reload: reload(&self.file, &fill)?,
            upgrade: None,
            stop_signal: self.file.stop.clone(),
            stop_command: filled(&self.file.stop_command)?,
            pid_file: self.file.pid_file.as_ref().map(|path| preparation.folder.join(path)),
            error_logs: self.file.error_logs.iter().map(|path| preparation.folder.join(path)).collect(),
            image: docker.map(|docker| docker.image.clone()),
            files: Vec::new(),
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

fn context<'a>(target: &'a Target, preparation: &'a Preparation<'a>, listeners: &Listeners) -> Context<'a> {
    let at = |name: &str| preparation.folder.join(name);
    let named = [
        ("http", listeners.http),
        ("https", listeners.https),
        ("admin", listeners.admin),
        ("status", listeners.status),
        ("cluster", listeners.cluster),
    ];
    Context {
        binary: preparation.binary,
        folder: preparation.folder,
        target: &target.folder,
        workers: preparation.workers,
        scheme: &preparation.case.case.scheme,
        listeners: named.into_iter().filter_map(|(name, address)| Some((name, in_parts(address?)))).collect(),
        control_plane: preparation.control_plane.map(in_parts),
        certificate: at(CERTIFICATE),
        key: at(KEY),
        combined: at(COMBINED),
        certificate_text: &preparation.certificate.certificate,
        key_text: &preparation.certificate.key,
        upstream: preparation.upstream.iter().copied().map(in_parts).collect(),
        routes: &preparation.document.routes,
        prefixes: prefixes(&preparation.document.routes),
        pools: pools(preparation.document),
        document: &preparation.document.data,
        kong_yml: at(KONG_YML),
        connections: preparation.case.load.connections,
        variables: &preparation.case.config.variables,
    }
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

/// What every launch has in its folder: the declarative file and the certificate.
fn common_files(preparation: &Preparation<'_>) -> Vec<(PathBuf, String)> {
    let Certificate { certificate, key } = preparation.certificate;
    vec![
        (PathBuf::from(KONG_YML), preparation.document.text.clone()),
        (PathBuf::from(CERTIFICATE), certificate.clone()),
        (PathBuf::from(KEY), key.clone()),
        (PathBuf::from(COMBINED), format!("{certificate}{key}")),
    ]
}

fn named(names: &[ListenerName], addresses: &[SocketAddr]) -> Listeners {
    let mut listeners = Listeners::default();
    for (name, address) in names.iter().zip(addresses) {
        let address = Some(*address);
        match name {
            ListenerName::Http => listeners.http = address,
            ListenerName::Https => listeners.https = address,
            ListenerName::Admin => listeners.admin = address,
            ListenerName::Status => listeners.status = address,
            ListenerName::Cluster => listeners.cluster = address,
        }
    }
    listeners
}
