//! Resolves host names to addresses, with a cache.
//!
//! One thread with its own runtime queries the DNS; workers read the cache without a lock, and wait only for a name
//! that it does not hold yet. Concurrent requests for one name share a query. When an answer expires, the resolver
//! serves it for up to `stale_ttl` while it fetches a new one, so that a slow DNS delays no request for a cached name.

mod cache;
mod hosts;
mod query;
mod stats;
#[cfg(test)]
mod tests;

pub use stats::{LookupStats, NameStats, QueryStats};

use cache::{Cache, Renewal, Slot};
use hosts::Hosts;
use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How names are resolved. The names of the fields are Kong's `dns_*` settings.
#[derive(Debug, Clone)]
pub struct ResolverOptions {
    /// The DNS servers. If empty, those of `resolv_conf`, whose search domains apply in either case.
    pub servers: Vec<SocketAddr>,
    /// The system's settings: servers, search domains, `ndots`.
    pub resolv_conf: PathBuf,
    /// The hosts file, read once. Its names are never queried.
    pub hosts_file: Option<PathBuf>,
    /// Which records to try, in this order; the first that exist answer.
    pub order: Vec<Lookup>,
    /// How long an answer holds, in place of the records' own TTL.
    pub valid_ttl: Option<Duration>,
    /// How long an expired answer may still be served while it is being renewed.
    pub stale_ttl: Duration,
    /// How long a failure other than a missing name is cached.
    pub error_ttl: Duration,
    /// How long the absence of a name is cached.
    pub not_found_ttl: Duration,
    /// How long one query may take.
    pub timeout: Duration,
    /// How many names the cache holds.
    pub cache_size: usize,
}

impl Default for ResolverOptions {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
            hosts_file: Some(PathBuf::from("/etc/hosts")),
            order: vec![Lookup::Last, Lookup::Srv, Lookup::A],
            valid_ttl: None,
            stale_ttl: Duration::from_secs(3600),
            error_ttl: Duration::from_secs(1),
            not_found_ttl: Duration::from_secs(30),
            timeout: Duration::from_secs(2),
            cache_size: 10_000,
        }
    }
}

/// One step of Kong's `dns_order`. `CNAME` is no step: aliases are followed in every one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lookup {
    /// The type of records that answered for this name last time.
    Last,
    /// Services with ports and weights.
    Srv,
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
}

/// One address of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Where to connect.
    pub ip: IpAddr,
    /// The port that an SRV record names; it overrides the configured one.
    pub port: Option<u16>,
    /// The weight that an SRV record names, at least 1; it overrides the target's.
    pub weight: Option<u16>,
    /// The host that an SRV record names.
    pub srv_name: Option<Arc<str>>,
}

impl Address {
    /// One that comes without an SRV record.
    fn plain(ip: IpAddr) -> Self {
        Self { ip, port: None, weight: None, srv_name: None }
    }
}

/// The addresses of a name, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// In the order of the DNS answer.
    pub entries: Box<[Address]>,
    /// When the answer is due to be renewed. None: never.
    pub expires: Option<Instant>,
    /// Of SRV records: the sums of the weights up to each entry.
    turns: Option<Box<[u64]>>,
}

/// Why a name has no address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolveError {
    /// There is no such name, or it has no records of the types asked for.
    NotFound,
    /// The text is no host name.
    InvalidName,
    /// No server answered in time.
    Timeout,
    /// The servers failed.
    Failed(Arc<str>),
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => {
                f.write_str("the name has no address in the DNS (check its spelling and dns_order)")
            }
            Self::InvalidName => f.write_str("not a host name"),
            Self::Timeout => f.write_str("no DNS server answered in time (check dns_resolver)"),
            Self::Failed(why) => write!(f, "the DNS query failed: {why} (check dns_resolver)"),
        }
    }
}

impl std::error::Error for ResolveError {}

/// The node's resolver, shared by all workers.
pub struct Resolver {
    hosts: Hosts,
    cache: Cache,
    jobs: mpsc::UnboundedSender<Renewal>,
}

impl Resolver {
    /// Reads the hosts file and starts the query thread, which ends when the resolver is dropped.
    pub fn new(options: ResolverOptions) -> std::io::Result<Self> {
        let hosts = match &options.hosts_file {
            Some(path) => Hosts::parse(&std::fs::read_to_string(path).unwrap_or_default(), &options.order),
            None => Hosts::parse("", &options.order),
        };
        let cache = Cache::new(options.cache_size);
        // Bounded in effect: a name is queued at most once.
        let (jobs, queue) = mpsc::unbounded_channel();
        query::start(options, queue)?;
        Ok(Self { hosts, cache, jobs })
    }

    /// The addresses of a host name or the text of an IP address, or why there are none.
    pub async fn resolve(&self, host: &str) -> Result<Arc<Addresses>, ResolveError> {
        let name = lowercase(host);
        if let Some(addresses) = self.fixed(&name) {
            return Ok(addresses);
        }
        let slot = self.cache.slot(&name);
        if let Some((known, is_stale)) = self.known(&slot) {
            slot.counters.hit(is_stale);
            return known;
        }
        let news = slot.news();
        tokio::pin!(news);
        news.as_mut().enable();
        // The answer may have come just before `news` began to listen.
        if let Some((known, is_stale)) = self.known(&slot) {
            slot.counters.hit(is_stale);
            return known;
        }
        slot.counters.miss();
        news.await;
        slot.answer().as_ref().map_or_else(|| Err(stopped()), |answer| answer.result.clone())
    }

    /// What is known of a host name without waiting. Starts the renewal of an expired answer.
    pub fn cached(&self, host: &str) -> Option<Arc<Addresses>> {
        let name = lowercase(host);
        if let Some(addresses) = self.fixed(&name) {
            return Some(addresses);
        }
        let (known, _) = self.known(&self.cache.slot(&name))?;
        known.ok()
    }

    /// The address that a text is, or those of the hosts file: no server is asked for these.
    fn fixed(&self, name: &str) -> Option<Arc<Addresses>> {
        literal(name).or_else(|| self.hosts.get(name.strip_suffix('.').unwrap_or(name)))
    }

    /// What was done for each name that the cache holds, in the order of names.
    pub fn stats(&self) -> Vec<NameStats> {
        let of_slot = |slot: Arc<Slot>| NameStats {
            name: slot.name.to_string(),
            source: slot.answer().as_deref().and_then(|answer| answer.source),
            lookups: slot.counters.lookups(),
            queries: slot.counters.queries(),
        };
        let mut stats: Vec<_> = self.cache.slots().map(of_slot).collect();
        stats.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        stats
    }

    /// The same where there is no resolver: of the text of an IP address.
    pub fn resolve_literal(host: &str) -> Result<Arc<Addresses>, ResolveError> {
        literal(host).ok_or_else(|| ResolveError::Failed("the resolver has not started".into()))
    }

    /// The answer that is available without waiting, and whether it has expired. Starts the renewal of one that has.
    fn known(&self, slot: &Arc<Slot>) -> Option<(Result<Arc<Addresses>, ResolveError>, bool)> {
        let now = Instant::now();
        let answer = slot.answer();
        if let Some(answer) = answer.as_deref().filter(|answer| now < answer.fresh_until) {
            return Some((answer.result.clone(), false));
        }
        if slot.begin_renewal().is_some_and(|renewal| self.jobs.send(renewal).is_err()) {
            return Some((Err(stopped()), false));
        }
        let stale = answer.as_deref().filter(|answer| now < answer.stale_until)?;
        Some((stale.result.clone(), true))
    }
}

fn stopped() -> ResolveError {
    ResolveError::Failed("the resolver has stopped".into())
}

fn literal(host: &str) -> Option<Arc<Addresses>> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Some(Arc::new(Addresses::fixed([bare.parse().ok()?])))
}

fn lowercase(name: &str) -> Cow<'_, str> {
    if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(name.to_ascii_lowercase())
    } else {
        Cow::Borrowed(name)
    }
}

impl Addresses {
    /// From the entries of an answer.
    fn new(entries: Box<[Address]>, expires: Option<Instant>) -> Self {
        let turns = entries.iter().all(|entry| entry.weight.is_some()).then(|| turns(&entries));
        Self { entries, expires, turns }
    }

    /// Whether SRV records give the addresses weights.
    pub fn are_weighted(&self) -> bool {
        self.turns.is_some()
    }

    /// The host that an SRV record names for an address, if one does.
    pub fn srv_name(&self, address: SocketAddr) -> Option<&Arc<str>> {
        let is_it = |entry: &&Address| (entry.ip, entry.port) == (address.ip(), Some(address.port()));
        self.entries.iter().find(is_it)?.srv_name.as_ref()
    }

    /// The entry whose turn it is: each has as many turns as its weight.
    fn at(&self, turn: usize) -> usize {
        let Some(turns) = &self.turns else { return turn };
        let total = turns.last().copied().unwrap_or_default().max(1);
        // Successive turns and random ones are spread alike (Fibonacci hashing).
        let drawn = ((turn as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16) % total;
        turns.partition_point(|sum| *sum <= drawn)
    }

    /// Where to connect, beginning with the one whose turn it is and going around. SRV records name their own ports.
    pub fn sockets(&self, port: u16, turn: usize) -> impl Iterator<Item = SocketAddr> {
        let (count, first) = (self.entries.len(), self.at(turn));
        let around = (0..count).map(move |turn| first.wrapping_add(turn) % count);
        around.map(move |index| {
            let entry = &self.entries[index];
            SocketAddr::new(entry.ip, entry.port.unwrap_or(port))
        })
    }

    fn fixed(ips: impl IntoIterator<Item = IpAddr>) -> Self {
        Self::new(ips.into_iter().map(Address::plain).collect(), None)
    }
}

/// What the weight of a record is multiplied by, so that it can be divided among the addresses of its host.
const SHARES: u64 = 840;

/// The sums of weights up to each entry. The addresses of one record share its weight.
fn turns(entries: &[Address]) -> Box<[u64]> {
    let is_same = |a: &Address, b: &Address| (&a.srv_name, a.port) == (&b.srv_name, b.port);
    let share = |entry: &Address| {
        let among = entries.iter().filter(|other| is_same(entry, other)).count() as u64;
        u64::from(entry.weight.unwrap_or(1)) * SHARES / among
    };
    let sums = entries.iter().scan(0, |sum, entry| {
        *sum += share(entry);
        Some(*sum)
    });
    sums.collect()
}
