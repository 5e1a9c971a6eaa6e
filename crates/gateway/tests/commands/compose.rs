//! Public Compose files with Kong: their commands and environments, with other hosts, paths and ports alone.
use super::Kong;
use crate::harness::{PostgresServer, Upstream, one_route};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;

const FILES: &str = include_str!("compose.toml");

/// What the shapes have.
#[derive(Deserialize)]
struct Shapes {
    file: Vec<ComposeFile>,
}

/// One file: its services with Kong's image, in the order in which they run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ComposeFile {
    name: String,
    environment: BTreeMap<String, String>,
    /// Commands of jobs that run to their end.
    #[serde(default)]
    jobs: Vec<Vec<String>>,
    /// The command of the node; Kong's own if there is none.
    #[serde(default)]
    command: Vec<String>,
    /// The file's, in place of `/docker-entrypoint.sh`.
    #[serde(default)]
    entrypoint: Vec<String>,
    healthcheck: Vec<String>,
    /// What clients of the Admin API get: 200, or none if it stays closed.
    #[serde(default)]
    admin: Option<u16>,
}

/// Puts the test's hosts, paths and ports in place of the file's.
struct Machine {
    kong: Kong,
    database: BTreeMap<String, String>,
}

impl Machine {
    fn new(name: &str, upstream: std::net::SocketAddr) -> Machine {
        let kong = Kong::bare();
        // Supabase's entrypoint has a shell read it.
        fs::write(kong.path("kong.yml"), one_route(upstream).replace('"', "'")).unwrap();
        let schema = format!("compose_{}", name.replace('-', "_"));
        let settings = PostgresServer::settings(PostgresServer::shared_port(), &schema);
        let defaults = [("pg_host", "127.0.0.1"), ("pg_user", "kong")];
        let defaults = defaults.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let of_server = settings.into_iter().filter(|(key, _)| key.starts_with("pg_"));
        let database: BTreeMap<_, _> = of_server.chain(defaults).collect();
        fs::write(kong.path("secret"), format!("{}\n", database["pg_password"])).unwrap();
        Machine { kong, database }
    }

    fn moved(&self, text: &str) -> String {
        let path = |name: &str| self.kong.path(name).display().to_string();
        let bin = path("bin/docker-entrypoint.sh");
        let mut text = text.replace("/docker-entrypoint.sh", &bin).replace("FOLDER", &path(""));
        for port in ["8000", "8001", "8100", "8443", "8444"] {
            text = text.replace(&format!("0.0.0.0:{port}"), "127.0.0.1:0");
        }
        for (key, value) in &self.database {
            text = text.replace(&key.to_uppercase(), value);
        }
        text
    }

    fn words(&self, words: &[String]) -> Vec<String> {
        words.iter().map(|word| self.moved(word)).collect()
    }
}

fn run(file: ComposeFile) {
    let upstream = Upstream::echoing();
    let mut machine = Machine::new(&file.name, upstream.address);
    let environment = file.environment.iter().map(|(name, value)| (name.clone(), machine.moved(value)));
    machine.kong.environment = environment.collect();
    let prefix = machine.kong.prefix();
    machine.kong = machine.kong.with("KONG_PREFIX", &prefix).with("KONG_NGINX_WORKER_PROCESSES", "1");
    if !machine.kong.environment.iter().any(|(name, _)| name == "KONG_STATUS_LISTEN") {
        machine.kong = machine.kong.with("KONG_STATUS_LISTEN", "off");
    }
    if !machine.kong.environment.iter().any(|(name, _)| name == "KONG_PROXY_LISTEN") {
        machine.kong = machine.kong.with("KONG_PROXY_LISTEN", "127.0.0.1:0");
    }
    let words = |entrypoint: &[String], command: &[String]| {
        let own = vec!["docker-entrypoint.sh".to_owned()];
        let entrypoint = if entrypoint.is_empty() { own } else { machine.words(entrypoint) };
        entrypoint.into_iter().chain(machine.words(command)).collect::<Vec<_>>()
    };
    for job in &file.jobs {
        let words = words(&[], job);
        let done = machine.kong.run(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(done.code, Some(0), "{}: {job:?}: {}{}", file.name, done.stdout, done.stderr);
    }
    let default = ["kong".to_owned(), "docker-start".to_owned()];
    let command = match (file.command.is_empty(), file.entrypoint.is_empty()) {
        (true, true) => default.as_slice(),
        _ => &file.command,
    };
    let words = words(&file.entrypoint, command);
    let node = machine.kong.serve(&words.iter().map(String::as_str).collect::<Vec<_>>());
    let routed = if file.environment.contains_key("KONG_DECLARATIVE_CONFIG") { 200 } else { 404 };
    assert_eq!(node.status("proxy", "/"), routed, "{}", file.name);
    let admin = node.start["admin"].as_array().unwrap().first().map(|_| node.status("admin", "/services"));
    assert_eq!(admin, file.admin, "{}", file.name);
    let check: Vec<_> = file.healthcheck.iter().map(String::as_str).collect();
    assert_eq!(machine.kong.run(&check).code, Some(0), "{}", file.name);
    assert_eq!(node.stop().0, Some(0), "{}", file.name);
}

#[test]
fn their_services_run_as_they_are() {
    let shapes: Shapes = toml::from_str(FILES).unwrap();
    assert_eq!(shapes.file.len(), 5);
    shapes.file.into_iter().for_each(run);
}
