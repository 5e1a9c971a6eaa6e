//! The gateway of a script.
use super::output::save;
use super::{Configuration, Lab, ScriptError};
use crate::driver::process::Process;
use crate::driver::{Driver, Running};
use crate::load::{Pace, Protocol, Requests};
use crate::result::Case;
use crate::scenario::{CasePlan, ConfigTemplate, GatewayPlan, LoadPlan, Measure, UpstreamPlan};
use crate::target::{Launch, Preparation};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A gateway to start.
///
/// ```no_run
/// # use weirlab::script::{Configuration, Gateway, ScriptError, setup};
/// # fn main() -> Result<(), ScriptError> {
/// let gateway = Gateway::new(Configuration::from_file("kong.yml")?).environment("KONG_LOG_LEVEL", "debug");
/// let running = setup("git:main")?.start_gateway(gateway)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Gateway {
    configuration: Configuration,
    environment: BTreeMap<String, String>,
    connections: usize,
}

impl Gateway {
    /// A gateway with a configuration.
    #[must_use]
    pub fn new(configuration: Configuration) -> Gateway {
        Gateway { configuration, environment: BTreeMap::new(), connections: 1000 }
    }

    /// An environment variable of its process, such as a setting by its name in Kong.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Gateway {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    /// The most connections that it will have: pools towards the upstream are made for as many.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Gateway {
        self.connections = connections;
        self
    }

    pub(super) fn start(self, lab: &Lab) -> Result<RunningGateway, ScriptError> {
        let launch = self.launch(lab)?;
        crate::load::allow_gateway_files(self.connections)
            .map_err(|error| ScriptError::Configuration(error.to_string()))?;
        let address = launch.listeners.http.ok_or_else(|| {
            ScriptError::Setup(format!("{} has no listener for HTTP in its target.toml", launch.label))
        })?;
        let running = Process.start(&launch, &lab.layout.target)?;
        Ok(RunningGateway { address, admin: launch.listeners.admin, running })
    }

    /// How the target starts with the configuration.
    fn launch(&self, lab: &Lab) -> Result<Launch, ScriptError> {
        let contender = &lab.contender;
        let upstream = lab.upstreams();
        let mut launch = contender.target.prepare(&Preparation {
            label: &contender.label,
            binary: &contender.binary,
            case: &self.case(),
            document: &self.configuration.document(&upstream)?,
            folder: &lab.next_folder(),
            addresses: &Process.addresses(contender.target.listeners())?,
            workers: lab.workers,
            upstream: &upstream,
            upstream_tls: &[],
            certificate: &lab.certificate,
            control_plane: None,
            container: false,
        })?;
        launch.environment.extend(self.environment.clone());
        Ok(launch)
    }

    /// What targets' templates ask of a case.
    fn case(&self) -> CasePlan {
        CasePlan {
            case: Case { scheme: "http".to_owned(), ..Case::default() },
            measure: Measure::Load,
            needs: BTreeSet::new(),
            upstream: UpstreamPlan { listeners: 1, body_bytes: 0, arguments: Vec::new() },
            gateway: GatewayPlan { instances: 1, workers: None },
            load: LoadPlan {
                connections: self.connections,
                threads: 1,
                protocol: Protocol::Http1,
                keep_alive: true,
                first_byte: false,
                pace: Pace::Closed,
                requests: Requests::default(),
                timeout: Duration::from_secs(2),
                script: None,
            },
            parity: Vec::new(),
            actions: Vec::new(),
            config: ConfigTemplate { path: PathBuf::new(), variables: BTreeMap::new(), private: false },
        }
    }
}

/// A gateway that runs. Dropping it ends it.
pub struct RunningGateway {
    address: SocketAddr,
    admin: Option<SocketAddr>,
    running: Box<dyn Running>,
}

impl RunningGateway {
    /// Where it takes traffic.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of its Admin API, if it has one.
    #[must_use]
    pub fn admin_url(&self) -> Option<String> {
        self.admin.map(|address| format!("http://{address}"))
    }

    /// The root of its process tree.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Its output and its error logs so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.running.log()
    }

    /// Writes its log into a file, whose folder is made.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save_log(&self, path: impl AsRef<Path>) -> Result<(), ScriptError> {
        save(path.as_ref(), self.log().as_bytes())
    }

    /// Ends it in good order. Its log can be read still.
    ///
    /// # Errors
    /// When it could not be ended.
    pub fn stop(&mut self) -> Result<(), ScriptError> {
        Ok(self.running.stop()?)
    }
}
