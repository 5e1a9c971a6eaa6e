//! A Prometheus that is asked, and one of the user's.
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for anything here, on any machine.
pub(super) const TIMEOUT: Duration = Duration::from_secs(120);

pub(super) fn weirlab() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirlab"));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).stdin(Stdio::null());
    command
}

/// Waits for a state.
#[track_caller]
pub(super) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: it did not come to that");
        thread::sleep(Duration::from_millis(50));
    }
}

/// What an address answers to a GET.
pub(super) fn get(url: &str) -> Option<String> {
    let mut response = ureq::get(url).call().ok()?;
    response.body_mut().read_to_string().ok()
}

/// What a query is over a span of time, of which each second counts.
#[track_caller]
pub(super) fn over(prometheus: &str, expression: &str, (from, to): (f64, f64)) -> Vec<Value> {
    let seconds = (to - from) as u64;
    let whole = format!("max_over_time(({expression})[{seconds}s:1s])");
    let query = [("query", whole.as_str()), ("time", &to.to_string())];
    let request = ureq::get(format!("{prometheus}/api/v1/query")).query_pairs(query);
    let mut response = request.config().http_status_as_error(false).build().call().unwrap();
    let text = response.body_mut().read_to_string().unwrap();
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["status"], "success", "{expression}: {answer}");
    answer["data"]["result"].as_array().unwrap().clone()
}

/// The value of a sample.
pub(super) fn value(sample: &Value) -> f64 {
    sample["value"][1].as_str().unwrap().parse().unwrap()
}

/// A Prometheus of the user's; killed when dropped.
pub(super) struct Receiver {
    pub(super) url: String,
    child: Child,
    _folder: tempfile::TempDir,
}

impl Receiver {
    pub(super) fn start(arguments: &[&str]) -> Receiver {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        std::fs::write(folder.path().join("prometheus.yml"), "{}").unwrap();
        let mut command = Command::new("prometheus");
        command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]).args(arguments);
        command.arg("--web.listen-address=127.0.0.1:0").current_dir(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log).unwrap());
        let child = command.spawn().expect("prometheus runs");
        let mut receiver = Receiver { url: String::new(), child, _folder: folder };
        receiver.url = eventually("Prometheus listens", || listening(&log));
        receiver
    }
}

fn listening(log: &Path) -> Option<String> {
    let mut said = String::new();
    File::open(log).ok()?.read_to_string(&mut said).ok()?;
    let line = said.lines().find(|line| line.contains("\"Listening on\""))?;
    let address = line.split("address=").nth(1)?.trim();
    said.contains("ready to receive web requests").then(|| format!("http://{address}"))
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The only run folder below `out`.
pub(super) fn folder(out: &Path) -> PathBuf {
    let mut folders = std::fs::read_dir(out).expect("an output folder");
    folders.next().unwrap().unwrap().path()
}
