//! CAs of the tests' own, by Let's Encrypt's pebble: in folders of their own, on free ports. `make test` builds it from the versions that
//! `pebble/go.mod` names.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::{Identity, NameServer, PATIENCE, curl, unused_ports};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What a CA is to be like. Its port is free now, so that gateways can be configured with it before it starts.
pub struct PebblePlan {
    program: PathBuf,
    port: u16,
    identity: Identity,
}

/// A CA; killed when dropped. Every name below `.test` leads to this machine.
pub struct Pebble {
    child: Child,
    folder: TempDir,
    port: u16,
    _names: NameServer,
}

impl PebblePlan {
    /// One whose ports no other program has.
    #[track_caller]
    pub fn on_free_ports() -> PebblePlan {
        let program = std::env::var_os("PEBBLE").map_or_else(|| "pebble".into(), PathBuf::from);
        let is_there = Command::new(&program).arg("-version").stdout(Stdio::null()).status();
        assert!(
            is_there.is_ok_and(|status| status.success()),
            "pebble does not run: `make test-tools` builds it; PEBBLE names it"
        );
        PebblePlan { program, port: unused_ports(2), identity: Identity::new("localhost") }
    }

    /// The URL of the directory.
    pub fn directory(&self) -> String {
        format!("https://127.0.0.1:{}/dir", self.port)
    }

    /// What vouches for the CA's own certificate.
    pub fn trusted(&self) -> String {
        self.identity.cert().display().to_string()
    }

    /// Starts the CA, which asks this address for answers to its challenges. `more` is more of its configuration.
    pub fn start(&self, challenges: SocketAddr, more: &Value) -> Pebble {
        let (folder, names) = (tempfile::tempdir().unwrap(), NameServer::of(".test"));
        let mut config = json!({
            "listenAddress": format!("127.0.0.1:{}", self.port),
            "managementListenAddress": format!("127.0.0.1:{}", self.port + 1),
            "certificate": self.identity.cert(),
            "privateKey": self.identity.key(),
            "httpPort": challenges.port(),
            "retryAfter": { "authz": 1, "order": 1 },
            "keyAlgorithm": "ecdsa",
        });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let file = folder.path().join("config.json");
        fs::write(&file, json!({ "pebble": config }).to_string()).unwrap();
        let mut command = Command::new(&self.program);
        command.arg("-config").arg(file).args(["-dnsserver", &names.address.to_string()]);
        // It challenges each time, and offers a second chain.
        command
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env("PEBBLE_AUTHZREUSE", "0")
            .env("PEBBLE_ALTERNATE_ROOTS", "1");
        let log = File::create(folder.path().join("log")).unwrap();
        command.stdin(Stdio::null()).stderr(log.try_clone().unwrap());
        let child = command.stdout(log).spawn().expect("pebble runs");
        let mut ca = Pebble { child, folder, port: self.port, _names: names };
        ca.wait();
        ca
    }
}

impl Pebble {
    fn wait(&mut self) {
        let end = Instant::now() + PATIENCE;
        while !self.listens() {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < end, "pebble does not start: {}", self.log());
            thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// Whether it has its port and that of its management. Another program may have had one of them before.
    fn listens(&self) -> bool {
        let is_open = |port| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok();
        self.log().contains("ACME directory available at") && is_open(self.port) && is_open(self.port + 1)
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// How many certificates it has issued.
    pub fn issued(&self) -> usize {
        self.log().matches("Issued certificate serial").count()
    }

    /// The name of its root of this number.
    pub fn root(&self, number: usize) -> String {
        let url = format!("https://127.0.0.1:{}/roots/{number}", self.port + 1);
        let pem = curl(&["--silent", "--insecure", &url]);
        let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
        let certificate = pem.parse_x509().unwrap();
        certificate.subject().iter_common_name().next().unwrap().as_str().unwrap().to_owned()
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
