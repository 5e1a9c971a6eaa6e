//! Upgrades that do not come to their end, and requests that are in flight meanwhile.
use super::state::{begin_put, execute};
use super::{Node, OK, program, runs};
use crate::harness::{Gateway, LimitedUser, Upstream, eventually, one_route, weir};
use rustix::fs::OFlags;
use rustix::process::{Resource, Signal, getrlimit};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

/// Begins an upgrade, stops the node in the midst of it, and returns what the command said. All processes of the node end.
fn stop_within_an_upgrade(arguments: &[&str]) -> String {
    let (upstream, asked) = Upstream::holding(OK);
    let mut node = Node::start(Gateway::builder(&one_route(upstream.address)));
    let mut client = node.gateway.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let go = asked.recv().unwrap();
    let output = thread::scope(|scope| {
        let upgrade = scope.spawn(|| node.try_upgrade(arguments));
        eventually("the new process starts", || node.gateway.log().contains("a new process starts"));
        node.gateway.signal(Signal::TERM);
        eventually("the node stops", || node.gateway.log().contains("draining"));
        go.send(()).unwrap();
        upgrade.join().unwrap()
    });
    assert_eq!(client.response().text(), "hi");
    assert_eq!(node.gateway.exit().code(), Some(0));
    let pid_file = node.gateway.prefix().join("weir.pid");
    eventually("no process holds the folder", || {
        !pid_file.exists() && !node.gateway.prefix().join("weir.sock").exists()
    });
    [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat()
}

#[test]
fn a_node_that_is_stopped_within_an_upgrade_ends_with_all_its_processes() {
    let said = stop_within_an_upgrade(&[]);
    assert!(said.contains("upgraded: process") || said.contains("the node was asked to stop"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let sleeping = program(folder.path(), "exec sleep 1000");
    let said = stop_within_an_upgrade(&["--program", &sleeping]);
    assert!(said.contains("the node was asked to stop"), "{said}");
}

#[test]
fn a_program_that_hangs_up_and_lives_on_is_ended() {
    let node = Node::start(Gateway::builder("_format_version: \"3.0\"\n"));
    let folder = tempfile::tempdir().unwrap();
    let said = node.refused(&["--program", &program(folder.path(), "exec sleep 1000 < /dev/null")]);
    assert!(said.contains("ended before it was ready (signal: 9"), "{said}");
    node.upgrade();
}

/// A new process that is short of descriptors may fail at any step: then the old one goes on, and the command says so.
#[test]
fn a_new_process_that_is_short_of_descriptors_serves_or_leaves_the_old_one_to_serve() {
    let node = Node::start(Gateway::builder("_format_version: \"3.0\"\n").set("workers", "2"));
    let folder = tempfile::tempdir().unwrap();
    let weir = env!("CARGO_BIN_EXE_weir");
    let is_upgraded = |limit: u32| {
        let program = program(folder.path(), &format!("ulimit -n {limit}\nexec {weir} \"$@\""));
        let before = node.pid();
        let output = node.try_upgrade(&["--program", &program]);
        let is_upgraded = output.status.success();
        assert_eq!(node.pid() != before, is_upgraded, "{limit}: {output:?}");
        assert!(runs(node.pid()), "{limit}: {output:?}");
        assert_eq!(node.gateway.get("/").status, 404, "{limit}: {output:?}");
        assert_eq!(node.gateway.status("/status/ready").status, 200, "{limit}: {output:?}");
        is_upgraded
    };
    let refused = (20..200).take_while(|limit| !is_upgraded(*limit)).count();
    assert!((1..180).contains(&refused), "{refused}");
}

/// The same for threads. Afterwards, the process that serves may start no other.
#[test]
fn a_new_process_that_is_short_of_threads_serves_or_leaves_the_old_one_to_serve() {
    let node = Node::start(Gateway::empty().set("workers", "2"));
    let (folder, user) = (tempfile::tempdir().unwrap(), LimitedUser::new());
    let serves = || {
        assert!(runs(node.pid()));
        assert_eq!(node.gateway.get("/").status, 404);
        assert_eq!(node.gateway.status("/status/ready").status, 200);
        assert_eq!(node.gateway.ask_admin("PUT", "/consumers/a", "{}").status, 200);
    };
    let is_upgraded = |threads: usize| {
        let before = node.pid();
        let limited = user.weir(folder.path(), Some(threads));
        let output = node.try_upgrade(&["--program", &limited.display().to_string()]);
        let (is_upgraded, said) = (output.status.success(), String::from_utf8_lossy(&output.stderr));
        assert_eq!(node.pid() != before, is_upgraded, "{threads}: {said}\n{}", node.gateway.log());
        assert!(is_upgraded || said.contains("raise the limit"), "{threads}: {said}\n{}", node.gateway.log());
        serves();
        is_upgraded
    };
    let refused = (1..100).take_while(|threads| !is_upgraded(*threads)).count();
    assert!((1..99).contains(&refused), "{refused}");
    user.limit(node.pid(), 1);
    let said = node.refused(&[]);
    assert!(said.contains("(os error 11)") && said.contains("raise the limit"), "{said}");
    serves();
    user.limit(node.pid(), user.threads() + 200);
    node.upgrade();
    serves();
}

/// The new process starts; the old one lacks the thread that takes its clients' datagrams from then on.
#[test]
fn an_old_process_that_is_short_of_threads_says_so_if_it_needs_one() {
    let (folder, user) = (tempfile::tempdir().unwrap(), LimitedUser::new());
    let weir = user.weir(folder.path(), None);
    let most = getrlimit(Resource::Nproc).maximum.map_or("unlimited".to_owned(), |most| most.to_string());
    let command = format!("exec prlimit --nproc={most}: {} \"$@\"", env!("CARGO_BIN_EXE_weir"));
    let unlimited = program(folder.path(), &command);
    let upgrade = |listen: &str| {
        let node = Gateway::empty().set("proxy_listen", listen).binary(weir.clone());
        let node = Node::start(node);
        assert_eq!(node.gateway.get("/").status, 404);
        // It starts a thread for the upgrade, and the process that has more threads than are left.
        user.limit(node.pid(), user.threads() + 4);
        let before = node.pid();
        let output = node.try_upgrade(&["--program", &unlimited]);
        assert_eq!(node.pid() != before, output.status.success());
        assert_eq!(node.gateway.get("/").status, 404);
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let said = upgrade("127.0.0.1:0, 127.0.0.1:0 ssl, 127.0.0.1:0 quic");
    assert!(said.contains("(os error 11)") && said.contains("raise the limit"), "{said}");
    let said = upgrade("127.0.0.1:0, 127.0.0.1:0 ssl");
    assert!(said.contains("upgraded: process"), "{said}");
}

/// The new process has another file, which it has to migrate.
#[test]
fn a_full_disk_that_stops_a_migration_leaves_the_old_process_to_serve() {
    let gateway = Gateway::empty().set("database", "sqlite").disk("16m").start();
    let (disk, folder) = (gateway.disk(), tempfile::tempdir().unwrap());
    fs::copy(older_tables(folder.path()), disk.path("older.sqlite")).unwrap();
    let older = program(
        folder.path(),
        &format!("exec {} \"$@\" --set sqlite_path=older.sqlite", env!("CARGO_BIN_EXE_weir")),
    );
    // Reachable also when the process that has mounted it has ended.
    let mounted = File::open(disk.path("")).unwrap();
    let prefix = format!("/proc/{}/fd/{}", std::process::id(), mounted.as_raw_fd());
    let run = |command: &[&str]| weir().args(command).args(["--prefix", &prefix]).output().unwrap();
    // There is no room at all, and then none for more than the index of SQLite's log.
    for room in [0, 36 << 10] {
        disk.fill_up_to(room);
        let refused = run(&["upgrade", "--program", &older]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.contains("the new process did not start: SQLite file"), "{said}");
        assert!(said.contains("make room on the disk"), "{said}");
        assert_eq!(gateway.get("/").status, 404);
        assert_eq!(gateway.status("/status/ready").status, 200);
        disk.free();
        assert_eq!(gateway.ask_admin("PUT", "/consumers/a", "{}").status, 200);
    }
    let (upgraded, put) =
        (run(&["upgrade", "--program", &older]), gateway.ask_admin("PUT", "/consumers/a", "{}"));
    assert_eq!(run(&["quit"]).status.code(), Some(0));
    assert_eq!((upgraded.status.code(), put.status), (Some(0), 200), "{upgraded:?}\n{}", put.text());
}

/// A file with the tables of an older version.
fn older_tables(prefix: &Path) -> PathBuf {
    let mut bootstrap = weir();
    bootstrap.args(["migrations", "bootstrap", "--set", "database=sqlite", "--prefix"]).arg(prefix);
    assert!(bootstrap.status().unwrap().success());
    let file = prefix.join("weir.sqlite");
    execute(&file, "ALTER TABLE weir_meta DROP COLUMN migrated_to; UPDATE weir_meta SET version = 6");
    file
}

#[test]
fn one_upgrade_at_a_time() {
    let node = Node::start(Gateway::builder("_format_version: \"3.0\"\n"));
    let folder = tempfile::tempdir().unwrap();
    let (weir, go) = (env!("CARGO_BIN_EXE_weir"), folder.path().join("go"));
    let text = format!("until [ -e '{}' ]; do sleep 0.1; done\nexec {weir} \"$@\"", go.display());
    let waiting = program(folder.path(), &text);
    thread::scope(|scope| {
        let upgrade = scope.spawn(|| node.try_upgrade(&["--program", &waiting]));
        eventually("the new process starts", || node.gateway.log().contains("a new process starts"));
        let said = node.refused(&[]);
        assert!(said.contains("an upgrade is in progress"), "{said}");
        fs::write(&go, "").unwrap();
        assert!(upgrade.join().unwrap().status.success());
    });
    node.upgrade();
}

#[test]
fn an_upgrade_waits_for_a_reload_that_hangs_until_its_timeout() {
    let node = Node::start(Gateway::builder("_format_version: \"3.0\"\n"));
    let (file, moved) = (node.gateway.file(), node.gateway.prefix().join("kong.yml"));
    fs::rename(&file, &moved).unwrap();
    // Reading it waits for all that is written to it.
    assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
    let open = || {
        // Fails while it is not open to be read.
        let no_wait = OFlags::NONBLOCK.bits().cast_signed();
        File::options().write(true).custom_flags(no_wait).open(&file)
    };
    thread::scope(|scope| {
        let reload = scope.spawn(|| node.gateway.command("reload"));
        let mut writer = None;
        eventually("the reload reads the file", || {
            writer = open().ok();
            writer.is_some()
        });
        let mut writer = writer.unwrap();
        let said = node.refused(&["--timeout", "1"]);
        assert!(said.contains("a reload of the configuration has not ended so far"), "{said}");
        writer.write_all(&fs::read(&moved).unwrap()).unwrap();
        drop(writer);
        assert!(reload.join().unwrap().status.success());
    });
    fs::rename(&moved, &file).unwrap();
    node.upgrade();
}

/// The old process has accepted their connections, and may end long after it was replaced.
#[test]
fn commands_that_reach_the_old_process_late_are_those_of_the_new_one() {
    let (held, asked) = Upstream::holding(OK);
    let builder = Gateway::builder(&one_route(held.address)).set("upgrade_drain_timeout", "1h");
    let mut node = Node::start(builder);
    let mut client = node.gateway.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let go = asked.recv().unwrap();
    let socket = node.gateway.prefix().join("weir.sock");
    let [mut reload, mut quit] = [(); 2].map(|()| UnixStream::connect(&socket).unwrap());
    // Answered once both were accepted.
    assert_eq!(node.gateway.command("health").status.code(), Some(0));
    node.upgrade();
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nnew");
    fs::write(node.gateway.file(), one_route(upstream.address)).unwrap();
    reload.write_all(b"reload\n").unwrap();
    let said = io::read_to_string(reload).unwrap();
    assert!(said.contains("\"errors\":[]"), "{said}");
    assert_eq!(node.gateway.get("/").text(), "new");
    let newest = node.pid();
    quit.write_all(b"quit 0\n").unwrap();
    io::read_to_string(quit).unwrap();
    eventually("the new process ends", || !runs(newest));
    go.send(()).unwrap();
    assert_eq!(client.response().text(), "hi");
    assert_eq!(node.gateway.exit().code(), Some(0));
}

#[test]
fn what_was_posted_to_config_goes_on() {
    let upstream = Upstream::answering(OK);
    let node = Node::start(Gateway::empty().set("database", "off"));
    let body = format!("{{\"config\": {:?}}}", one_route(upstream.address));
    assert_eq!(node.gateway.ask_admin("POST", "/config", &body).status, 201);
    let hash = || node.gateway.admin("/status").json()["configuration_hash"].clone();
    let before = hash();
    for _ in 0..2 {
        node.upgrade();
        assert_eq!((node.gateway.get("/").text(), hash()), ("hi", before.clone()));
        assert_eq!(node.gateway.status("/status/ready").status, 200);
    }
}

#[test]
fn a_node_that_stops_answers_the_requests_to_its_admin_api_first() {
    let mut node = Node::start(Gateway::empty());
    let mut put = begin_put(&node.gateway, "late");
    node.gateway.signal(Signal::TERM);
    eventually("the node drains", || node.gateway.log().contains("draining"));
    assert_eq!(put.send("}").response().status, 200);
    assert_eq!(node.gateway.exit().code(), Some(0));
}

/// Its connection has had another request since, as those of browsers have.
#[test]
fn a_node_that_stops_does_not_wait_for_live_pages() {
    let builder = Gateway::empty().set("admin_listen", "127.0.0.1:0 ssl http2").set("drain_timeout", "1h");
    let mut node = Node::start(builder);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let url = |path: &str| format!("https://{}{path}", node.gateway.admin_addresses()[0]);
    // The second waits to share the connection of the first.
    let mut page = Command::new("curl")
        .args(["-skN", "--http2", "--parallel", &url("/analytics/requests/tail"), "-o"])
        .arg(file("live"))
        .args([&url("/status"), "-o"])
        .arg(file("status"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the second request is answered", || {
        fs::read_to_string(file("status")).is_ok_and(|text| text.contains("database"))
    });
    node.gateway.signal(Signal::TERM);
    assert_eq!(node.gateway.exit().code(), Some(0));
    page.wait().unwrap();
}
