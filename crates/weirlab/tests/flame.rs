//! Flame graphs of a real process, where `perf` is there and permitted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs, io, thread};
use weirlab::flame::{FlameError, differential, record};

/// A process that is busy until it is dropped.
struct Busy(Child);

impl Busy {
    fn start() -> Busy {
        let mut shell = Command::new("sh");
        Busy(shell.args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn sampled(pid: u32, folder: &Path, name: &str) -> Option<weirlab::flame::Profile> {
    match record(&[pid], Duration::from_millis(700), 299, folder, name) {
        Ok(profile) => Some(profile),
        Err(error @ (FlameError::PerfMissing | FlameError::NotPermitted(_))) => {
            eprintln!("not tested here: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_busy_process_is_drawn_and_compared() {
    let (busy, folder) = (Busy::start(), tempfile::tempdir().unwrap());
    let Some(first) = sampled(busy.0.id(), folder.path(), "first") else { return };
    assert!(first.samples > 0, "{first:?}");
    let folded = fs::read_to_string(&first.folded).unwrap();
    let name = fs::read_to_string(format!("/proc/{}/comm", busy.0.id())).unwrap();
    assert!(folded.lines().all(|line| line.starts_with(&format!("{};", name.trim()))), "{folded}");
    let graph = fs::read_to_string(&first.graph).unwrap();
    let graph_options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(&graph, graph_options).unwrap();
    let frames = document.descendants().filter(|node| node.tag_name().name() == "title").count();
    assert!(frames > 2, "{frames} frames");
    assert!(!folder.path().join("recording.perf").exists(), "the recording is left behind");
    let second = sampled(busy.0.id(), folder.path(), "second").unwrap();
    let difference =
        String::from_utf8(differential(&first.folded, &second.folded, "a <difference>").unwrap()).unwrap();
    assert!(difference.contains("a &lt;difference&gt;"), "the title is not there, or not escaped");
}

#[test]
fn a_process_that_is_gone_is_named() {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let error = record(&[pid], Duration::from_millis(200), 99, folder.path(), "gone").unwrap_err();
    let known = matches!(error, FlameError::PerfMissing | FlameError::NotPermitted(_));
    assert!(known || error.to_string().contains(&pid.to_string()), "{error}");
}

/// Runs this test binary again with another PATH, since a process's environment cannot be changed safely.
fn with_path(path: &Path, test: &str) -> String {
    let mut child = Command::new(env::current_exe().unwrap());
    let child = child.args(["--exact", test, "--ignored", "--nocapture"]).env("PATH", path);
    String::from_utf8_lossy(&child.output().unwrap().stdout).into_owned()
}

#[test]
#[ignore = "run by others with a PATH of their own"]
fn say_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let pid = std::process::id();
    let error = record(&[pid], Duration::from_millis(100), 99, folder.path(), "none").unwrap_err();
    io::Write::write_all(&mut io::stdout(), format!("it says: {error}\n").as_bytes()).unwrap();
}

#[test]
fn a_missing_perf_is_reported_with_its_package() {
    let empty = tempfile::tempdir().unwrap();
    let said = with_path(empty.path(), "say_what_is_wrong");
    assert!(said.contains("it says: perf is not installed") && said.contains("linux-perf"), "{said}");
}

#[test]
fn a_kernel_that_forbids_it_is_reported_with_the_setting() {
    let folder = tempfile::tempdir().unwrap();
    let perf = folder.path().join("perf");
    let script = "#!/bin/sh\necho 'Error: Access to performance monitoring and observability operations is limited.' >&2\nexit 255\n";
    fs::write(&perf, script).unwrap();
    fs::set_permissions(&perf, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // A file that was just written may still be open for writing in a process forked meanwhile.
    thread::sleep(Duration::from_millis(50));
    let said = with_path(folder.path(), "say_what_is_wrong");
    assert!(said.contains("sysctl kernel.perf_event_paranoid=1"), "{said}");
}
