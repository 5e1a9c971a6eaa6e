//! Programs of others in Go: connectconformance and its server of gRPC, grpc-go's examples, and statsd_exporter. `make test` builds
//! them from the versions that `counterparts/go.mod` names.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::{PATIENCE, unused_ports};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Where the program of this name is.
#[track_caller]
pub fn counterpart(name: &str) -> PathBuf {
    let folder = std::env::var_os("COUNTERPARTS").map(PathBuf::from).unwrap_or_default();
    let program = folder.join(name);
    let hint =
        "`make test-tools` builds it, and COUNTERPARTS=$PWD/target/tools/counterparts names its folder";
    assert!(program.is_file(), "{} is missing: {hint}", program.display());
    program
}

/// A server; killed when dropped.
pub struct Counterpart {
    /// Where it listens.
    pub address: SocketAddr,
    child: Child,
}

impl Counterpart {
    /// Starts a program on a port that no other has, nor the one above it. It gets these bytes as its standard input.
    #[track_caller]
    pub fn start(name: &str, arguments: impl FnOnce(u16) -> Vec<String>, input: &[u8]) -> Counterpart {
        let port = unused_ports(2);
        let mut command = Command::new(counterpart(name));
        command.args(arguments(port)).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the program runs");
        child.stdin.take().unwrap().write_all(input).unwrap();
        let mut server = Counterpart { address: (Ipv4Addr::LOCALHOST, port).into(), child };
        server.wait(name);
        server
    }

    fn wait(&mut self, name: &str) {
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(self.address).is_err() {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < end, "{name} does not start: {ended:?}");
            thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// One of grpc-go's examples.
    #[track_caller]
    pub fn example(name: &str) -> Counterpart {
        Counterpart::start(name, |port| vec!["-port".to_owned(), port.to_string()], b"")
    }
}

impl Drop for Counterpart {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
