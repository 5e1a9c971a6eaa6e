//! The control plane: a process in a folder of its own, with SQLite.
use super::{FleetError, Plan};
use serde_json::{Value as Json, json};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;
use ureq::Agent;
use weir_cluster::connect::Endpoint;

/// What the tag of a changed route begins with; the number of the change follows.
pub(super) const CHANGE_TAG: &str = "change-";

/// A control plane; killed when dropped.
pub(super) struct ControlPlane {
    child: Child,
    folder: TempDir,
    cluster: u16,
    admin: u16,
    certificate: String,
    key: String,
    agent: Agent,
}

impl ControlPlane {
    /// Starts one with the routes of the plan.
    pub(super) fn start(plan: &Plan) -> Result<ControlPlane, FleetError> {
        let system = |what: &'static str| move |error| FleetError::System(what, error);
        let folder = tempfile::tempdir().map_err(system("no folder for the control plane"))?;
        let (cert, key) = (folder.path().join("cluster.crt"), folder.path().join("cluster.key"));
        command(
            plan,
            &folder,
            &["hybrid", "gen_cert"],
            &[&cert.display().to_string(), &key.display().to_string()],
        )?;
        let file = folder.path().join("kong.json");
        fs::write(&file, configuration(plan.routes).to_string()).map_err(system("no file for the routes"))?;
        command(plan, &folder, &["config", "db_import"], &[&file.display().to_string()])?;
        let [cluster, admin] = [free_port()?, free_port()?];
        let read = |path| fs::read_to_string(path).map_err(system("no certificate for the control plane"));
        let (certificate, key) = (read(cert)?, read(key)?);
        let child = spawn(plan, &folder, [cluster, admin])?;
        Ok(ControlPlane {
            child,
            folder,
            cluster,
            admin,
            certificate,
            key,
            agent: Agent::new_with_defaults(),
        })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The certificate that data planes have as well, and its key.
    pub(super) fn certificate(&self) -> (&str, &str) {
        (&self.certificate, &self.key)
    }

    /// Where data planes connect.
    pub(super) fn cluster(&self) -> Endpoint {
        Endpoint { host: Ipv4Addr::LOCALHOST.to_string(), port: self.cluster }
    }

    /// Changes a route; returns once that is committed.
    pub(super) fn change(&self, route: u32, nth: u32) -> Result<(), FleetError> {
        let url = format!("http://127.0.0.1:{}/routes/route-{route}", self.admin);
        let body = json!({ "tags": [format!("{CHANGE_TAG}{nth}")] }).to_string();
        let sent = self.agent.patch(&url).header("Content-Type", "application/json").send(body);
        sent.map(drop).map_err(|error| FleetError::ControlPlane(format!("a route is not changed: {error}")))
    }

    /// Kills it and starts it again.
    pub(super) fn restart(&mut self, plan: &Plan) -> Result<(), FleetError> {
        self.end();
        self.child = spawn(plan, &self.folder, [self.cluster, self.admin])?;
        Ok(())
    }

    fn end(&mut self) {
        // Fails if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.end();
    }
}

/// Services of ten routes each.
fn configuration(routes: u32) -> Json {
    let service = |nth: u32| {
        let routes = (nth * 10..routes.min(nth * 10 + 10))
            .map(|nth| json!({ "name": format!("route-{nth}"), "paths": [format!("/path-{nth}")] }));
        json!({ "name": format!("service-{nth}"), "url": "http://127.0.0.1:9", "routes": routes.collect::<Vec<_>>() })
    };
    let services: Vec<_> = (0..routes.div_ceil(10)).map(service).collect();
    json!({ "_format_version": "3.0", "services": services })
}

fn free_port() -> Result<u16, FleetError> {
    let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    bound.map(|address| address.port()).map_err(|error| FleetError::System("no free port", error))
}

/// Runs a command of `weir` to its end.
fn command(plan: &Plan, folder: &TempDir, words: &[&str], arguments: &[&str]) -> Result<(), FleetError> {
    let mut command = Command::new(&plan.weir);
    command.args(words).args(arguments).env("WEIR_PREFIX", folder.path().join("prefix"));
    let output = command.env("WEIR_DATABASE", "sqlite").output().map_err(not_started)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(FleetError::ControlPlane(format!("`weir {}`: {said}", words.join(" "))))
}

/// Starts the node, and waits for the line that says where it listens.
fn spawn(plan: &Plan, folder: &TempDir, [cluster, admin]: [u16; 2]) -> Result<Child, FleetError> {
    let path = |name: &str| folder.path().join(name);
    let log = File::create(path("log"))
        .map_err(|error| FleetError::System("no log for the control plane", error))?;
    let mut command = Command::new(&plan.weir);
    command.arg("run").env("WEIR_ROLE", "control_plane").env("WEIR_DATABASE", "sqlite");
    command.env("WEIR_PREFIX", path("prefix")).env("WEIR_STATUS_LISTEN", "off");
    command.env("WEIR_CLUSTER_LISTEN", format!("127.0.0.1:{cluster}"));
    command.env("WEIR_ADMIN_LISTEN", format!("127.0.0.1:{admin}"));
    command.env("WEIR_CLUSTER_CERT", path("cluster.crt")).env("WEIR_CLUSTER_CERT_KEY", path("cluster.key"));
    let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().map_err(not_started)?;
    let mut line = String::new();
    let stdout = child.stdout.take();
    let read = stdout.map_or(Ok(0), |stdout| BufReader::new(stdout).read_line(&mut line));
    if read.is_ok_and(|length| length > 0) {
        return Ok(child);
    }
    let _ = child.kill();
    let _ = child.wait();
    let said = fs::read_to_string(path("log")).unwrap_or_default();
    Err(FleetError::ControlPlane(said.trim().to_owned()))
}

fn not_started(error: std::io::Error) -> FleetError {
    FleetError::System("`weir` cannot be started; name it with --weir", error)
}
