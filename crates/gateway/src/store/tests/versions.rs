//! Tables of other versions: older ones, and newer ones that this program can use or cannot.
use super::super::migrations::{STEPS, Step, Task};
use super::super::open_to_read;
use super::super::postgres::{self, Server};
use super::*;
use sqlx::Connection;
use sqlx::postgres::PgConnection;
use weir_plugin::Background;

/// What a newer program may do to the tables of one that goes on.
const ADDED_TO: &str = "CREATE TABLE weir_later (id TEXT PRIMARY KEY); \
    ALTER TABLE weir_entities ADD COLUMN later BIGINT NOT NULL DEFAULT 7; \
    ALTER TABLE weir_meta ADD COLUMN later BIGINT NOT NULL DEFAULT 7; \
    UPDATE weir_meta SET migrated_to = migrated_to + 1;";

/// What one has done that has changed them otherwise.
const CHANGED: &str = "UPDATE weir_meta SET migrated_to = migrated_to + 1, version = migrated_to + 1;";

/// What a commit of Weir 0.1.0 does, and of all before version 7 of the tables, for theirs.
const COMMIT_BEFORE: &str = "UPDATE weir_meta SET revision = revision + 1 WHERE revision = BASE AND version = VERSION; \
    INSERT INTO weir_entities (kind, id, revision, body) SELECT 'services', 'ID', revision, 'BODY' FROM weir_meta \
    WHERE revision = BASE + 1;";

/// One in each kind of database, without tables.
fn places() -> [Place; 2] {
    [Place::in_sqlite(), Place::in_postgres()]
}

fn is_sqlite(place: &Place) -> bool {
    database(&place.settings) == Database::Sqlite
}

/// Makes the tables as a program that knew fewer steps did.
pub(super) async fn bootstrap_as_of(place: &Place, version: usize) {
    let sql = |step: &Step| if is_sqlite(place) { step.sqlite } else { step.postgres };
    match is_sqlite(place) {
        true => drop(std::fs::File::create(sqlite_path(&place.settings).unwrap()).unwrap()),
        false => place.execute(&format!("CREATE SCHEMA \"{}\"", schema(place).replace('"', "\"\""))).await,
    }
    for step in &STEPS[..version] {
        place.execute(sql(step)).await;
    }
    place.execute(&format!("UPDATE weir_meta SET version = {version}")).await;
}

fn schema(place: &Place) -> String {
    place.settings.pg_schema.clone().unwrap()
}

/// The versions in messages: the tables' next one, and this program's.
fn next() -> (usize, usize) {
    (STEPS.len() + 1, STEPS.len())
}

#[tokio::test]
async fn newer_tables_are_used_where_they_only_have_more() {
    for place in places() {
        let place = place.bootstrapped().await;
        let (store, [first, second, third]) =
            (place.open().await, [1, 2, 3].map(|number| service(number, "a")));
        let revision = commit(&*store, Revision(0), &put(&first)).await;
        place.execute(ADDED_TO).await;
        let revision = commit(&*store, revision, &put(&second)).await;
        assert_eq!(kept(&*store).await, (revision, vec![first.clone(), second.clone()]));
        assert_eq!(changes(&*store, Revision(1)).await, Some((revision, put(&second))));
        drop(store);
        // As after a restart, or a downgrade.
        let store = place.open().await;
        let revision = commit(&*store, revision, &put(&third)).await;
        assert_eq!(kept(&*store).await, (revision, vec![first, second, third]));
        let reader = open_to_read(&place.settings, all_plugins()).await.unwrap().unwrap();
        assert_eq!(kept(&*reader).await.0, revision);
    }
}

#[tokio::test]
async fn the_tasks_leave_newer_tables_that_can_be_used_as_they_are() {
    let (newer, own) = next();
    let said = format!("version {newer}, newer than this weir's {own}, and usable by it");
    for place in places() {
        let place = place.bootstrapped().await;
        place.execute(ADDED_TO).await;
        for (task, more) in [
            (Task::Status, ""),
            (Task::List, ""),
            (Task::Bootstrap, ": nothing to do"),
            (Task::Up, ": nothing to do"),
            (Task::Finish, ": nothing to do"),
            (Task::Everything, ": nothing to do"),
        ] {
            let (message, good) = place.perform(task).await.unwrap();
            assert!(good && message.ends_with(&format!("{said}{more}")), "{task:?}: {message}");
        }
        // It does not know all that would have to be removed.
        let error = place.perform(Task::Reset).await.unwrap_err();
        assert!(
            matches!(&error, StoreError::TooNew(said) if said.contains("use the weir that migrated it")),
            "{error}"
        );
        place.execute("INSERT INTO weir_later (id) VALUES ('a')").await;
        assert_eq!(kept(&*place.open().await).await, (Revision(0), Vec::new()));
    }
}

#[tokio::test]
async fn newer_tables_are_not_touched_where_they_have_been_changed() {
    let (newer, own) = next();
    for place in places() {
        let place = place.bootstrapped().await;
        let (store, first) = (place.open().await, service(1, "first"));
        let revision = commit(&*store, Revision(0), &put(&first)).await;
        place.execute(CHANGED).await;
        let mut refused = vec![
            store.commit(revision, &put(&service(1, "second"))).await.map(|_| ()),
            store.load().await.map(|_| ()),
            store.since(revision).await.map(|_| ()),
        ];
        drop(store);
        refused.push(open_database(&place.settings, all_plugins()).await.map(|_| ()));
        for task in [Task::Status, Task::Bootstrap, Task::Up, Task::Finish, Task::Everything, Task::Reset] {
            refused.push(place.perform(task).await.map(|_| ()));
        }
        let said = format!(
            "its tables have version {newer}, which is newer than this weir knows ({own}): use the weir that migrated \
             it, or a later one"
        );
        for refused in refused {
            let error = refused.unwrap_err();
            assert!(matches!(&error, StoreError::TooNew(message) if message.ends_with(&said)), "{error}");
        }
        place.execute("UPDATE weir_meta SET version = 1, migrated_to = migrated_to - 1").await;
        let store = place.open().await;
        assert_eq!(kept(&*store).await, (revision, vec![first]));
        commit(&*store, revision, &put(&service(1, "second"))).await;
    }
}

#[tokio::test]
async fn tables_that_are_migrated_stay_usable_by_the_program_that_used_them() {
    // Weir 0.1.0, and the last that compared the version with its own.
    for (place, version) in places().into_iter().zip([2, 6]).chain(places().into_iter().zip([6, 2])) {
        bootstrap_as_of(&place, version).await;
        let (message, good) = place.perform(Task::Status).await.unwrap();
        assert!(!good && message.contains(&format!("version {version} of {}", STEPS.len())), "{message}");
        let (message, good) = place.perform(Task::Up).await.unwrap();
        let said = format!("migrated from version {version} to {}", STEPS.len());
        assert!(good && message.ends_with(&said), "{message}");
        let store = place.open().await;
        let entity = service(1, "before");
        let id = entity.id().to_string();
        let body = entity.to_value().to_string();
        let base = kept(&*store).await.0;
        let statement = COMMIT_BEFORE.replace("VERSION", &version.to_string());
        let statement = statement.replace("BASE", &base.0.to_string());
        place.execute(&statement.replace("ID", &id).replace("BODY", &body)).await;
        let next = Revision(base.0 + 1);
        assert_eq!(changes(&*store, base).await, Some((next, put(&entity))));
        commit(&*store, next, &put(&service(2, "after"))).await;
    }
}

/// `pg_restore --clean` replaces the tables that are in the dump, and leaves those that are not.
#[tokio::test]
async fn tables_restored_from_before_a_migration_can_be_migrated_again() {
    for place in places() {
        let place = place.bootstrapped().await;
        let row = format!(
            "INSERT INTO weir_rows (kind, id, body) VALUES ('tokens', '{}', '{{}}')",
            Uuid::from_u128(1)
        );
        place.execute(&row).await;
        place.execute("DROP TABLE weir_entities; DROP TABLE weir_meta;").await;
        place.execute(if is_sqlite(&place) { STEPS[0].sqlite } else { STEPS[0].postgres }).await;
        place.execute("UPDATE weir_meta SET version = 2").await;
        let (message, good) = place.perform(Task::Up).await.unwrap();
        assert!(good && message.ends_with(&format!("from version 2 to {}", STEPS.len())), "{message}");
        let store = place.open().await;
        let (revision, _) = kept(&*store).await;
        commit(&*store, revision, &put(&service(1, "after"))).await;
        // The row of before is there, and so is the table's key.
        place.execute(&format!("{row} ON CONFLICT (kind, id) DO NOTHING")).await;
        let rows = rows(&place.settings, Arc::new(Background::default())).unwrap().unwrap();
        assert_eq!(rows.page("tokens", None, 10).await.unwrap().len(), 1);
    }
}

/// The dump of an older version does not say which history it is of.
#[tokio::test]
async fn nodes_read_everything_again_after_a_migration_of_what_may_be_restored() {
    let place = Place::in_postgres();
    bootstrap_as_of(&place, 2).await;
    place.perform(Task::Up).await.unwrap();
    let store = place.open().await;
    let mut known = kept(&*store).await.0;
    for number in 1..=3 {
        known = commit(&*store, known, &put(&service(number, "lost"))).await;
    }
    place.execute("DROP TABLE weir_entities; DROP TABLE weir_meta;").await;
    place.execute(STEPS[0].postgres).await;
    place.execute("UPDATE weir_meta SET version = 2").await;
    let error = store.since(known).await.unwrap_err();
    assert!(matches!(error, StoreError::NotMigrated(_)), "{error}");
    place.perform(Task::Up).await.unwrap();
    // A node whose connection was not lost does not look for another history.
    let mut revision = kept(&*store).await.0;
    for number in 4..=9 {
        revision = commit(&*store, revision, &put(&service(number, "new"))).await;
    }
    assert_eq!(changes(&*store, known).await, None, "{known:?} before {revision:?}");
    assert_eq!(changes(&*store, Revision(0)).await, None);
}

/// Copies the tables, as pg_dump does.
const DUMP: &str =
    "CREATE TABLE meta AS SELECT * FROM weir_meta; CREATE TABLE entities AS SELECT * FROM weir_entities;";

/// Replaces them by the copy.
const RESTORE: &str = "BEGIN; DROP TABLE weir_meta; CREATE TABLE weir_meta AS SELECT * FROM meta; \
    DELETE FROM weir_entities; INSERT INTO weir_entities SELECT * FROM entities; COMMIT;";

/// A dump that is restored a second time has revisions that nodes know of the first time.
#[tokio::test]
async fn a_dump_that_is_restored_twice_goes_on_from_other_revisions() {
    let place = Place::in_postgres().bootstrapped().await;
    commit(&*place.open().await, Revision(0), &put(&service(1, "dumped"))).await;
    place.execute(DUMP).await;
    let mut known = Vec::new();
    for time in 1..=3 {
        place.execute(RESTORE).await;
        // It is the first that connects.
        let store = place.open().await;
        let (mut revision, entities) = kept(&*store).await;
        assert_eq!(entities, [service(1, "dumped")]);
        for number in 0..=time {
            revision = commit(&*store, revision, &put(&service(2, &format!("host-{number}.test")))).await;
        }
        for known in &known {
            assert_eq!(changes(&*store, *known).await, None, "{known:?} before {revision:?}");
        }
        known.push(revision);
    }
}

/// What restores a dump waits for no connection to end.
#[tokio::test]
async fn a_node_that_keeps_its_connection_writes_nothing_before_a_restored_dump_is_read_by_all() {
    let place = Place::in_postgres().bootstrapped().await;
    let store = place.open().await;
    let dumped = commit(&*store, Revision(0), &put(&service(1, "dumped"))).await;
    place.execute(DUMP).await;
    let lost = commit(&*store, dumped, &put(&service(1, "lost"))).await;
    place.execute(RESTORE).await;
    assert_eq!(kept(&*store).await, (dumped, vec![service(1, "dumped")]));
    let written = store.commit(dumped, &put(&service(2, "new"))).await.unwrap();
    assert_eq!(written, Committed::Outdated, "other nodes take it for {lost:?}, which they know");
    let (base, entities) = kept(&*store).await;
    assert_eq!(entities, [service(1, "dumped")]);
    let newest = commit(&*store, base, &put(&service(2, "new"))).await;
    for known in [dumped, lost] {
        assert_eq!(changes(&*store, known).await, None, "{known:?} before {newest:?}");
    }
}

/// As services do that only resemble PostgreSQL.
#[tokio::test]
async fn a_dump_that_is_restored_where_the_history_is_not_shown_can_be_written() {
    // Functions are the same for all schemas.
    let server = server::PostgresServer::start();
    let place = Place::on(server.port).bootstrapped().await;
    let store = place.open().await;
    let dumped = commit(&*store, Revision(0), &put(&service(1, "dumped"))).await;
    place.execute(DUMP).await;
    let lost = commit(&*store, dumped, &put(&service(1, "lost"))).await;
    place.execute(RESTORE).await;
    place.execute("ALTER FUNCTION pg_control_system() RENAME TO hidden").await;
    let written = store.commit(dumped, &put(&service(2, "new"))).await.unwrap();
    assert_eq!(written, Committed::Outdated);
    let (base, _) = kept(&*store).await;
    let newest = commit(&*store, base, &put(&service(2, "new"))).await;
    assert_eq!(changes(&*store, lost).await, None, "{lost:?} before {newest:?}");
    commit(&*place.open().await, newest, &put(&service(3, "newer"))).await;
}

/// Sets whether a server takes writes; returns once all of its sessions know.
async fn set_read_only(place: &Place, value: &str) {
    place.execute(&format!("ALTER SYSTEM SET default_transaction_read_only = {value}")).await;
    place.execute("SELECT pg_reload_conf()").await;
    loop {
        let mut connection = Server::of(&place.settings).unwrap().connect().await.unwrap();
        let shown = sqlx::query_scalar("SHOW default_transaction_read_only").fetch_one(&mut connection).await;
        let shown: String = shown.unwrap();
        if shown == value {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The sessions of a standby go on when it is promoted, which is another history of the same table.
#[tokio::test]
async fn a_connection_to_a_standby_writes_nothing_before_its_promotion_is_noticed() {
    let server = server::PostgresServer::start();
    let place = Place::on(server.port).bootstrapped().await;
    let known = commit(&*place.open().await, Revision(0), &put(&service(1, "first"))).await;
    set_read_only(&place, "on").await;
    let store = place.open().await;
    assert_eq!(kept(&*store).await.0, known);
    set_read_only(&place, "off").await;
    place.execute("UPDATE weir_meta SET history = '1/00000001/' || tableoid::text").await;
    let written = store.commit(known, &put(&service(2, "new"))).await.unwrap();
    assert_eq!(written, Committed::Outdated);
    let (base, _) = kept(&*store).await;
    commit(&*store, base, &put(&service(2, "new"))).await;
    assert_eq!(changes(&*store, known).await, None);
}

#[tokio::test]
async fn older_tables_are_named_and_not_written() {
    for place in places() {
        let place = place.bootstrapped().await;
        let store = place.open().await;
        let revision = commit(&*store, Revision(0), &put(&service(1, "first"))).await;
        // As when a dump is restored that an older program has left.
        place
            .execute("ALTER TABLE weir_meta DROP COLUMN migrated_to; UPDATE weir_meta SET version = 5")
            .await;
        let refused = [
            store.commit(revision, &put(&service(1, "second"))).await.map(|_| ()),
            store.load().await.map(|_| ()),
            store.since(revision).await.map(|_| ()),
        ];
        let said =
            format!("its tables have version 5 and must have {}: run `weir migrations up`", STEPS.len());
        for refused in refused {
            let error = refused.unwrap_err();
            assert!(
                matches!(&error, StoreError::NotMigrated(message) if message.ends_with(&said)),
                "{error}"
            );
        }
        if is_sqlite(&place) {
            let reader = open_to_read(&place.settings, all_plugins()).await.unwrap().unwrap();
            let error = reader.load().await.unwrap_err();
            assert!(error.to_string().ends_with(&said), "{error}");
        }
    }
}

/// As the trigger of an operator may lack a column, which is the error of a statement on older tables.
#[tokio::test]
async fn a_column_that_others_lack_is_named_as_what_fails() {
    let place = Place::in_postgres().bootstrapped().await;
    let store = place.open().await;
    place
        .execute(
            "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM total FROM weir_meta; \
             RETURN NEW; END $$; \
             CREATE TRIGGER look BEFORE INSERT ON weir_entities FOR EACH ROW EXECUTE FUNCTION look();",
        )
        .await;
    let error = store.commit(Revision(0), &put(&service(1, "a"))).await.unwrap_err();
    let said = error.to_string();
    assert!(
        matches!(error, StoreError::Broken(_)) && said.contains("column \"total\" does not exist"),
        "{said}"
    );
    place.execute("ALTER TABLE weir_meta ADD COLUMN total BIGINT").await;
    commit(&*store, Revision(0), &put(&service(1, "a"))).await;
}

/// Whether another session waits for the one of a process.
pub(super) async fn blocks(pid: i32, other: &mut PgConnection) -> bool {
    let waits = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid)))";
    sqlx::query_scalar(waits).bind(pid).fetch_one(other).await.unwrap()
}

/// A commit that waits for a migration sees what it did, not what was there when the commit began.
#[tokio::test]
async fn a_commit_that_waits_for_a_migration_goes_by_what_that_has_done() {
    let noted = "UPDATE weir_meta SET migrated_to = migrated_to + 1";
    for (migration, is_usable) in [(ADDED_TO, true), (noted, true), (CHANGED, false)] {
        let place = Place::in_postgres().bootstrapped().await;
        let store = place.open().await;
        let server = postgres::Server::of(&place.settings).unwrap();
        let (mut one, mut other) = (server.connect().await.unwrap(), server.connect().await.unwrap());
        let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut one).await.unwrap();
        let mut migrating = one.begin().await.unwrap();
        sqlx::raw_sql(migration).execute(&mut *migrating).await.unwrap();
        let committing = tokio::spawn({
            let store = store.clone();
            async move { store.commit(Revision(0), &put(&service(1, "a"))).await }
        });
        while !committing.is_finished() && !blocks(pid, &mut other).await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        migrating.commit().await.unwrap();
        match committing.await.unwrap() {
            Ok(committed) => assert!(is_usable && committed == Committed::At(Revision(1)), "{committed:?}"),
            Err(error) => assert!(!is_usable && matches!(error, StoreError::TooNew(_)), "{error}"),
        }
    }
}
