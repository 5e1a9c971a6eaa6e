//! Which server of a cluster has which keys.

use super::super::store::Unavailable;
use super::config::HostAndPort;
use super::connection::{Connector, Link, ask};
use crc::{CRC_16_XMODEM, Crc};
use redis::{Value, cmd, from_redis_value_ref};
use std::ops::RangeInclusive;

/// The masters, and the slots that each has.
pub(super) struct Cluster {
    pub(super) masters: Vec<Link>,
    slots: Vec<(RangeInclusive<u16>, usize)>,
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
        let mut cluster = Self { masters: Vec::new(), slots: Vec::new() };
        let mut addresses: Vec<HostAndPort> = Vec::new();
        for range in &ranges {
            let (range, (host, port)) = read(range).ok_or_else(|| {
                Unavailable("CLUSTER SLOTS is answered in a form that is not known".to_owned())
            })?;
            // A server that does not know its own address sends none.
            let master = (if host.is_empty() { server.0.clone() } else { host }, port);
            let at = addresses.iter().position(|address| *address == master);
            if at.is_none() {
                cluster.masters.push(connector.link(&master).await?);
                addresses.push(master);
            }
            cluster.slots.push((range, at.unwrap_or(addresses.len() - 1)));
        }
        Ok(cluster)
    }

    /// The index of the master of a key.
    pub(super) fn master_of(&self, key: &str) -> Option<usize> {
        let slot = slot(key);
        self.slots.iter().find(|(range, _)| range.contains(&slot)).map(|(_, master)| *master)
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
