//! One connection to one server, through the crate `redis`.

use super::super::store::Unavailable;
use super::config::{HostAndPort, Redis, SentinelRole};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, RedisConnectionInfo, RedisError, Role, cmd};
use socket2::{SockRef, TcpKeepalive};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use weir_plugin::{Dialer, Secret};

/// Makes connections.
pub(super) struct Connector {
    dialer: Dialer,
    pub(super) config: Redis,
    /// How many searches among several servers have begun.
    searches: AtomicUsize,
}

/// A connection whose server has loaded the scripts. Clones share it.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) connection: MultiplexedConnection,
    /// The hashes of the scripts.
    pub(super) take: Arc<str>,
    pub(super) quota: Arc<str>,
}

const KEEPALIVE: Duration = Duration::from_secs(30);
const TAKE: &str = include_str!("take.lua");
const QUOTA: &str = include_str!("quota.lua");

/// How many characters of a server's message are repeated.
const MAX_MESSAGE_LEN: usize = 300;

const FIX_LOGIN: &str = ": check redis.username and redis.password, or those of the sentinels";

/// The message of the server or the crate, and how to fix it. Neither quotes what was sent.
pub(super) fn unavailable(error: &RedisError) -> Unavailable {
    let fix = match error.code().unwrap_or_default() {
        _ if error.kind() == ErrorKind::AuthenticationFailed => FIX_LOGIN,
        "NOAUTH" | "WRONGPASS" => FIX_LOGIN,
        "NOPERM" => {
            ": let the user run PING, SELECT, SCRIPT LOAD, EVAL, EVALSHA, GET, INCRBY, EXPIRE and PTTL on the keys \
             ratelimit:*, response-ratelimit:* and limit-count:*; for limit-req and limit-conn also TIME, HMGET, HMSET, PEXPIRE, ZADD, ZCARD, ZREM \
             and ZREMRANGEBYSCORE on limit-req:* and limit-conn:*; for proxy-cache also SET, DEL, EXISTS, SCAN, ZADD, \
             ZRANGE, ZREMRANGEBYSCORE and PEXPIRE on proxy-cache:*; for a cluster CLUSTER SLOTS and ASKING"
        }
        "CROSSSLOT" | "MOVED" => ": it is a cluster: name its servers in redis.cluster_nodes",
        _ => "",
    };
    let message: String = error.to_string().chars().take(MAX_MESSAGE_LEN).collect();
    Unavailable(format!("{message}{fix}"))
}

impl Connector {
    pub(super) fn new(dialer: Dialer, config: Redis) -> Self {
        Self { dialer, config, searches: AtomicUsize::new(0) }
    }

    /// The servers to try in turn. Each search begins with the next one, because the first one may have used up the
    /// whole timeout.
    pub(super) fn in_turn<'s>(
        &self,
        servers: &'s [HostAndPort],
    ) -> impl Iterator<Item = &'s HostAndPort> + use<'s> {
        let first = self.searches.fetch_add(1, Relaxed);
        servers.iter().cycle().skip(first % servers.len().max(1)).take(servers.len())
    }

    /// Connects with the configured credentials and database.
    pub(super) async fn link(&self, server: &HostAndPort) -> Result<Link, Unavailable> {
        let mut info = login(self.config.username.as_deref(), self.config.password.as_ref());
        info = info.set_db(self.config.database.into());
        let mut connection = self.connect(server, &info).await?;
        let load = |script| cmd("SCRIPT").arg("LOAD").arg(script).to_owned();
        let take: String = ask(&mut connection, &load(TAKE)).await?;
        let quota: String = ask(&mut connection, &load(QUOTA)).await?;
        Ok(Link { connection, take: take.into(), quota: quota.into() })
    }

    /// Asks the sentinels for a server of this role, and connects to it.
    pub(super) async fn link_by_sentinels(
        &self,
        master: &str,
        sentinels: &[HostAndPort],
        role: SentinelRole,
    ) -> Result<Link, Unavailable> {
        let mut last = Unavailable("no sentinel is configured".to_owned());
        for sentinel in self.in_turn(sentinels) {
            match self.link_by(sentinel, master, role).await {
                Ok(link) => return Ok(link),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn link_by(
        &self,
        sentinel: &HostAndPort,
        master: &str,
        role: SentinelRole,
    ) -> Result<Link, Unavailable> {
        let config = &self.config;
        let info = login(config.sentinel_username.as_deref(), config.sentinel_password.as_ref());
        let mut asked = self.connect(sentinel, &info).await?;
        match role {
            SentinelRole::Master => self.link_to_master(&mut asked, master).await,
            SentinelRole::Replica => self.link_to_replica(&mut asked, master).await,
            SentinelRole::Any => match self.link_to_master(&mut asked, master).await {
                Ok(link) => Ok(link),
                Err(_) => self.link_to_replica(&mut asked, master).await,
            },
        }
    }

    /// Connects to the first replica that can be reached, of those that are not known to be down.
    async fn link_to_replica(
        &self,
        sentinel: &mut MultiplexedConnection,
        master: &str,
    ) -> Result<Link, Unavailable> {
        let question = cmd("SENTINEL").arg("replicas").arg(master).to_owned();
        let replicas: Vec<HashMap<String, String>> = ask(sentinel, &question).await?;
        let mut last = Unavailable(format!("the sentinels know no replica of {master}"));
        for replica in replicas.iter().filter(|replica| !is_down(replica)) {
            let host = replica.get("ip").cloned().unwrap_or_default();
            let port = replica.get("port").and_then(|port| port.parse().ok()).unwrap_or_default();
            match self.link(&(host, port)).await {
                Ok(link) => return Ok(link),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn link_to_master(
        &self,
        asked: &mut MultiplexedConnection,
        master: &str,
    ) -> Result<Link, Unavailable> {
        let question = cmd("SENTINEL").arg("get-master-addr-by-name").arg(master).to_owned();
        let server: Option<HostAndPort> = ask(asked, &question).await?;
        let server = server.ok_or_else(|| {
            Unavailable(format!("the sentinels know no master {master}: check redis.sentinel_master"))
        })?;
        let mut link = self.link(&server).await?;
        match ask(&mut link.connection, &cmd("ROLE")).await? {
            Role::Primary { .. } => Ok(link),
            _ => Err(Unavailable(format!("{}:{} is not a master yet", server.0, server.1))),
        }
    }

    async fn connect(
        &self,
        (host, port): &HostAndPort,
        info: &RedisConnectionInfo,
    ) -> Result<MultiplexedConnection, Unavailable> {
        let failed = |error: &dyn std::fmt::Display| Unavailable(format!("{host}:{port}: {error}"));
        let tcp = self.dialer.tcp(host, *port).await.map_err(|error| failed(&error))?;
        // Firewalls and NAT drop idle connections.
        let alive = SockRef::from(&tcp).set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE));
        alive.map_err(|error| failed(&error))?;
        if !self.config.ssl {
            return login_over(tcp, info).await;
        }
        let name = self.config.server_name.as_deref().unwrap_or(host);
        let tls = self.dialer.tls(name, tcp).await;
        login_over(tls.map_err(|error| failed(&error))?, info).await
    }
}

/// Whether the sentinels could not reach it.
fn is_down(replica: &HashMap<String, String>) -> bool {
    replica.get("flags").is_some_and(|flags| flags.contains("down") || flags.contains("disconnected"))
}

fn login(username: Option<&str>, password: Option<&Secret>) -> RedisConnectionInfo {
    let mut info = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some(password) = password.filter(|password| !password.expose().is_empty()) {
        info = info.set_password(password.expose());
        if let Some(username) = username.filter(|username| !username.is_empty()) {
            info = info.set_username(username);
        }
    }
    info
}

async fn login_over(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    info: &RedisConnectionInfo,
) -> Result<MultiplexedConnection, Unavailable> {
    // The caller has a timeout.
    let config = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
    let (connection, task) = MultiplexedConnection::new_with_config(info, stream, config)
        .await
        .map_err(|error| unavailable(&error))?;
    tokio::spawn(task);
    Ok(connection)
}

pub(super) async fn ask<T: redis::FromRedisValue>(
    connection: &mut MultiplexedConnection,
    question: &Cmd,
) -> Result<T, Unavailable> {
    question.query_async(connection).await.map_err(|error| unavailable(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_of_a_server_is_cut_short() {
        let error = RedisError::from((ErrorKind::Parse, "no", "x".repeat(100_000)));
        let Unavailable(message) = unavailable(&error);
        assert!(message.contains("xxx") && message.len() <= MAX_MESSAGE_LEN, "{} characters", message.len());
    }
}
