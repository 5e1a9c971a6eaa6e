//! Keeps the targets of watched upstreams in view: follows their names, and probes them as `healthchecks.active` says.
//!
//! One thread with its own runtime, and a task for each upstream that is watched. A change of the configuration reaches the tasks without setting back the time of their next round.

use super::probe::Probe;
use super::vitals::{Watch, Watches};
use crate::retained::Retained;
use crate::tls::TlsError;
use crate::worker::Node;
use rustls::pki_types::CertificateDer;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet, spawn_local};
use weir_model::Uuid;
use weir_model::entity::{Target, Upstream};

/// How often names are looked at; the resolver knows when to ask.
const FOLLOWED: Duration = Duration::from_secs(1);

/// An upstream whose targets are kept in view.
pub(crate) struct Watched {
    pub(crate) upstream: Arc<Upstream>,
    entities: Vec<Arc<Target>>,
    targets: Vec<Followed>,
    probe: Probe,
}

/// One target that may be asked.
struct Followed {
    watch: Arc<Watch>,
    host: Box<str>,
    port: u16,
}

impl Watched {
    /// An upstream that uses health checks, and its targets.
    pub(crate) fn new(
        upstream: &Arc<Upstream>,
        targets: Vec<Arc<Target>>,
        (retained, roots): (&Retained, &[CertificateDer<'static>]),
    ) -> Result<Watched, TlsError> {
        let watches = Watches::new(upstream, retained);
        let followed = targets.iter().filter(|target| target.weight > 0).filter_map(|target| {
            let (host, port) = target.target.rsplit_once(':')?;
            let host = host.trim_start_matches('[').trim_end_matches(']').into();
            Some(Followed { watch: watches.of(&target.target)?, host, port: port.parse().ok()? })
        });
        let probe = Probe::new(upstream, roots)?;
        let followed = followed.collect();
        Ok(Watched { upstream: upstream.clone(), entities: targets, targets: followed, probe })
    }

    /// Whether it is of these entities.
    pub(crate) fn is_of(&self, upstream: &Upstream, targets: &[Arc<Target>]) -> bool {
        *self.upstream == *upstream && self.entities == targets
    }

    fn has_names(&self) -> bool {
        self.targets.iter().any(|target| target.host.parse::<std::net::IpAddr>().is_err())
    }

    fn interval(&self, healthy: bool) -> Option<Duration> {
        let active = &self.upstream.healthchecks.active;
        let seconds = if healthy { active.healthy.interval } else { active.unhealthy.interval };
        (seconds > 0.0).then(|| Duration::from_secs_f64(seconds))
    }
}

/// One upstream's task; ends with this.
struct Task {
    told: watch::Sender<Arc<Watched>>,
    handle: JoinHandle<()>,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

/// Keeps those in view that it was told of last, until there is nobody left to tell it.
pub(crate) async fn run(node: Arc<Node>, mut news: watch::Receiver<Vec<Arc<Watched>>>) {
    let mut tasks: HashMap<Uuid, Task> = HashMap::new();
    loop {
        let watched = news.borrow_and_update().clone();
        let mut left = std::mem::take(&mut tasks);
        for watched in watched {
            let id = watched.upstream.id;
            let task = left.remove(&id).unwrap_or_else(|| {
                let (told, news) = watch::channel(watched.clone());
                Task { told, handle: spawn_local(keep_in_view(node.clone(), news)) }
            });
            task.told.send_if_modified(|known| {
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

/// When a task did each thing last, and what it is at.
struct Rounds {
    followed: Option<Instant>,
    /// Of the healthy, and of the unhealthy.
    probed: [Round; 2],
}

struct Round {
    healthy: bool,
    last: Instant,
    /// How much of the interval is waited for this time: rounds of many upstreams and nodes are not to fall together.
    part: f64,
    /// What is under way.
    probes: JoinSet<()>,
}

impl Round {
    fn new(healthy: bool) -> Round {
        Round { healthy, last: Instant::now(), part: part(), probes: JoinSet::new() }
    }

    fn due(&self, watched: &Watched) -> Option<Instant> {
        Some(self.last + watched.interval(self.healthy)?.mul_f64(self.part))
    }

    /// Probes each address that is as this round is for, unless it is still at it.
    fn begin(&mut self, watched: &Arc<Watched>) {
        (self.last, self.part) = (Instant::now(), part());
        while self.probes.try_join_next().is_some() {}
        if !self.probes.is_empty() {
            return;
        }
        let permits = Arc::new(Semaphore::new(watched.upstream.healthchecks.active.concurrency as usize));
        for (index, target) in watched.targets.iter().enumerate() {
            let addresses = target.watch.vitals.addresses();
            let meant = addresses.into_iter().filter(|(_, healthy)| *healthy == self.healthy);
            for (address, _) in meant {
                let (watched, permits) = (watched.clone(), permits.clone());
                self.probes.spawn_local(async move {
                    let Ok(_permit) = permits.acquire_owned().await else { return };
                    let target = &watched.targets[index];
                    let outcome = watched.probe.send(address, &target.host).await;
                    target.watch.probed(address, outcome);
                });
            }
        }
    }
}

/// Between 0.9 and 1.
fn part() -> f64 {
    let random = Uuid::new_v4().as_u64_pair().1 as u32;
    1.0 - f64::from(random) / f64::from(u32::MAX) / 10.0
}

async fn keep_in_view(node: Arc<Node>, mut news: watch::Receiver<Arc<Watched>>) {
    let mut rounds = Rounds { followed: None, probed: [Round::new(true), Round::new(false)] };
    loop {
        let watched = news.borrow_and_update().clone();
        let now = Instant::now();
        if watched.has_names() && rounds.followed.is_none_or(|last| now >= last + FOLLOWED) {
            rounds.followed = Some(now);
            follow_names(&node, &watched).await;
        }
        for round in &mut rounds.probed {
            if round.due(&watched).is_some_and(|due| now >= due) {
                round.begin(&watched);
            }
        }
        let names = watched.has_names().then(|| rounds.followed.map(|last| last + FOLLOWED)).flatten();
        let next = rounds.probed.iter().filter_map(|round| round.due(&watched)).chain(names).min();
        let wait = async {
            match next {
                Some(next) => tokio::time::sleep_until(next.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = wait => {}
            changed = news.changed() => if changed.is_err() { return },
        }
    }
}

/// Learns where the names lead now. A name that cannot be resolved keeps what it had.
async fn follow_names(node: &Node, watched: &Watched) {
    for target in &watched.targets {
        if let Ok(addresses) = node.resolver.resolve(&target.host).await {
            let place = |entry: &crate::upstream::resolve::Address| {
                SocketAddr::new(entry.ip, entry.port.unwrap_or(target.port))
            };
            target.watch.vitals.follow(&addresses.entries.iter().map(place).collect::<Vec<_>>());
        }
    }
}
