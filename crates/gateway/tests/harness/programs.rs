//! Clients and servers that are not ours.
use super::eventually;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// What curl prints, whatever the proxy settings of this machine.
#[track_caller]
pub fn curl(arguments: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["--noproxy", "*", "--max-time", "20"])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("curl runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A running HAProxy; killed when dropped.
pub struct Haproxy {
    /// Where it listens.
    pub address: SocketAddr,
    child: Child,
    _folder: TempDir,
}

impl Haproxy {
    /// Starts with the body of a `listen` section.
    pub fn start(section: &str) -> Haproxy {
        Haproxy::listening("", section)
    }

    /// The same, with options of its `bind` line.
    pub fn listening(options: &str, section: &str) -> Haproxy {
        let folder = tempfile::tempdir().unwrap();
        // Free now; the listener is closed before HAProxy takes its place.
        let address = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).unwrap();
        let config = folder.path().join("haproxy.cfg");
        let defaults = "timeout connect 20s\n  timeout client 20s\n  timeout server 20s";
        let text = format!("defaults\n  {defaults}\nlisten l\n  bind {address} {options}\n  {section}\n");
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new("haproxy");
        command.args(["-db", "-f"]).arg(&config).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(Stdio::null()).spawn().expect("haproxy runs");
        eventually("HAProxy listens", || TcpStream::connect(address).is_ok());
        Haproxy { address, child, _folder: folder }
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running nginx that answers on a Unix socket; killed when dropped.
pub struct NginxOnSocket {
    /// The socket.
    pub path: std::path::PathBuf,
    child: Child,
    _folder: TempDir,
}

impl NginxOnSocket {
    /// Starts with the body of a `location`.
    pub fn start(location: &str) -> NginxOnSocket {
        let folder = tempfile::tempdir().unwrap();
        let (path, config) = (folder.path().join("upstream.sock"), folder.path().join("nginx.conf"));
        let socket = path.display();
        let log = "error_log stderr; pid nginx.pid; daemon off; master_process off; events {}";
        let paths =
            ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|kind| format!("{kind}_temp_path t;"));
        let server = format!("server {{ listen unix:{socket}; location / {{ {location} }} }}");
        let text = format!("{log}\nhttp {{ access_log off; {} {server} }}\n", paths.join(" "));
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-p").arg(folder.path()).arg("-c").arg(&config);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("nginx runs");
        eventually("nginx listens", || std::os::unix::net::UnixStream::connect(&path).is_ok());
        NginxOnSocket { path, child, _folder: folder }
    }
}

impl Drop for NginxOnSocket {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
