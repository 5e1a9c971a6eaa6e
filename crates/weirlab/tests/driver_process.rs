//! Gateways as processes: real ones (nginx), and shells that stand for those that fail.
#![allow(clippy::unwrap_used, clippy::panic)]
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use weirlab::driver::process::Process;
use weirlab::driver::{Driver, DriverError, Running, leftover};
use weirlab::observe::procfs::{self, Stat};
use weirlab::observe::{ProcessTree, allowed_cpus, connections_per_worker};
use weirlab::target::{Launch, Listeners, Ready, Reload};

/// It is free at the moment, and the next caller gets another one.
fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

fn launch(folder: &Path, command: &[&str]) -> Launch {
    Launch {
        label: "stand-in".to_owned(),
        command: command.iter().map(|part| (*part).to_owned()).collect(),
        folder: folder.to_owned(),
        ..Launch::default()
    }
}

fn shell(folder: &Path, script: &str) -> Launch {
    let ready = Ready { within: Duration::from_millis(400), ..Ready::default() };
    Launch { ready, ..launch(folder, &["sh", "-c", script]) }
}

fn nginx(folder: &Path, daemon: &str, body: &str) -> (Launch, SocketAddr) {
    let address = free_address();
    write_nginx(folder, daemon, body, address);
    let mut launch = launch(folder, &["nginx", "-p", ".", "-e", "error.log", "-c", "nginx.conf"]);
    launch.listeners = Listeners { http: Some(address), ..Listeners::default() };
    launch.ready = Ready { path: Some("/".to_owned()), within: Duration::from_secs(20), ..Ready::default() };
    launch.stop_signal = "QUIT".to_owned();
    launch.reload = Some(Reload::Signal("HUP".to_owned()));
    launch.error_logs = vec![PathBuf::from("error.log")];
    (launch, address)
}

fn write_nginx(folder: &Path, daemon: &str, body: &str, address: SocketAddr) {
    let paths =
        ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|name| format!("{name}_temp_path {name};"));
    let configuration = format!(
        "daemon {daemon}; worker_processes 2; pid nginx.pid;
         events {{ worker_connections 64; }}
         http {{ access_log off; {} server {{ listen {address}; return 200 '{body}'; }} }}",
        paths.join(" ")
    );
    fs::write(folder.join("nginx.conf"), configuration).unwrap();
}

fn start(launch: &Launch) -> Result<Box<dyn Running>, DriverError> {
    Process.start(launch, &[])
}

fn refused(launch: &Launch) -> DriverError {
    match start(launch) {
        Ok(_) => panic!("it started"),
        Err(error) => error,
    }
}

fn get(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Every process that works in this folder, even one that has not been waited for.
fn at_work(folder: &Path) -> BTreeMap<u32, Stat> {
    let folder = fs::canonicalize(folder).unwrap();
    let mut processes = procfs::processes();
    processes.retain(|pid, _| procfs::folder(*pid).as_ref() == Some(&folder));
    processes
}

#[test]
fn nginx_starts_answers_reloads_and_ends() {
    let folder = TempDir::new().unwrap();
    let (launch, address) = nginx(folder.path(), "off", "one");
    let mut running = start(&launch).unwrap();
    assert!(running.alive());
    assert!(get(address).ends_with("\r\n\r\none"));

    write_nginx(folder.path(), "off", "two", address);
    running.reload().unwrap();
    eventually("the new body", || get(address).ends_with("\r\n\r\ntwo"));

    let pid = running.pid();
    assert!(Stat::of(pid).is_some());
    running.stop().unwrap();
    assert!(!running.alive());
    assert_eq!(Stat::of(pid), None, "it was waited for");
    assert_eq!(at_work(folder.path()), BTreeMap::new());
    assert!(!folder.path().join("started.json").exists());
    assert!(running.signal("HUP").is_err());
}

#[test]
fn a_daemon_is_followed_and_ended() {
    let folder = TempDir::new().unwrap();
    let (launch, address) = nginx(folder.path(), "on", "daemon");
    let mut running = start(&launch).unwrap();
    assert!(running.alive());
    assert!(get(address).ends_with("daemon"));
    let written = fs::read_to_string(folder.path().join("nginx.pid")).unwrap();
    assert_eq!(running.pid(), written.trim().parse::<u32>().unwrap());
    running.stop().unwrap();
    assert_eq!(at_work(folder.path()), BTreeMap::new());
    assert!(!running.alive());
}

#[test]
fn a_new_process_that_takes_over_is_followed_and_ended() {
    let folder = TempDir::new().unwrap();
    let (mut launch, address) = nginx(folder.path(), "on", "replaced");
    let found = Command::new("sh").args(["-c", "command -v nginx"]).output().unwrap();
    // It starts the program by the path that it was started by.
    launch.command[0] = String::from_utf8(found.stdout).unwrap().trim().to_owned();
    launch.pid_file = Some(folder.path().join("nginx.pid"));
    let script = "old=$(cat nginx.pid); kill -USR2 $old; \
                  until [ -s nginx.pid ] && [ $(cat nginx.pid) != $old ]; do sleep 0.01; done; kill -QUIT $old";
    launch.upgrade = Some(Reload::Command(["sh", "-c", script].map(str::to_owned).to_vec()));
    let mut running = start(&launch).unwrap();
    for _ in 0..2 {
        let old = running.pid();
        running.upgrade().unwrap();
        let written = fs::read_to_string(folder.path().join("nginx.pid")).unwrap();
        assert_eq!(running.pid(), written.trim().parse::<u32>().unwrap());
        assert_ne!(running.pid(), old);
        eventually("the old process ends", || Stat::of(old).is_none_or(|stat| stat.ended()));
        assert!(running.alive() && get(address).ends_with("replaced"));
    }
    running.stop().unwrap();
    assert_eq!(at_work(folder.path()), BTreeMap::new());
}

#[test]
fn dropping_ends_everything_by_force() {
    let folder = TempDir::new().unwrap();
    let running = start(&shell(folder.path(), "trap '' TERM; setsid sleep 600 & sleep 600 & wait")).unwrap();
    eventually("three processes", || at_work(folder.path()).len() == 3);
    drop(running);
    assert_eq!(at_work(folder.path()), BTreeMap::new());
}

#[test]
fn what_ends_at_once_is_reported_with_its_last_words() {
    let folder = TempDir::new().unwrap();
    let mut launch = shell(folder.path(), "echo no such directive >&2; exit 4");
    launch.listeners.http = Some(free_address());
    launch.ready.within = Duration::from_secs(20);
    let error = refused(&launch);
    assert!(matches!(error, DriverError::NotReady(_)));
    assert_eq!(
        error.to_string(),
        "stand-in ended before it was ready (exit status: 4); it said last:\n  no such directive"
    );
}

#[test]
fn what_never_listens_is_ended_when_its_time_is_over() {
    let folder = TempDir::new().unwrap();
    let mut launch = shell(folder.path(), "echo still loading; sleep 600");
    let address = free_address();
    launch.listeners.http = Some(address);
    let text = refused(&launch).to_string();
    assert!(text.starts_with(&format!("stand-in was not ready within 0.4 s: {address} (http): ")), "{text}");
    assert!(text.ends_with("\n  still loading"), "{text}");
    assert_eq!(at_work(folder.path()), BTreeMap::new());
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let folder = TempDir::new().unwrap();
    let error = refused(&launch(folder.path(), &["no-such-gateway"]));
    assert!(matches!(error, DriverError::Missing(_)));
    assert!(error.to_string().contains("needs the program no-such-gateway"), "{error}");
}

#[test]
fn a_taken_port_is_named_with_its_holder() {
    let folder = TempDir::new().unwrap();
    let holder = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = holder.local_addr().unwrap();
    let mut launch = shell(folder.path(), "sleep 600");
    launch.listeners.https = Some(address);
    let error = refused(&launch);
    assert!(matches!(error, DriverError::PortTaken(_)));
    let text = error.to_string();
    assert!(text.starts_with(&format!("port {} (https) is taken by ", address.port())), "{text}");
    assert!(text.contains(&format!("(pid {})", std::process::id())), "{text}");
}

#[test]
fn a_port_that_was_taken_meanwhile_is_known_from_the_log() {
    let folder = TempDir::new().unwrap();
    // Its port is free when the driver looks, and not when nginx does; what it asks for is never answered.
    let (launch, address) = nginx(folder.path(), "off", "one");
    let script = "until [ -e taken ]; do sleep 0.01; done; exec nginx -p . -e error.log -c nginx.conf";
    let launch = Launch { command: shell(folder.path(), script).command, ..launch };
    let (output, taken) = (folder.path().join("output.log"), folder.path().join("taken"));
    let foreign = std::thread::spawn(move || {
        eventually("the gateway was started", || output.exists());
        let listener = TcpListener::bind(address).unwrap();
        fs::write(taken, "").unwrap();
        listener
    });
    let error = refused(&launch);
    assert!(matches!(error, DriverError::PortTaken(_)), "{error}");
    assert!(
        error.to_string().starts_with(&format!("port {} (http) is taken by ", address.port())),
        "{error}"
    );
    drop(foreign.join().unwrap());
}

#[test]
fn an_answer_of_someone_else_is_not_taken_for_the_gateways() {
    let folder = TempDir::new().unwrap();
    let mut launch = shell(folder.path(), "touch started; sleep 600");
    let address = free_address();
    launch.listeners.http = Some(address);
    launch.ready.within = Duration::from_secs(20);
    let started = folder.path().join("started");
    let foreign = std::thread::spawn(move || {
        eventually("the gateway was started", || started.exists());
        TcpListener::bind(address).unwrap()
    });
    let error = refused(&launch);
    assert!(matches!(error, DriverError::PortTaken(_)), "{error}");
    assert!(
        error.to_string().starts_with(&format!("port {} (http) is taken by ", address.port())),
        "{error}"
    );
    assert_eq!(at_work(folder.path()), BTreeMap::new());
    drop(foreign.join().unwrap());
}

#[test]
fn a_folder_belongs_to_one_launch() {
    let folder = TempDir::new().unwrap();
    let launch = shell(folder.path(), "sleep 600");
    let mut first = start(&launch).unwrap();
    let text = refused(&launch).to_string();
    assert!(text.contains("give each a folder of its own"), "{text}");
    assert!(first.alive());
}

#[test]
fn what_a_killed_laboratory_left_is_ended_later() {
    let folder = TempDir::new().unwrap();
    let run = folder.path().join("weir");
    fs::create_dir(&run).unwrap();
    // A process that forgets a gateway ends without dropping it.
    std::mem::forget(start(&nginx(&run, "on", "one").0).unwrap());
    assert_eq!(at_work(&run).len(), 3);
    let ended = leftover::end_below(folder.path()).unwrap();
    assert!(ended.iter().any(|command| command.starts_with("nginx: master process")), "{ended:?}");
    assert_eq!(at_work(&run), BTreeMap::new());
    assert_eq!(leftover::end_below(folder.path()).unwrap(), Vec::<String>::new());
}

/// A laboratory may be killed before it has written down which process is the daemon.
#[test]
fn a_daemon_that_no_file_names_is_ended_too() {
    let folder = TempDir::new().unwrap();
    let run = folder.path().join("weir");
    fs::create_dir(&run).unwrap();
    std::mem::forget(start(&nginx(&run, "on", "one").0).unwrap());
    fs::remove_file(run.join("started.json")).unwrap();
    assert_eq!(leftover::end_below(folder.path()).unwrap(), Vec::<String>::new());
    assert_eq!(at_work(&run).len(), 3);
    leftover::end_unlisted(folder.path()).unwrap();
    assert_eq!(at_work(&run), BTreeMap::new());
}

/// A program may change its command line, as nginx does.
#[test]
fn what_is_left_is_known_by_another_command_line() {
    let folder = TempDir::new().unwrap();
    let script = "until [ -e noted ]; do sleep 0.01; done; exec sleep 600";
    std::mem::forget(start(&shell(folder.path(), script)).unwrap());
    fs::write(folder.path().join("noted"), "").unwrap();
    let line = |stat: &Stat| procfs::command_line(stat.pid);
    eventually("another program", || at_work(folder.path()).values().any(|stat| line(stat) == "sleep 600"));
    leftover::end_below(folder.path()).unwrap();
    assert!(at_work(folder.path()).values().all(Stat::ended));
}

#[test]
fn a_process_that_only_has_the_number_is_left_alone() {
    let folder = TempDir::new().unwrap();
    let mut other = Command::new("sleep").arg("600").spawn().unwrap();
    let started = Stat::of(other.id()).unwrap().started;
    let entry = |started: u64, command: &str| {
        format!(r#"[{{"pid":{},"started":{started},"command":"{command}"}}]"#, other.id())
    };
    for text in [entry(started + 1, "sleep 600"), entry(started, "sleep 60"), "[{".to_owned()] {
        fs::write(folder.path().join("started.json"), text).unwrap();
        assert_eq!(leftover::end_below(folder.path()).unwrap(), Vec::<String>::new());
    }
    assert!(other.try_wait().unwrap().is_none());
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_reload_command_that_fails_says_why() {
    let folder = TempDir::new().unwrap();
    let mut launch = shell(folder.path(), "sleep 600");
    let command = ["sh", "-c", "echo line 3 is wrong; exit 1"].map(str::to_owned);
    launch.reload = Some(Reload::Command(command.to_vec()));
    let mut running = start(&launch).unwrap();
    let text = running.reload().unwrap_err().to_string();
    assert!(text.contains("did not reload (exit status: 1)") && text.ends_with("line 3 is wrong"), "{text}");
    let unknown = running.signal("NONE").unwrap_err().to_string();
    assert!(unknown.contains("use one of HUP, INT"), "{unknown}");
}

#[test]
fn a_gateway_runs_on_the_cpus_it_was_given() {
    let folder = TempDir::new().unwrap();
    let last = *allowed_cpus().last().unwrap();
    let (launch, _) = nginx(folder.path(), "off", "one");
    let running = Process.start(&launch, &[last]).unwrap();
    let mut tree = ProcessTree::new(running.pid());
    assert_eq!(tree.sample().since(&Default::default()).processes, 3);
    for pid in tree.pids() {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(status.contains(&format!("Cpus_allowed_list:\t{last}\n")), "{status}");
    }
}

#[test]
fn connections_are_counted_per_worker() {
    let folder = TempDir::new().unwrap();
    let (launch, address) = nginx(folder.path(), "off", "one");
    let running = start(&launch).unwrap();
    let mut tree = ProcessTree::new(running.pid());
    tree.sample();
    let streams: Vec<TcpStream> = (0..7).map(|_| TcpStream::connect(address).unwrap()).collect();
    eventually("seven accepted connections", || {
        let spread = connections_per_worker(&tree.pids(), address.port());
        assert_eq!(spread.len(), 2, "the master is no worker");
        spread.iter().sum::<u32>() == 7
    });
    drop(streams);
}
