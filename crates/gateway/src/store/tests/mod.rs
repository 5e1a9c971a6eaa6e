//! One suite for both kinds of store, against real files and a real server.
use super::migrations::{Task, perform};
use super::*;
use crate::plugins;
use crate::settings::{self, Flag, Sources};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use weir_model::entity::{Entity, EntityKind};
use weir_model::{Document, Format, ReadOptions, Uuid};

#[path = "../../../tests/harness/ports.rs"]
mod ports;
#[path = "../../../tests/harness/postgres.rs"]
mod server;

mod locks;
mod postgres;
mod rows;
mod suite;
mod transfer;
mod versions;

/// Longer than anything here takes on a slow machine; what takes longer hangs.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A declarative file with an entity of every kind.
const EVERYTHING: &str = include_str!("everything.yaml");

/// A database of one test's own.
struct Place {
    settings: Settings,
    _folder: Option<TempDir>,
}

impl Place {
    /// A file that is still to be created.
    fn in_sqlite() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().display().to_string();
        let settings = [("database".to_owned(), "sqlite".to_owned()), ("prefix".to_owned(), prefix)];
        Place { settings: settings_of(settings.into()), _folder: Some(folder) }
    }

    /// A schema that is still to be created.
    fn in_postgres() -> Place {
        Place::on(server::PostgresServer::shared_port())
    }

    /// A schema of a server that is still to be created.
    fn on(port: u16) -> Place {
        static SCHEMAS: AtomicUsize = AtomicUsize::new(0);
        let schema = format!("Schema \"{}\"", SCHEMAS.fetch_add(1, Ordering::SeqCst));
        let settings = server::PostgresServer::settings(port, &schema);
        Place { settings: settings_of(settings), _folder: None }
    }

    /// With its tables.
    async fn bootstrapped(self) -> Place {
        self.perform(Task::Bootstrap).await.unwrap();
        self
    }

    async fn perform(&self, task: Task) -> Result<(String, bool), StoreError> {
        let migrated = perform(task, &self.settings, TEST_TIMEOUT).await?;
        Ok((migrated.report(task), migrated.leaves_usable(task)))
    }

    /// Runs a statement, as a person would beside every node.
    async fn execute(&self, statement: &str) {
        let statement = sqlx::AssertSqlSafe(statement);
        match database(&self.settings) {
            Database::Postgres => {
                let server = super::postgres::Server::of(&self.settings).unwrap();
                let mut connection = server.connect().await.unwrap();
                sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
            }
            _ => {
                let options = sqlx::sqlite::SqliteConnectOptions::new();
                let options = options.filename(sqlite_path(&self.settings).unwrap());
                let mut connection = sqlx::ConnectOptions::connect(&options).await.unwrap();
                sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
            }
        }
    }

    async fn open(&self) -> Arc<dyn Store> {
        open_database(&self.settings, all_plugins()).await.unwrap().expect("a database is set")
    }
}

fn settings_of(pairs: Vec<(String, String)>) -> Settings {
    let flag = |(name, value): (String, String)| Flag { written: format!("--set {name}"), name, value };
    // A busy machine takes longer than the default to answer.
    let patient = ("pg_timeout".to_owned(), "90000".to_owned());
    let flags = std::iter::once(patient).chain(pairs).map(flag).collect();
    let sources = Sources { flags, ..Sources::default() };
    settings::load(sources).unwrap().settings
}

fn all_plugins() -> Vec<PluginSchema> {
    plugins::bundled()
}

/// An entity of every kind.
fn everything() -> Vec<Entity> {
    document(EVERYTHING).into_entities()
}

fn document(yaml: &str) -> Document {
    Document::read(yaml, Format::Yaml, &all_plugins(), &|_| None).unwrap().document
}

fn service(number: u128, host: &str) -> Entity {
    let value = serde_json::json!({ "name": format!("service-{number}"), "host": host });
    let reading = ReadOptions { plugins: &[], references: &(), hash_passwords: false };
    Entity::read(EntityKind::Services, &value, &[("id", Uuid::from_u128(number))], reading).unwrap()
}

fn puts(entities: &[Entity]) -> Vec<Change> {
    entities.iter().cloned().map(Change::put).collect()
}

fn put(entity: &Entity) -> Vec<Change> {
    vec![Change::put(entity.clone())]
}

fn delete(entity: &Entity) -> Vec<Change> {
    vec![Change::delete(entity.kind(), entity.id())]
}

/// Everything that is kept, in an order of its own.
async fn kept(store: &dyn Store) -> (Revision, Vec<Entity>) {
    let Loaded { revision, mut entities } = store.load().await.unwrap();
    entities.sort_by_key(|entity| (entity.kind(), entity.id()));
    (revision, entities)
}

fn sorted(mut entities: Vec<Entity>) -> Vec<Entity> {
    entities.sort_by_key(|entity| (entity.kind(), entity.id()));
    entities
}

/// Commits what must be kept.
async fn commit(store: &dyn Store, base: Revision, changes: &[Change]) -> Revision {
    match store.commit(base, changes).await.unwrap() {
        Committed::At(revision) => revision,
        Committed::Outdated => panic!("{base:?} is outdated"),
    }
}

/// What has changed since a revision.
async fn changes(store: &dyn Store, revision: Revision) -> Option<(Revision, Vec<Change>)> {
    match store.since(revision).await.unwrap() {
        Since::Changes { revision, changes } => Some((revision, changes)),
        Since::Lost => None,
    }
}
