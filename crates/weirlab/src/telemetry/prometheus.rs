//! A Prometheus server from the system's package.
use super::exporter::path_of;
use super::{Exporter, TelemetryError};
use crate::driver::process::Process;
use crate::driver::{Driver, Running};
use crate::target::{Launch, Listeners, Ready, free_addresses, locate};
use serde_json::json;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is kept, within the folder of a run.
pub const FOLDER: &str = "prometheus";
const DATA: &str = "data";
const CONFIG: &str = "prometheus.yml";
/// The one it was run with, within the folder of a run.
const SCRAPED: &str = "scraped.yml";

const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// A running server. Dropping it ends it.
pub struct Prometheus {
    address: SocketAddr,
    running: Box<dyn Running>,
}

/// What is kept of a run, and where the files of a server go meanwhile.
pub struct Kept<'a> {
    /// The folder of the run.
    pub run: &'a Path,
    /// A folder for what the server needs while it runs.
    pub working: &'a Path,
}

impl Kept<'_> {
    fn data(&self) -> Result<PathBuf, TelemetryError> {
        let path = self.run.join(FOLDER).join(DATA);
        std::path::absolute(&path).map_err(|error| TelemetryError::File(path, error))
    }

    /// Scrapes the laboratory and these targets each second, on the given CPUs.
    ///
    /// # Errors
    /// When there is no Prometheus on this machine, or it does not start.
    pub fn scrape(
        &self,
        exporter: &Exporter,
        targets: &[String],
        cpus: &[usize],
    ) -> Result<Prometheus, TelemetryError> {
        let folder = self.run.join(FOLDER);
        let config = scrapes(exporter.address(), targets);
        fs::create_dir_all(&folder)
            .and_then(|()| fs::write(folder.join(SCRAPED), &config))
            .map_err(|error| TelemetryError::File(folder, error))?;
        self.start(config, None, cpus)
    }

    /// Serves what was kept, and scrapes nothing; on a free port, if none is given.
    ///
    /// # Errors
    /// When nothing was kept, or Prometheus does not start.
    pub fn open(&self, port: Option<u16>) -> Result<Prometheus, TelemetryError> {
        if !self.data()?.is_dir() {
            return Err(TelemetryError::NotObserved(self.run.to_owned()));
        }
        self.start("{}\n".to_owned(), port, &[])
    }

    fn start(&self, config: String, port: Option<u16>, cpus: &[usize]) -> Result<Prometheus, TelemetryError> {
        let program = program()?;
        let address = address(port)?;
        let folder = self.working.join("prometheus");
        let command = [
            program.display().to_string(),
            format!("--config.file={CONFIG}"),
            format!("--storage.tsdb.path={}", self.data()?.display()),
            "--storage.tsdb.retention.time=100y".to_owned(),
            format!("--web.listen-address={address}"),
            "--log.level=warn".to_owned(),
        ];
        let launch = Launch {
            label: "prometheus".to_owned(),
            command: command.into(),
            folder,
            listeners: Listeners { http: Some(address), ..Listeners::default() },
            ready: Ready {
                path: Some("/-/ready".to_owned()),
                status: Some(200),
                status_path: None,
                within: READY_TIMEOUT,
            },
            files: vec![(CONFIG.into(), config)],
            ..Launch::default()
        };
        Ok(Prometheus { address, running: Process.start(&launch, cpus)? })
    }
}

/// An address on loopback: with this port, or a free one.
pub(super) fn address(port: Option<u16>) -> Result<SocketAddr, TelemetryError> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    match port {
        Some(port) => Ok((loopback, port).into()),
        None => Ok(free_addresses(loopback, 1).map_err(TelemetryError::Listen)?[0]),
    }
}

/// What the environment names, or the first on the PATH.
fn program() -> Result<PathBuf, TelemetryError> {
    let named = std::env::var("WEIRLAB_PROMETHEUS").ok().filter(|named| !named.is_empty());
    let name = named.as_deref().unwrap_or("prometheus");
    locate(Path::new("."), name).ok_or_else(|| {
        TelemetryError::Missing(format!(
            "{name} is not on this machine: install it (Debian: apt install prometheus), or name it with \
             WEIRLAB_PROMETHEUS=PATH"
        ))
    })
}

/// JSON is YAML.
fn scrapes(exporter: SocketAddr, targets: &[String]) -> String {
    let address = [exporter.to_string()];
    let target = |(index, label): (usize, &String)| {
        let labels = json!({"__metrics_path__": path_of(index), "instance": label, "target": label});
        json!({"targets": address, "labels": labels})
    };
    let targets: Vec<_> = targets.iter().enumerate().map(target).collect();
    let generator = json!({"targets": address, "labels": {"instance": "weirlab"}});
    let config = json!({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [
            {"job_name": "weirlab", "static_configs": [generator]},
            {"job_name": "targets", "static_configs": targets},
        ],
    });
    format!("{config:#}\n")
}

impl Prometheus {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it still runs.
    pub fn alive(&mut self) -> bool {
        self.running.alive()
    }

    /// What it said.
    #[must_use]
    pub fn log(&self) -> String {
        self.running.log()
    }

    /// Ends it.
    ///
    /// # Errors
    /// When it could not be ended.
    pub fn stop(&mut self) -> Result<(), TelemetryError> {
        Ok(self.running.stop()?)
    }
}
