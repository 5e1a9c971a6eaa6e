//! OpenID providers of the tests' own, by dex: in memory, on free ports. `make test` builds it from the versions that
//! `dex/go.mod` names.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::{PATIENCE, unused_ports};
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Of the user's password.
const HASH: &str = "$2b$10$abcdefghijklmnopqrstuu23JPZtHcGhwXSF41f93o/7vBdDut3Xu";

/// A provider with one user; killed when dropped.
pub struct Dex {
    child: Child,
    folder: TempDir,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Dex {
    /// The user's name, and their password.
    pub const USER: (&str, &str) = ("alice@example.test", "correct horse");

    /// A provider that knows this client. None where dex was not built.
    pub fn start(client: &str, secret: &str, redirect_uri: &str) -> Option<Dex> {
        let Some(program) = std::env::var_os("DEX").map(PathBuf::from).filter(|path| path.exists()) else {
            eprintln!("OPENID-CONNECT WAS NOT TESTED WITH DEX: set DEX to dex, as `make test` does");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, unused_ports(1)));
        let mut command = Command::new(&program);
        command.args([&*address.to_string(), client, secret, redirect_uri, Self::USER.0, HASH]);
        let log = File::create(folder.path().join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut dex = Dex { child: command.spawn().expect("dex runs"), folder, address };
        dex.wait();
        Some(dex)
    }

    fn wait(&mut self) {
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(self.address).is_err() {
            let ended = self.child.try_wait().unwrap();
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap();
            assert!(ended.is_none() && Instant::now() < end, "dex does not start: {log}");
            thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// The URL of the discovery document.
    pub fn discovery(&self) -> String {
        format!("http://{}/dex/.well-known/openid-configuration", self.address)
    }
}

impl Drop for Dex {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
