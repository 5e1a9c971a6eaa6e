//! Backups: taken while nodes write, and restored elsewhere.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::failover::{End, route};
use crate::harness::{Gateway, PostgresServer, Upstream, eventually, weir};
use crate::lua_entities::Notes;
use serde_json::Value as Json;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use tempfile::TempDir;

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// An entity of every kind.
const EVERYTHING: &str = include_str!("../src/store/tests/everything.yaml");

/// Entities of a plugin's own.
const NOTES: &str =
    "notes:\n- title: first\n  parts: [x]\n  tags: [kept]\n  note_marks: [{number: 4}, {number: 5}]\n";

/// The collections that a restored node must have as they were.
const COLLECTIONS: [&str; 21] = [
    "services",
    "routes",
    "upstreams",
    "upstreams/several/targets",
    "plugins",
    "consumers",
    "consumer_groups",
    "key-auths",
    "basic-auths",
    "hmac-auths",
    "jwts",
    "oauth2",
    "acls",
    "certificates",
    "snis",
    "ca_certificates",
    "vaults",
    "keys",
    "key-sets",
    "tags",
    "notes",
];

type Settings = Vec<(String, String)>;

/// A database that no node uses.
struct Database {
    folder: TempDir,
    settings: Settings,
}

impl Database {
    fn new(settings: Settings, notes: &Notes) -> Database {
        let settings = [settings, notes.settings()].concat();
        let database = Database { folder: tempfile::tempdir().unwrap(), settings };
        database.run(&["migrations", "bootstrap"]);
        database
    }

    fn in_sqlite(notes: &Notes) -> Database {
        Database::new(vec![("database".to_owned(), "sqlite".to_owned())], notes)
    }

    fn in_postgres(schema: &str, notes: &Notes) -> Database {
        Database::new(PostgresServer::settings(PostgresServer::shared_port(), schema), notes)
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> String {
        run(arguments, &self.folder.path().join("prefix"), &self.settings)
    }

    /// Imports a file, and exports it again.
    fn passes(&self, text: &str) -> String {
        fs::write(self.folder.path().join("kong.yml"), text).unwrap();
        self.run(&["config", "db_import", &self.folder.path().join("kong.yml").display().to_string()]);
        self.run(&["config", "db_export", "-"])
    }

    /// A node on it.
    fn node(&self) -> Gateway {
        let prefix = self.folder.path().join("prefix");
        let file = prefix.join("weir.sqlite").display().to_string();
        let builder = Gateway::empty().set("sqlite_path", &file);
        self.settings.iter().fold(builder, |builder, (key, value)| builder.set(key, value)).start()
    }
}

#[track_caller]
fn run(arguments: &[&str], prefix: &Path, settings: &[(String, String)]) -> String {
    let mut command = weir();
    command.args(arguments).arg("--prefix").arg(prefix);
    command.args(settings.iter().flat_map(|(key, value)| ["--set".to_owned(), format!("{key}={value}")]));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Without the times of writes, which an import renews.
fn undated(export: &str) -> String {
    export.lines().filter(|line| !line.contains("updated_at")).collect::<Vec<_>>().join("\n")
}

/// What a node's Admin API says of a collection, in an order of its own.
fn collection(node: &Gateway, name: &str) -> Vec<Json> {
    let answer = node.admin(&format!("/{name}?size=1000"));
    assert_eq!(answer.status, 200, "{name}: {}", answer.text());
    let mut data = answer.json()["data"].as_array().unwrap().clone();
    for entity in &mut data {
        let members = entity.as_object_mut().unwrap();
        ["created_at", "updated_at"].iter().for_each(|time| drop(members.remove(*time)));
    }
    data.sort_by_key(Json::to_string);
    data
}

#[test]
fn an_export_restores_everything_in_either_database_and_without_one() {
    let notes = Notes::new();
    let everything = format!("{EVERYTHING}{NOTES}");
    let from = Database::in_sqlite(&notes);
    let exported = from.passes(&everything);
    let to = Database::in_postgres("backup_restored", &notes);
    assert_eq!(undated(&to.passes(&exported)), undated(&exported));
    let again = Database::in_sqlite(&notes);
    assert_eq!(undated(&again.passes(&exported)), undated(&exported));
    let [original, in_postgres] = [&from, &to].map(Database::node);
    let declared = notes.settings().iter().fold(Gateway::builder(&exported), |b, (k, v)| b.set(k, v)).start();
    for name in COLLECTIONS {
        let expected = collection(&original, name);
        assert!(!expected.is_empty(), "{name}");
        assert_eq!(collection(&in_postgres, name), expected, "{name}");
        assert_eq!(collection(&declared, name), expected, "{name}");
    }
    logs_in(&in_postgres);
}

/// Passwords and keys are as good as before.
fn logs_in(node: &Gateway) {
    let put = |path: &str, body: &str| assert_eq!(node.ask_admin("PUT", path, body).status, 200, "{path}");
    for (number, plugin) in ["basic-auth", "key-auth"].iter().enumerate() {
        put(&format!("/routes/{plugin}"), &format!("{{\"paths\": [\"/{plugin}\"]}}"));
        let plugin = format!("{{\"name\": \"{plugin}\", \"route\": {{\"name\": \"{plugin}\"}}}}");
        put(&format!("/plugins/00000000-0000-4000-8000-00000000000{number}"), &plugin);
    }
    // What terminates her requests is a plugin of hers.
    let status = |path: &str, header: &str| node.get_with(path, header).status;
    let login = "Authorization: Basic amFuZTp0cnVl\r\n";
    // Changes take effect soon after the answer, one after the other.
    eventually("the password is right", || status("/basic-auth", login) == 403);
    eventually("the key is right", || status("/key-auth", "apikey: jane's key\r\n") == 403);
    assert_eq!(status("/basic-auth", "Authorization: Basic amFuZTpmYWxzZQ==\r\n"), 401);
    assert_eq!(status("/key-auth", "apikey: another\r\n"), 401);
}

/// Writes to two services by turns, so that at each moment the first is as new as the second, or one step ahead.
fn write_by_turns(node: &Gateway, ended: &AtomicBool, acknowledged: &AtomicU64) {
    for step in 1.. {
        if ended.load(Ordering::SeqCst) {
            return;
        }
        for name in ["first", "second"] {
            let body = format!("{{\"host\": \"127.0.0.1\", \"path\": \"/{step}\"}}");
            let answer = node.ask_admin("PUT", &format!("/services/{name}"), &body);
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        acknowledged.store(step, Ordering::SeqCst);
    }
}

/// The steps of both services in an export.
fn steps(export: &str) -> [u64; 2] {
    let services = export.split("\n- ").filter(|part| part.contains("host: \"127.0.0.1\""));
    let mut steps = [0, 0];
    for service in services {
        let value =
            |key: &str| service.lines().find_map(|line| line.trim().strip_prefix(key)).map(str::to_owned);
        let at = usize::from(value("name: ").as_deref() == Some("second"));
        steps[at] = value("path: /").expect("it has a path").parse().unwrap();
    }
    steps
}

/// Takes backups while a node writes; each is of one moment, and has all that was acknowledged before it began.
fn is_of_one_moment(node: &Gateway, backup: impl Fn() -> String) {
    for number in 0..300 {
        let body = format!("{{\"tags\": [\"{}\"]}}", "a".repeat(200));
        assert_eq!(node.ask_admin("PUT", &format!("/consumers/c-{number}"), &body).status, 200);
    }
    let (ended, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let end = End(&ended);
        scope.spawn(|| write_by_turns(node, &ended, &acknowledged));
        for _ in 0..10 {
            let before = acknowledged.load(Ordering::SeqCst);
            eventually("writes go on", || acknowledged.load(Ordering::SeqCst) > before + 1);
            let before = acknowledged.load(Ordering::SeqCst);
            let text = backup();
            let [first, second] = steps(&text);
            assert!(second >= before, "{second} is older than the acknowledged {before}");
            assert!(first == second || first == second + 1, "{first} and {second} never were at one time");
            assert_eq!(text.matches("username: c-").count(), 300);
        }
        drop(end);
    });
}

#[test]
fn an_export_from_sqlite_while_writes_go_on_is_of_one_moment() {
    let node = Gateway::empty().start();
    let database = [("database".to_owned(), "sqlite".to_owned())];
    is_of_one_moment(&node, || run(&["config", "db_export", "-"], &node.prefix(), &database));
}

#[test]
fn an_export_from_postgres_while_writes_go_on_is_of_one_moment() {
    let settings = PostgresServer::settings(PostgresServer::shared_port(), "online_export");
    let [node] = Gateway::sharing_by(&settings);
    let folder = tempfile::tempdir().unwrap();
    is_of_one_moment(&node, || run(&["config", "db_export", "-"], folder.path(), &settings));
}

#[test]
fn a_copy_by_sqlites_backup_while_writes_go_on_is_of_one_moment() {
    let node = Gateway::empty().start();
    let database = [("database".to_owned(), "sqlite".to_owned())];
    is_of_one_moment(&node, || {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("weir.sqlite");
        let mut sqlite = Command::new("sqlite3");
        sqlite.arg(node.prefix().join("weir.sqlite")).arg(".timeout 10000");
        let copied =
            sqlite.arg(format!(".backup '{}'", copy.display())).output().expect("sqlite3 is installed");
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        run(&["config", "db_export", "-"], folder.path(), &database)
    });
}

#[test]
fn a_restored_dump_of_postgres_is_read_by_all_nodes() {
    let server = PostgresServer::start();
    let upstream = Upstream::answering(HELLO);
    let [one, other] = Gateway::sharing(server.port, "public");
    assert_eq!(route(&one, "saved", &upstream), 200);
    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("dump").display().to_string();
    PostgresServer::run("pg_dump", server.port, &["-Fc", "-f", &dump, "postgres"]);
    assert_eq!(route(&one, "unsaved", &upstream), 200);
    eventually("it is served", || other.get("/unsaved").status == 200);
    let restore = ["--clean", "--if-exists", "--single-transaction", "-d", "postgres", &dump];
    PostgresServer::run("pg_restore", server.port, &restore);
    let [_restarted] = Gateway::sharing(server.port, "public");
    for node in [&one, &other] {
        let statuses = || ["/saved", "/unsaved"].map(|path| node.get(path).status);
        eventually("it has what was restored", || statuses() == [200, 404]);
    }
    let write = || one.ask_admin("PUT", "/services/next", "{\"host\": \"a\"}").status;
    eventually("writes are accepted", || write() == 200);
    for node in [&one, &other] {
        eventually("and what came after", || node.admin("/services/next").status == 200);
    }
}
