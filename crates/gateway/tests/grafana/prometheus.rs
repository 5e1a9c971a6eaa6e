//! A Prometheus server from the system's package, and its tool.
use crate::harness::{Message, Peer, eventually};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Our alerts.
pub(crate) const ALERTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../grafana/alerts.yml");

/// A running server that scrapes nodes each second and evaluates our alerts; killed when dropped.
pub(crate) struct Prometheus {
    pub(crate) address: SocketAddr,
    child: Child,
    _folder: TempDir,
}

/// A value, and the labels that tell it from others.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

impl Sample {
    pub(crate) fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

impl Prometheus {
    pub(crate) fn scraping(node: SocketAddr) -> Prometheus {
        Self::start(&[node], &[])
    }

    /// Starts with more arguments, and scrapes these nodes.
    pub(crate) fn start(nodes: &[SocketAddr], arguments: &[&str]) -> Prometheus {
        let folder = tempfile::tempdir().unwrap();
        let (config, log) = (folder.path().join("prometheus.yml"), folder.path().join("log"));
        let global = "{scrape_interval: 1s, evaluation_interval: 1s}";
        let nodes = nodes.iter().map(|node| format!("'{node}'")).collect::<Vec<_>>().join(", ");
        let jobs = format!("[{{job_name: weir, static_configs: [{{targets: [{nodes}]}}]}}]");
        let text = format!("global: {global}\nrule_files: [{ALERTS}]\nscrape_configs: {jobs}\n");
        fs::write(&config, text).unwrap();
        let mut command = Command::new("prometheus");
        command.args(arguments).arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()));
        command.arg("--web.listen-address=127.0.0.1:0").stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(File::create(&log).unwrap()).spawn().expect("prometheus runs");
        let mut address = None;
        eventually("Prometheus listens", || {
            let said = fs::read_to_string(&log).unwrap_or_default();
            let line = said.lines().find(|line| line.contains("\"Listening on\""));
            address = line.and_then(|line| line.split("address=").nth(1)?.trim().parse().ok());
            address.is_some() && said.contains("ready to receive web requests")
        });
        Prometheus { address: address.unwrap(), child, _folder: folder }
    }

    /// What an expression is at a time, or now.
    #[track_caller]
    pub(crate) fn query(&self, expression: &str, at: Option<f64>) -> Vec<Sample> {
        let time = at.map(|at| ("time", at.to_string()));
        self.samples("query", expression, time.into_iter().collect(), |series| series["value"].clone())
    }

    /// What a panel ends with that shows an expression over a while up to a time.
    #[track_caller]
    pub(crate) fn range(&self, expression: &str, to: f64) -> Vec<Sample> {
        let span = [("start", (to - 10.0).to_string()), ("end", to.to_string()), ("step", "1".to_owned())];
        let last = |series: &Json| series["values"].as_array().unwrap().last().unwrap().clone();
        self.samples("query_range", expression, span.into(), last)
    }

    #[track_caller]
    fn samples(
        &self,
        path: &str,
        expression: &str,
        mut fields: Vec<(&str, String)>,
        value: impl Fn(&Json) -> Json,
    ) -> Vec<Sample> {
        fields.push(("query", expression.to_owned()));
        let answer = self.ask(path, &fields);
        let body = answer.json();
        assert_eq!(body["status"], "success", "{expression}: {body}");
        let series = body["data"]["result"].as_array().unwrap().iter();
        series
            .map(|series| Sample {
                labels: serde_json::from_value(series["metric"].clone()).unwrap(),
                value: value(series)[1].as_str().unwrap().parse().unwrap(),
            })
            .collect()
    }

    /// The values that a label has in the series of a selector.
    #[track_caller]
    pub(crate) fn label_values(&self, label: &str, selector: Option<&str>) -> Vec<String> {
        let fields: Vec<_> = selector.iter().map(|selector| ("match[]", selector.to_string())).collect();
        let query = form(&fields);
        serde_json::from_value(self.get(&format!("label/{label}/values?{query}"))).unwrap()
    }

    /// The alerts that there are: what each asks, whether that can be asked, and its state.
    pub(crate) fn alerts(&self) -> Vec<Json> {
        let groups = self.get("rules")["groups"].take();
        groups
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|group| group["rules"].as_array().unwrap().clone())
            .collect()
    }

    #[track_caller]
    fn get(&self, path: &str) -> Json {
        let head = format!("GET /api/v1/{path} HTTP/1.1\r\nHost: p\r\n\r\n");
        let mut body = Peer::connect(self.address).send(head).response().json();
        assert_eq!(body["status"], "success", "{path}: {body}");
        body["data"].take()
    }

    fn ask(&self, path: &str, fields: &[(&str, String)]) -> Message {
        let body = form(fields);
        let head = format!(
            "POST /api/v1/{path} HTTP/1.1\r\nHost: p\r\nContent-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        Peer::connect(self.address).send(head + &body).response()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn form(fields: &[(&str, String)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish()
}

/// Runs promtool; whether it is content, and what it says.
pub(crate) fn promtool(arguments: &[&str], input: &str) -> (bool, String) {
    let mut command = Command::new("promtool");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool runs");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}
