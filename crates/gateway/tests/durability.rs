//! What the Admin API has acknowledged is kept, however the process ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use crate::harness::{Disk, Gateway, Message, PATIENCE, Peer, eventually, weir};
use rustix::process::Signal;
use serde_json::Value;
use sqlx::{ConnectOptions, Connection};
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use tempfile::TempDir;

/// Each writes to a service of its own, one request after the other.
const WRITERS: u64 = 4;

#[test]
fn what_was_acknowledged_survives_being_killed() {
    survives(10);
}

#[test]
#[ignore = "takes half a minute"]
fn what_was_acknowledged_survives_being_killed_two_hundred_times() {
    survives(200);
}

#[test]
fn what_is_acknowledged_after_others_have_read_the_file_survives_being_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut service = Service::new(0);
    let node = Node::start(folder.path());
    service.write(node.admin, 1);
    for command in [["config", "db_export", "-"].as_slice(), &["migrations", "status"]] {
        let read = weir().args(command).arg("--prefix").arg(folder.path().join("prefix")).output().unwrap();
        assert!(read.status.success());
    }
    service.write(node.admin, 2);
    drop(node);
    let node = Node::start(folder.path());
    service.check(node.admin);
    assert_eq!(service.acknowledged, 3);
}

#[test]
fn a_full_disk_refuses_writes_and_only_as_long_as_it_is_full() {
    let node = Gateway::empty().set("database", "sqlite").disk("16m").start();
    let disk = node.disk();
    let mut writes = Writes::default();
    assert_eq!(writes.put(&node, 10).status, 200);
    // A full disk, at first with hardly a write before, and then one that is full because a checkpoint does not fit.
    for (taken, size) in [(None, 10), (Some(6 << 20), 40 << 10), (None, 40 << 10)] {
        disk.fill(taken);
        let refused = (0..10_000).map(|_| writes.put(&node, size)).find(|answer| answer.status != 200);
        let refused = refused.expect("the disk is full");
        for refused in [refused, writes.put(&node, size), writes.put(&node, size)] {
            let message = refused.json()["message"].as_str().unwrap().to_owned();
            assert_eq!(refused.status, 503);
            assert!(message.contains("database or disk is full: make room on the disk"), "{message}");
            writes.check(|path| node.admin(path));
            assert_eq!(node.status("/status").json()["database"]["reachable"], true, "it can be read");
        }
        disk.free();
        assert_eq!(writes.put(&node, size).status, 200, "the first write after there is room");
        writes.check(|path| node.admin(path));
    }
    for message in ["writes are refused until there is room", "the database takes writes again"] {
        eventually(message, || node.log().matches(message).count() == 3);
    }
    // As after a power cut.
    node.signal(Signal::STOP);
    let (folder, restarted) = started_on_copy(&disk);
    writes.check(|path| restarted.get(path));
    drop(restarted);
    assert_eq!(integrity(&folder.path().join("prefix/weir.sqlite")), "ok");
}

/// SQLite writes a commit to its log, and then makes the index of the log larger.
#[test]
fn a_commit_that_is_in_the_log_when_the_disk_is_full_is_not_said_to_be_refused() {
    let node = Gateway::empty().set("database", "sqlite").disk("24m").start();
    let disk = node.disk();
    // As long as it reads, the log is not begun anew.
    let mut reader = disk.program("sqlite3", "weir.sqlite");
    let mut reader = reader.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    writeln!(reader.stdin.as_ref().unwrap(), "BEGIN; SELECT COUNT(*) FROM weir_meta;\n.system echo reading")
        .unwrap();
    let mut said = BufReader::new(reader.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap() == "reading"));
    let (mut writes, mut newest) = (Writes::default(), 0);
    let refused = loop {
        let before = frames(&disk);
        assert!(before <= INDEXED_FRAMES, "the index became larger");
        // Room for as many frames as the write before took, and for some more, but not for what the index needs.
        let is_last = before + newest > INDEXED_FRAMES;
        if is_last {
            disk.fill_up_to((newest + 5) * PAGE);
        }
        let answer = writes.put(&node, 40 << 10);
        if is_last {
            disk.free();
        }
        if answer.status != 200 {
            break answer;
        }
        newest = frames(&disk) - before;
    };
    assert_eq!(refused.status, 500, "{}", refused.text());
    assert!(refused.text().contains("it is not known whether the change was stored"), "{}", refused.text());
    let uncertain = Writes::path(writes.0.len() - 1);
    // As after a power cut.
    node.signal(Signal::STOP);
    assert_eq!(started_on_copy(&disk).1.get(&uncertain).status, 200);
    node.signal(Signal::CONT);
    assert_eq!(writes.put(&node, 10).status, 200);
    writes.check(|path| node.admin(path));
    reader.kill().unwrap();
    reader.wait().unwrap();
}

/// SQLite's default size of pages.
const PAGE: u64 = 4096;

/// How many frames of the log the index has room for at first.
const INDEXED_FRAMES: u64 = 4062;

/// How many frames the log on a disk has: each is a page with a head, after the head of the file.
fn frames(disk: &Disk) -> u64 {
    (std::fs::metadata(disk.path("weir.sqlite-wal")).unwrap().len() - 32) / (PAGE + 24)
}

/// A node that is started on a copy of the files that another has on its disk.
fn started_on_copy(disk: &Disk) -> (TempDir, Node) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("prefix")).unwrap();
    for name in ["weir.sqlite", "weir.sqlite-wal"] {
        std::fs::copy(disk.path(name), folder.path().join("prefix").join(name)).unwrap();
    }
    let node = Node::start(folder.path());
    (folder, node)
}

/// Services that were written one after the other, and whether each was acknowledged.
#[derive(Default)]
struct Writes(Vec<bool>);

impl Writes {
    /// Writes the next, with a tag of so many letters.
    fn put(&mut self, node: &Gateway, size: usize) -> Message {
        let body = format!("{{\"host\":\"127.0.0.1\",\"tags\":[\"{}\"]}}", "a".repeat(size));
        let answer = node.ask_admin("PUT", &Self::path(self.0.len()), &body);
        self.0.push(answer.status == 200);
        answer
    }

    /// Those are there that were acknowledged, and no others.
    fn check(&self, read: impl Fn(&str) -> Message) {
        for (number, acknowledged) in self.0.iter().enumerate().rev().take(500) {
            let expected = if *acknowledged { 200 } else { 404 };
            assert_eq!(read(&Self::path(number)).status, expected, "write {number} of {}", self.0.len());
        }
    }

    fn path(number: usize) -> String {
        format!("/services/00000000-0000-4000-9000-{number:012}")
    }
}

fn survives(kills: u64) {
    let folder = tempfile::tempdir().unwrap();
    let mut services: Vec<_> = (0..WRITERS).map(Service::new).collect();
    let mut total = 0;
    for kill in 0..kills {
        let node = Node::start(folder.path());
        let (admin, acknowledged) = (node.admin, AtomicU64::new(0));
        // At another moment each time, and mostly in the middle of writes.
        let enough = 1 + fastrand::u64(..80);
        thread::scope(|scope| {
            for service in &mut services {
                scope.spawn(|| {
                    service.check(admin);
                    service.write_until_killed(admin, &acknowledged);
                });
            }
            eventually("writes are acknowledged", || acknowledged.load(Ordering::SeqCst) >= enough);
            drop(node);
        });
        assert_eq!(integrity_of_copy(&folder.path().join("prefix")), "ok", "kill {kill}");
        let acknowledged = acknowledged.load(Ordering::SeqCst);
        assert!(acknowledged >= enough, "kill {kill}");
        total += acknowledged;
    }
    let node = Node::start(folder.path());
    services.iter_mut().for_each(|service| service.check(node.admin));
    let kept: usize = services.iter().map(|service| service.consumers.len()).sum();
    println!(
        "{kills} kills, {total} acknowledged writes, {kept} of them of new entities; none is lost, no file is damaged"
    );
}

/// A node, killed when dropped.
struct Node {
    child: Child,
    admin: SocketAddr,
}

impl Node {
    fn start(folder: &Path) -> Node {
        let mut command = weir();
        command.arg("run").arg("--prefix").arg(folder.join("prefix"));
        for setting in [
            "database=sqlite",
            "workers=1",
            "proxy_listen=127.0.0.1:0",
            "admin_listen=127.0.0.1:0",
            "status_listen=127.0.0.1:0",
        ] {
            command.args(["--set", setting]);
        }
        let log = File::options().append(true).create(true).open(folder.join("log")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Ok(start) = serde_json::from_str::<Value>(&line) else {
            panic!("it does not start: {}", std::fs::read_to_string(folder.join("log")).unwrap())
        };
        Node { child, admin: start["admin"][0].as_str().unwrap().parse().unwrap() }
    }

    fn get(&self, path: &str) -> Message {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        Peer::connect(self.admin).send(request).response()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // SIGKILL.
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A service, and how it was written: by the steps 1, 2, 3, …, of which each fifth deletes it. After each third, a consumer
/// is created too, and kept.
struct Service {
    id: String,
    /// The consumers that were acknowledged.
    consumers: Vec<String>,
    /// The last step that was acknowledged.
    acknowledged: u64,
    /// The last one that was asked for.
    asked: u64,
}

impl Service {
    fn new(number: u64) -> Service {
        // Nothing is as good as having been deleted.
        let id = format!("00000000-0000-4000-8000-{number:012}");
        Service { id, consumers: Vec::new(), acknowledged: 0, asked: 0 }
    }

    /// So many steps, each of which is acknowledged.
    fn write(&mut self, admin: SocketAddr, steps: u64) {
        let mut stream = TcpStream::connect(admin).unwrap();
        for _ in 0..steps {
            assert!(self.step(&mut stream), "it is acknowledged");
        }
    }

    fn write_until_killed(&mut self, admin: SocketAddr, acknowledged: &AtomicU64) {
        let Ok(mut stream) = TcpStream::connect(admin) else { return };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        while self.step(&mut stream) {
            acknowledged.fetch_add(1, Ordering::SeqCst);
            if self.acknowledged.is_multiple_of(3) {
                if !self.create_consumer(&mut stream) {
                    return;
                }
                acknowledged.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// Creates a consumer; false where the node ends before it answers.
    fn create_consumer(&mut self, stream: &mut TcpStream) -> bool {
        let name = format!("{}-after-{}", self.id, self.acknowledged);
        let body = format!("{{\"custom_id\":\"{name}\",\"tags\":[\"{name}\"]}}");
        let Some(status) = ask(stream, &request("PUT", &format!("/consumers/{name}"), &body)) else {
            return false;
        };
        assert_eq!(status, 200);
        self.consumers.push(name);
        true
    }

    /// All consumers are there that were acknowledged, and each is whole.
    fn check_consumers(&self, admin: SocketAddr) {
        let (mut found, mut next) = (HashSet::new(), Some("/consumers?size=1000".to_owned()));
        while let Some(path) = next {
            let page = Peer::connect(admin).send(request("GET", &path, "")).response().json();
            for consumer in page["data"].as_array().unwrap() {
                let name = &consumer["username"];
                assert!(*name == consumer["custom_id"] && *name == consumer["tags"][0], "{consumer}");
                found.insert(name.as_str().unwrap().to_owned());
            }
            next = page["next"].as_str().map(str::to_owned);
        }
        let lost = self.consumers.iter().find(|name| !found.contains(*name));
        assert_eq!(lost, None, "it was acknowledged");
    }

    /// The next step; false where the node ends before it answers.
    fn step(&mut self, stream: &mut TcpStream) -> bool {
        self.asked += 1;
        let (method, body) = match state_after(self.asked) {
            Some(path) => ("PUT", format!("{{\"host\":\"127.0.0.1\",\"path\":\"{path}\"}}")),
            None => ("DELETE", String::new()),
        };
        let Some(status) = ask(stream, &self.request(method, &body)) else { return false };
        assert!(matches!(status, 200 | 204), "{method}: {status}");
        self.acknowledged = self.asked;
        true
    }

    /// It is as the last acknowledged step left it, or as the one after it, had that been asked for.
    fn check(&mut self, admin: SocketAddr) {
        let response = Peer::connect(admin).send(self.request("GET", "")).response();
        let found = match response.status {
            200 => Some(response.json()["path"].as_str().unwrap().to_owned()),
            404 => None,
            status => panic!("{status}: {}", response.text()),
        };
        let step = (self.acknowledged..=self.asked).find(|step| state_after(*step) == found);
        let Some(step) = step else {
            panic!("{} is {found:?} after step {}", self.id, self.acknowledged);
        };
        (self.acknowledged, self.asked) = (step, step);
        self.check_consumers(admin);
    }

    fn request(&self, method: &str, body: &str) -> String {
        request(method, &format!("/services/{}", self.id), body)
    }
}

fn request(method: &str, path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

/// The service's path after a step; none where there is no service.
fn state_after(step: u64) -> Option<String> {
    (!step.is_multiple_of(5)).then(|| format!("/{step}"))
}

/// The status of a response that came whole.
pub(crate) fn ask(stream: &mut TcpStream, request: &str) -> Option<u16> {
    stream.write_all(request.as_bytes()).ok()?;
    let mut received = Vec::new();
    loop {
        let mut part = [0; 4096];
        match stream.read(&mut part).ok()? {
            0 => return None,
            length => received.extend_from_slice(&part[..length]),
        }
        let text = String::from_utf8_lossy(&received);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.to_ascii_lowercase().split("content-length: ").nth(1).map_or(0, |rest| {
            rest.split("\r\n").next().and_then(|length| length.parse().ok()).expect("a length")
        });
        if body.len() >= length {
            return head.split(' ').nth(1)?.parse().ok();
        }
    }
}

/// What SQLite says of a copy of the file and its log, so that the node itself has to recover the original.
fn integrity_of_copy(prefix: &Path) -> String {
    let folder = tempfile::tempdir().unwrap();
    for name in ["weir.sqlite", "weir.sqlite-wal"] {
        std::fs::copy(prefix.join(name), folder.path().join(name)).unwrap();
    }
    integrity(&folder.path().join("weir.sqlite"))
}

/// What SQLite says of its own file.
fn integrity(path: &Path) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
        let mut connection = options.connect().await.unwrap();
        let said = sqlx::query_scalar("PRAGMA integrity_check").fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        said
    })
}
