//! Gateways in containers, on an engine of the test's own.
#![allow(clippy::unwrap_used, clippy::panic)]
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use weirlab::driver::docker::Docker;
use weirlab::driver::{Driver, DriverError};
use weirlab::observe::procfs::Stat;
use weirlab::observe::{ProcessTree, Sample, allowed_cpus};
use weirlab::result::Status;
use weirlab::target::{Launch, Listeners, Ready, Reload};

const IMAGE: &str = "weirlab-test/haproxy";

/// A Docker engine on a private socket, without networks of its own.
struct Engine {
    daemon: Child,
    folder: TempDir,
}

impl Engine {
    /// None, with the reason printed, only where the engine itself says that it may not run here.
    fn start() -> Option<Engine> {
        let folder = TempDir::new().unwrap();
        let inside = |name: &str| folder.path().join(name).display().to_string();
        let log = File::create(folder.path().join("log")).unwrap();
        let daemon = Command::new("dockerd")
            .args(["--iptables=false", "--ip6tables=false", "--bridge=none", "--pidfile", &inside("pid")])
            .args(["--data-root", &inside("data"), "--exec-root", &inside("exec")])
            .args(["-H", &format!("unix://{}", inside("docker.sock"))])
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| {
                panic!("dockerd: {error}; install it (Debian: apt-get install docker.io)")
            });
        let mut engine = Engine { daemon, folder };
        let deadline = Instant::now() + Duration::from_secs(60);
        while Docker::new(None, Some(&engine.host())).is_err() {
            if engine.daemon.try_wait().unwrap().is_some() || Instant::now() > deadline {
                return engine.forbidden();
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(engine)
    }

    fn forbidden(self) -> Option<Engine> {
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap();
        let signs = ["needs to be started with root", "permission denied", "operation not permitted"];
        let reason =
            log.lines().rev().find(|line| signs.iter().any(|sign| line.to_lowercase().contains(sign)));
        match reason {
            // The handle itself: what a passed test prints is not shown.
            Some(reason) => {
                let mut stderr = std::io::stderr();
                writeln!(stderr, "NOT TESTED: the engine may not run here: {reason}").unwrap();
            }
            None => panic!("dockerd did not start:\n{log}"),
        }
        None
    }

    fn host(&self) -> String {
        format!("unix://{}", self.folder.path().join("docker.sock").display())
    }

    fn docker(&self) -> Docker {
        Docker::new(None, Some(&self.host())).unwrap()
    }

    /// What the engine's own command line says.
    fn says(&self, arguments: &[&str]) -> String {
        let output = Command::new("docker").args(arguments).env("DOCKER_HOST", self.host()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.daemon);
        // It may have ended by itself.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        self.daemon.wait().unwrap();
        // It leaves the host's network namespace mounted, where it came as far as that.
        let namespace = self.folder.path().join("exec/netns/default");
        let _ = Command::new("umount").arg("--quiet").arg(namespace).output();
    }
}

fn haproxy() -> PathBuf {
    let candidates = ["/usr/sbin/haproxy", "/usr/local/sbin/haproxy", "/usr/bin/haproxy"].map(PathBuf::from);
    let found = candidates.into_iter().find(|path| path.exists());
    found.unwrap_or_else(|| panic!("haproxy is not there; install it (Debian: apt-get install haproxy)"))
}

fn configure(folder: &Path, address: SocketAddr, body: &str) {
    let text = format!(
        "defaults
           mode http
           timeout client 10s
           timeout server 10s
           timeout connect 1s
         frontend all
           bind {address}
           http-request return status 200 content-type text/plain string {body}\n"
    );
    fs::write(folder.join("haproxy.cfg"), text).unwrap();
}

fn launch(folder: &Path, address: SocketAddr) -> Launch {
    configure(folder, address, "one");
    let binary = haproxy().display().to_string();
    Launch {
        label: "haproxy".to_owned(),
        command: [binary.as_str(), "-W", "-db", "-f", "haproxy.cfg"].map(str::to_owned).to_vec(),
        folder: folder.to_owned(),
        listeners: Listeners { http: Some(address), ..Listeners::default() },
        ready: Ready { path: Some("/".to_owned()), within: Duration::from_secs(20), ..Ready::default() },
        reload: Some(Reload::Signal("USR2".to_owned())),
        stop_signal: "TERM".to_owned(),
        image: Some(IMAGE.to_owned()),
        ..Launch::default()
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

fn get(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn refused(docker: &Docker, launch: &Launch) -> String {
    match docker.start(launch, &[]) {
        Ok(_) => panic!("it started"),
        Err(error) => error.to_string(),
    }
}

/// One engine serves all of it: to start one takes seconds.
#[test]
fn containers_are_gateways_like_any_other() {
    let Some(engine) = Engine::start() else { return };
    engine.docker().image_from_binary(&haproxy(), IMAGE).unwrap();
    it_starts_answers_reloads_and_ends(&engine);
    what_fails_says_why_and_leaves_nothing(&engine);
    what_a_killed_laboratory_left_is_ended_later(&engine);
    a_session_measures_programs_of_this_machine(&engine);
    assert_eq!(engine.says(&["ps", "--all", "--quiet"]), "");
}

fn it_starts_answers_reloads_and_ends(engine: &Engine) {
    let folder = TempDir::new().unwrap();
    let address = free_address();
    let launch = launch(folder.path(), address);
    let last = *allowed_cpus().last().unwrap();
    let mut running = engine.docker().start(&launch, &[last]).unwrap();
    assert!(running.alive());
    assert!(get(address).ends_with("one"));

    let mut tree = ProcessTree::new(running.pid());
    let usage = tree.sample().since(&Sample::default());
    assert_eq!(usage.processes, 2, "master and worker, as this machine sees them");
    assert!(usage.cpu_us > 0.0 && usage.rss_kib > 1000, "{usage:?}");
    for pid in tree.pids() {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert!(status.contains(&format!("Cpus_allowed_list:\t{last}\n")), "{status}");
    }

    configure(folder.path(), address, "two");
    running.reload().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !get(address).ends_with("two") {
        assert!(Instant::now() < deadline);
    }
    assert!(running.signal("NONE").is_err());

    let pid = running.pid();
    running.stop().unwrap();
    assert!(!running.alive());
    assert_eq!(Stat::of(pid), None);
    assert!(running.log().contains("New worker"), "what it said is kept: {}", running.log());
}

fn what_fails_says_why_and_leaves_nothing(engine: &Engine) {
    let folder = TempDir::new().unwrap();
    let docker = engine.docker();
    let address = free_address();
    let good = launch(folder.path(), address);
    fs::write(folder.path().join("haproxy.cfg"), "frontend all\n  no-such-word\n").unwrap();
    let text = refused(&docker, &good);
    assert!(text.starts_with("haproxy ended before it was ready (exit status: 1)"), "{text}");
    assert!(text.contains("unknown keyword 'no-such-word'"), "{text}");

    let text = refused(&docker, &Launch { image: Some("weirlab-test/none".to_owned()), ..good.clone() });
    assert!(text.contains("refused `run`") && text.contains("weirlab-test/none"), "{text}");

    let text = refused(&docker, &Launch { command: vec!["/no/such/program".to_owned()], ..good.clone() });
    assert!(text.contains("/no/such/program"), "{text}");

    let command = vec!["/no/such/haproxy".to_owned()];
    let text = refused(&docker, &Launch { image: None, command, ..good.clone() });
    assert_eq!(text, "the binary /no/such/haproxy is not there: build it first");

    let holder = TcpListener::bind(address).unwrap();
    let text = refused(&docker, &good);
    assert!(text.contains(&format!("(pid {})", std::process::id())), "{text}");
    drop(holder);
    assert_eq!(engine.says(&["ps", "--all", "--quiet"]), "");
}

fn what_a_killed_laboratory_left_is_ended_later(engine: &Engine) {
    let folder = TempDir::new().unwrap();
    let elsewhere = TempDir::new().unwrap();
    let docker = engine.docker();
    // A process that forgets it ends without dropping it.
    std::mem::forget(docker.start(&launch(folder.path(), free_address()), &[]).unwrap());
    assert_eq!(docker.remove_below(elsewhere.path()).unwrap(), Vec::<String>::new());
    assert_eq!(docker.remove_below(folder.path()).unwrap().len(), 1);
    assert_eq!(docker.remove_below(folder.path()).unwrap(), Vec::<String>::new());
}

/// Without an image of their own, and over TLS: whatever they read must be in the container.
fn a_session_measures_programs_of_this_machine(engine: &Engine) {
    let out = TempDir::new().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirlab"));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).env("DOCKER_HOST", engine.host());
    command.args(["run", "kong/plain-1", "--driver", "docker", "--targets", "nginx,haproxy", "--no-control"]);
    let output =
        command.args(["--rounds", "1", "--duration", "200ms", "--out"]).arg(out.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let folder = fs::read_dir(out.path()).unwrap().next().unwrap().unwrap().path();
    let run = weirlab::result::store::read(&folder).unwrap();
    assert_eq!(run.cells.len(), 2);
    for cell in run.cells {
        assert_eq!(cell.status, Status::Measured, "{}", cell.target);
        assert!(cell.blocks[0].good > 0, "{}", cell.target);
    }
}

#[test]
fn an_engine_that_is_not_there_is_named() {
    let error = Docker::new(Some("no-such-engine"), None).unwrap_err();
    assert!(matches!(error, DriverError::Missing(_)));
    assert!(error.to_string().contains("no-such-engine is not there: install it"), "{error}");
    let error = Docker::new(None, Some("unix:///no/such.sock")).unwrap_err().to_string();
    assert!(error.contains("Start the engine first."), "{error}");
}

#[test]
fn what_was_not_built_is_named() {
    // An engine that says yes to everything: the binary is looked for before it is asked.
    let docker = Docker::new(Some("true"), None).unwrap();
    let error = docker.image_from_binary(Path::new("/no/such/weir"), "x").unwrap_err();
    assert_eq!(error.to_string(), "the binary /no/such/weir is not there: build it first");
}
