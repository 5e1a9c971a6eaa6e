//! Which server of a cluster has which keys.

use super::super::store::Unavailable;
use super::config::HostAndPort;
use super::connection::{Connector, Link, ask};
use super::refusal;
use crc::{CRC_16_XMODEM, Crc};
use redis::{Cmd, RedisError, Value, cmd, from_redis_value_ref, pipe};
use std::ops::RangeInclusive;
use tokio::sync::Mutex;

/// The masters, and the slots that each has.
pub(super) struct Cluster {
    pub(super) masters: Vec<Link>,
    addresses: Vec<HostAndPort>,
    slots: Vec<(RangeInclusive<u16>, usize)>,
    /// Servers that have no slot yet, but are about to get one.
    importing: Mutex<Vec<(HostAndPort, Link)>>,
}

/// What a server has redirected by ASK: its keys are on their way to another server.
pub(super) struct Redirected<T> {
    /// The server that they go to.
    pub(super) to: HostAndPort,
    pub(super) what: T,
}

impl<T> Redirected<T> {
    /// What this error of a server redirects, if it does.
    pub(super) fn by(error: &RedisError, what: T) -> Option<Self> {
        let (host, port) =
            error.redirect_node().filter(|_| error.code() == Some("ASK"))?.0.rsplit_once(':')?;
        Some(Self { to: (host.to_owned(), port.parse().ok()?), what })
    }
}

impl Cluster {
    /// Asks one of these servers for the layout of the cluster, and connects to all masters.
    pub(super) async fn discover(connector: &Connector, known: &[HostAndPort]) -> Result<Self, Unavailable> {
        let mut last = Unavailable("no server of the cluster is known".to_owned());
        for server in connector.in_turn(known) {
            match Self::discover_by(connector, server).await {
                Ok(cluster) => return Ok(cluster),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn discover_by(connector: &Connector, server: &HostAndPort) -> Result<Self, Unavailable> {
        let mut asked = connector.link(server).await?;
        let ranges: Vec<Value> = ask(&mut asked.connection, cmd("CLUSTER").arg("SLOTS")).await?;
        let (masters, addresses, slots) = (Vec::new(), Vec::new(), Vec::new());
        let mut cluster = Self { masters, addresses, slots, importing: Mutex::default() };
        for range in &ranges {
            let (range, (host, port)) = read(range).ok_or_else(|| {
                Unavailable("CLUSTER SLOTS is answered in a form that is not known".to_owned())
            })?;
            // A server that does not know its own address sends none.
            let master = (if host.is_empty() { server.0.clone() } else { host }, port);
            let at = cluster.addresses.iter().position(|address| *address == master);
            if at.is_none() {
                cluster.masters.push(connector.link(&master).await?);
                cluster.addresses.push(master);
            }
            cluster.slots.push((range, at.unwrap_or(cluster.addresses.len() - 1)));
        }
        Ok(cluster)
    }

    /// The index of the master of a key.
    pub(super) fn master_of(&self, key: &str) -> Option<usize> {
        let slot = slot(key);
        self.slots.iter().find(|(range, _)| range.contains(&slot)).map(|(_, master)| *master)
    }

    /// The answer of the server that the command is redirected to; nil where that does not execute it either.
    pub(super) async fn follow(
        &self,
        connector: &Connector,
        redirected: &Redirected<impl Fn(&Link) -> Cmd>,
    ) -> Value {
        let Ok(link) = self.link_to(connector, &redirected.to).await else { return Value::Nil };
        let (mut connection, mut pipeline) = (link.connection.clone(), pipe());
        pipeline.cmd("ASKING").ignore().add_command((redirected.what)(&link)).ignore_errors();
        let Ok(answers) = pipeline.query_async::<Vec<Value>>(&mut connection).await else {
            self.importing.lock().await.retain(|(server, _)| *server != redirected.to);
            return Value::Nil;
        };
        match answers.into_iter().last() {
            Some(value) if refusal(&value).is_some() => value,
            Some(value) => value.extract_error().unwrap_or(Value::Nil),
            None => Value::Nil,
        }
    }

    async fn link_to(&self, connector: &Connector, server: &HostAndPort) -> Result<Link, Unavailable> {
        if let Some(at) = self.addresses.iter().position(|address| address == server) {
            return Ok(self.masters[at].clone());
        }
        let mut importing = self.importing.lock().await;
        if let Some((_, link)) = importing.iter().find(|(known, _)| known == server) {
            return Ok(link.clone());
        }
        let link = connector.link(server).await?;
        importing.push((server.clone(), link.clone()));
        Ok(link)
    }
}

/// The first and the last slot of a range, and its master.
fn read(range: &Value) -> Option<(RangeInclusive<u16>, HostAndPort)> {
    let Value::Array(parts) = range else { return None };
    let [first, last, master, ..] = &**parts else { return None };
    let Value::Array(master) = master else { return None };
    let [host, port, ..] = &**master else { return None };
    let number = |value| from_redis_value_ref::<u16>(value).ok();
    let host = from_redis_value_ref::<Option<String>>(host).ok()?.unwrap_or_default();
    Some((number(first)?..=number(last)?, (host, number(port)?)))
}

const SLOTS: u16 = 16_384;
static CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// The slot of a key: of the text in its first braces, if there is any.
fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    CRC.checksum(tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes()) % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/
        assert_eq!(CRC.checksum(b"123456789"), 0x31C3);
        assert_eq!([slot("foo"), slot("{user1000}.following")], [12_182, slot("user1000")]);
        assert_eq!(slot("foo{}{bar}"), CRC.checksum(b"foo{}{bar}") % SLOTS);
        assert_eq!(slot("foo{{bar}}zap"), CRC.checksum(b"{bar") % SLOTS);
    }
}
