//! Migrations, and nodes that start, while other sessions of PostgreSQL have locked the tables.
use super::super::migrations::{STEPS, Task, perform};
use super::super::postgres::Server;
use super::versions::{blocks, bootstrap_as_of};
use super::*;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Row};
use tokio::time::{sleep, timeout};

/// A session that has begun a transaction with a statement, and its process.
async fn session(place: &Place, statement: &str) -> (PgConnection, i32) {
    let server = Server::of(&place.settings).unwrap();
    let mut connection = server.connect().await.unwrap();
    let begin = AssertSqlSafe(format!("BEGIN; {statement}"));
    sqlx::raw_sql(begin).execute(&mut connection).await.unwrap();
    let pid = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut connection).await.unwrap();
    (connection, pid)
}

#[tokio::test]
async fn nodes_go_on_while_a_migration_waits_for_another_session() {
    let place = Arc::new(Place::in_postgres());
    bootstrap_as_of(&place, 2).await;
    // As pg_dump does for as long as it takes.
    let (reader, pid) = session(&place, "LOCK TABLE weir_meta IN ACCESS SHARE MODE").await;
    let migrating = tokio::spawn({
        let place = place.clone();
        async move { place.perform(Task::Up).await }
    });
    let mut node = Server::of(&place.settings).unwrap().connect().await.unwrap();
    while !blocks(pid, &mut node).await {
        assert!(!migrating.is_finished(), "it waits");
        sleep(Duration::from_millis(10)).await;
    }
    let revision = sqlx::query_scalar("SELECT revision FROM weir_meta").fetch_one(&mut node);
    let revision: i64 = timeout(TEST_TIMEOUT, revision).await.expect("nodes read on").unwrap();
    assert_eq!(revision, 0);
    reader.close().await.unwrap();
    let (message, good) = migrating.await.unwrap().unwrap();
    assert!(good && message.ends_with(&format!("from version 2 to {}", STEPS.len())), "{message}");
}

#[tokio::test]
async fn what_keeps_a_migration_from_the_tables_is_named() {
    let place = Place::in_postgres();
    bootstrap_as_of(&place, 2).await;
    for held in
        ["LOCK TABLE weir_meta IN ACCESS SHARE MODE", "SELECT pg_advisory_xact_lock(x'77656972'::bigint)"]
    {
        let (session, pid) = session(&place, held).await;
        let up = perform(Task::Up, &place.settings, Duration::from_millis(10));
        let error = timeout(TEST_TIMEOUT, up).await.expect("it ends").unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, StoreError::Unavailable(_)) && said.contains("such as pg_dump"), "{said}");
        let find = said.find("SELECT pid").map(|at| said[at..].to_owned()).expect("how to find the session");
        let mut other = Server::of(&place.settings).unwrap().connect().await.unwrap();
        let found = sqlx::query(AssertSqlSafe(find)).fetch_all(&mut other).await.unwrap();
        assert!(found.iter().any(|row| row.get::<i32, _>("pid") == pid), "{held}");
        session.close().await.unwrap();
    }
    let (message, good) = place.perform(Task::Up).await.unwrap();
    assert!(good && message.contains("migrated"), "{message}");
}

#[tokio::test]
async fn a_node_that_starts_while_the_tables_are_locked_says_so() {
    let place = Place::in_postgres().bootstrapped().await;
    let (session, _) = session(&place, "LOCK TABLE weir_meta IN ACCESS EXCLUSIVE MODE").await;
    let mut settings = place.settings.clone();
    settings.pg_timeout.0 = Duration::from_millis(700);
    let opened = timeout(TEST_TIMEOUT, open_database(&settings, all_plugins())).await.expect("it ends");
    let error = opened.err().unwrap().to_string();
    assert!(error.ends_with("no answer within 700 ms: see that it runs, or raise `pg_timeout`"), "{error}");
    session.close().await.unwrap();
    assert_eq!(kept(&*place.open().await).await.0, Revision(0));
}
