//! LDAP directories of the tests' own, from the system's packages: OpenLDAP's slapd, in folders of their own, on free ports.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::{Identity, PATIENCE, unused_ports};
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;
use tempfile::TempDir;

/// A directory; killed when dropped.
pub struct LdapServer {
    child: Child,
    folder: TempDir,
    /// In clear and with StartTLS; over TLS.
    pub port: u16,
    pub tls_port: u16,
}

impl LdapServer {
    /// A directory with these entries (LDIF) below `dc=example,dc=test`. `more` are lines of its configuration.
    pub fn start(identity: &Identity, entries: &str, more: &str) -> LdapServer {
        for _ in 0..5 {
            let port = unused_ports(2);
            let folder = tempfile::tempdir().unwrap();
            fill(folder.path(), identity, entries, more);
            let child = spawn(folder.path(), port);
            let mut server = LdapServer { child, folder, port, tls_port: port + 1 };
            if server.answers() {
                return server;
            }
        }
        panic!("slapd does not start: is the package `slapd` installed?");
    }

    fn answers(&mut self) -> bool {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && self.child.try_wait().unwrap().is_none() {
            if [self.port, self.tls_port]
                .iter()
                .all(|port| TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_ok())
            {
                return true;
            }
            thread::park_timeout(std::time::Duration::from_millis(20));
        }
        false
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again, with the same entries.
    pub fn restart(&mut self) {
        self.kill();
        self.child = spawn(self.folder.path(), self.port);
        assert!(self.answers(), "slapd starts again");
    }
}

impl Drop for LdapServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn fill(folder: &Path, identity: &Identity, entries: &str, more: &str) {
    fs::create_dir(folder.join("data")).unwrap();
    let (at, cert, key) = (folder.display(), identity.cert(), identity.key());
    let configuration = format!(
        "include /etc/ldap/schema/core.schema\ninclude /etc/ldap/schema/cosine.schema\n\
         include /etc/ldap/schema/inetorgperson.schema\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\n\
         pidfile {at}/pid\nTLSCertificateFile {}\nTLSCertificateKeyFile {}\n{more}\ndatabase mdb\n\
         suffix dc=example,dc=test\ndirectory {at}/data\nmaxsize 10485760\n",
        cert.display(),
        key.display()
    );
    fs::write(folder.join("slapd.conf"), configuration).unwrap();
    fs::write(folder.join("entries.ldif"), entries).unwrap();
    let mut command = Command::new("slapadd");
    command.args(["-q", "-f"]).arg(folder.join("slapd.conf")).arg("-l").arg(folder.join("entries.ldif"));
    let added =
        command.env("PATH", path()).output().expect("slapadd runs: is the package `slapd` installed?");
    assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
}

fn spawn(folder: &Path, port: u16) -> Child {
    let urls = format!("ldap://127.0.0.1:{port} ldaps://127.0.0.1:{}", port + 1);
    // With a level of its log it stays in the foreground.
    let mut command = Command::new("slapd");
    command.args(["-d", "0", "-h", &urls, "-f"]).arg(folder.join("slapd.conf"));
    command.env("PATH", path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("slapd runs")
}

/// Debian has them where only root looks.
fn path() -> String {
    format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default())
}
