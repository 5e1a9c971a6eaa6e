//! Monitors the targets of upstreams with health checks: re-resolves their names, and runs the active health checks of
//! `healthchecks.active`.
//!
//! One thread with its own runtime runs a task for each monitored upstream. A change of the configuration reaches the
//! tasks without resetting the time of their next round.

use super::bounded_tasks::BoundedTasks;
use super::probe::Probe;
use super::state::{TargetMonitor, TargetMonitors, TargetStates};
use rustls::pki_types::CertificateDer;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::Instant;
use weir_model::Uuid;
use weir_model::entity::{Target, Upstream};
use weir_net::connect::MemoryNetwork;
use weir_net::resolve::Resolver;
use weir_net::tls::CertifiedKey;

/// How often names are resolved; the resolver's cache decides when to query the DNS.
const FOLLOWED: Duration = Duration::from_secs(1);

/// How many names of an upstream are resolved at once.
const NAMES: usize = 32;

/// The minimum time between rounds, whatever the configured interval.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// An upstream whose targets are monitored.
pub struct MonitoredUpstream {
    /// The upstream.
    pub upstream: Arc<Upstream>,
    entities: Vec<Arc<Target>>,
    targets: Vec<Followed>,
    identity: Option<Arc<CertifiedKey>>,
    probe: Probe,
}

/// One target with a weight.
struct Followed {
    monitor: Arc<TargetMonitor>,
    host: Box<str>,
    port: u16,
}

impl MonitoredUpstream {
    /// An upstream that uses health checks, its targets, the roots that verify their certificates, and the certificate
    /// that probes present.
    pub fn new(
        upstream: &Arc<Upstream>,
        targets: Vec<Arc<Target>>,
        state: &Arc<TargetStates>,
        (roots, identity): (&[CertificateDer<'static>], Option<Arc<CertifiedKey>>),
    ) -> MonitoredUpstream {
        let monitors = TargetMonitors::new(upstream, state);
        let followed = targets.iter().filter(|target| target.weight > 0).filter_map(|target| {
            let (host, port) = target.target.rsplit_once(':')?;
            let host = host.trim_start_matches('[').trim_end_matches(']').into();
            Some(Followed { monitor: monitors.of(&target.target)?, host, port: port.parse().ok()? })
        });
        let probe = Probe::new(upstream, roots, identity.clone());
        let followed = followed.collect();
        MonitoredUpstream {
            upstream: upstream.clone(),
            entities: targets,
            targets: followed,
            identity,
            probe,
        }
    }

    /// Whether it is of these entities, and presents this certificate.
    pub fn is_of(
        &self,
        upstream: &Upstream,
        targets: &[Arc<Target>],
        identity: &Option<Arc<CertifiedKey>>,
    ) -> bool {
        let presented = [&self.identity, identity].map(|identity| identity.as_ref().map(Arc::as_ptr));
        presented[0] == presented[1] && *self.upstream == *upstream && self.entities == targets
    }

    /// The positions of the targets that are names.
    fn names(&self) -> impl Iterator<Item = usize> {
        let is_name = |(_, target): &(_, &Followed)| target.host.parse::<IpAddr>().is_err();
        self.targets.iter().enumerate().filter(is_name).map(|(index, _)| index)
    }

    fn interval(&self, healthy: bool) -> Option<Duration> {
        let active = &self.upstream.healthchecks.active;
        let seconds = if healthy { active.healthy.interval } else { active.unhealthy.interval };
        (seconds > 0.0).then(|| Duration::from_secs_f64(seconds))
    }
}

/// One upstream's task. Dropping it aborts the task.
struct Task {
    updates: watch::Sender<Arc<MonitoredUpstream>>,
    handle: JoinHandle<()>,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

/// What monitoring works with.
#[derive(Clone)]
pub struct MonitorContext {
    /// Resolves names.
    pub resolver: Arc<Resolver>,
    /// In the place of the system's network, if set.
    pub memory: Option<Rc<dyn MemoryNetwork>>,
    /// Generates random numbers.
    pub random: Rc<dyn Fn() -> u64>,
}

impl MonitorContext {
    /// On the system's network.
    pub fn new(resolver: Arc<Resolver>) -> MonitorContext {
        MonitorContext { resolver, memory: None, random: Rc::new(|| Uuid::new_v4().as_u64_pair().1) }
    }

    /// Between 0.9 and 1.
    fn part(&self) -> f64 {
        1.0 - f64::from((self.random)() as u32) / f64::from(u32::MAX) / 10.0
    }
}

/// Monitors the upstreams that it received last, until the sender is dropped.
pub async fn run(context: MonitorContext, mut news: watch::Receiver<Vec<Arc<MonitoredUpstream>>>) {
    let mut tasks: HashMap<Uuid, Task> = HashMap::new();
    loop {
        let watched = news.borrow_and_update().clone();
        let mut left = std::mem::take(&mut tasks);
        for watched in watched {
            let id = watched.upstream.id;
            let task = left.remove(&id).unwrap_or_else(|| {
                let (updates, news) = watch::channel(watched.clone());
                Task { updates, handle: spawn_local(keep_in_view(context.clone(), news)) }
            });
            task.updates.send_if_modified(|known| {
                let is_new = !Arc::ptr_eq(known, &watched);
                *known = watched;
                is_new
            });
            tasks.insert(id, task);
        }
        if news.changed().await.is_err() {
            return;
        }
    }
}

/// Which target, as written.
type Name = Box<str>;

/// When the names of an upstream were looked at last.
struct Names {
    last: Option<Instant>,
    lookups: BoundedTasks<Name>,
}

impl Names {
    fn due(&self, watched: &MonitoredUpstream, now: Instant) -> Option<Instant> {
        watched.names().next().map(|_| self.last.map_or(now, |last| last + FOLLOWED))
    }

    /// Resolves the names concurrently, so that an unanswered query delays nothing else.
    fn begin(&mut self, resolver: &Arc<Resolver>, watched: &Arc<MonitoredUpstream>, now: Instant) {
        self.last = Some(now);
        self.lookups.tidy();
        for index in watched.names() {
            let (resolver, watched) = (resolver.clone(), watched.clone());
            let name = watched.targets[index].monitor.target.clone();
            self.lookups.begin(name, async move { follow(&resolver, &watched.targets[index]).await });
        }
    }
}

/// The probes of the healthy, or of the unhealthy.
struct Round {
    healthy: bool,
    last: Instant,
    /// The jitter of this round, so that the rounds of many upstreams and nodes do not coincide.
    part: f64,
    probes: BoundedTasks<(Name, SocketAddr)>,
}

impl Round {
    fn new(healthy: bool, part: f64) -> Round {
        Round { healthy, last: Instant::now(), part, probes: BoundedTasks::new(1) }
    }

    fn due(&self, watched: &MonitoredUpstream) -> Option<Instant> {
        Some(self.last + watched.interval(self.healthy)?.mul_f64(self.part).max(MIN_INTERVAL))
    }

    /// Probes each address that is as this round is for, unless that is still being probed.
    fn begin(&mut self, context: &MonitorContext, watched: &Arc<MonitoredUpstream>, now: Instant) {
        (self.last, self.part) = (now, context.part());
        self.probes.tidy();
        self.probes.allow(watched.upstream.healthchecks.active.concurrency as usize);
        for (index, target) in watched.targets.iter().enumerate() {
            let addresses = target.monitor.state.addresses();
            let meant = addresses.into_iter().filter(|(_, healthy)| *healthy == self.healthy);
            for (address, _) in meant {
                let (memory, watched) = (context.memory.clone(), watched.clone());
                self.probes.begin((target.monitor.target.clone(), address), async move {
                    let target = &watched.targets[index];
                    if let Some(outcome) = watched.probe.send(memory.as_deref(), address, &target.host).await
                    {
                        target.monitor.record_probe(address, outcome);
                    }
                });
            }
        }
    }
}

async fn keep_in_view(context: MonitorContext, mut news: watch::Receiver<Arc<MonitoredUpstream>>) {
    let mut names = Names { last: None, lookups: BoundedTasks::new(NAMES) };
    let mut rounds = [true, false].map(|healthy| Round::new(healthy, context.part()));
    loop {
        let watched = news.borrow_and_update().clone();
        let now = Instant::now();
        if names.due(&watched, now).is_some_and(|due| now >= due) {
            names.begin(&context.resolver, &watched, now);
        }
        for round in &mut rounds {
            if round.due(&watched).is_some_and(|due| now >= due) {
                round.begin(&context, &watched, now);
            }
        }
        let next =
            rounds.iter().filter_map(|round| round.due(&watched)).chain(names.due(&watched, now)).min();
        let wait = async {
            match next {
                Some(next) => tokio::time::sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // In this order, so that simulations repeat themselves.
            biased;
            () = wait => {}
            changed = news.changed() => if changed.is_err() { return },
        }
    }
}

/// Resolves a name. If that fails, the target keeps its addresses.
async fn follow(resolver: &Resolver, target: &Followed) {
    if let Ok(addresses) = resolver.resolve(&target.host).await {
        target.monitor.state.follow(&addresses.sockets(target.port, 0).collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{entity, id};
    use serde_json::json;

    #[test]
    fn rounds_follow_each_other_no_faster_than_they_may() {
        for (interval, shortest) in
            [(1e-9, MIN_INTERVAL), (0.05, MIN_INTERVAL), (10.0, Duration::from_secs(9))]
        {
            let active = json!({ "healthy": { "interval": interval } });
            let upstream = entity(json!({ "id": id(1), "name": "u", "healthchecks": { "active": active } }));
            let watched = MonitoredUpstream::new(&upstream, Vec::new(), &Arc::default(), (&[], None));
            let round = Round::new(true, 0.9);
            assert!(round.due(&watched).is_some_and(|due| due >= round.last + shortest), "{interval}");
        }
    }
}
