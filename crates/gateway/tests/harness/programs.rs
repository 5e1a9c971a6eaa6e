//! Clients and servers that are not ours.
use super::{Identity, eventually, unused_ports};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
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
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, unused_ports(1)));
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

/// A running nginx; killed when dropped.
struct Nginx {
    child: Child,
    _folder: TempDir,
}

impl Nginx {
    /// Starts with the body of a `server`, in this folder.
    fn start(folder: TempDir, server: &str) -> Nginx {
        let config = folder.path().join("nginx.conf");
        let log = "error_log stderr; pid nginx.pid; daemon off; master_process off; events {}";
        let paths =
            ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|kind| format!("{kind}_temp_path t;"));
        let http = format!("access_log off; {} server {{ {server} }}", paths.join(" "));
        std::fs::write(&config, format!("{log}\nhttp {{ {http} }}\n")).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-p").arg(folder.path()).arg("-c").arg(&config);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("nginx runs");
        Nginx { child, _folder: folder }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running nginx that answers on a Unix socket.
pub struct NginxOnSocket {
    /// The socket.
    pub path: PathBuf,
    _nginx: Nginx,
}

impl NginxOnSocket {
    /// Starts with the body of a `location`.
    pub fn start(location: &str) -> NginxOnSocket {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("upstream.sock");
        let server = format!("listen unix:{}; location / {{ {location} }}", path.display());
        let nginx = Nginx::start(folder, &server);
        eventually("nginx listens", || UnixStream::connect(&path).is_ok());
        NginxOnSocket { path, _nginx: nginx }
    }
}

/// A running nginx that speaks TLS and answers with what it has seen of each request and its connection.
pub struct NginxOverTls {
    /// Where it listens.
    pub address: SocketAddr,
    _nginx: Nginx,
}

impl NginxOverTls {
    /// Starts with a certificate, its issuers behind it, and more directives of the `server`. `reports` is the body of
    /// its answers, which may have nginx's variables. A connection carries one request.
    pub fn start(identity: &Identity, issuers: &[&Identity], more: &str, reports: &str) -> NginxOverTls {
        let folder = tempfile::tempdir().unwrap();
        let chain = folder.path().join("chain.pem");
        let certificates = std::iter::once(&identity).chain(issuers);
        let texts = certificates.map(|identity| std::fs::read_to_string(identity.cert()).unwrap());
        std::fs::write(&chain, texts.collect::<String>()).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, unused_ports(1)));
        let (chain, key) = (chain.display(), identity.key());
        let server = format!(
            "listen {address} ssl; ssl_certificate {chain}; ssl_certificate_key {}; keepalive_timeout 0; {more} \
             location / {{ return 200 \"{reports}\"; }}",
            key.display()
        );
        let nginx = Nginx::start(folder, &server);
        eventually("nginx listens", || TcpStream::connect(address).is_ok());
        NginxOverTls { address, _nginx: nginx }
    }
}

/// What expressions give in the page at a URL, in a real browser, and at the end what the browser complains of.
pub fn chromium(url: &str, expressions: &[&str]) -> Vec<serde_json::Value> {
    let output = Command::new("/usr/bin/python3")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/web_ui/browser.py"))
        .arg(url)
        .args(expressions)
        .output()
        .expect("python3 runs");
    let log = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {log}"))
}
