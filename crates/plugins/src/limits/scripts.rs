//! Limits that a script on a Redis server decides for each request.

use super::breaker::Breaker;
use super::in_use::InUse;
use super::redis::{Redis, RedisStore};
use super::store::Unavailable;
use redis::{ToRedisArgs, cmd, from_redis_value_ref};
use std::sync::Arc;
use tokio::sync::oneshot;
use weir_plugin::{Background, BuildContext};

/// The scripts that plugins run on one server, or on one cluster.
pub(crate) struct Scripts {
    store: Arc<RedisStore>,
    breaker: Arc<Breaker>,
    background: Arc<Background>,
}

/// The numbers that a script returned.
pub(crate) type Numbers = Vec<i64>;

impl Scripts {
    /// Plugins that name the same servers share a connection.
    pub(crate) fn of(redis: &Redis, build: &BuildContext<'_>) -> Result<Arc<Self>, String> {
        build.retained.get::<InUse<Redis, Scripts>>().of(redis.clone(), || {
            let store = Arc::new(RedisStore::new(redis.clone(), build)?);
            Ok(Self { breaker: Arc::new(Breaker::new(store.clone())), store, background: build.background() })
        })
    }

    /// Runs a script on a key, unless the server is known not to answer. If no request waits for its reply any more,
    /// the script `undo` runs, if there is one.
    pub(crate) fn run(
        self: &Arc<Self>,
        script: &'static str,
        key: String,
        arguments: Vec<String>,
        undo: Option<&'static str>,
    ) -> Result<oneshot::Receiver<Numbers>, Unavailable> {
        if !self.breaker.answers() {
            return Err(self.breaker.refusal());
        }
        let (answer, receiver) = oneshot::channel();
        let scripts = self.clone();
        self.background.spawn(async move {
            let Some(numbers) = scripts.evaluate(script, &key, &arguments).await else { return };
            if let (Err(_), Some(undo)) = (answer.send(numbers), undo) {
                scripts.evaluate(undo, &key, &arguments).await;
            }
        });
        Ok(receiver)
    }

    /// Runs a script whose reply does not matter.
    pub(crate) fn send(self: &Arc<Self>, script: &'static str, key: String, arguments: Vec<String>) {
        let scripts = self.clone();
        self.background.spawn(async move {
            scripts.evaluate(script, &key, &arguments).await;
        });
    }

    async fn evaluate(&self, script: &str, key: &str, arguments: &impl ToRedisArgs) -> Option<Numbers> {
        let command = cmd("EVAL").arg(script).arg(1).arg(key).arg(arguments).to_owned();
        match self.store.query(vec![(key.to_owned(), command)]).await {
            Ok(values) => from_redis_value_ref(values.first()?).ok(),
            Err(error) => {
                self.breaker.fail(&error);
                None
            }
        }
    }
}

impl Drop for Scripts {
    fn drop(&mut self) {
        self.breaker.close();
    }
}
