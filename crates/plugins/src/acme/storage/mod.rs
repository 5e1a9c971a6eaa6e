//! Where the plugin keeps what nodes share: texts by key, with Kong's keys, so that nodes of both can share them.

mod consul;
mod redis;
mod rows;
mod server;
mod vault;

pub(super) use rows::MEMORY_HANDOVER;

use super::config::Config;
use super::error::AcmeError;
use consul::ConsulStorage;
use redis::RedisStorage;
use rows::RowStorage;
use std::time::Duration;
use vault::VaultStorage;
use weir_plugin::BuildContext;

/// The hosts that are renewed.
pub(super) const RENEWALS: &str = "kong_acme:renew_config:";
/// When renewals ran last.
pub(super) const LAST_RENEWALS: &str = "kong_acme:renew_last_run";
/// The certificates and their keys.
pub(super) const CERTIFICATES: &str = "kong_acme:cert_key:";

/// What a database would have in the place of the node's memory, for the warning on nodes without one: by `kong` everything, by
/// `shm` certificates alone, which are entities then.
const KEPT: &str = "account, challenges and certificates of acme";
const KEPT_OF_SHM: &str = "certificates of acme";

/// What a namespace must not begin with.
pub(super) const RESERVED: [&str; 3] = [RENEWALS, LAST_RENEWALS, CERTIFICATES];

/// Reads what servers with texts answer, for fuzzing.
#[cfg(any(test, fuzzing))]
pub(super) fn read_answer(answer: &[u8]) {
    consul::read_answer(answer);
    vault::read_answer(answer);
}

/// Texts by key.
pub(super) enum Storage {
    Rows(RowStorage),
    Redis(Box<RedisStorage>),
    Consul(Box<ConsulStorage>),
    Vault(Box<VaultStorage>),
}

impl Storage {
    pub(super) fn new(config: &Config, build: &BuildContext<'_>) -> Result<Self, String> {
        Ok(match &*config.storage {
            "redis" => Self::Redis(Box::new(RedisStorage::new(&config.storage_config.redis, build)?)),
            "consul" => Self::Consul(Box::new(ConsulStorage::new(&config.storage_config.consul, build)?)),
            "vault" => Self::Vault(Box::new(VaultStorage::new(&config.storage_config.vault, build)?)),
            "kong" => Self::Rows(RowStorage::Database(build.rows(KEPT))),
            _ => {
                // Not used, but what is kept in memory has the same warning.
                drop(build.rows(KEPT_OF_SHM));
                Self::Rows(RowStorage::Memory(build.retained.get()))
            }
        })
    }

    /// The text of a key.
    pub(super) async fn get(&self, key: &str) -> Result<Option<String>, AcmeError> {
        match self {
            Self::Rows(rows) => rows.get(key).await,
            Self::Redis(redis) => redis.get(key).await,
            Self::Consul(consul) => consul.get(key).await,
            Self::Vault(vault) => vault.get(key).await,
        }
    }

    /// Sets the text of a key, which ends after this time, if ever.
    pub(super) async fn set(&self, key: &str, value: &str, ttl: Option<Duration>) -> Result<(), AcmeError> {
        match self {
            Self::Rows(rows) => rows.set(key, value, ttl).await,
            Self::Redis(redis) => redis.set(key, value, ttl).await,
            Self::Consul(consul) => consul.set(key, value, ttl).await,
            Self::Vault(vault) => vault.set(key, value, ttl).await,
        }
    }

    /// The same for a key without a text; false if it has one.
    pub(super) async fn add(&self, key: &str, value: &str, ttl: Option<Duration>) -> Result<bool, AcmeError> {
        match self {
            Self::Rows(rows) => rows.add(key, value, ttl).await,
            Self::Redis(redis) => redis.add(key, value, ttl).await,
            Self::Consul(consul) => consul.add(key, value, ttl).await,
            Self::Vault(vault) => vault.add(key, value, ttl).await,
        }
    }

    pub(super) async fn delete(&self, key: &str) -> Result<(), AcmeError> {
        match self {
            Self::Rows(rows) => rows.delete(key).await,
            Self::Redis(redis) => redis.delete(key).await,
            Self::Consul(consul) => consul.delete(key).await,
            Self::Vault(vault) => vault.delete(key).await,
        }
    }

    /// The keys that begin so.
    pub(super) async fn list(&self, prefix: &str) -> Result<Vec<String>, AcmeError> {
        match self {
            Self::Rows(rows) => rows.list(prefix).await,
            Self::Redis(redis) => redis.list(prefix).await,
            Self::Consul(consul) => consul.list(prefix).await,
            Self::Vault(vault) => vault.list(prefix).await,
        }
    }
}
