//! Limits that a script on a Redis server decides for each request.

use super::breaker::Breaker;
use super::in_use::InUse;
use super::redis::{Redis, RedisStore};
use super::store::Unavailable;
use redis::{Value, cmd, from_redis_value_ref};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::oneshot;
use weir_plugin::{Background, BuildContext};

/// How often an undo is tried while the server does not answer.
const MAX_UNDO_TRIES: u32 = 3;

/// The pause before the breaker is asked again whether the server answers.
const UNDO_BACKOFF: Duration = Duration::from_secs(1);

/// How long an undo waits for a server that does not answer.
const UNDO_TIMEOUT: Duration = Duration::from_mins(10);

/// The scripts that plugins run on one server, or on one cluster.
pub(crate) struct Scripts {
    store: Arc<RedisStore>,
    breaker: Arc<Breaker>,
    background: Arc<Background>,
    /// Whether the log has an error of a script already.
    has_warned: AtomicBool,
}

/// What a script returned.
pub(crate) struct Reply {
    pub(crate) numbers: Vec<i64>,
    /// Takes back what the script did, if it can be taken back.
    pub(crate) undo: Option<Undo>,
}

impl Scripts {
    /// Plugins that name the same servers share a connection.
    pub(crate) fn of(redis: &Redis, build: &BuildContext<'_>) -> Result<Arc<Self>, String> {
        build.retained.get::<InUse<Redis, Scripts>>().of(redis.clone(), || {
            let store = Arc::new(RedisStore::new(redis.clone(), build)?);
            let breaker = Arc::new(Breaker::new(store.clone()));
            Ok(Self { breaker, store, background: build.background(), has_warned: AtomicBool::new(false) })
        })
    }

    /// Runs a script on a key, unless the server is known not to answer. The script `undo` runs, with the same arguments,
    /// once the reply is dropped, wherever that is, and also if there is no reply in time.
    pub(crate) fn run(
        self: &Arc<Self>,
        script: &'static str,
        key: String,
        arguments: Vec<String>,
        undo: Option<&'static str>,
    ) -> Result<oneshot::Receiver<Reply>, Unavailable> {
        if !self.breaker.answers() {
            return Err(self.breaker.refusal());
        }
        let (answer, receiver) = oneshot::channel();
        let call = Call { scripts: self.clone(), script, key, arguments };
        self.background.spawn(async move {
            let undo = undo.map(|script| Undo(Some(Call { script, ..call.clone() })));
            if let Ok(numbers) = call.evaluate().await {
                // If no request waits any more, this drops the reply.
                let _ = answer.send(Reply { numbers, undo });
            }
        });
        Ok(receiver)
    }

    fn warn_once(&self, error: &str) {
        if !self.has_warned.swap(true, Relaxed) {
            let place = self.breaker.store.place();
            tracing::warn!(
                "rate limits: {place}: a script failed: {error}; delete its key if another program wrote it"
            );
        }
    }
}

/// A script with its key and its arguments.
#[derive(Clone)]
struct Call {
    scripts: Arc<Scripts>,
    script: &'static str,
    key: String,
    arguments: Vec<String>,
}

/// Why a script returned nothing.
enum CallError {
    /// The server may answer later.
    Unavailable,
    /// The server refuses the script, and would again.
    Refused,
}

impl Call {
    async fn evaluate(&self) -> Result<Vec<i64>, CallError> {
        let Scripts { store, breaker, .. } = &*self.scripts;
        let command = cmd("EVAL").arg(self.script).arg(1).arg(&self.key).arg(&self.arguments).to_owned();
        match store.evaluate(self.key.clone(), command).await {
            Ok(Value::ServerError(error)) => {
                self.scripts.warn_once(error.details().unwrap_or(error.code()));
                Err(CallError::Refused)
            }
            Ok(value) => from_redis_value_ref(&value).map_err(|_| CallError::Unavailable),
            Err(error) => {
                breaker.fail(&error);
                Err(if error.is_refusal() { CallError::Refused } else { CallError::Unavailable })
            }
        }
    }

    /// Runs until the server has answered, but not for ever.
    async fn undo(self) {
        for _ in 0..MAX_UNDO_TRIES {
            while !self.scripts.breaker.answers() {
                tokio::time::sleep(UNDO_BACKOFF).await;
            }
            if !matches!(self.evaluate().await, Err(CallError::Unavailable)) {
                return;
            }
        }
    }
}

/// Takes back what a script did, once. It happens when this is dropped at the latest.
pub(crate) struct Undo(Option<Call>);

impl Undo {
    /// Forgets it, because there is nothing to take back.
    pub(crate) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if let Some(call) = self.0.take() {
            let background = call.scripts.background.clone();
            background.spawn(async move {
                // The key expires in the end, too.
                let _ = tokio::time::timeout(UNDO_TIMEOUT, call.undo()).await;
            });
        }
    }
}

impl Drop for Scripts {
    fn drop(&mut self) {
        self.breaker.close();
    }
}
