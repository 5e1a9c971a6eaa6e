//! What systemd is told, and the sockets that it opens: a socket of the test's own stands for it.
use crate::harness::{Gateway, Upstream, curl, eventually, one_route, weir};
use rustix::process::Signal;
use std::fs;
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Stdio};
use tempfile::TempDir;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// The service manager.
struct Manager {
    socket: UnixDatagram,
    folder: TempDir,
}

impl Manager {
    fn start() -> Manager {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(crate::harness::PATIENCE)).unwrap();
        Manager { socket, folder }
    }

    fn address(&self) -> String {
        self.folder.path().join("notify").display().to_string()
    }

    /// The next message that is not about the watchdog.
    #[track_caller]
    fn hears(&self) -> String {
        loop {
            let message = self.next();
            if message != "WATCHDOG=1" {
                return message;
            }
        }
    }

    #[track_caller]
    fn next(&self) -> String {
        let mut bytes = [0; 4096];
        let length = self.socket.recv(&mut bytes).expect("a message, in time");
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }
}

#[test]
fn it_hears_of_start_reload_and_stop() {
    let manager = Manager::start();
    let mut gateway =
        Gateway::builder("_format_version: \"3.0\"\n").env("NOTIFY_SOCKET", &manager.address()).start();
    assert!(manager.hears().starts_with("READY=1\n"));
    gateway.signal(Signal::HUP);
    let reloading = manager.hears();
    let since = reloading.lines().find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
    assert!(
        reloading.starts_with("RELOADING=1\n") && since.unwrap().parse::<u64>().unwrap() > 0,
        "{reloading}"
    );
    assert!(manager.hears().starts_with("READY=1\n"));
    gateway.signal(Signal::TERM);
    assert!(manager.hears().starts_with("STOPPING=1\n"));
    assert_eq!(gateway.exit().code(), Some(0));
}

/// A manager that wants to hear of progress so often, and its node.
fn watched(microseconds: &str) -> (Manager, Gateway) {
    let manager = Manager::start();
    let gateway = Gateway::builder("_format_version: \"3.0\"\n")
        .env("NOTIFY_SOCKET", &manager.address())
        .env("WATCHDOG_USEC", microseconds)
        .start();
    (manager, gateway)
}

#[test]
fn it_hears_that_workers_make_progress() {
    let (manager, _gateway) = watched("400000");
    for _ in 0..3 {
        while manager.next() != "WATCHDOG=1" {}
    }
}

/// Workers show that they make progress once a second, however often it wants to hear of it.
#[test]
fn idle_workers_are_not_stuck_to_an_impatient_one() {
    let (manager, gateway) = watched("100000");
    for _ in 0..40 {
        while manager.next() != "WATCHDOG=1" {}
    }
    assert!(!gateway.log().contains("makes no progress"), "{}", gateway.log());
}

#[test]
fn it_hears_which_process_is_the_nodes_after_an_upgrade() {
    let manager = Manager::start();
    let gateway =
        Gateway::builder("_format_version: \"3.0\"\n").env("NOTIFY_SOCKET", &manager.address()).start();
    assert!(manager.hears().starts_with("READY=1\n"));
    let node = crate::upgrade::Node { gateway };
    node.upgrade();
    assert_eq!(manager.hears(), format!("MAINPID={}", node.pid()));
    assert!(manager.hears().starts_with("READY=1\n"), "the new process, once it is the node's");
    assert_eq!(node.gateway.command("quit").status.code(), Some(0));
    assert!(manager.hears().starts_with("STOPPING=1\n"));
}

/// Starts a node as systemd does: with sockets from descriptor 3 on.
fn activated(folder: &TempDir, settings: &[&str], sockets: &[(&str, &TcpListener)]) -> Child {
    use std::os::fd::AsRawFd;
    for (_, socket) in sockets {
        rustix::io::fcntl_setfd(socket, rustix::io::FdFlags::empty()).unwrap();
    }
    let names: Vec<_> = sockets.iter().map(|(name, _)| *name).collect();
    let numbers: Vec<_> = sockets.iter().map(|(_, socket)| socket.as_raw_fd().to_string()).collect();
    // Moves them to where systemd puts them; first away from there, lest one overwrites another.
    let away = numbers.iter().enumerate().map(|(at, number)| format!("exec {}<&{number}; ", 100 + at));
    let there = (0..numbers.len()).map(|at| format!("exec {}<&{}; ", 3 + at, 100 + at));
    let script = format!(
        "{}{}LISTEN_PID=$$ LISTEN_FDS={} LISTEN_FDNAMES={} exec {} \"$@\"",
        away.collect::<String>(),
        there.collect::<String>(),
        numbers.len(),
        names.join(":"),
        env!("CARGO_BIN_EXE_weir")
    );
    let mut command = std::process::Command::new("bash");
    command.args(["-c", &script, "weir", "run", "--config"]).arg(folder.path().join("kong.yml"));
    command.arg("--prefix").arg(folder.path().join("prefix"));
    command.args(settings.iter().flat_map(|setting| ["--set", setting]));
    command
        .stdout(Stdio::null())
        .stderr(fs::File::create(folder.path().join("log")).unwrap())
        .spawn()
        .unwrap()
}

#[test]
fn its_sockets_are_used() {
    let upstream = Upstream::answering(OK);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("kong.yml"), one_route(upstream.address)).unwrap();
    let [proxy, status, unused] = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [proxy_at, status_at, unused_at] =
        [&proxy, &status, &unused].map(|socket| socket.local_addr().unwrap());
    let listen = format!("proxy_listen={proxy_at}");
    // One is found by its address, another by its name.
    let settings =
        [listen.as_str(), "status_listen=127.0.0.1:8007", "admin_listen=off", "admin_gui_listen=off"];
    let sockets = [("weir.socket", &proxy), ("status_listen", &status), ("weir.socket", &unused)];
    let mut child = activated(&folder, &settings, &sockets);
    drop((proxy, status, unused));
    let log = || fs::read_to_string(folder.path().join("log")).unwrap();
    eventually("it is ready", || {
        curl(&["-s", &format!("http://{status_at}/status/ready")]).contains("ready")
    });
    assert_eq!(curl(&["-s", &format!("http://{proxy_at}/")]), "hi");
    assert!(log().contains(&format!("weir.socket {unused_at}")), "{}", log());
    let quit = weir().arg("quit").arg("--prefix").arg(folder.path().join("prefix")).output().unwrap();
    assert_eq!(quit.status.code(), Some(0), "{}", log());
    assert!(child.wait().unwrap().success());
}
