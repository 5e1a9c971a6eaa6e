//! etcd servers of the tests' own, from the system's packages: in folders of their own, on free ports.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::{PATIENCE, Peer, eventually, unused_ports};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A server; killed when dropped. It is asked by its JSON API.
pub struct EtcdServer {
    child: Child,
    folder: TempDir,
    port: u16,
    peer_port: u16,
    token: Option<String>,
}

impl EtcdServer {
    /// Starts one.
    pub fn start() -> EtcdServer {
        for _ in 0..5 {
            let port = unused_ports(2);
            let folder = tempfile::tempdir().unwrap();
            let child = spawn(&folder, port, port + 1);
            let mut server = EtcdServer { child, folder, port, peer_port: port + 1, token: None };
            if server.answers() {
                return server;
            }
        }
        panic!("etcd does not start: is the package `etcd-server` installed?");
    }

    fn answers(&mut self) -> bool {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && self.child.try_wait().unwrap().is_none() {
            if std::net::TcpStream::connect(self.address()).is_ok()
                && self.try_ask("maintenance/status", &json!({})).is_some()
            {
                return true;
            }
            thread::park_timeout(Duration::from_millis(20));
        }
        false
    }

    fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Where gateways reach it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    fn try_ask(&self, method: &str, body: &Json) -> Option<Json> {
        let body = body.to_string();
        let token =
            self.token.as_ref().map(|token| format!("Authorization: {token}\r\n")).unwrap_or_default();
        let request = format!(
            "POST /v3/{method} HTTP/1.1\r\nHost: etcd\r\n{token}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let response = Peer::connect(self.address()).send(request).response();
        (response.status == 200).then(|| response.json())
    }

    /// Calls a method of its API.
    #[track_caller]
    pub fn ask(&self, method: &str, body: &Json) -> Json {
        self.try_ask(method, body).unwrap_or_else(|| panic!("{method} {body}: refused"))
    }

    #[track_caller]
    pub fn put(&self, key: &str, value: &str) {
        self.ask("kv/put", &json!({ "key": STANDARD.encode(key), "value": STANDARD.encode(value) }));
    }

    #[track_caller]
    pub fn delete(&self, key: &str) {
        self.ask("kv/deleterange", &json!({ "key": STANDARD.encode(key) }));
    }

    /// The value of a key.
    #[track_caller]
    pub fn value(&self, key: &str) -> Option<String> {
        let found = self.ask("kv/range", &json!({ "key": STANDARD.encode(key) }));
        let value = found["kvs"][0]["value"].as_str()?;
        Some(String::from_utf8(STANDARD.decode(value).unwrap()).unwrap())
    }

    /// Removes the history up to now.
    #[track_caller]
    pub fn compact(&self) {
        let revision = self.ask("kv/range", &json!({ "key": "AA==" }))["header"]["revision"].clone();
        self.ask("kv/compaction", &json!({ "revision": revision, "physical": true }));
    }

    /// Asks for a login from now on: user `root`.
    pub fn ask_for_login(&mut self, password: &str) {
        self.ask("auth/user/add", &json!({ "name": "root", "password": password }));
        self.ask("auth/role/add", &json!({ "name": "root" }));
        self.ask("auth/user/grant", &json!({ "user": "root", "role": "root" }));
        self.ask("auth/enable", &json!({}));
        self.log_in(password);
    }

    /// Logs in, as is needed after each restart.
    pub fn log_in(&mut self, password: &str) {
        self.token = None;
        let token = self.ask("auth/authenticate", &json!({ "name": "root", "password": password }));
        self.token = token["token"].as_str().map(str::to_owned);
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again, with nothing in it.
    pub fn recreate(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.folder.path().join("data")).unwrap();
        self.restart();
    }

    /// Starts it again, with all that it had.
    pub fn restart(&mut self) {
        self.child = spawn(&self.folder, self.port, self.peer_port);
        eventually("etcd starts again", || {
            std::net::TcpStream::connect(self.address()).is_ok()
                && self.try_ask("maintenance/status", &json!({})).is_some()
        });
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(folder: &TempDir, port: u16, peer_port: u16) -> Child {
    let (url, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer_port}"));
    let mut command = Command::new("etcd");
    command.arg("--data-dir").arg(folder.path().join("data"));
    command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("default={peer}")]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("etcd runs")
}
