//! A run with `--observe`, and `weirlab observe` on what it left.
use super::prometheus::{TIMEOUT, eventually, folder, get, over, value, weirlab};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::Instant;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use weirlab::observe::procfs;
use weirlab::telemetry::queries;

const STANDINS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/standins");

/// The folder of a run of nginx and the stand-in for Kong, which has metrics.
fn run() -> &'static Path {
    static RUN: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, folder) = RUN.get_or_init(|| {
        let out = tempfile::tempdir().unwrap();
        let arguments =
            ["run", "kong/plain-1", "--scheme", "http", "--targets", "nginx,kong", "--no-control"];
        let mut command = weirlab();
        command.args(arguments).args(["--rounds", "2", "--duration", "5s", "--keep-running", "--observe"]);
        command.env("WEIRLAB_KONG", format!("{STANDINS}/kong")).arg("--out").arg(out.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let folder = folder(out.path());
        (out, folder)
    });
    folder
}

fn data(run: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(run.join("data.json")).unwrap()).unwrap()
}

/// From when to when a run was made, in seconds since 1970.
fn span(data: &Value) -> (f64, f64) {
    let moment = |name: &str| {
        let text = data["manifest"][name].as_str().unwrap();
        OffsetDateTime::parse(text, &Rfc3339).unwrap().unix_timestamp() as f64
    };
    (moment("started"), moment("ended") + 2.0)
}

/// `weirlab observe`, and what it printed up to its last line.
struct Observing {
    child: Child,
    said: String,
}

impl Observing {
    fn start(arguments: &[&str], grafana: &str) -> Observing {
        let mut command = weirlab();
        command.arg("observe").arg(run()).args(arguments).env("WEIRLAB_GRAFANA", grafana);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        let mut lines = BufReader::new(child.stdout.as_mut().unwrap());
        while !said.contains("Ctrl-C ends it") {
            let read = lines.read_line(&mut said).unwrap();
            assert!(read > 0, "it ended: {said}");
        }
        Observing { child, said }
    }

    /// The address that follows a name.
    fn address(&self, name: &str) -> String {
        let line = self.said.lines().find_map(|line| line.strip_prefix(&format!("{name}: "))).unwrap();
        line.split('/').take(3).collect::<Vec<_>>().join("/")
    }

    /// Ends it by Ctrl-C; the processes that it had started, and how it ended.
    fn interrupt(mut self) -> (Vec<u32>, ExitStatus) {
        let own = self.child.id();
        let started: Vec<u32> = procfs::processes()
            .into_values()
            .filter(|stat| stat.parent == own)
            .map(|stat| stat.pid)
            .collect();
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        (started, self.child.wait().unwrap())
    }
}

fn runs(pid: u32) -> bool {
    procfs::Stat::of(pid).is_some_and(|stat| !stat.ended())
}

#[test]
fn what_was_kept_answers_all_that_is_printed_to_try() {
    let data = data(run());
    let observing = Observing::start(&["--no-grafana"], "");
    let prometheus = observing.address("Prometheus");
    for query in queries() {
        assert!(observing.said.contains(query.expression), "{}", observing.said);
        assert!(!over(&prometheus, query.expression, span(&data)).is_empty(), "{}", query.expression);
    }
    for cell in data["cells"].as_array().unwrap() {
        let answers = |block: &Value| block["answers"].as_f64().unwrap();
        let counted: f64 = cell["blocks"].as_array().unwrap().iter().map(answers).sum();
        let target = cell["target"].as_str().unwrap();
        let samples =
            over(&prometheus, &format!("weirlab_requests_total{{target=\"{target}\"}}"), span(&data));
        let seen = value(&samples[0]);
        // The last scrape was up to a second or more before the end.
        assert!(seen > 0.0 && seen <= counted, "{target}: {seen} of {counted}");
    }
    let (started, status) = observing.interrupt();
    assert!(status.success(), "{status}");
    assert!(started.len() >= 2, "Prometheus and the guard: {started:?}");
    assert!(!started.iter().any(|pid| runs(*pid)), "{started:?}");
}

#[test]
fn a_target_with_metrics_is_scraped_while_it_is_up() {
    let observing = Observing::start(&["--no-grafana"], "");
    let prometheus = observing.address("Prometheus");
    let span = span(&data(run()));
    let up = over(&prometheus, "up{job=\"targets\"}", span);
    assert_eq!(up.len(), 1, "nginx has no metrics: {up:?}");
    assert_eq!((&up[0]["metric"]["target"], value(&up[0])), (&"kong".into(), 1.0));
    let own = over(&prometheus, "kong_http_requests_total", span);
    assert_eq!(own[0]["metric"]["target"], "kong", "{own:?}");
    assert!(observing.interrupt().1.success());
}

#[test]
fn a_dashboard_of_the_run_is_provisioned_and_each_of_its_queries_has_an_answer() {
    let observing = Observing::start(&[], &format!("{STANDINS}/grafana"));
    let (prometheus, grafana) = (observing.address("Prometheus"), observing.address("Grafana"));
    let found: Value = serde_json::from_str(&get(&format!("{grafana}/stand-in")).unwrap()).unwrap();
    assert_eq!(found["source"].as_str(), Some(prometheus.as_str()));
    let dashboards = found["dashboards"].as_array().unwrap();
    for name in ["weirlab-run", "weir-overview"] {
        assert!(dashboards.contains(&name.into()), "{dashboards:?}");
    }
    assert!(observing.said.contains("/d/weirlab-run?from=17"), "{}", observing.said);

    let span = span(&data(run()));
    for (title, expression) in panels() {
        // There were no errors to show.
        let is_empty = over(&prometheus, &expression, span).is_empty();
        assert_eq!(is_empty, title == "Errors per second", "{title}: {expression}");
    }
    let (started, status) = observing.interrupt();
    assert!(status.success(), "{status}");
    assert!(started.len() >= 3 && !started.iter().any(|pid| runs(*pid)), "{started:?}");
    assert_eq!(get(&format!("{grafana}/api/health")), None);
}

/// What the panels of the run's dashboard ask, with Grafana's variables filled in.
fn panels() -> Vec<(String, String)> {
    let text = include_str!("../../src/telemetry/dashboards/run.json");
    let dashboard: Value = serde_json::from_str(text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() >= 8);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let queries = panels.iter().map(|panel| {
        assert!(text(&panel["description"]).ends_with('.'), "{panel}");
        let expression = text(&panel["targets"][0]["expr"]);
        (
            text(&panel["title"]),
            expression
                .replace("[$__rate_interval]", "[5s]")
                .replace("\"$target\"", "\".*\"")
                .replace("\"$case\"", "\".*\""),
        )
    });
    queries.collect()
}

fn refusal(command: &mut std::process::Command) -> String {
    let began = Instant::now();
    let output = command.output().unwrap();
    assert!(began.elapsed() < TIMEOUT && output.status.code() == Some(3), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn without_prometheus_its_package_is_named() {
    let out = tempfile::tempdir().unwrap();
    let mut command = weirlab();
    command.args(["run", "kong/plain-1", "--targets", "direct", "--observe", "--out"]).arg(out.path());
    let said = refusal(command.env("WEIRLAB_PROMETHEUS", "no-such-prometheus"));
    assert!(
        said.contains("no-such-prometheus is not on this machine") && said.contains("apt install prometheus"),
        "{said}"
    );
}

#[test]
fn a_port_in_use_is_named_with_what_has_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let said = refusal(weirlab().arg("observe").arg(run()).args(["--port", &port, "--no-grafana"]));
    assert!(said.contains(&format!("port {port}")) && said.contains("choose another port"), "{said}");
}

#[test]
fn a_run_that_was_not_observed_says_how_to_make_one_that_is() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(run().join("data.json"), folder.path().join("data.json")).unwrap();
    let said = refusal(weirlab().arg("observe").arg(folder.path()));
    assert!(said.contains("weirlab run … --observe"), "{said}");
}

#[test]
fn a_session_that_is_killed_leaves_no_prometheus() {
    let out = tempfile::tempdir().unwrap();
    let arguments = ["run", "kong/plain-1", "--scheme", "http", "--targets", "nginx", "--duration", "60s"];
    let mut command = weirlab();
    command.args(arguments).args(["--keep-running", "--observe", "--out"]).arg(out.path());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let prometheus = eventually("Prometheus runs", || {
        let own = child.id();
        let is = |stat: &procfs::Stat| stat.parent == own && stat.name == "prometheus";
        procfs::processes().into_values().find(is).map(|stat| stat.pid)
    });
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("Prometheus ends", || (!runs(prometheus)).then_some(()));
}
