//! Sessions with a Kong that is started by a command and runs as a daemon, around a real nginx: every cell keeps its target
//! from the first block to the last, and nothing is left behind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use weirlab::observe::procfs;

const TIMEOUT: Duration = Duration::from_secs(60);
const BOTH: [&str; 2] = ["background", "foreground"];

/// The catalogue's target with the stand-in as its program, in the background and in the foreground; and where runs and
/// the laboratory's own files go.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Place {
        let folder = TempDir::new().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let target = fs::read_to_string(root.join("../../targets/kong/target.toml")).unwrap();
        let found = target.lines().find(|line| line.starts_with("find = ")).unwrap();
        let target = target.replace(found, &format!("find = [{:?}]", root.join("tests/standins/kong")));
        for (name, daemon) in BOTH.into_iter().zip(["on", "off"]) {
            let environment = format!("[environment]\nKONG_NGINX_DAEMON = \"{daemon}\"");
            fs::create_dir(folder.path().join(name)).unwrap();
            let text = target.replace("[environment]", &environment);
            fs::write(folder.path().join(name).join("target.toml"), text).unwrap();
        }
        // Unix sockets have short paths, so it is not below a target's folder.
        fs::create_dir(folder.path().join("t")).unwrap();
        Place { folder }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn weirlab(&self, arguments: &[&str], targets: &[&str]) -> Command {
        let targets: Vec<String> = targets.iter().map(|name| self.at(name).display().to_string()).collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weirlab"));
        command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).env("TMPDIR", self.at("t"));
        command.args(["run", "--no-control", "--targets", &targets.join(",")]).args(arguments);
        command.arg("--out").arg(self.at("out")).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn data(&self) -> Option<Value> {
        let folder = fs::read_dir(self.at("out")).ok()?.next()?.ok()?.path();
        serde_json::from_str(&fs::read_to_string(folder.join("data.json")).ok()?).ok()
    }

    /// Measures, and looks at every cell.
    fn measures(&self, arguments: &[&str], targets: &[&str], rounds: usize) {
        let output = self.weirlab(arguments, targets).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{printed}");
        let data = self.data().unwrap();
        let cells = data["cells"].as_array().unwrap();
        assert!(!cells.is_empty());
        for cell in cells {
            let name = format!("{} on {}: {printed}", cell["case"], cell["target"]);
            assert_eq!(cell["status"]["is"], "measured", "{name}");
            assert_eq!(cell["cut_short"], Value::Null, "{name}");
            let blocks = cell["blocks"].as_array().unwrap();
            assert_eq!(blocks.len(), rounds, "{name}");
            let number = |value: &Value| value.as_f64().unwrap();
            // On a machine that is busy otherwise, a short block may pass without an answer.
            assert!(blocks.iter().any(|block| number(&block["good"]) > 0.0), "{name}: {cell}");
            for block in blocks {
                let idle = number(&block["good"]) == 0.0;
                assert!(idle || number(&block["target"]["cpu_us"]) > 0.0, "{name}: {block}");
                // A master and its worker; those that a reload has replaced may not have ended yet.
                assert!(number(&block["target"]["processes"]) >= 2.0, "{name}: {block}");
            }
        }
        assert!(!printed.contains("could not be ended") && !printed.contains("did not stop"), "{printed}");
        assert_eq!(self.left_behind(), Vec::<String>::new());
    }

    /// What works below the laboratory's own folder, and what is in it.
    fn left_behind(&self) -> Vec<String> {
        let folder = fs::canonicalize(self.at("t")).unwrap();
        let alive = procfs::processes().into_values().filter(|stat| !stat.ended());
        let here = alive.filter(|stat| procfs::folder(stat.pid).is_some_and(|at| at.starts_with(&folder)));
        let processes = here.map(|stat| procfs::command_line(stat.pid));
        let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path().display().to_string());
        processes.chain(files).collect()
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn every_cell_keeps_its_target_in_slices() {
    let arguments = ["kong/rate-limiting-key-auth-1", "--scheme", "both", "--rounds", "2"];
    Place::new().measures(&[&arguments[..], &["--duration", "100ms"]].concat(), &BOTH, 2);
}

#[test]
fn every_cell_keeps_its_target_over_http2() {
    for (scenario, scheme) in [("kong/rate-limiting-basic-auth-1", "h2"), ("weir/grpc-unary", "h2c")] {
        let arguments = [scenario, "--scheme", scheme, "--rounds", "2", "--duration", "100ms"];
        Place::new().measures(&arguments, &BOTH, 2);
    }
}

#[test]
fn every_cell_keeps_its_target_while_it_reloads() {
    let place = Place::new();
    let arguments = ["weir/reload-under-load", "--scheme", "http", "--profile", "full", "--rounds", "1"];
    place.measures(&arguments, &BOTH, 1);
    for cell in place.data().unwrap()["cells"].as_array().unwrap() {
        for block in cell["blocks"].as_array().unwrap() {
            let actions = block["actions"].as_array().unwrap();
            assert!(!actions.is_empty(), "{block}");
            assert!(actions.iter().all(|action| action["error"].is_null()), "{actions:?}");
        }
    }
}

#[test]
fn every_cell_keeps_its_target_in_the_profile_of_kong() {
    let arguments = ["kong/plain-1", "--scheme", "http", "--profile", "kong", "--rounds", "1"];
    Place::new().measures(&[&arguments[..], &["--duration", "1s"]].concat(), &BOTH[..1], 1);
}

#[test]
fn a_target_that_is_left_running_is_measured_again() {
    let arguments = ["kong/plain-1", "--scheme", "http", "--keep-running", "--rounds", "4"];
    Place::new().measures(&[&arguments[..], &["--duration", "100ms"]].concat(), &BOTH, 4);
}

/// However the laboratory ends, no daemon stays behind.
#[test]
fn a_laboratory_that_is_killed_or_interrupted_leaves_no_daemon() {
    for signal in [Signal::KILL, Signal::INT] {
        let place = Place::new();
        let arguments = ["kong/plain-1", "--scheme", "http", "--rounds", "500", "--duration", "100ms"];
        let mut laboratory = place.weirlab(&arguments, &BOTH).stderr(Stdio::null()).spawn().unwrap();
        eventually("a block was measured", || {
            place.data().is_some_and(|data| data["cells"][0]["blocks"][0].is_object())
        });
        eventually("a daemon runs", || place.left_behind().iter().any(|line| line.contains("nginx: worker")));
        let pid = Pid::from_raw(i32::try_from(laboratory.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        laboratory.wait().unwrap();
        let deadline = Instant::now() + TIMEOUT;
        while !place.left_behind().is_empty() {
            assert!(Instant::now() < deadline, "left behind after {signal:?}: {:#?}", place.left_behind());
            thread::sleep(Duration::from_millis(20));
        }
    }
}
