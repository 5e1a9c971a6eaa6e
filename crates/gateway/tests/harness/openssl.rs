//! TLS by OpenSSL's command: certificates, a client, and an upstream.
use super::unused_ports;
use std::io::{BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use tempfile::TempDir;

fn openssl(arguments: &[&str]) -> Command {
    let mut command = Command::new("openssl");
    command.args(arguments).stderr(Stdio::null());
    command
}

/// A certificate and its key, in files of a folder of their own.
pub struct Identity {
    folder: TempDir,
}

impl Identity {
    /// An authority, whose own certificate can be used by a server too.
    pub fn new(name: &str) -> Identity {
        Identity::make(name, None, true, None)
    }

    /// An authority that another one vouches for.
    pub fn intermediate(name: &str, authority: &Identity) -> Identity {
        Identity::make(name, Some(authority), true, None)
    }

    /// One for a name and 127.0.0.1, signed by an authority.
    pub fn signed(name: &str, authority: &Identity) -> Identity {
        Identity::make(name, Some(authority), false, None)
    }

    /// The same, with an extension more, as OpenSSL's configuration has it.
    pub fn signed_with(name: &str, authority: &Identity, extension: &str) -> Identity {
        Identity::make(name, Some(authority), false, Some(extension))
    }

    /// An authority whose certificate says what its key may be used for, as strict clients demand.
    pub fn for_strict_clients(name: &str) -> Identity {
        Identity::make(name, None, true, Some("keyUsage=critical,digitalSignature,keyCertSign"))
    }

    /// One with an RSA key of so many bits, signed by itself.
    pub fn rsa(name: &str, bits: usize) -> Identity {
        let folder = tempfile::tempdir().unwrap();
        let file = |name| folder.path().join(name);
        let mut command =
            openssl(&["req", "-x509", "-newkey", &format!("rsa:{bits}"), "-nodes", "-days", "30"]);
        command.args(["-subj", &format!("/CN={name}")]).arg("-keyout").arg(file("key.pem"));
        assert!(command.arg("-out").arg(file("cert.pem")).status().expect("openssl runs").success());
        Identity { folder }
    }

    fn make(name: &str, authority: Option<&Identity>, is_ca: bool, extension: Option<&str>) -> Identity {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config");
        std::fs::write(&config, "[req]\ndistinguished_name=dn\n[dn]\n").unwrap();
        let mut command =
            openssl(&["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]);
        command.args(["-days", "30", "-subj", &format!("/CN={name}"), "-addext"]);
        command.arg(format!("subjectAltName=DNS:{name},IP:127.0.0.1"));
        command.args(["-addext", &format!("basicConstraints=critical,CA:{is_ca}")]);
        if let Some(extension) = extension {
            command.args(["-addext", extension]);
        }
        if let Some(authority) = authority {
            command.arg("-CA").arg(authority.cert()).arg("-CAkey").arg(authority.key());
        }
        command.arg("-config").arg(config).arg("-keyout").arg(folder.path().join("key.pem"));
        command.arg("-out").arg(folder.path().join("cert.pem"));
        assert!(command.status().expect("openssl runs").success());
        Identity { folder }
    }

    /// One of the kind that `openssl x509 -req` makes without extensions.
    pub fn version_1(name: &str, authority: &Identity) -> Identity {
        Identity::without_extensions(name, "P-256", Some(authority))
    }

    /// One of the kind that `kong hybrid gen_cert` makes: signed by its own key, with the serial number 0.
    pub fn self_signed_version_1(name: &str) -> Identity {
        Identity::without_extensions(name, "P-384", None)
    }

    fn without_extensions(name: &str, curve: &str, authority: Option<&Identity>) -> Identity {
        let folder = tempfile::tempdir().unwrap();
        let file = |name| folder.path().join(name);
        let curve = format!("ec_paramgen_curve:{curve}");
        let mut request = openssl(&["req", "-new", "-newkey", "ec", "-pkeyopt", &curve, "-nodes"]);
        request.args(["-subj", &format!("/CN={name}")]).arg("-keyout").arg(file("key.pem"));
        assert!(request.arg("-out").arg(file("request.pem")).status().expect("openssl runs").success());
        let mut signing = openssl(&["x509", "-req", "-days", "30"]);
        match authority {
            Some(authority) => signing
                .args(["-set_serial", "1", "-CA"])
                .arg(authority.cert())
                .arg("-CAkey")
                .arg(authority.key()),
            None => signing.args(["-set_serial", "0", "-signkey"]).arg(file("key.pem")),
        };
        signing.arg("-in").arg(file("request.pem")).arg("-out").arg(file("cert.pem"));
        assert!(signing.status().expect("openssl runs").success());
        let text = openssl(&["x509", "-noout", "-text", "-in"]).arg(file("cert.pem")).output();
        assert!(String::from_utf8_lossy(&text.expect("openssl runs").stdout).contains("Version: 1 (0x0)"));
        Identity { folder }
    }

    /// One that another program has made, as PEM.
    pub fn from_pem(cert: &str, key: &str) -> Identity {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("cert.pem"), cert).unwrap();
        std::fs::write(folder.path().join("key.pem"), key).unwrap();
        Identity { folder }
    }

    /// The certificate's file.
    pub fn cert(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    /// The key's file.
    pub fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    /// The certificate as a YAML string.
    pub fn cert_yaml(&self) -> String {
        yaml(&self.cert())
    }

    /// The key as a YAML string.
    pub fn key_yaml(&self) -> String {
        yaml(&self.key())
    }
}

fn yaml(file: &Path) -> String {
    format!("{:?}", std::fs::read_to_string(file).unwrap())
}

/// What `openssl s_client` reports of a handshake, spaces removed.
pub fn handshake(address: SocketAddr, arguments: &[&str]) -> String {
    let output = openssl(&["s_client", "-connect", &address.to_string()])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("openssl runs");
    String::from_utf8_lossy(&output.stdout).replace(' ', "")
}

/// A client that speaks TLS; killed when dropped.
pub struct TlsPeer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl TlsPeer {
    /// Connects, asking for a name.
    pub fn connect(address: SocketAddr, name: &str) -> TlsPeer {
        TlsPeer::connect_with(address, name, &[])
    }

    /// The same; `arguments` as of `openssl s_client`.
    pub fn connect_with(address: SocketAddr, name: &str, arguments: &[&str]) -> TlsPeer {
        let mut child =
            openssl(&["s_client", "-quiet", "-connect", &address.to_string(), "-servername", name])
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("openssl runs");
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        TlsPeer { child, input, output: BufReader::new(output) }
    }

    /// Sends something, and returns all that arrives until the connection ends.
    pub fn rest_after(&mut self, sent: &str) -> String {
        use std::io::Read;
        // The other end may have closed already.
        let _ = self.input.write_all(sent.as_bytes());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        rest
    }

    /// Sends a GET and returns the response's status line and body.
    pub fn get(&mut self, path: &str) -> (String, String) {
        use std::io::{BufRead, Read};
        write!(self.input, "GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n").unwrap();
        let (mut status, mut length) = (String::new(), 0);
        self.output.read_line(&mut status).unwrap();
        loop {
            let mut line = String::new();
            self.output.read_line(&mut line).unwrap();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.output.read_exact(&mut body).unwrap();
        (status.trim().to_owned(), String::from_utf8(body).unwrap())
    }
}

impl Drop for TlsPeer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An upstream that answers every request with a page about its TLS session; killed when dropped.
pub struct TlsUpstream {
    /// Where it listens.
    pub address: SocketAddr,
    child: Child,
}

impl TlsUpstream {
    /// Starts with a certificate; `arguments` as of `openssl s_server`.
    pub fn start(identity: &Identity, arguments: &[&str]) -> TlsUpstream {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, unused_ports(1)));
        let child = openssl(&["s_server", "-www", "-accept", &address.to_string()])
            .args(arguments)
            .arg("-cert")
            .arg(identity.cert())
            .arg("-key")
            .arg(identity.key())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("openssl runs");
        super::eventually("openssl listens", || TcpStream::connect(address).is_ok());
        TlsUpstream { address, child }
    }
}

impl Drop for TlsUpstream {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
