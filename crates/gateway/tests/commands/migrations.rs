//! `kong migrations` and `kong config` on a database: words and exit codes that scripts compare.
use super::Kong;
use crate::harness::PostgresServer;
use std::fs;

fn in_postgres(schema: &str) -> Kong {
    let settings = PostgresServer::settings(PostgresServer::shared_port(), schema);
    let name = |key: &str| format!("KONG_{}", key.to_uppercase());
    let kong = Kong::bare();
    let prefix = kong.prefix();
    // Another program may listen where a node does by default.
    let kong = kong.with("KONG_PREFIX", &prefix).with("KONG_STATUS_LISTEN", "off");
    settings.iter().fold(kong, |kong, (key, value)| kong.with(&name(key), value))
}

#[test]
fn tables_are_made_listed_and_removed_with_kongs_words() {
    let kong = in_postgres("kong_migrations");
    let run = |words: &str| {
        kong.run(&["kong", "migrations"].into_iter().chain(words.split(' ')).collect::<Vec<_>>())
    };
    let needed = "Database needs bootstrapping; run 'kong migrations bootstrap'\n";
    run("list").expect(3, needed, "");
    kong.run(&["kong", "start"]).expect(1, "", "it has no tables yet: run `kong migrations bootstrap`\n");
    run("up").expect(
        1,
        "",
        "Cannot run migrations: database needs bootstrapping; run 'kong migrations bootstrap'",
    );
    run("finish").expect(1, "", "Cannot run migrations; run 'kong migrations bootstrap' instead");
    run("bootstrap -y --db-timeout 30 --lock-timeout 60 --v").expect(
        0,
        "Bootstrapping database...\nDatabase is up-to-date\n",
        "",
    );
    run("bootstrap").expect(0, "Database already bootstrapped\n", "");
    run("list -q").expect(0, "", "");
    assert!(run("list").stdout.starts_with("Executed migrations:\n"));
    run("up").expect(0, "Database is already up-to-date\n", "");
    run("finish").expect(0, "No pending migrations to finish\n", "");
    // As the Compose file of Kong's own image runs it, without a shell.
    run("up && kong migrations finish").expect(
        0,
        "Database is already up-to-date\n",
        "ignored: && kong migrations finish",
    );
    let status: serde_json::Value = serde_json::from_str(&run("status").stdout).unwrap();
    assert_eq!(status["needs_bootstrap"], false);
    assert!(status["new_migrations"].is_null() && status["executed_migrations"].is_array(), "{status}");
    run("reset").expect(1, "", "not a tty: invoke 'reset' non-interactively with the --yes flag");
    run("list").expect(0, &run("list").stdout, "");
    run("reset --yes").expect(0, "Resetting database...\nDatabase successfully reset\n", "");
    run("reset --yes").expect(1, "Database not bootstrapped, nothing to reset\n", "");
    run("list").expect(3, needed, "");
    run("bootstrap --force").expect(0, "Bootstrapping database...\nDatabase is up-to-date\n", "");
}

#[test]
fn newer_tables_are_usable_or_named() {
    let kong = in_postgres("kong_newer");
    let run = |task: &str| kong.run(&["kong", "migrations", task]);
    run("bootstrap").expect(0, "Bootstrapping database...\nDatabase is up-to-date\n", "");
    let port = PostgresServer::shared_port();
    PostgresServer::execute(port, "UPDATE kong_newer.weir_meta SET migrated_to = migrated_to + 1");
    run("bootstrap").expect(0, "Database already bootstrapped\n", "");
    run("up").expect(0, "Database is already up-to-date\n", "");
    run("finish").expect(0, "No pending migrations to finish\n", "");
    assert_eq!(run("list").code, Some(0));
    let status: serde_json::Value = serde_json::from_str(&run("status").stdout).unwrap();
    assert!(status["new_migrations"].is_null() && status["needs_bootstrap"] == false, "{status}");
    PostgresServer::execute(port, "UPDATE kong_newer.weir_meta SET version = migrated_to");
    for task in ["bootstrap", "up", "finish", "list", "status"] {
        run(task).expect(1, "", "which is newer than this weir knows");
    }
}

#[test]
fn tables_that_other_sessions_use_are_waited_for_as_long_as_asked() {
    let kong = in_postgres("kong_locked");
    let run = |words: &str| {
        kong.run(&["kong", "migrations"].into_iter().chain(words.split(' ')).collect::<Vec<_>>())
    };
    run("bootstrap -q").expect(0, "", "");
    let lock = "BEGIN; LOCK TABLE kong_locked.weir_meta IN ACCESS SHARE MODE";
    let session = PostgresServer::session(PostgresServer::shared_port(), lock);
    let said = "could not be locked within 0.1 s, because other sessions use them, such as pg_dump";
    run("reset --yes --lock-timeout 0.1").expect(1, "", said);
    run("reset --yes --lock-timeout soon").expect(1, "", "write a number of seconds, such as 60");
    drop(session);
    run("reset --yes").expect(0, "Resetting database...\nDatabase successfully reset\n", "");
}

#[test]
fn a_file_is_imported_and_a_node_started_on_it() {
    let kong = in_postgres("kong_import");
    fs::write(kong.path("in.yml"), "_format_version: \"3.0\"\nservices: [{name: a, host: a.test}]\n")
        .unwrap();
    kong.run(&["kong", "migrations", "bootstrap", "-q"]).expect(0, "", "");
    let imported = "parse successful, beginning import\nimport successful\n";
    kong.run(&["kong", "config", "db_import", "in.yml"]).expect(0, imported, "");
    assert_eq!(kong.run(&["kong", "config", "db_export"]).code, Some(0));
    assert!(fs::read_to_string(kong.path("kong.yml")).unwrap().contains("a.test"));
    let socket = format!("unix:{}", kong.path("admin.sock").display());
    let kong = kong.with("KONG_ADMIN_LISTEN", &socket).with("KONG_PROXY_LISTEN", "off");
    let kong = kong.with("KONG_STATUS_LISTEN", "off");
    kong.run(&["kong", "start", "--run-migrations"]).expect(
        0,
        "Database is already up-to-date\nKong started\n",
        "",
    );
    assert_eq!(kong.status("admin.sock", "/services/a"), 200);
    // There is nothing to read again, and scripts reload such a node all the same.
    kong.run(&["kong", "reload"]).expect(0, "Kong reloaded\n", "warning: ");
    kong.run(&["weir", "reload"]).expect(1, "", "there is nothing to reload");
}

#[test]
fn without_a_database_there_is_nothing_to_migrate() {
    let kong = Kong::bare();
    let prefix = kong.prefix();
    let kong = kong.with("KONG_DATABASE", "off").with("KONG_PREFIX", &prefix);
    kong.run(&["kong", "migrations", "bootstrap"]).expect(0, "Database already bootstrapped\n", "");
    kong.run(&["kong", "migrations", "up"]).expect(0, "Database is already up-to-date\n", "");
    kong.run(&["weir", "migrations", "up"]).expect(1, "", "database is `off`");
}

#[test]
fn a_host_of_postgres_means_that_database_as_for_kong() {
    let kong = Kong::bare().with("KONG_PG_HOST", "127.0.0.1").with("KONG_PG_PORT", "1");
    kong.run(&["kong", "migrations", "list"]).expect(1, "", "127.0.0.1:1");
}
