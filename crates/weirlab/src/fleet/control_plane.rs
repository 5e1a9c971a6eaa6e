//! The control plane: a process in a folder of its own, with SQLite.
use super::FleetError;
use super::configuration::Content;
use super::node::{Installation, Node, free_port};
use serde_json::json;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use tempfile::TempDir;
use ureq::Agent;
use weir_cluster::connect::Endpoint;

/// What the tag of a changed route begins with; the number of the change follows.
pub(super) const CHANGE_TAG: &str = "change-";

/// A control plane; killed when dropped.
pub(super) struct ControlPlane {
    node: Node,
    installation: Installation,
    /// With the certificate of the fleet.
    folder: TempDir,
    cluster: u16,
    admin: u16,
    analytics: bool,
    agent: Agent,
}

impl ControlPlane {
    /// Starts one with this configuration.
    pub(super) fn start(weir: &Path, content: Content, analytics: bool) -> Result<ControlPlane, FleetError> {
        let system = |what: &'static str| move |error| FleetError::System(what, error);
        let folder = tempfile::tempdir().map_err(system("no folder for the control plane"))?;
        let installation = Installation::new(weir, folder.path(), "control-plane");
        let (certificate, key) = (installation.path("cluster.crt"), installation.path("cluster.key"));
        installation.command(&["hybrid", "gen_cert"], &[&certificate, &key])?;
        let file = installation.path("kong.json");
        content.write(&file).map_err(system("no file for the configuration"))?;
        installation.command(&["config", "db_import"], &[&file])?;
        let [cluster, admin] = [free_port()?, free_port()?];
        let node = installation.start(&settings(cluster, admin, analytics))?;
        let agent = Agent::new_with_defaults();
        Ok(ControlPlane { node, installation, folder, cluster, admin, analytics, agent })
    }

    pub(super) fn pid(&self) -> u32 {
        self.node.pid()
    }

    /// The folder, with the certificate of the fleet.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The certificate that data planes have as well, and its key.
    pub(super) fn certificate(&self) -> Result<(String, String), FleetError> {
        let read = |name: &str| {
            let text = fs::read_to_string(self.installation.path(name));
            text.map_err(|error| FleetError::System("no certificate for the fleet", error))
        };
        Ok((read("cluster.crt")?, read("cluster.key")?))
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
        sent.map(drop).map_err(|error| FleetError::Node(format!("a route is not changed: {error}")))
    }

    /// Kills it.
    pub(super) fn kill(&mut self) {
        self.node.kill();
    }

    /// Kills it and starts it again.
    pub(super) fn restart(&mut self) -> Result<(), FleetError> {
        self.kill();
        self.node = self.installation.start(&settings(self.cluster, self.admin, self.analytics))?;
        Ok(())
    }
}

fn settings(cluster: u16, admin: u16, analytics: bool) -> [(&'static str, String); 6] {
    [
        ("role", "control_plane".to_owned()),
        ("database", "sqlite".to_owned()),
        ("status_listen", "off".to_owned()),
        ("cluster_listen", format!("127.0.0.1:{cluster}")),
        ("admin_listen", format!("127.0.0.1:{admin}")),
        ("analytics", if analytics { "on" } else { "off" }.to_owned()),
    ]
}
