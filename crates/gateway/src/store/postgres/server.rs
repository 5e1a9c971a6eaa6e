//! The servers of one database: how they are reached, and what their errors mean.
use super::super::StoreError;
use super::super::migrations::{Found, Versions, not_bootstrapped};
use super::super::row::VERSIONS;
use super::host::{self, Host, HostError, Target};
use super::tls::with_tls;
use crate::settings::{PgHosts, PgPorts, Settings};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection, PgExecutor};
use std::io;
use std::time::Duration;
use tokio::time::timeout;

/// How the database is reached.
#[derive(Clone)]
pub(in crate::store) struct Server {
    /// In the order in which they are tried.
    hosts: Vec<Host>,
    target: Target,
    pub(super) schema: Option<String>,
    pub(in crate::store) timeout: Duration,
    /// Its name in messages.
    pub(in crate::store) place: String,
}

impl Server {
    /// The servers that the settings name. Of several, the one that accepts writes is used.
    pub(in crate::store) fn of(settings: &Settings) -> Result<Server, StoreError> {
        let (PgHosts(names), PgPorts(ports)) = (&settings.pg_host, &settings.pg_port);
        let place = format!("PostgreSQL at {}, database {}", with_ports(names, ports), settings.pg_database);
        let ports = settings.pg_port.of(names.len()).ok_or_else(|| {
            StoreError::Broken(format!(
                "{place}: {} ports for {} hosts: write one port for all hosts, or one for each",
                ports.len(),
                names.len()
            ))
        })?;
        let options = options(settings)?;
        let host = |(name, port): (&String, u16)| Host {
            name: format!("{name}:{port}"),
            options: options.clone().host(name).port(port),
        };
        Ok(Server {
            hosts: names.iter().zip(ports).map(host).collect(),
            target: if names.len() > 1 { Target::ReadWrite } else { Target::Any },
            schema: settings.pg_schema.clone(),
            timeout: settings.pg_timeout.0,
            place,
        })
    }

    /// The same, of which any may be used, because nothing is written there.
    pub(in crate::store) fn for_reads(self) -> Server {
        Server { target: Target::Any, ..self }
    }

    /// A session that waits for the disk with each commit.
    pub(in crate::store) async fn connect(&self) -> Result<PgConnection, StoreError> {
        self.first().await.map(|(_, connection)| connection)
    }

    /// How the server is reached that is to be used now.
    pub(in crate::store) async fn options(&self) -> Result<PgConnectOptions, StoreError> {
        if let [host] = &*self.hosts {
            return Ok(host.options.clone());
        }
        let (host, connection) = self.first().await?;
        let closed = connection.close().await;
        closed.map_err(|error| self.failure(error))?;
        Ok(host.options.clone())
    }

    async fn first(&self) -> Result<(&Host, PgConnection), StoreError> {
        host::first(&self.hosts, self.target, self.timeout).await.map_err(|failed| self.unreachable(failed))
    }

    /// Whether a session still serves its purpose: it answers, and writes where it must.
    pub(in crate::store) async fn is_usable(&self, session: impl PgExecutor<'_>) -> bool {
        let is_read_only = sqlx::query_scalar("SELECT current_setting('transaction_read_only')::boolean");
        let answer: Result<Result<bool, _>, _> = timeout(self.timeout, is_read_only.fetch_one(session)).await;
        answer
            .is_ok_and(|answer| answer.is_ok_and(|is_read_only| self.target == Target::Any || !is_read_only))
    }

    /// Why no server is used.
    fn unreachable(&self, failed: Vec<(&Host, HostError)>) -> StoreError {
        // Where all answer with an error, as to a wrong password, the first says what to correct.
        if failed.len() > 1 && !failed.iter().all(|(_, error)| error.is_answer()) {
            let reasons =
                failed.into_iter().map(|(host, error)| format!("{}: {}", host.name, reason(&error)));
            let (place, reasons) = (&self.place, reasons.collect::<Vec<_>>().join("; "));
            return StoreError::Unavailable(match self.target {
                Target::Any => format!("{place}: no server answers: {reasons}: start one"),
                Target::ReadWrite => format!(
                    "{place}: no server accepts writes: {reasons}: start the primary, or promote a standby"
                ),
            });
        }
        match failed.into_iter().next() {
            Some((_, HostError::Driver(error))) => self.failure(error),
            _ => self.late(self.timeout),
        }
    }

    pub(in crate::store) async fn found(&self, connection: &mut PgConnection) -> Result<Found, StoreError> {
        let versions = Server::versions(connection).await.map_err(|error| self.failure(error))?;
        self.found_by(versions, connection).await
    }

    /// What the tables say of themselves, if there are some.
    pub(super) async fn versions(connection: &mut PgConnection) -> Result<Option<Versions>, sqlx::Error> {
        let there = sqlx::query_scalar("SELECT to_regclass('weir_meta') IS NOT NULL");
        let there: bool = there.fetch_one(&mut *connection).await?;
        if !there {
            return Ok(None);
        }
        let versions: Option<(i64, i64)> = sqlx::query_as(VERSIONS).fetch_optional(connection).await?;
        Ok(versions.map(Versions::from))
    }

    /// The state of tables that say this.
    pub(super) async fn found_by(
        &self,
        versions: Option<Versions>,
        connection: &mut PgConnection,
    ) -> Result<Found, StoreError> {
        if versions.is_none() {
            self.may_look(connection).await?;
        }
        Found::of(versions, &self.place)
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

    /// Waits for at most this long.
    pub(in crate::store) async fn in_time<T, E: From<StoreError>>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        timeout(limit, work).await.unwrap_or_else(|_| Err(self.late(limit).into()))
    }

    fn late(&self, limit: Duration) -> StoreError {
        let (place, limit) = (&self.place, limit.as_millis());
        StoreError::Unavailable(format!(
            "{place}: no answer within {limit} ms: see that it runs, or raise `pg_timeout`"
        ))
    }

    /// The driver's error as a message. It quotes no password.
    pub(in crate::store) fn failure(&self, error: sqlx::Error) -> StoreError {
        let place = &self.place;
        let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned();
        let said = said(&error);
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

/// What is the same for all servers.
fn options(settings: &Settings) -> Result<PgConnectOptions, StoreError> {
    let mut options = PgConnectOptions::new_without_pgpass()
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
    with_tls(options, settings)
}

/// The hosts, each with its port as far as there is one for it.
fn with_ports(hosts: &[String], ports: &[u16]) -> String {
    let ports = ports.iter().chain(ports.last().into_iter().cycle());
    hosts.iter().zip(ports).map(|(host, port)| format!("{host}:{port}")).collect::<Vec<_>>().join(", ")
}

/// Why one of several servers is not used.
fn reason(error: &HostError) -> String {
    match error {
        HostError::ReadOnly => "it is read-only, as a standby is".to_owned(),
        HostError::Late => "no answer within `pg_timeout`".to_owned(),
        HostError::Driver(error) => said(error),
    }
}

/// The driver's error without where in the server's source it was made. It quotes no password.
fn said(error: &sqlx::Error) -> String {
    error.as_database_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
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
pub(super) fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}
