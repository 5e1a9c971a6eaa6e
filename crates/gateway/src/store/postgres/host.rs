//! Which of several servers is used: the first that serves the purpose, as libpq chooses one.
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Prepares a session, and selects whether it can only read, as on a standby.
///
/// What is acknowledged is on the server's disk. Any other value of `synchronous_commit` than `off` says so too, and
/// differs in what it asks of standbys, which the operator decides. It is set even so, since the server's may change under
/// an open connection.
const PREPARE: &str = "\
    SELECT set_config('synchronous_commit', CASE setting WHEN 'off' THEN 'on' ELSE setting END, false), \
        current_setting('transaction_read_only')::boolean \
    FROM current_setting('synchronous_commit') AS setting";

/// How long a server has to answer before the next one is tried too, so that one that drops packets delays a failover by
/// no more than this.
const HEAD_START: Duration = Duration::from_millis(250);

/// What a session must be able to do (`target_session_attrs`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// Anything.
    Any,
    /// Write.
    ReadWrite,
}

/// One of the servers that hold a database.
#[derive(Clone)]
pub(super) struct Host {
    /// Its name in messages, with the port.
    pub(super) name: String,
    pub(super) options: PgConnectOptions,
}

/// Why a server is not used.
pub(super) enum HostError {
    /// There is no session.
    Driver(sqlx::Error),
    /// It does not answer in time.
    Late,
    /// It does not accept writes.
    ReadOnly,
}

impl HostError {
    /// Whether the server itself says so.
    pub(super) fn is_answer(&self) -> bool {
        matches!(self, HostError::Driver(error) if error.as_database_error().is_some())
    }
}

impl Host {
    async fn connect(&self, target: Target) -> Result<PgConnection, HostError> {
        let mut connection = self.options.connect().await.map_err(HostError::Driver)?;
        let prepared = sqlx::query_as(PREPARE).fetch_one(&mut connection).await;
        let (_, is_read_only): (String, bool) = prepared.map_err(HostError::Driver)?;
        if is_read_only && target == Target::ReadWrite {
            // It is not needed, so it does not matter how it ends.
            let _ = connection.close().await;
            return Err(HostError::ReadOnly);
        }
        Ok(connection)
    }

    async fn attempt(
        &self,
        target: Target,
        limit: Duration,
    ) -> Result<(&Host, PgConnection), (&Host, HostError)> {
        match timeout(limit, self.connect(target)).await {
            Ok(connected) => connected.map(|connection| (self, connection)).map_err(|error| (self, error)),
            Err(_) => Err((self, HostError::Late)),
        }
    }
}

/// A session on the first server that serves the purpose, each of which may take up to the limit; or why none does.
pub(super) async fn first(
    hosts: &[Host],
    target: Target,
    limit: Duration,
) -> Result<(&Host, PgConnection), Vec<(&Host, HostError)>> {
    let (mut waiting, mut attempts, mut failed) = (hosts.iter(), FuturesUnordered::new(), Vec::new());
    loop {
        attempts.extend(waiting.next().map(|host| host.attempt(target, limit)));
        tokio::select! {
            attempted = attempts.next() => match attempted {
                Some(Ok(connected)) => return Ok(connected),
                Some(Err(error)) => failed.push(error),
                None => return Err(failed),
            },
            () = sleep(HEAD_START), if waiting.len() > 0 => {}
        }
    }
}
