//! The commands on what is kept in a database: `weir migrations` and `weir config`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Gateway, PostgresServer, eventually, weir};
use rustix::process::Signal;
use std::fs;
use std::process::Output;
use tempfile::TempDir;

const FILE: &str = "_format_version: \"3.0\"\nservices:\n- name: orders\n  url: http://127.0.0.1:9000\n  \
                    routes:\n  - name: all\n    paths: [/orders]\nconsumers:\n- username: jane\n  \
                    basicauth_credentials:\n  - username: jane\n    password: secret\n  groups:\n  - name: gold\n\
                    consumer_groups:\n- name: gold\n  plugins:\n  - name: rate-limiting\n    config: {minute: 5}\n";

/// A folder with a file in it, and the settings of a database.
struct Database {
    folder: TempDir,
    settings: Vec<(String, String)>,
}

impl Database {
    fn new(settings: Vec<(String, String)>) -> Database {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("kong.yml"), FILE).unwrap();
        Database { folder, settings }
    }

    /// In PostgreSQL; the settings as a Kong container has them.
    fn in_postgres(schema: &str) -> Database {
        Database::new(PostgresServer::settings(PostgresServer::shared_port(), schema))
    }

    fn in_sqlite() -> Database {
        Database::new(vec![("database".to_owned(), "sqlite".to_owned())])
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = weir();
        command.args(arguments).arg("--prefix").arg(self.folder.path().join("prefix"));
        command
            .envs(self.settings.iter().map(|(key, value)| (format!("KONG_{}", key.to_uppercase()), value)));
        command.current_dir(self.folder.path()).output().expect("the binary runs")
    }

    #[track_caller]
    fn succeeds(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    /// A file goes in, and comes out again as the same.
    #[track_caller]
    fn round_trip(&self) {
        assert!(self.succeeds(&["config", "db_import", "kong.yml"]).contains("7 entities imported"));
        let first = self.succeeds(&["config", "db_export", "-"]);
        assert!(first.contains("name: orders") && !first.contains("password: secret"), "{first}");
        assert!(self.succeeds(&["config", "db_export", "out.yml"]).contains("7 entities exported"));
        assert_eq!(fs::read_to_string(self.folder.path().join("out.yml")).unwrap(), first);
        assert!(self.fails(&["config", "db_export", "out.yml"]).contains("exists already"));
        self.succeeds(&["config", "db_import", "out.yml"]);
        let second = self.succeeds(&["config", "db_export", "-"]);
        let undated =
            |text: &str| text.lines().filter(|line| !line.contains("updated_at")).collect::<String>();
        assert_eq!(undated(&second), undated(&first));
    }
}

#[test]
fn a_database_of_postgres_is_bootstrapped_filled_and_read() {
    let database = Database::in_postgres("commands");
    assert!(database.fails(&["migrations", "status"]).contains("run `weir migrations bootstrap`"));
    assert!(database.fails(&["migrations", "up"]).contains("run `weir migrations bootstrap`"));
    assert!(database.fails(&["config", "db_import", "kong.yml"]).contains("run `weir migrations bootstrap`"));
    assert!(database.succeeds(&["migrations", "bootstrap"]).contains("bootstrapped"));
    assert!(database.succeeds(&["migrations", "bootstrap"]).contains("nothing to do"));
    assert!(database.succeeds(&["migrations", "up"]).contains("nothing to do"));
    assert!(database.succeeds(&["migrations", "status"]).contains("up to date"));
    database.round_trip();
}

#[test]
fn sqlite_needs_no_bootstrapping() {
    let database = Database::in_sqlite();
    assert!(database.fails(&["migrations", "status"]).contains("not bootstrapped"));
    assert!(!database.folder.path().join("prefix").exists(), "who asks changes nothing");
    database.round_trip();
    assert!(database.succeeds(&["migrations", "status"]).contains("up to date"));
    assert_eq!(mode(&database.folder.path().join("prefix/weir.sqlite")), 0o600, "credentials are in it");
}

#[test]
fn what_a_running_node_keeps_is_its_users_alone() {
    let gateway = Gateway::empty().start();
    for name in ["weir.sqlite", "weir.sqlite-wal", "weir.sqlite-shm"] {
        let mode = mode(&gateway.prefix().join(name));
        assert_eq!(mode, 0o600, "{name}");
    }
}

#[test]
fn the_file_is_its_users_alone_whatever_the_umask_and_no_link_is_followed() {
    let database = Database::in_sqlite();
    let file = database.folder.path().join("prefix/weir.sqlite");
    for umask in ["000", "077"] {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &format!("umask {umask} && exec \"$@\""), "sh"]).arg(weir().get_program());
        shell.args(["migrations", "bootstrap", "--set", "database=sqlite", "--prefix", "prefix"]);
        assert!(shell.current_dir(database.folder.path()).status().unwrap().success());
        assert_eq!(mode(&file), 0o600);
        fs::remove_file(&file).unwrap();
    }
    std::os::unix::fs::symlink(database.folder.path().join("kong.yml"), &file).unwrap();
    let run = ["run", "--set", "status_listen=off", "--set", "admin_listen=off", "--set", "proxy_listen=off"];
    for command in [["migrations", "bootstrap"].as_slice(), &["config", "db_import", "kong.yml"], &run] {
        let said = database.fails(command);
        assert!(said.contains("weir.sqlite: is a symbolic link") && said.contains("`sqlite_path`"), "{said}");
    }
    assert_eq!(fs::read_to_string(database.folder.path().join("kong.yml")).unwrap(), FILE);
}

#[test]
fn a_file_for_kong_lacks_what_kong_lacks() {
    let database = Database::in_sqlite();
    let file = "_format_version: \"3.0\"\nservices:\n- {name: db, host: db.test, protocol: tcp, proxy_protocol: v2}\n\
                routes:\n- {name: narrow, paths: [/], vars: [[arg_a, ==, b]], plugins: [{name: key-auth}]}\n\
                consumer_groups:\n- {name: gold}\nplugins:\n- {name: forward-auth, config: {url: \"http://a.test\"}}\n\
                - name: rate-limiting\n  config: {minute: 5, window_type: sliding, policy: redis, redis: {cluster_nodes: [{ip: \
                10.0.0.1}]}}\n- {name: zipkin, config: {header_type: instana}}\n\
                - {name: proxy-cache, config: {strategy: redis, redis: {host: r.test}}}\n";
    fs::write(database.folder.path().join("kong.yml"), file).unwrap();
    database.succeeds(&["config", "db_import", "kong.yml"]);
    let output = database.run(&["config", "db_export", "-", "--for", "kong"]);
    let (text, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{said}");
    let lacking = [
        "proxy_protocol",
        "window_type",
        "cluster_",
        "sentinel_",
        "forward-auth",
        "instana",
        "r.test",
        "consumer_groups",
        "narrow",
        "key-auth",
    ];
    assert!(lacking.iter().all(|name| !text.contains(name)), "{text}");
    assert!(
        ["minute: 5", "name: db", "name: zipkin", "strategy: memory"].iter().all(|kept| text.contains(kept)),
        "{text}"
    );
    for line in [
        "service `db`: `proxy_protocol`",
        "route `narrow`",
        "plugin `key-auth`",
        "consumer_group `gold`",
        "plugin `forward-auth`",
        "plugin `rate-limiting`: `config.window_type`",
        "plugin `rate-limiting`: `config.redis.cluster_nodes`",
        "plugin `zipkin`: `config.header_type: \"instana\"`",
        "plugin `proxy-cache`: `config.strategy: \"redis\"`",
        "plugin `proxy-cache`: `config.redis`",
    ] {
        assert!(
            said.contains(&format!("left out, because Kong 3.9 lacks it: {line}\n")),
            "no {line} in {said}"
        );
    }
    assert!(database.succeeds(&["config", "db_export", "-"]).contains("proxy_protocol: v2"));
}

fn mode(file: &std::path::Path) -> u32 {
    std::os::unix::fs::PermissionsExt::mode(&fs::metadata(file).unwrap().permissions()) & 0o777
}

#[test]
fn a_bad_file_is_not_imported() {
    let database = Database::in_sqlite();
    fs::write(database.folder.path().join("kong.yml"), "_format_version: \"3.0\"\nservices:\n- nam: a\n")
        .unwrap();
    let said = database.fails(&["config", "db_import", "kong.yml"]);
    assert!(said.contains("kong.yml:3:3: services[0]: unknown field `nam`"), "{said}");
    assert!(!database.folder.path().join("prefix").exists(), "nothing was touched");
}

#[test]
fn a_file_is_not_imported_behind_a_running_nodes_back() {
    let gateway = Gateway::start("_format_version: \"3.0\"\n");
    let import = ["config", "db_import", "kong.yml", "--set", "database=sqlite", "--prefix"];
    let output = weir().args(import).arg(gateway.prefix()).current_dir(gateway.prefix().join("..")).output();
    let said = String::from_utf8(output.unwrap().stderr).unwrap();
    assert!(said.contains(&format!("a node (process {})", gateway.pid())), "{said}");
    assert!(said.contains("weir quit") && !said.contains("--prefix"), "{said}");
}

#[test]
fn tables_of_a_file_that_a_node_in_another_folder_uses_are_not_removed() {
    let gateway = Gateway::empty().set("database", "sqlite").start();
    assert_eq!(gateway.ask_admin("PUT", "/services/s", "{\"host\": \"a.test\"}").status, 200);
    let mut database = Database::in_sqlite();
    database
        .settings
        .push(("sqlite_path".to_owned(), gateway.prefix().join("weir.sqlite").display().to_string()));
    for command in [["migrations", "reset", "--yes"], ["migrations", "bootstrap", "--force"]] {
        let said = database.fails(&command);
        assert!(said.contains("another node uses it: stop that node"), "{command:?}: {said}");
    }
    for command in [["migrations", "up"], ["migrations", "status"], ["migrations", "bootstrap"]] {
        database.succeeds(&command);
    }
    assert_eq!(gateway.ask_admin("PATCH", "/services/s", "{\"host\": \"b.test\"}").status, 200);
    gateway.signal(Signal::KILL);
    eventually("the file is free", || database.run(&["migrations", "reset", "--yes"]).status.success());
}

#[test]
fn what_keeps_a_command_from_postgres_is_named_with_its_mend_and_no_password_is() {
    let owner = Database::in_postgres("wrong");
    owner.succeeds(&["migrations", "bootstrap"]);
    let port = PostgresServer::shared_port();
    PostgresServer::execute(port, "CREATE ROLE stranger LOGIN PASSWORD 'do-not-tell'");
    for (setting, value, mend) in [
        ("pg_password", "swordfish", "correct `pg_user` and `pg_password`"),
        ("pg_password", "", "correct `pg_user` and `pg_password`"),
        ("pg_user", "nobody", "correct `pg_user` and `pg_password`"),
        ("pg_database", "nothing", "create it, or name another with `pg_database`"),
        ("pg_port", "1", "`pg_host` and `pg_port` are right"),
        ("pg_host", "nowhere.invalid", "`pg_host` and `pg_port` are right"),
        ("pg_host", "/nowhere", "`pg_host` and `pg_port` are right"),
        ("pg_user", "stranger", "grant it to the user `pg_user`"),
    ] {
        let mut database = Database::in_postgres("wrong");
        database.settings.retain(|(name, _)| name != setting);
        database.settings.push((setting.to_owned(), value.to_owned()));
        for command in [
            ["migrations", "status"].as_slice(),
            &["migrations", "bootstrap"],
            &["migrations", "up"],
            &["config", "db_import", "kong.yml"],
            &["config", "db_export", "-"],
        ] {
            let said = database.fails(command);
            assert!(said.contains("PostgreSQL at ") && said.contains(mend), "{setting}={value}: {said}");
            assert!(!said.contains("swordfish") && !said.contains("do-not-tell"), "{said}");
        }
    }
}

#[test]
fn what_is_no_database_is_named() {
    let database = Database::in_sqlite();
    fs::create_dir(database.folder.path().join("prefix")).unwrap();
    fs::write(
        database.folder.path().join("prefix/weir.sqlite"),
        "this is no database, and long enough to tell",
    )
    .unwrap();
    let said = database.fails(&["config", "db_export", "-"]);
    assert!(said.contains("weir.sqlite") && said.contains("`sqlite_path`"), "{said}");
    let off = Database::new(vec![("database".to_owned(), "off".to_owned())]);
    for command in [["migrations", "bootstrap"].as_slice(), &["config", "db_export", "-"]] {
        assert!(off.fails(command).contains("set it to `postgres` or `sqlite`"));
    }
}

#[test]
fn fields_without_effect_are_logged_once_with_their_entity() {
    let gateway = Gateway::empty().start();
    let put = |path: &str, body: &str| {
        let answer = gateway.ask_admin("PUT", &format!("{path}?wait=true"), body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["id"].as_str().unwrap().to_owned()
    };
    let route = put("/routes/r", r#"{"paths": ["/"], "path_handling": "v1"}"#);
    put("/services/s", r#"{"host": "a.test"}"#);
    let plugin = r#"{"name": "request-transformer", "service": {"name": "s"}, "config": {"add": {"headers": ["Connection:a"]}}}"#;
    put("/plugins/6c2c5ea4-7f2b-4a3c-9a5e-0f1f8c3f9d11", plugin);
    put("/consumers/c", "{}");
    let log = gateway.log();
    let warnings: Vec<_> =
        log.lines().filter(|line| line.contains("without effect in this version")).collect();
    let [of_route, of_plugin] = &*warnings else { panic!("{log}") };
    let expected = format!(
        "route `r` (id {route}): path_handling: without effect in this version: paths are joined as by v0, \
         unless router_flavor is traditional"
    );
    assert!(of_route.ends_with(&expected), "{of_route}");
    let expected = "plugin `request-transformer` (id 6c2c5ea4-7f2b-4a3c-9a5e-0f1f8c3f9d11) of service `s`: config.add.headers[0]: \
                    without effect in this version: Connection is the connection's own";
    assert!(of_plugin.ends_with(expected), "{of_plugin}");
}
