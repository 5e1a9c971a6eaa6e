//! `pg_ro_*`: a replica that nodes read all entities from.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::failover::{caught_up, route};
use crate::harness::{Gateway, PostgresServer, Upstream, weir};

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// How the statement that reads all entities is known.
const READ_ALL: &str = "ON e.body IS NOT NULL";

/// How the one that reads changes is known.
const READ_CHANGES: &str = "ON e.revision > $1";

/// How a commit is known.
const COMMIT: &str = "WITH bumped AS";

/// A primary with a replica, both of which log each statement, and a node that uses the primary alone.
struct Replicated {
    primary: PostgresServer,
    replica: PostgresServer,
    writer: Gateway,
    upstream: Upstream,
}

impl Replicated {
    fn new() -> Replicated {
        let primary = PostgresServer::start();
        let (replica, upstream) = (primary.standby(), Upstream::answering(HELLO));
        let [writer] = Gateway::sharing(primary.port, "public");
        assert_eq!(route(&writer, "before", &upstream), 200);
        PostgresServer::execute(primary.port, "ALTER ROLE kong SET log_statement = 'all'");
        caught_up(&primary, &replica);
        Replicated { primary, replica, writer, upstream }
    }

    fn settings(&self) -> Vec<(String, String)> {
        let mut settings = PostgresServer::settings(self.primary.port, "public");
        let port = self.replica.port.to_string();
        // A busy machine takes longer than the default to answer.
        let replica = [("pg_ro_host", "127.0.0.1"), ("pg_ro_port", &port), ("pg_timeout", "30000")];
        settings.extend(replica.map(|(name, value)| (name.to_owned(), value.to_owned())));
        settings
    }

    fn node(&self) -> Gateway {
        let [node] = Gateway::sharing_by(&self.settings());
        node
    }
}

#[test]
fn all_is_read_from_the_replica_and_written_to_the_primary() {
    let setup = Replicated::new();
    let node = setup.node();
    assert_eq!(node.get("/before").status, 200);
    assert_eq!(route(&node, "written", &setup.upstream), 200);
    let (primary, replica) = (setup.primary.log(), setup.replica.log());
    assert!(replica.contains(READ_ALL) && !replica.contains(COMMIT), "{replica}");
    assert!(!primary.contains(READ_ALL) && primary.contains(READ_CHANGES), "{primary}");
    assert!(primary.contains(COMMIT), "{primary}");
    assert_eq!(node.log().matches("are read from").count(), 0, "{}", node.log());
}

#[test]
fn a_replica_that_lags_behind_makes_no_answer_older() {
    let setup = Replicated::new();
    PostgresServer::execute(setup.replica.port, "SELECT pg_wal_replay_pause()");
    assert_eq!(route(&setup.writer, "since", &setup.upstream), 200);
    assert_eq!(setup.writer.ask_admin("DELETE", "/routes/before", "").status, 204);
    // Not eventually: it is so with its first answer.
    let node = setup.node();
    assert_eq!(["/since", "/before"].map(|path| node.get(path).status), [200, 404]);
    assert!(setup.replica.log().contains(READ_ALL));
    for number in 0..20 {
        let path = format!("/services/written-{number}");
        assert_eq!(node.ask_admin("PUT", &path, "{\"host\": \"a\"}").status, 200);
        assert_eq!(node.admin(&path).status, 200, "it is read right after it was written");
    }
    let exported = export(&setup);
    assert!(exported.contains("name: since") && exported.contains("name: written-19"), "{exported}");
    PostgresServer::execute(setup.replica.port, "SELECT pg_wal_replay_resume()");
}

#[test]
fn newer_tables_that_can_be_used_are_read_from_the_replica_too() {
    let setup = Replicated::new();
    PostgresServer::execute(setup.primary.port, "UPDATE weir_meta SET migrated_to = migrated_to + 1");
    caught_up(&setup.primary, &setup.replica);
    let node = setup.node();
    assert_eq!(node.get("/before").status, 200);
    assert!(setup.replica.log().contains(READ_ALL));
    assert_eq!(node.log().matches("are read from").count(), 0, "{}", node.log());
}

#[test]
fn a_replica_that_is_away_is_done_without() {
    let mut setup = Replicated::new();
    setup.replica.crash();
    let node = setup.node();
    assert_eq!(node.get("/before").status, 200);
    assert!(node.log().contains("the entities are read from PostgreSQL at 127.0.0.1"), "{}", node.log());
    assert_eq!(route(&node, "written", &setup.upstream), 200);
    assert!(export(&setup).contains("name: written"));
}

/// What `db_export` writes with the replica's settings.
fn export(setup: &Replicated) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut export = weir();
    export.args(["config", "db_export", "-", "--prefix"]).arg(folder.path());
    export.args(
        setup.settings().iter().flat_map(|(key, value)| ["--set".to_owned(), format!("{key}={value}")]),
    );
    let output = export.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}
