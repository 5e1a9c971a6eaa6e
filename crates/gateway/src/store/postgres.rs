//! PostgreSQL: a database that several nodes share.
use super::change_listener;
use super::migrations::{Found, REMOVE, Task, not_bootstrapped, version};
use super::replica::Replica;
use super::row::{AFTER, ALL, EPOCH, Row, Selected, TOMBSTONE_REVISIONS, loaded, rows, since};
use super::{Committed, Loaded, Pending, Revision, Since, Store, StoreError};
use crate::settings::{Settings, trusted_certificate_files};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Notify};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use weir_model::{Change, PluginSchema};

/// A whole commit: one statement is one transaction, and takes one round trip. A second node waits for the row of
/// `weir_meta`, and then finds another revision than its own, or another version.
const COMMIT: &str = "\
    WITH bumped AS ( \
        UPDATE weir_meta SET revision = revision + 1 WHERE revision = $1 AND version = $6 RETURNING revision \
    ), \
    written AS ( \
        INSERT INTO weir_entities (kind, id, revision, body) \
        SELECT given.kind, given.id, bumped.revision, given.body \
        FROM bumped, UNNEST($2::text[], $3::text[], $4::text[]) AS given (kind, id, body) \
        ON CONFLICT (kind, id) DO UPDATE SET revision = excluded.revision, body = excluded.body \
    ) \
    SELECT revision, pg_notify($5, '') FROM bumped";

const FORGET: &str = "\
    WITH forgotten AS (UPDATE weir_meta SET oldest = $1 WHERE oldest < $1) \
    DELETE FROM weir_entities WHERE body IS NULL AND revision <= $1";

/// What is acknowledged is on the server's disk. Any other value says so too, and differs in what it asks of standbys,
/// which is the operator's to say. It is set even so, since the server's may change under an open connection.
const DURABLE: &str = "\
    SELECT set_config('synchronous_commit', CASE setting WHEN 'off' THEN 'on' ELSE setting END, false) \
    FROM current_setting('synchronous_commit') AS setting";

/// The advisory lock that nodes take to migrate one database.
const MIGRATION_LOCK: i64 = 0x7765_6972;

/// How many times `pg_timeout` entities may take to arrive: it may be all of them.
pub(super) const LOAD_TIMEOUT_FACTOR: u32 = 12;

/// How the server is reached.
#[derive(Clone)]
pub(super) struct Server {
    options: PgConnectOptions,
    schema: Option<String>,
    pub(super) timeout: Duration,
    /// Its name in messages.
    pub(super) place: String,
}

/// Entities in a database.
pub(super) struct Postgres {
    server: Arc<Server>,
    /// Where everything is read from the first time. Later the server may have been restored from a backup, which a
    /// replica need not know.
    replica: Mutex<Option<Replica>>,
    plugins: Vec<PluginSchema>,
    epoch: u64,
    channel: String,
    /// None while it is in use, and after an error, so that a cancelled operation leaves no half-read response behind.
    connection: Mutex<Option<PgConnection>>,
    heard: Arc<Notify>,
    listening: AbortHandle,
    pub(super) tombstone_revisions: u64,
}

impl Server {
    /// The server that the settings name.
    pub(super) fn of(settings: &Settings) -> Result<Server, StoreError> {
        let place = format!(
            "PostgreSQL at {}:{}, database {}",
            settings.pg_host, settings.pg_port, settings.pg_database
        );
        let mut options = PgConnectOptions::new_without_pgpass()
            .host(&settings.pg_host)
            .port(settings.pg_port)
            .username(&settings.pg_user)
            .database(&settings.pg_database)
            .application_name("weir")
            .disable_statement_logging();
        if let Some(password) = &settings.pg_password {
            options = options.password(&password.0);
        }
        if let Some(schema) = &settings.pg_schema {
            options = options.options([("search_path", quoted(schema))]);
        }
        let options = with_tls(options, settings)?;
        Ok(Server { options, schema: settings.pg_schema.clone(), timeout: settings.pg_timeout.0, place })
    }

    /// Performs a task; returns the state before. Other nodes that do so at the same time wait.
    pub(super) async fn migrate(&self, task: Task) -> Result<(String, Found), StoreError> {
        let failed = |error| self.failure(error);
        let mut connection = self.connect().await?;
        let mut transaction = connection.begin().await.map_err(failed)?;
        let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(MIGRATION_LOCK);
        lock.execute(&mut *transaction).await.map_err(failed)?;
        let found = self.found(&mut transaction).await?;
        if found == Found::Missing && task == Task::Bootstrap {
            self.create_schema(&mut transaction).await.map_err(failed)?;
        }
        if task == Task::Reset && found != Found::Missing {
            sqlx::raw_sql(REMOVE).execute(&mut *transaction).await.map_err(failed)?;
        }
        for (version, step) in found.steps(task) {
            sqlx::raw_sql(step.postgres).execute(&mut *transaction).await.map_err(failed)?;
            let reached = sqlx::query("UPDATE weir_meta SET version = $1").bind(version);
            reached.execute(&mut *transaction).await.map_err(failed)?;
        }
        transaction.commit().await.map_err(failed)?;
        Ok((self.place.clone(), found))
    }

    async fn create_schema(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let Some(schema) = &self.schema else { return Ok(()) };
        // `IF NOT EXISTS` would ask for the right to create one even where there is one.
        let there = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)");
        let there: bool = there.bind(schema).fetch_one(&mut *connection).await?;
        if !there {
            let create = format!("CREATE SCHEMA {}", quoted(schema));
            sqlx::query(AssertSqlSafe(create)).execute(connection).await?;
        }
        Ok(())
    }

    pub(super) async fn found(&self, connection: &mut PgConnection) -> Result<Found, StoreError> {
        let failed = |error| self.failure(error);
        let there = sqlx::query_scalar("SELECT to_regclass('weir_meta') IS NOT NULL");
        let version = match there.fetch_one(&mut *connection).await.map_err(failed)? {
            true => sqlx::query_scalar("SELECT version FROM weir_meta").fetch_optional(connection).await,
            false => {
                self.may_look(connection).await?;
                Ok(None)
            }
        };
        Found::of(version.map_err(failed)?, &self.place)
    }

    /// A user without rights on a schema sees it as empty.
    async fn may_look(&self, connection: &mut PgConnection) -> Result<(), StoreError> {
        let schema = self.schema.as_deref().unwrap_or("public");
        let closed = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1 AND NOT \
            has_schema_privilege(oid, 'USAGE'))";
        let closed = sqlx::query_scalar(closed).bind(schema).fetch_one(connection).await;
        match closed.map_err(|error| self.failure(error))? {
            true => Err(StoreError::Broken(format!(
                "{}: permission denied for schema {schema}: grant it to the user `pg_user`, or name another with \
                 `pg_schema`",
                self.place
            ))),
            false => Ok(()),
        }
    }

    pub(super) async fn connect(&self) -> Result<PgConnection, StoreError> {
        let connected = self.in_time(self.timeout, async { Ok(self.connect_durably().await) });
        connected.await?.map_err(|error| self.failure(error))
    }

    async fn connect_durably(&self) -> Result<PgConnection, sqlx::Error> {
        let mut connection = self.options.connect().await?;
        sqlx::query(DURABLE).execute(&mut connection).await?;
        Ok(connection)
    }

    /// The options of a connection.
    pub(super) fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    /// Waits at most `pg_timeout`.
    pub(super) async fn in_time<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let late = |_| {
            let (place, limit) = (&self.place, limit.as_millis());
            let message =
                format!("{place}: no answer within {limit} ms: see that it runs, or raise `pg_timeout`");
            Err(StoreError::Unavailable(message))
        };
        timeout(limit, work).await.unwrap_or_else(late)
    }

    /// The driver's error as a message. It quotes no password.
    pub(super) fn failure(&self, error: sqlx::Error) -> StoreError {
        let place = &self.place;
        let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned();
        // The server's message without where in its source it was made.
        let said =
            error.as_database_error().map_or_else(|| error.to_string(), |error| error.message().to_owned());
        // https://www.postgresql.org/docs/current/errcodes-appendix.html
        match (code.get(..2).unwrap_or_default(), code.as_str()) {
            (_, "42P01" | "3F000") => not_bootstrapped(place),
            (_, "28P01") => {
                StoreError::Broken(format!("{place}: {said}: correct `pg_user` and `pg_password`"))
            }
            ("28", _) => StoreError::Broken(format!(
                "{place}: {said}: correct `pg_user`, or admit it in the server's pg_hba.conf; where that asks for \
                 encryption, set `pg_ssl`"
            )),
            (_, "3D000") => {
                StoreError::Broken(format!("{place}: {said}: create it, or name another with `pg_database`"))
            }
            (_, "42501") => StoreError::Broken(format!("{place}: {said}: grant it to the user `pg_user`")),
            ("08" | "25" | "40" | "53" | "55" | "57", _) => {
                StoreError::Unavailable(format!("{place}: {said}: try again later"))
            }
            ("", _) if is_of_tls(&error) => StoreError::Unavailable(format!(
                "{place}: {said}: correct `pg_ssl`, `pg_ssl_verify` or the server's TLS"
            )),
            ("", _) => StoreError::Unavailable(format!(
                "{place}: {said}: see that it runs, and that `pg_host` and `pg_port` are right"
            )),
            _ => StoreError::Broken(format!("{place}: {said}: see the server's log")),
        }
    }
}

impl Postgres {
    /// Connects to tables that are there, and starts to listen.
    pub(super) async fn open(server: Server, plugins: Vec<PluginSchema>) -> Result<Postgres, StoreError> {
        let mut connection = server.connect().await?;
        server.found(&mut connection).await?.usable(&server.place)?;
        let failed = |error| server.failure(error);
        let schema = sqlx::query_scalar("SELECT current_schema()::text").fetch_one(&mut connection).await;
        let schema: Option<String> = schema.map_err(failed)?;
        let channel = change_listener::channel("weir", schema.as_deref());
        let epoch: i64 = sqlx::query_scalar(EPOCH).fetch_one(&mut connection).await.map_err(failed)?;
        let (server, heard) = (Arc::new(server), Arc::new(Notify::new()));
        let channels = vec![(channel.clone(), heard.clone())];
        let listening = tokio::spawn(change_listener::listen(server.clone(), channels));
        Ok(Postgres {
            server,
            replica: Mutex::default(),
            plugins,
            epoch: epoch.cast_unsigned(),
            channel,
            connection: Mutex::new(Some(connection)),
            heard,
            listening: listening.abort_handle(),
            tombstone_revisions: TOMBSTONE_REVISIONS,
        })
    }

    /// The same, with a replica to read everything from the first time.
    pub(super) fn beginning_with(mut self, replica: Option<Replica>) -> Postgres {
        *self.replica.get_mut() = replica;
        self
    }

    /// Everything that a replica holds. What it lacks is read from the server as changes.
    async fn load_from_replica(&self) -> Option<Loaded> {
        let replica = self.replica.lock().await.take()?;
        match replica.load(&self.plugins).await {
            Ok(loaded) => Some(loaded),
            Err(error) => {
                tracing::warn!("{error}; the entities are read from {} instead", self.server.place);
                None
            }
        }
    }

    /// The connection, or a new one if it was lost meanwhile.
    async fn connected(&self, held: Option<PgConnection>) -> Result<PgConnection, StoreError> {
        if let Some(mut connection) = held
            && connection.ping().await.is_ok()
        {
            return Ok(connection);
        }
        self.server.connect().await
    }

    async fn all(&self) -> Result<Vec<Selected>, StoreError> {
        let mut held = self.connection.lock().await;
        let mut connection = self.connected(held.take()).await?;
        let selected = sqlx::query_as(ALL).fetch_all(&mut connection).await;
        let selected = selected.map_err(|error| self.server.failure(error))?;
        *held = Some(connection);
        Ok(selected)
    }

    async fn after(&self, revision: Revision) -> Result<Vec<Selected>, StoreError> {
        let mut held = self.connection.lock().await;
        let mut connection = self.connected(held.take()).await?;
        let after = sqlx::query_as(AFTER).bind(revision.0.cast_signed());
        let selected = after.fetch_all(&mut connection).await;
        let selected = selected.map_err(|error| self.server.failure(error))?;
        *held = Some(connection);
        Ok(selected)
    }

    async fn write(&self, base: Revision, rows: Vec<Row>) -> Result<Committed, StoreError> {
        let mut held = self.connection.lock().await;
        let mut connection = self.connected(held.take()).await?;
        let written = self.write_on(&mut connection, base, rows).await;
        let written = written.map_err(|error| self.server.failure(error))?;
        if written == Committed::Outdated {
            self.server.found(&mut connection).await?.usable(&self.server.place)?;
        }
        *held = Some(connection);
        Ok(written)
    }

    async fn write_on(
        &self,
        connection: &mut PgConnection,
        base: Revision,
        rows: Vec<Row>,
    ) -> Result<Committed, sqlx::Error> {
        let (mut kinds, mut ids, mut bodies) = (Vec::new(), Vec::new(), Vec::new());
        for Row { kind, id, body } in rows {
            kinds.push(kind);
            ids.push(id);
            bodies.push(body);
        }
        let commit = sqlx::query_as(COMMIT).bind(base.0.cast_signed()).bind(kinds).bind(ids).bind(bodies);
        let commit = commit.bind(&self.channel).bind(version());
        let written: Option<(i64, ())> = commit.fetch_optional(&mut *connection).await?;
        let Some((revision, ())) = written else { return Ok(Committed::Outdated) };
        let revision = Revision(revision.cast_unsigned());
        if let Some(oldest) = revision.forgets(self.tombstone_revisions)
            && let Err(error) = sqlx::query(FORGET).bind(oldest).execute(connection).await
        {
            // What was written is kept; the deleted are forgotten another time.
            tracing::warn!(%error, "tombstones of deleted entities could not be removed; a later commit removes them");
        }
        Ok(Committed::At(revision))
    }
}

impl Store for Postgres {
    fn load(&self) -> Pending<'_, Loaded> {
        let limit = self.server.timeout * LOAD_TIMEOUT_FACTOR;
        Box::pin(async move {
            if let Some(loaded) = self.load_from_replica().await {
                return Ok(loaded);
            }
            let selected = self.server.in_time(limit, self.all()).await?;
            loaded(selected, &self.plugins, &self.server.place)
        })
    }

    fn commit<'a>(&'a self, base: Revision, changes: &'a [Change]) -> Pending<'a, Committed> {
        // Large batches may take longer.
        let limit = self.server.timeout + Duration::from_millis(changes.len() as u64);
        Box::pin(self.server.in_time(limit, self.write(base, rows(changes))))
    }

    fn since(&self, revision: Revision) -> Pending<'_, Since> {
        let limit = self.server.timeout * LOAD_TIMEOUT_FACTOR;
        Box::pin(async move {
            let selected = self.server.in_time(limit, self.after(revision)).await?;
            since(revision, selected, &self.plugins, &self.server.place)
        })
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn changed(&self) -> Pending<'_, ()> {
        Box::pin(async {
            self.heard.notified().await;
            Ok(())
        })
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// Whether it comes from TLS; rustls reports a rejected certificate as an I/O error.
fn is_of_tls(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Tls(_) => true,
        sqlx::Error::Io(error) => error.kind() == io::ErrorKind::InvalidData,
        _ => false,
    }
}

/// An identifier as it stands in a statement.
fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

/// Whether the connection uses TLS, and what is verified.
fn with_tls(options: PgConnectOptions, settings: &Settings) -> Result<PgConnectOptions, StoreError> {
    Ok(match (settings.pg_ssl, settings.pg_ssl_verify, settings.pg_ssl_required) {
        (false, ..) => options.ssl_mode(PgSslMode::Disable),
        (true, true, _) => {
            let authorities = authorities(&settings.lua_ssl_trusted_certificate)?;
            options.ssl_mode(PgSslMode::VerifyFull).ssl_root_cert_from_pem(authorities)
        }
        (true, false, true) => options.ssl_mode(PgSslMode::Require),
        (true, false, false) => options.ssl_mode(PgSslMode::Prefer),
    })
}

/// The certificates of all authorities that are trusted, in PEM.
fn authorities(names: &[String]) -> Result<Vec<u8>, StoreError> {
    let mut pem = Vec::new();
    for path in trusted_certificate_files(names) {
        let file = std::fs::read(&path).map_err(|error| {
            let path = path.display();
            StoreError::Broken(format!("lua_ssl_trusted_certificate: {path}: {error}: name a readable file"))
        })?;
        pem.extend(file);
        pem.push(b'\n');
    }
    Ok(pem)
}
