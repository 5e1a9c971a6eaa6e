//! A gateway whose command returns and leaves a daemon, as Kong does: around a real nginx with master and workers, in the
//! background and in the foreground.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::catalogue_bench::{Bench, cases, target};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use weirlab::driver::process::Process;
use weirlab::driver::{Driver, DriverError, Running};
use weirlab::observe::procfs::{self, Stat};
use weirlab::observe::{ProcessTree, Sample};
use weirlab::scenario::Scheme;
use weirlab::target::Launch;

const DAEMON: [&str; 2] = ["on", "off"];

/// The launch that the catalogue makes of a scenario, and the upstream behind it. The command stays for a while after
/// nginx listens.
fn kong(daemon: &str) -> (Launch, Bench) {
    let case = &cases("kong/plain-1", Scheme::Http)[0];
    let bench = Bench::new(1);
    let mut launch = bench.prepare(&target("kong"), &stand_in(), case, &bench.document(case));
    launch.environment.insert("KONG_NGINX_DAEMON".to_owned(), daemon.to_owned());
    launch.environment.insert("KONG_STANDIN_LINGER".to_owned(), "0.5".to_owned());
    (launch, bench)
}

fn stand_in() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/standins/kong")
}

fn start(launch: &Launch) -> Box<dyn Running> {
    Process.start(launch, &[]).unwrap()
}

fn refused(launch: &Launch) -> DriverError {
    match Process.start(launch, &[]) {
        Ok(_) => panic!("it started"),
        Err(error) => error,
    }
}

/// A command of the stand-in's, with the launch's environment.
fn command(launch: &Launch, words: &[&str]) -> Output {
    Command::new(stand_in())
        .args(words)
        .envs(&launch.environment)
        .current_dir(&launch.folder)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.clone(), output.stderr.clone()].concat()).into_owned()
}

fn prefix(launch: &Launch) -> PathBuf {
    launch.folder.join("prefix")
}

fn in_pid_file(launch: &Launch) -> u32 {
    fs::read_to_string(prefix(launch).join("pids/nginx.pid")).unwrap().trim().parse().unwrap()
}

fn error_log(launch: &Launch) -> String {
    fs::read_to_string(prefix(launch).join("logs/error.log")).unwrap()
}

/// Asks so many times over one connection.
fn ask(address: SocketAddr, times: usize) {
    let stream = TcpStream::connect(address).unwrap();
    let mut answers = BufReader::new(&stream);
    for _ in 0..times {
        (&stream).write_all(b"GET /route-1/get HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut length = 0;
        let mut line = String::new();
        answers.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 200"), "{line}");
        while line.trim() != "" {
            line.clear();
            answers.read_line(&mut line).unwrap();
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        answers.read_exact(&mut vec![0; length]).unwrap();
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The living processes that work in this folder.
fn at_work(folder: &Path) -> Vec<String> {
    let folder = fs::canonicalize(folder).unwrap();
    let processes = procfs::processes().into_values().filter(|stat| !stat.ended());
    let here = processes.filter(|stat| procfs::folder(stat.pid).as_ref() == Some(&folder));
    here.map(|stat| procfs::command_line(stat.pid)).collect()
}

#[test]
fn a_node_is_found_measured_and_ended_time_after_time() {
    for daemon in DAEMON {
        let (launch, _upstream) = kong(daemon);
        let address = launch.listeners.http.unwrap();
        for round in 1..=3 {
            let mut running = start(&launch);
            assert_eq!(running.pid(), in_pid_file(&launch), "daemon {daemon}, round {round}");
            let mut tree = ProcessTree::new(running.pid());
            let before = tree.sample();
            ask(address, 200);
            let usage = tree.sample().since(&before);
            assert_eq!(usage.processes, 2, "a master and a worker: daemon {daemon}, round {round}");
            assert!(usage.cpu_us > 0.0 && usage.rss_kib > 0, "{usage:?}");
            running.stop().unwrap();
            assert!(!running.alive());
            assert_eq!(at_work(&launch.folder), Vec::<String>::new());
            assert!(!prefix(&launch).join("pids/nginx.pid").exists(), "nginx removes it itself");
            drop(TcpListener::bind(address).unwrap());
            let log = error_log(&launch);
            assert_eq!(log.matches("gracefully shutting down").count(), round, "{log}");
        }
    }
}

#[test]
fn a_reload_replaces_workers_and_no_cpu_time_is_lost() {
    for daemon in DAEMON {
        let (launch, _upstream) = kong(daemon);
        let mut running = start(&launch);
        let mut tree = ProcessTree::new(running.pid());
        let before = tree.sample();
        let first: Vec<u32> = tree.pids().into_iter().filter(|pid| *pid != running.pid()).collect();
        ask(launch.listeners.http.unwrap(), 5000);
        // Whether it has been looked at since or not, what a worker used is counted to its end.
        let used: f64 = first.iter().map(|worker| cpu_us(*worker)).sum();
        running.reload().unwrap();
        eventually("the first workers are gone", || first.iter().all(|worker| Stat::of(*worker).is_none()));
        eventually("there are others", || tree.sample().since(&Sample::default()).processes == 2);
        let usage = tree.sample().since(&before);
        // The kernel counts children that have ended in ticks, of user and of system time.
        assert!(usage.cpu_us >= used - 25_000.0, "daemon {daemon}: {usage:?} after {used}");
        assert!(running.alive());
        assert_eq!(running.pid(), in_pid_file(&launch));
        running.stop().unwrap();
        assert_eq!(at_work(&launch.folder), Vec::<String>::new());
    }
}

fn cpu_us(process: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e3
}

#[test]
fn a_node_that_is_dropped_is_ended_by_force() {
    for daemon in DAEMON {
        let (launch, _upstream) = kong(daemon);
        let running = start(&launch);
        assert!(!at_work(&launch.folder).is_empty());
        drop(running);
        assert_eq!(at_work(&launch.folder), Vec::<String>::new());
        // What a killed node leaves in its prefix does not keep the next one from starting.
        assert!(
            prefix(&launch).join("pids/nginx.pid").exists() && prefix(&launch).join("sockets/we").exists()
        );
        start(&launch).stop().unwrap();
    }
}

#[test]
fn where_the_command_to_stop_fails_the_signal_takes_its_place() {
    for daemon in DAEMON {
        let (mut launch, _upstream) = kong(daemon);
        launch.stop_command = ["sh", "-c", "echo no such prefix; exit 1"].map(str::to_owned).to_vec();
        let text = start(&launch).stop().unwrap_err().to_string();
        assert!(text.contains("did not stop (exit status: 1)") && text.ends_with("no such prefix"), "{text}");
        assert_eq!(at_work(&launch.folder), Vec::<String>::new());
        assert!(error_log(&launch).contains("gracefully shutting down"), "{}", error_log(&launch));
    }
}

#[test]
fn a_process_that_a_stale_pid_file_names_is_left_alone() {
    let (launch, _upstream) = kong("on");
    // A child of this process, as a gateway that was adopted would be.
    let mut other = Command::new("sleep").arg("600").spawn().unwrap();
    fs::create_dir_all(prefix(&launch).join("pids")).unwrap();
    fs::write(prefix(&launch).join("pids/nginx.pid"), other.id().to_string()).unwrap();
    let text = refused(&launch).to_string();
    assert!(text.contains(&format!("Kong is already running in {}", prefix(&launch).display())), "{text}");
    assert!(other.try_wait().unwrap().is_none(), "it was ended");
    other.kill().unwrap();
    other.wait().unwrap();
    // Its pid is free now.
    start(&launch).stop().unwrap();
}

#[test]
fn a_daemon_that_writes_no_pid_file_is_refused() {
    let (mut launch, _upstream) = kong("on");
    launch.pid_file = Some(launch.folder.join("unknown.pid"));
    launch.ready.within = Duration::from_secs(3);
    let text = refused(&launch).to_string();
    assert!(text.contains("unknown.pid names none of its processes"), "{text}");
    assert_eq!(at_work(&launch.folder), Vec::<String>::new());
}

/// Without a pid file too, once the command has ended.
#[test]
fn a_daemon_is_followed_when_its_command_ends_late() {
    let (mut launch, _upstream) = kong("on");
    launch.pid_file = None;
    let mut running = start(&launch);
    eventually("the daemon is followed", || running.alive() && running.pid() == in_pid_file(&launch));
    running.stop().unwrap();
    assert_eq!(at_work(&launch.folder), Vec::<String>::new());
}

/// What the stand-in says and how it ends, as Kong 3.9 does.
#[test]
fn the_stand_in_answers_as_kong_does() {
    let (launch, _upstream) = kong("on");
    let place = prefix(&launch).display().to_string();
    let outcome = |words: &[&str]| {
        let output = command(&launch, words);
        (output.status.code().unwrap(), said(&output))
    };
    let not_running = format!("Error: nginx not running in prefix: {place}");
    assert_eq!(outcome(&["version"]), (0, "3.9.0\n".to_owned()));
    assert!(outcome(&["stop"]).1.starts_with(&format!("Error: no such prefix: {place}")));
    assert_eq!(outcome(&["prepare", "-p", &place]), (0, String::new()));
    for words in [["reload"], ["stop"], ["quit"]] {
        let (code, text) = outcome(&words);
        assert!(code == 1 && text.starts_with(&not_running), "{words:?}: {text}");
    }
    assert_eq!(outcome(&["start"]), (0, "Kong started\n".to_owned()));
    let master = in_pid_file(&launch);
    let (code, text) = outcome(&["start"]);
    assert!(code == 1 && text.starts_with(&format!("Error: Kong is already running in {place}")), "{text}");
    assert!(outcome(&["health"]).1.ends_with(&format!("Kong is healthy at {place}\n")));
    assert_eq!(outcome(&["reload", "--prefix", &place]), (0, "Kong reloaded\n".to_owned()));
    assert_eq!(in_pid_file(&launch), master);
    assert_eq!(outcome(&["restart", "-p", &place]), (0, "Kong started\n".to_owned()));
    assert_ne!(in_pid_file(&launch), master);
    let quit = outcome(&["quit", "-p", &place, "--timeout", "5"]);
    assert_eq!(quit, (0, "Kong stopped (gracefully)\n".to_owned()));
    assert_eq!(outcome(&["start"]), (0, "Kong started\n".to_owned()));
    assert_eq!(outcome(&["stop"]), (0, "Kong stopped\n".to_owned()));
    eventually("nginx has ended", || at_work(&launch.folder).is_empty());
    let (code, text) = outcome(&["health"]);
    assert!(code == 1 && text.ends_with("for more details\n"), "{text}");
}
