//! Queries the DNS, on the resolver's own thread.

use super::cache::{Answer, Renewal, Slot};
use super::{Address, Addresses, Lookup, ResolveError, ResolverOptions};
use crate::thread::spawn_with_runtime;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use hickory_resolver::system_conf::parse_resolv_conf;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc};

/// How many names are queried at once, bounded because each query holds a socket.
const CONCURRENT: usize = 128;

/// The minimum TTL: records with a TTL of 0 are not queried more often than this.
const SHORTEST_TTL: u32 = 1;

/// Starts the thread. It ends when the queue's senders are gone.
pub(super) fn start(options: ResolverOptions, queue: mpsc::UnboundedReceiver<Renewal>) -> io::Result<()> {
    let client = client(&options).map_err(io::Error::other)?;
    let build = || tokio::runtime::Builder::new_current_thread().enable_all().build();
    let asker = Arc::new(Asker { client, options });
    spawn_with_runtime("weir-resolver", build, |runtime| runtime.block_on(serve(asker, queue))).map(drop)
}

async fn serve(asker: Arc<Asker>, mut queue: mpsc::UnboundedReceiver<Renewal>) {
    let permits = Arc::new(Semaphore::new(CONCURRENT));
    while let Some(renewal) = queue.recv().await {
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let asker = asker.clone();
        tokio::spawn(async move {
            asker.renew(renewal).await;
            drop(permit);
        });
    }
}

fn client(options: &ResolverOptions) -> Result<TokioResolver, NetError> {
    let system = std::fs::read(&options.resolv_conf).map_err(NetError::from).and_then(parse_resolv_conf);
    let (mut config, mut opts) = match system {
        Ok(system) => system,
        Err(error) if options.servers.is_empty() => return Err(error),
        Err(_) => (ResolverConfig::from_name_servers(Vec::new()), ResolverOpts::default()),
    };
    if !options.servers.is_empty() {
        let servers = options.servers.iter().map(|server| name_server(*server)).collect();
        config = ResolverConfig::from_parts(config.domain().cloned(), config.search().to_vec(), servers);
    }
    opts.timeout = options.timeout;
    opts.cache_size = 0;
    opts.use_hosts_file = ResolveHosts::Never;
    TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()).with_options(opts).build()
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}

struct Asker {
    client: TokioResolver,
    options: ResolverOptions,
}

/// The addresses that answered, and for how many seconds they hold.
struct Found {
    entries: Vec<Address>,
    ttl: u32,
}

impl Asker {
    async fn renew(&self, renewal: Renewal) {
        let slot = renewal.slot();
        let fresh = |answer: &Answer| Instant::now() < answer.fresh_until;
        if slot.answer().as_deref().is_some_and(fresh) {
            // Another renewal ended just before this one began.
            return;
        }
        let last = slot.answer().as_deref().and_then(|answer| answer.source);
        let asked = self.ask(slot, last).await;
        let answer = self.answer(asked, slot.answer().as_deref());
        renewal.complete(answer);
    }

    /// Tries the steps of the order. Reports a name as missing only if every step does.
    async fn ask(&self, slot: &Slot, last: Option<Lookup>) -> Result<(Lookup, Found), ResolveError> {
        let name = Name::from_utf8(&slot.name).map_err(|_| ResolveError::InvalidName)?;
        let mut outcome = ResolveError::NotFound;
        for step in self.steps(last) {
            let start = Instant::now();
            let found = match step {
                Lookup::Srv => self.services(&name).await,
                Lookup::A => self.addresses(&name, RecordType::A).await,
                Lookup::Aaaa => self.addresses(&name, RecordType::AAAA).await,
                Lookup::Last => continue,
            };
            slot.counters.query(step, &found, start.elapsed());
            match found {
                Ok(found) => return Ok((step, found)),
                Err(ResolveError::NotFound) => {}
                Err(error) => outcome = error,
            }
        }
        Err(outcome)
    }

    fn steps(&self, last: Option<Lookup>) -> impl Iterator<Item = Lookup> {
        let order = &self.options.order;
        let first = last.filter(|_| order.contains(&Lookup::Last));
        first.into_iter().chain(order.iter().copied().filter(move |step| Some(*step) != first))
    }

    async fn addresses(&self, name: &Name, kind: RecordType) -> Result<Found, ResolveError> {
        let lookup = self.client.lookup(name.clone(), kind).await.map_err(failure)?;
        let records = lookup.answers().iter().filter(|record| record.record_type() == kind);
        let ttl = records.clone().map(|record| record.ttl).fold(alias_ttl(lookup.answers()), u32::min);
        let entries: Vec<_> = records.filter_map(ip).map(Address::plain).collect();
        if entries.is_empty() { Err(ResolveError::NotFound) } else { Ok(Found { entries, ttl }) }
    }

    /// The services of the lowest priority number, with the addresses of their hosts.
    async fn services(&self, name: &Name) -> Result<Found, ResolveError> {
        let lookup = self.client.lookup(name.clone(), RecordType::SRV).await.map_err(failure)?;
        let services = || lookup.answers().iter().filter_map(|record| Some((service(record)?, record.ttl)));
        let priority = services().map(|(srv, _)| srv.priority).min();
        let mut found = Found { entries: Vec::new(), ttl: alias_ttl(lookup.answers()) };
        let mut outcome = ResolveError::NotFound;
        for (srv, ttl) in
            services().filter(|(srv, _)| Some(srv.priority) == priority && !srv.target.is_root())
        {
            match self.host(srv, lookup.additionals()).await {
                Ok(host) => {
                    // As in Kong, a weight of 0 is the least there is.
                    let (port, weight) = (Some(srv.port), Some(srv.weight.max(1)));
                    let srv_name: Arc<str> = srv.target.to_ascii().trim_end_matches('.').into();
                    let named = |ip| Address { ip, port, weight, srv_name: Some(srv_name.clone()) };
                    let entry = |address: Address| named(address.ip);
                    found.entries.extend(host.entries.into_iter().map(entry));
                    found.ttl = found.ttl.min(ttl).min(host.ttl);
                }
                Err(error) => outcome = error,
            }
        }
        if found.entries.is_empty() { Err(outcome) } else { Ok(found) }
    }

    /// The addresses of a service's host, from the same answer if it brought them along.
    async fn host(&self, srv: &SRV, additionals: &[Record]) -> Result<Found, ResolveError> {
        let mut outcome = ResolveError::NotFound;
        for kind in self.families() {
            let brought =
                additionals.iter().filter(|record| record.name == srv.target && record.record_type() == kind);
            let ttl = brought.clone().map(|record| record.ttl).min();
            if let Some(ttl) = ttl {
                return Ok(Found { entries: brought.filter_map(ip).map(Address::plain).collect(), ttl });
            }
            match self.addresses(&srv.target, kind).await {
                Ok(found) => return Ok(found),
                Err(error) => outcome = error,
            }
        }
        Err(outcome)
    }

    fn families(&self) -> Vec<RecordType> {
        let family = |step: &Lookup| match step {
            Lookup::A => Some(RecordType::A),
            Lookup::Aaaa => Some(RecordType::AAAA),
            Lookup::Last | Lookup::Srv => None,
        };
        let families: Vec<_> = self.options.order.iter().filter_map(family).collect();
        if families.is_empty() { vec![RecordType::A] } else { families }
    }

    /// An old answer outlives failures of the DNS for as long as it may be stale, but not the news that the name is gone.
    fn answer(&self, asked: Result<(Lookup, Found), ResolveError>, old: Option<&Answer>) -> Answer {
        let now = Instant::now();
        let error = match asked {
            Ok((step, found)) => return self.success(now, step, found),
            Err(error) => error,
        };
        let gone = matches!(error, ResolveError::NotFound | ResolveError::InvalidName);
        let ttl = if gone { self.options.not_found_ttl } else { self.options.error_ttl };
        let fresh_until = now + ttl;
        let stale = old.filter(|old| !gone && old.result.is_ok() && now < old.stale_until);
        match stale {
            Some(old) => Answer {
                result: old.result.clone(),
                source: old.source,
                fresh_until: fresh_until.min(old.stale_until),
                stale_until: old.stale_until,
            },
            None => Answer { result: Err(error), source: None, fresh_until, stale_until: fresh_until },
        }
    }

    fn success(&self, now: Instant, step: Lookup, found: Found) -> Answer {
        let ttl = Duration::from_secs(found.ttl.max(SHORTEST_TTL).into());
        let fresh_until = now + self.options.valid_ttl.unwrap_or(ttl);
        let addresses = Addresses::new(found.entries.into(), Some(fresh_until));
        Answer {
            result: Ok(Arc::new(addresses)),
            source: Some(step),
            fresh_until,
            stale_until: fresh_until + self.options.stale_ttl,
        }
    }
}

/// How long the aliases of an answer hold: where a name leads may change before what it leads to does.
fn alias_ttl(answers: &[Record]) -> u32 {
    let aliases = answers.iter().filter(|record| record.record_type() == RecordType::CNAME);
    aliases.map(|record| record.ttl).min().unwrap_or(u32::MAX)
}

fn ip(record: &Record) -> Option<IpAddr> {
    match &record.data {
        RData::A(address) => Some(address.0.into()),
        RData::AAAA(address) => Some(address.0.into()),
        _ => None,
    }
}

fn service(record: &Record) -> Option<&SRV> {
    match &record.data {
        RData::SRV(service) => Some(service),
        _ => None,
    }
}

fn failure(error: NetError) -> ResolveError {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(_)) => ResolveError::NotFound,
        NetError::Timeout => ResolveError::Timeout,
        other => ResolveError::Failed(other.to_string().into()),
    }
}
