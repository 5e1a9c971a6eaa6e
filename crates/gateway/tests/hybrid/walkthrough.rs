//! The commands of `docs/hybrid.md`, as a reader types them: a fleet in five commands, and a fleet of Kong that moves and returns.
use super::fakes::Fake;
use super::with_kong::table;
use crate::harness::{Identity, PATIENCE, Peer, Upstream, eventually};
use serde_json::json;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

const PAGE: &str = include_str!("../../../../docs/hybrid.md");
const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A machine of a reader: a folder, `weir` on the path, and ports in the place of those of the page.
struct Reader {
    folder: TempDir,
    ports: [(&'static str, u16); 5],
}

impl Reader {
    fn new() -> Reader {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bin")).unwrap();
        symlink(env!("CARGO_BIN_EXE_weir"), folder.path().join("bin/weir")).unwrap();
        // All are held until the last is chosen, so that they differ.
        let held = [(); 5].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let port = |nth: usize| held[nth].local_addr().unwrap().port();
        let names = ["8000", "8001", "8005", "8007", "8017"];
        Reader { ports: [0, 1, 2, 3, 4].map(|nth| (names[nth], port(nth))), folder }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn address(&self, name: &str) -> SocketAddr {
        let (_, port) = self.ports.iter().find(|(known, _)| *known == name).unwrap();
        (Ipv4Addr::LOCALHOST, *port).into()
    }

    /// Runs what the page has below a heading, with these replacements.
    #[track_caller]
    fn types(&self, block: &str, replacements: &[(&str, &str)]) {
        let ports = self.ports.iter().fold(block.to_owned(), |text, (name, port)| {
            text.replace(&format!("127.0.0.1:{name}"), &format!("127.0.0.1:{port}"))
        });
        let script = replacements.iter().fold(ports, |text, (from, to)| text.replace(from, to));
        let output = self.shell(&script);
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{script}\n{said}");
    }

    /// Each command must succeed.
    fn shell(&self, script: &str) -> Output {
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        command.args(["-e", "-c", &format!("alias curl='curl --fail --silent'\n{script}")]);
        command.current_dir(self.folder.path()).env_clear().env("PATH", path);
        for (setting, name) in [("PROXY", "8000"), ("ADMIN", "8001"), ("CLUSTER", "8005"), ("STATUS", "8007")]
        {
            command.env(format!("WEIR_{setting}_LISTEN"), self.address(name).to_string());
        }
        command.output().unwrap()
    }

    /// The status that the data plane answers a path with; 0 while it does not listen.
    fn get(&self, path: &str) -> u16 {
        let Ok(stream) = std::net::TcpStream::connect(self.address("8000")) else { return 0 };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        Peer::new(stream).send(request).response().status
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        for prefix in ["dp", "cp"] {
            // Fails where a test has not started it.
            let _ = self.shell(&format!("weir stop --prefix {prefix}"));
        }
    }
}

/// The commands below a heading, block by block.
fn blocks(heading: &str) -> Vec<&'static str> {
    let (_, section) = PAGE.split_once(&format!("## {heading}\n")).expect("the heading");
    let section = section.split("\n## ").next().unwrap();
    section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

fn copy(identity: &Identity, reader: &Reader) {
    let to = |from: &Path, name: &str| fs::copy(from, reader.path(name)).unwrap();
    to(&identity.cert(), "cluster.crt");
    to(&identity.key(), "cluster.key");
}

#[test]
fn a_fleet_in_five_commands() {
    let (reader, upstream) = (Reader::new(), Upstream::answering(HELLO));
    let blocks = blocks("A fleet in five commands");
    reader.types(blocks[0], &[("127.0.0.1:9000", &upstream.address.to_string())]);
    assert_eq!(reader.get("/orders"), 200, "the last command says that every data plane serves it");
}

#[test]
fn a_fleet_of_kong_moves_and_returns() {
    let (reader, upstream) = (Reader::new(), Upstream::answering(HELLO));
    let identity = Identity::self_signed_version_1("kong_clustering");
    copy(&identity, &reader);
    let kongs = table("/kong", &upstream);
    let (kong, port) = Fake::control_plane(&identity, json!({ "config_table": kongs }));
    let kong_address = format!("127.0.0.1:{port}");
    let at_kong = [("kong.internal:8005", kong_address.as_str())];
    let [moves_data_plane, moves_control_plane, returns] =
        blocks("Moving a fleet of Kong, and the way back")[..]
    else {
        panic!("the page has other steps");
    };
    reader.types(moves_data_plane, &at_kong);
    eventually("it follows Kong's control plane", || reader.get("/kong") == 200);
    // What Kong would have exported.
    let mut exported = kongs;
    exported["_format_version"] = "3.0".into();
    exported["routes"][0]["service"] = json!({ "name": "a" });
    exported["routes"][0]["paths"] = json!(["/kong", "/moved"]);
    fs::write(reader.path("kong.yml"), exported.to_string()).unwrap();
    reader.types(moves_control_plane, &[]);
    assert_eq!(reader.get("/kong"), 200, "it is served all along");
    eventually("it follows the new control plane", || reader.get("/moved") == 200);
    let cluster = u64::from(reader.address("8005").port());
    assert_eq!(Fake::data_plane(cluster, &identity, json!({})).event("applied")["hash_matches"], true);
    reader.types(returns, &at_kong);
    assert_eq!(reader.get("/kong"), 200, "it is served all along");
    eventually("it is back at Kong's control plane", || reader.get("/moved") == 404);
    assert!(fs::read_to_string(reader.path("kong-back.yml")).unwrap().contains("/moved"));
    drop(kong);
}
