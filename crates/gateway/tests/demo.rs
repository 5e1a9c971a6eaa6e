//! The examples are good, and `weir demo` makes the requests it suggests and shows what came of them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{PATIENCE, Peer, eventually, weir};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use tempfile::TempDir;

/// A demo that runs until it is dropped.
struct Demo {
    child: Child,
    /// What it prints, to its last line.
    tour: Vec<String>,
    /// Where the demo makes its folder, which is not left behind when it is killed.
    folder: TempDir,
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the demo with more settings.
fn demo(settings: &[&str]) -> Demo {
    let folder = tempfile::tempdir().unwrap();
    let mut command = weir();
    command.env("TMPDIR", folder.path());
    command.args(["demo", "--set", "workers=1", "--set", "proxy_listen=127.0.0.1:0, 127.0.0.1:0 ssl"]);
    command.args(["--set", "admin_listen=127.0.0.1:0", "--set", "status_listen=127.0.0.1:0"]);
    command.args(["--set", "admin_gui_listen=127.0.0.1:0"]);
    command.args(settings.iter().flat_map(|setting| ["--set", setting]));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let output = child.stdout.take().unwrap();
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    let mut tour = Vec::new();
    while let Ok(line) = lines.recv_timeout(PATIENCE) {
        let last = line.starts_with("Serving on");
        tour.push(line);
        if last {
            break;
        }
    }
    Demo { child, tour, folder }
}

#[test]
fn the_demo_shows_its_requests_and_its_pages_show_its_traffic() {
    let demo = demo(&[]);
    every_request_gives_the_status_that_its_route_promises(&demo.tour);
    let line = demo.tour.iter().find_map(|line| line.strip_prefix("Open http://"));
    let pages = line.and_then(|line| line.split(' ').next()).unwrap_or_else(|| panic!("{:?}", demo.tour));
    let address = pages.parse().unwrap();
    let request = "GET /errors HTTP/1.1\r\nHost: a\r\n\r\n";
    eventually("the errors of the traffic are shown", || {
        let page = Peer::connect(address).send(request).response();
        ["401", "404", "503"].iter().all(|status| page.text().contains(&format!(">{status}</a>")))
    });
}

#[test]
fn a_demo_that_is_stopped_leaves_nothing_behind() {
    for (signals, delay, code) in [
        (&[Signal::TERM][..], "0", 0),
        (&[Signal::INT], "0", 0),
        // The second one stops it at once. One of another kind, because two of the same kind may count as one.
        (&[Signal::TERM, Signal::INT], "1h", 1),
    ] {
        let mut demo = demo(&[&format!("shutdown_delay={delay}")]);
        let entries = |demo: &Demo| std::fs::read_dir(demo.folder.path()).unwrap().count();
        assert_eq!(entries(&demo), 1);
        for signal in signals {
            kill_process(Pid::from_child(&demo.child), *signal).unwrap();
        }
        let mut ended = None;
        eventually("the demo ends", || {
            ended = demo.child.try_wait().unwrap();
            ended.is_some()
        });
        assert_eq!((ended.unwrap().code(), entries(&demo)), (Some(code), 0), "{signals:?}");
    }
}

fn every_request_gives_the_status_that_its_route_promises(tour: &[String]) {
    let statuses = |shows: &str| {
        let at = tour.iter().position(|line| line.starts_with(shows));
        at.and_then(|at| tour.get(at + 1)).map(|line| line.trim()).unwrap_or_default()
    };
    for (shows, expected) in [
        ("An open route", "200"),
        ("key-auth, without a key", "401"),
        ("key-auth, with a key", "200"),
        ("basic-auth, without a password", "401"),
        ("basic-auth, with a password", "200"),
        ("TLS, with a certificate generated at the start", "200"),
    ] {
        assert_eq!(statuses(shows), expected, "{shows}\n{}", tour.join("\n"));
    }
    // The minute may turn between two of them, and the count starts anew.
    let limited = statuses("rate-limiting");
    assert!(limited == "200 200 200 200 200 429" || limited == ["200"; 6].join(" "), "{}", tour.join("\n"));
    assert!(tour.last().is_some_and(|line| line.starts_with("Serving on")), "{}", tour.join("\n"));
}

#[test]
fn every_example_is_good() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    // A program of its own runs its own file, in `example_plugin`.
    let folders = std::fs::read_dir(examples).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<_> = folders
        .filter(|folder| !folder.join("Cargo.toml").exists())
        .map(|folder| folder.join("kong.yml"))
        .filter(|file| file.exists())
        .collect();
    assert!(files.len() >= 5, "{files:?}");
    for file in files {
        let has_expressions = std::fs::read_to_string(&file).unwrap().contains("expression:");
        let flavor = if has_expressions { "expressions" } else { "traditional_compatible" };
        let mut command = weir();
        command.arg("check").arg(&file).env("WEIR_ROUTER_FLAVOR", flavor);
        let folder = file.parent().unwrap();
        if let Ok(plugins) = std::fs::read_dir(folder.join("kong/plugins")) {
            let names = plugins.map(|plugin| plugin.unwrap().file_name().into_string().unwrap());
            command.env("WEIR_PLUGINS", format!("bundled,{}", names.collect::<Vec<_>>().join(",")));
            command.env("WEIR_LUA_PACKAGE_PATH", format!("{}/?.lua", folder.display()));
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stderr.is_empty(), "an example uses what is not in force: {output:?}");
    }
}
