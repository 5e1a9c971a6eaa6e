//! Redis or Valkey (`redis`).

use super::super::config::RedisConfig;
use super::super::error::AcmeError;
use crate::limits::{RedisStore, glob};
use redis::{Cmd, Value, cmd, from_redis_value_ref};
use std::time::Duration;
use weir_plugin::BuildContext;

/// Texts in Redis.
pub(in super::super) struct RedisStorage {
    store: RedisStore,
    namespace: String,
    scan_count: u32,
}

impl RedisStorage {
    pub(super) fn new(config: &RedisConfig, build: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self {
            store: RedisStore::new(config.server.clone(), build)?,
            namespace: config.extra_options.namespace.clone(),
            scan_count: config.extra_options.scan_count,
        })
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<String>, AcmeError> {
        let key = self.named(key);
        let value = self.ask(key.clone(), cmd("GET").arg(&key).to_owned()).await?;
        from_redis_value_ref(&value).map_err(|_| AcmeError::Storage(format!("{key} is no text")))
    }

    pub(super) async fn set(&self, key: &str, value: &str, ttl: Option<Duration>) -> Result<(), AcmeError> {
        let key = self.named(key);
        let set = set(&key, value, ttl);
        self.ask(key, set).await.map(drop)
    }

    pub(super) async fn add(&self, key: &str, value: &str, ttl: Option<Duration>) -> Result<bool, AcmeError> {
        let key = self.named(key);
        let mut set = set(&key, value, ttl);
        set.arg("NX");
        Ok(self.ask(key, set).await? != Value::Nil)
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), AcmeError> {
        let key = self.named(key);
        self.ask(key.clone(), cmd("DEL").arg(key).to_owned()).await.map(drop)
    }

    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<String>, AcmeError> {
        let pattern = format!("{}*", glob(&self.named(prefix)));
        let mut keys = self.store.keys(&pattern, self.scan_count).await?;
        // A scan may return a key twice.
        keys.sort_unstable();
        keys.dedup();
        let own = keys.into_iter().filter_map(|key| Some(key.strip_prefix(&self.namespace)?.to_owned()));
        Ok(own.collect())
    }

    fn named(&self, key: &str) -> String {
        format!("{}{key}", self.namespace)
    }

    async fn ask(&self, key: String, command: Cmd) -> Result<Value, AcmeError> {
        let mut replies = self.store.query(vec![(key, command)]).await?;
        Ok(replies.pop().unwrap_or(Value::Nil))
    }
}

fn set(key: &str, value: &str, ttl: Option<Duration>) -> Cmd {
    let mut set = cmd("SET").arg(key).arg(value).to_owned();
    if let Some(ttl) = ttl {
        set.arg("PX").arg(milliseconds(ttl));
    }
    set
}

fn milliseconds(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1)
}
