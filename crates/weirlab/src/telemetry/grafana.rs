//! Grafana, where it is installed, with the data of a run and dashboards for it.
use super::TelemetryError;
use super::prometheus::address;
use crate::driver::process::Process;
use crate::driver::{Driver, Running};
use crate::target::{Launch, Listeners, Ready, locate};
use serde_json::json;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Of the dashboard of a run.
pub(super) const RUN: &str = include_str!("dashboards/run.json");

const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// A running Grafana. Dropping it ends it.
pub struct Grafana {
    address: SocketAddr,
    running: Box<dyn Running>,
}

/// Starts Grafana on a free port, if it is installed. `dashboards` is a folder of more dashboards, where there is one.
///
/// # Errors
/// When it does not start.
pub fn start(
    prometheus: SocketAddr,
    dashboards: &Path,
    working: &Path,
) -> Result<Option<Grafana>, TelemetryError> {
    let Some((program, home)) = program() else { return Ok(None) };
    let address = address(None)?;
    let folder = working.join("grafana");
    // The old name of the program takes no command.
    let is_old = program.ends_with("grafana-server");
    let mut command = vec![program.display().to_string()];
    command.extend((!is_old).then(|| "server".to_owned()));
    command.extend(["--config".to_owned(), "grafana.ini".to_owned()]);
    command.extend(["--homepath".to_owned(), home.display().to_string()]);
    let launch = Launch {
        label: "grafana".to_owned(),
        command,
        listeners: Listeners { http: Some(address), ..Listeners::default() },
        ready: Ready {
            path: Some("/api/health".to_owned()),
            status: Some(200),
            status_path: None,
            within: READY_TIMEOUT,
        },
        files: files(&folder, address, prometheus, dashboards),
        folder,
        ..Launch::default()
    };
    Ok(Some(Grafana { address, running: Process.start(&launch, &[])? }))
}

/// The program, and the folder with its pages and defaults.
fn program() -> Option<(PathBuf, PathBuf)> {
    let named = std::env::var("WEIRLAB_GRAFANA").ok().filter(|named| !named.is_empty());
    let names = named.as_deref().map_or(vec!["grafana", "grafana-server"], |named| vec![named]);
    let program = names.into_iter().find_map(|name| locate(Path::new("."), name))?;
    let unpacked = program.parent().and_then(Path::parent).map(Path::to_owned);
    let has_defaults = |folder: &PathBuf| folder.join("conf/defaults.ini").is_file();
    let home = unpacked.into_iter().find(has_defaults).unwrap_or_else(|| PathBuf::from("/usr/share/grafana"));
    Some((program, home))
}

/// Its settings, the data source and the dashboards. A guest may look; nothing is asked of the internet.
fn files(
    folder: &Path,
    address: SocketAddr,
    prometheus: SocketAddr,
    dashboards: &Path,
) -> Vec<(PathBuf, String)> {
    let at = |name: &str| folder.join(name).display().to_string();
    let settings = format!(
        "[server]\nhttp_addr = {}\nhttp_port = {}\n\
         [paths]\ndata = {}\nlogs = {}\nplugins = {}\nprovisioning = {}\n\
         [auth.anonymous]\nenabled = true\norg_role = Viewer\n\
         [analytics]\nreporting_enabled = false\ncheck_for_updates = false\ncheck_for_plugin_updates = false\n\
         [dashboards]\ndefault_home_dashboard_path = {}\n",
        address.ip(),
        address.port(),
        at("data"),
        at("logs"),
        at("plugins"),
        at("provisioning"),
        at("dashboards/weirlab-run.json"),
    );
    let source = json!({"apiVersion": 1, "datasources": [{
        "name": "Prometheus", "uid": "prometheus", "type": "prometheus", "access": "proxy", "isDefault": true,
        "url": format!("http://{prometheus}"), "jsonData": {"httpMethod": "POST", "timeInterval": "1s"},
    }]});
    let provider = json!({"apiVersion": 1, "providers": [{
        "name": "weir", "type": "file", "options": {"path": at("dashboards")},
    }]});
    let mut files = vec![
        (PathBuf::from("grafana.ini"), settings),
        (PathBuf::from("provisioning/datasources/prometheus.yaml"), source.to_string()),
        (PathBuf::from("provisioning/dashboards/weir.yaml"), provider.to_string()),
        (PathBuf::from("dashboards/weirlab-run.json"), RUN.to_owned()),
    ];
    for entry in fs::read_dir(dashboards).into_iter().flatten().flatten() {
        if let Ok(text) = fs::read_to_string(entry.path()) {
            files.push((Path::new("dashboards").join(entry.file_name()), text));
        }
    }
    files
}

impl Grafana {
    /// The address of the run's dashboard.
    #[must_use]
    pub fn run_url(&self, span: &str) -> String {
        format!("http://{}/d/weirlab-run?{span}", self.address)
    }

    /// Whether it still runs.
    pub fn alive(&mut self) -> bool {
        self.running.alive()
    }

    /// Ends it.
    ///
    /// # Errors
    /// When it could not be ended.
    pub fn stop(&mut self) -> Result<(), TelemetryError> {
        Ok(self.running.stop()?)
    }
}
