//! What concerns several nodes, and a server that is not always there.
use super::super::migrations::{Task, perform};
use super::server::PostgresServer;
use super::*;
use crate::settings::PgHosts;
use tokio::time::{sleep, timeout};

async fn changed(store: &dyn Store) {
    timeout(TEST_TIMEOUT, store.changed()).await.expect("a change is heard of").unwrap();
}

#[tokio::test]
async fn nodes_hear_of_each_others_commits() {
    let place = Place::in_postgres().bootstrapped().await;
    let (one, other) = (place.open().await, place.open().await);
    // It also notifies when it begins to listen.
    changed(&*one).await;
    changed(&*other).await;
    let (a, b) = (service(1, "a"), service(2, "b"));
    let first = commit(&*one, Revision(0), &put(&a)).await;
    changed(&*other).await;
    assert_eq!(changes(&*other, Revision(0)).await, Some((first, put(&a))));
    let second = commit(&*other, first, &put(&b)).await;
    let mut known = first;
    while known < second {
        // Its own commit may be what it hears of first.
        changed(&*one).await;
        known = changes(&*one, first).await.unwrap().0;
    }
    assert_eq!(kept(&*one).await, (second, vec![a, b]));
}

#[tokio::test]
async fn schemas_of_one_database_have_nothing_to_do_with_each_other() {
    let (here, there) =
        (Place::in_postgres().bootstrapped().await, Place::in_postgres().bootstrapped().await);
    let (here, there) = (here.open().await, there.open().await);
    commit(&*here, Revision(0), &put(&service(1, "host"))).await;
    assert_eq!(kept(&*there).await, (Revision(0), Vec::new()));
}

#[tokio::test]
async fn tables_have_to_be_there() {
    let place = Place::in_postgres();
    let error = open_database(&place.settings, all_plugins()).await.err().unwrap();
    let said = error.to_string();
    assert!(
        matches!(error, StoreError::NotMigrated(_)) && said.contains("`weir migrations bootstrap`"),
        "{said}"
    );
    let (message, good) = place.perform(Task::Status).await.unwrap();
    assert!(!good && message.contains("`weir migrations bootstrap`"), "{message}");
    let error = place.perform(Task::Up).await.unwrap_err();
    assert!(matches!(error, StoreError::NotMigrated(_)), "{error}");
}

#[tokio::test]
async fn one_of_many_bootstraps() {
    let place = Arc::new(Place::in_postgres());
    let nodes: Vec<_> = (0..6)
        .map(|_| {
            let place = place.clone();
            tokio::spawn(async move { place.perform(Task::Bootstrap).await.unwrap().0 })
        })
        .collect();
    let mut bootstrapped = 0;
    for node in nodes {
        let message = node.await.unwrap();
        bootstrapped += usize::from(message.contains("bootstrapped"));
        assert!(message.contains("bootstrapped") || message.contains("nothing to do"), "{message}");
    }
    assert_eq!(bootstrapped, 1);
    assert_eq!(kept(&*place.open().await).await.0, Revision(0));
}

#[tokio::test]
async fn a_server_that_went_away_comes_back() {
    let mut server = PostgresServer::start();
    let place = Place::on(server.port).bootstrapped().await;
    let store = place.open().await;
    changed(&*store).await;
    let mut newest = commit(&*store, Revision(0), &put(&service(1, "host"))).await;
    changed(&*store).await;
    for end in [PostgresServer::kill, PostgresServer::stop] {
        end(&mut server);
        let error = store.commit(newest, &put(&service(2, "host"))).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        assert!(matches!(store.load().await, Err(StoreError::Unavailable(_))));
        assert!(matches!(store.since(newest).await, Err(StoreError::Unavailable(_))));
        server.restart();
        assert_eq!(kept(&*store).await.0, newest, "what was acknowledged is there, and nothing else");
        newest = commit(&*store, newest, &put(&service(3, "host"))).await;
        // Once it listens again, it says so: who knows what it has missed.
        changed(&*store).await;
    }
    // Both of its connections are made anew, so it hears of others as before.
    let other = place.open().await;
    let mut heard = false;
    while !heard {
        newest = commit(&*other, newest, &put(&service(4, "host"))).await;
        heard = timeout(Duration::from_millis(500), store.changed()).await.is_ok();
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(kept(&*store).await.0, newest);
}

#[tokio::test]
async fn what_is_acknowledged_is_on_the_servers_disk_whatever_the_server_is_set_to() {
    let server = PostgresServer::start();
    let place = Place::on(server.port).bootstrapped().await;
    place
        .execute(
            "CREATE TABLE said (said TEXT); CREATE FUNCTION say() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             INSERT INTO said VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$; \
             CREATE TRIGGER say AFTER UPDATE ON weir_meta EXECUTE FUNCTION say();",
        )
        .await;
    let mut newest = Revision(0);
    for (set, used) in [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")] {
        place.execute(&format!("TRUNCATE said; ALTER ROLE kong SET synchronous_commit = {set}")).await;
        newest = commit(&*place.open().await, newest, &put(&service(1, "host"))).await;
        let server = super::super::postgres::Server::of(&place.settings).unwrap();
        let said = sqlx::query_scalar("SELECT said FROM said");
        let said: Vec<String> = said.fetch_all(&mut server.connect().await.unwrap()).await.unwrap();
        assert!(!said.is_empty() && said.iter().all(|said| said == used), "with {set}: {said:?}");
    }
}

#[tokio::test]
async fn what_is_wrong_is_named_and_passwords_are_not() {
    let port = PostgresServer::shared_port();
    let with = |key: &str, value: &str| {
        let mut settings = PostgresServer::settings(port, "public");
        settings.push((key.to_owned(), value.to_owned()));
        settings_of(settings)
    };
    for (key, value, hint) in [
        ("pg_password", "swordfish", "`pg_password`"),
        ("pg_user", "stranger", "`pg_user`"),
        ("pg_database", "nothing", "`pg_database`"),
        ("pg_ssl_verify", "on", "`pg_ssl_verify`"),
    ] {
        let settings = Settings { pg_ssl: key.starts_with("pg_ssl"), ..with(key, value) };
        let error = open_database(&settings, Vec::new()).await.err().unwrap().to_string();
        assert!(error.contains(hint), "{key}: {error}");
        assert!(!error.contains("swordfish") && !error.contains("do-not-tell"), "{error}");
    }
    let unreachable = with("pg_port", "1");
    let error = open_database(&unreachable, Vec::new()).await.err().unwrap();
    assert!(matches!(&error, StoreError::Unavailable(message) if message.contains("`pg_port`")), "{error}");
    assert!(!format!("{unreachable:?}").contains("do-not-tell"));
}

#[tokio::test]
async fn who_is_not_let_in_is_told_how() {
    let server = PostgresServer::start();
    let place = Place::on(server.port);
    place
        .execute(
            "DO $$ BEGIN EXECUTE format('COPY (SELECT ''hostssl all all 127.0.0.1/32 scram-sha-256'') TO %L', \
             current_setting('hba_file')); END $$; SELECT pg_reload_conf();",
        )
        .await;
    let refused = async {
        loop {
            match place.perform(Task::Bootstrap).await {
                Ok(_) => sleep(Duration::from_millis(10)).await,
                Err(error) => return error.to_string(),
            }
        }
    };
    let said = timeout(TEST_TIMEOUT, refused).await.expect("it is refused");
    assert!(said.contains("pg_hba.conf") && said.contains("`pg_ssl`"), "{said}");
    let encrypted = Settings { pg_ssl: true, ..place.settings.clone() };
    assert!(perform(Task::Bootstrap, &encrypted, TEST_TIMEOUT).await.is_ok());
}

#[tokio::test]
async fn tls_proves_who_the_server_is() {
    let server = PostgresServer::start();
    let place = Place::on(server.port).bootstrapped().await;
    let trusted = vec![server.authority().display().to_string()];
    let verified = Settings {
        pg_ssl: true,
        pg_ssl_verify: true,
        lua_ssl_trusted_certificate: trusted,
        ..place.settings.clone()
    };
    let store = open_database(&verified, all_plugins()).await.unwrap().unwrap();
    commit(&*store, Revision(0), &put(&service(1, "host"))).await;
    changed(&*store).await;
    let other_name = Settings { pg_host: PgHosts(vec!["localhost".to_owned()]), ..verified.clone() };
    let other_authority = Settings { lua_ssl_trusted_certificate: Vec::new(), ..verified };
    for settings in [other_name, other_authority] {
        let error = open_database(&settings, all_plugins()).await.err().unwrap();
        assert!(matches!(&error, StoreError::Unavailable(said) if said.contains("certificate")), "{error}");
    }
    let unverified = Settings { pg_ssl: true, pg_ssl_required: true, ..place.settings.clone() };
    assert!(open_database(&unverified, all_plugins()).await.is_ok());
}
