//! The state of targets on this node, which outlives configurations: addresses, health, requests in flight, latency.

use super::change::{HealthChange, HealthSource, LastChange};
use super::checks::{Checks, Outcome};
use super::counters::{Counter, HealthCounters};
use super::outlier::{Candidate, Ejectable, Ejector, Group, OutlierPolicy, OutlierState, slow_start};
use crate::balance::latency::{Latency, since_beginning};
use crate::limit::LimitPolicy;
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use weir_model::entity::{Algorithm, Upstream};
use weir_model::{Document, Uuid};

/// One target of an upstream: its health, and what the algorithms measure.
#[derive(Default)]
pub struct TargetState {
    /// No address of it is healthy. A successful request reads only this flag of the health.
    down: AtomicBool,
    addresses: ArcSwap<Vec<Arc<TargetAddress>>>,
    /// Held while addresses or their health change, which is rare.
    changing: Mutex<()>,
    /// Requests in flight.
    pub in_flight: AtomicUsize,
    /// Its average latency.
    pub latency: Latency,
    outlier: OutlierState,
    /// The active configuration gives it requests: it has a weight there.
    is_in_use: AtomicBool,
}

impl Ejectable for TargetState {
    fn is_in_use(&self) -> bool {
        self.is_in_use.load(Ordering::Relaxed)
    }

    fn outlier(&self) -> &OutlierState {
        &self.outlier
    }

    fn latency(&self) -> &Latency {
        &self.latency
    }
}

struct TargetAddress {
    address: SocketAddr,
    counters: HealthCounters,
    changed: LastChange,
}

impl TargetAddress {
    fn new(address: SocketAddr, source: HealthSource) -> Arc<TargetAddress> {
        let changed = LastChange::new(HealthChange::now(source));
        Arc::new(TargetAddress { address, counters: HealthCounters::default(), changed })
    }

    fn status(&self) -> AddressStatus {
        let (address, is_healthy) = (self.address, self.counters.is_healthy());
        AddressStatus { address, is_healthy, changed: self.changed.get() }
    }
}

impl TargetState {
    /// The state of a target as written. A target that is an IP address keeps that one address.
    fn of(target: &str) -> TargetState {
        let state = TargetState::default();
        state.replace(&fixed(target).into_iter().collect::<Vec<_>>(), HealthSource::Configuration);
        state
    }

    /// Whether no address of it is available.
    pub fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// Whether this address is available.
    pub fn admits(&self, address: SocketAddr) -> bool {
        find(&self.addresses.load(), address).is_none_or(|place| place.counters.is_healthy())
    }

    /// Replaces its addresses by those that its name was resolved to; those that it had before keep their health.
    pub fn follow(&self, addresses: &[SocketAddr]) {
        self.replace(addresses, HealthSource::Dns);
    }

    fn replace(&self, addresses: &[SocketAddr], source: HealthSource) {
        let known = self.addresses.load();
        if known.len() == addresses.len() && known.iter().zip(addresses).all(|(a, b)| a.address == *b) {
            return;
        }
        let _changing = self.change();
        let known = self.addresses.load();
        let place = |address: &SocketAddr| match find(&known, *address) {
            Some(place) => place.clone(),
            None => TargetAddress::new(*address, source),
        };
        self.addresses.store(Arc::new(addresses.iter().map(place).collect()));
        self.settle();
    }

    /// Its addresses, and which of them are healthy.
    pub fn addresses(&self) -> Vec<(SocketAddr, bool)> {
        self.addresses.load().iter().map(|place| (place.address, place.counters.is_healthy())).collect()
    }

    /// Its addresses, how they are, and since when.
    fn status(&self) -> TargetStatus {
        TargetStatus { addresses: self.addresses.load().iter().map(|place| place.status()).collect() }
    }

    /// The healthy fraction of its addresses; 1 if it has none.
    pub fn share(&self) -> f64 {
        let places = self.addresses.load();
        let healthy = places.iter().filter(|place| place.counters.is_healthy()).count();
        if places.is_empty() { 1.0 } else { healthy as f64 / places.len() as f64 }
    }

    /// Resets the health of its addresses.
    pub fn forget(&self) {
        if self.addresses.load().iter().any(|place| !place.counters.is_healthy()) {
            self.set(None, true, HealthSource::Configuration);
        }
    }

    /// Sets the health of one address, or of all; returns those whose health that changed.
    fn set(&self, address: Option<SocketAddr>, healthy: bool, source: HealthSource) -> Vec<SocketAddr> {
        let _changing = self.change();
        let places = self.addresses.load();
        let meant = places.iter().filter(|place| address.is_none_or(|address| place.address == address));
        let changed = meant.filter(|place| place.counters.set(healthy));
        let changed = changed.inspect(|place| place.changed.set(HealthChange::now(source)));
        let changed = changed.map(|place| place.address).collect();
        self.settle();
        changed
    }

    /// Counts an outcome at an address; returns what the address is now, if that has changed.
    fn count(
        &self,
        address: SocketAddr,
        (counter, limit): (Counter, u16),
        source: HealthSource,
    ) -> Option<bool> {
        let places = self.addresses.load();
        let learned;
        let place = match find(&places, address) {
            Some(place) => place,
            None => {
                learned = self.learn(address);
                &learned
            }
        };
        let healthy = place.counters.count(counter, limit)?;
        let _changing = self.change();
        // Another thread may have changed it again meanwhile.
        if place.counters.is_healthy() == healthy {
            place.changed.set(HealthChange::by_outcomes(source, limit, counter));
        }
        self.settle();
        Some(healthy)
    }

    fn learn(&self, address: SocketAddr) -> Arc<TargetAddress> {
        let _changing = self.change();
        let known = self.addresses.load();
        if let Some(place) = find(&known, address) {
            return place.clone();
        }
        let place = TargetAddress::new(address, HealthSource::Dns);
        self.addresses.store(Arc::new(known.iter().chain([&place]).cloned().collect()));
        self.settle();
        place
    }

    /// The health of its addresses as numbers, for a process that replaces this one.
    pub(super) fn numbers(&self) -> Vec<(SocketAddr, u64)> {
        self.addresses.load().iter().map(|place| (place.address, place.counters.number())).collect()
    }

    /// Takes over the health of addresses from another process.
    pub(super) fn restore(&self, numbers: &[(SocketAddr, u64)], source: HealthSource) {
        for (address, number) in numbers {
            let place = self.learn(*address);
            if place.counters.restore(*number) {
                place.changed.set(HealthChange::now(source));
            }
        }
        let _changing = self.change();
        self.settle();
    }

    fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self) {
        let places = self.addresses.load();
        let down = !places.is_empty() && places.iter().all(|place| !place.counters.is_healthy());
        if self.down.swap(down, Ordering::Relaxed) && !down {
            self.outlier.returned(Instant::now());
        }
    }
}

fn find(places: &[Arc<TargetAddress>], address: SocketAddr) -> Option<&Arc<TargetAddress>> {
    places.iter().find(|place| place.address == address)
}

/// The address of a target that is an IP address.
fn fixed(target: &str) -> Option<SocketAddr> {
    let (host, port) = target.rsplit_once(':')?;
    let ip: IpAddr = host.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
    Some(SocketAddr::new(ip, port.parse().ok()?))
}

/// A target with the health checks of one configuration.
pub struct TargetMonitor {
    /// As written: `host:port`.
    pub target: Box<str>,
    /// Its state.
    pub state: Arc<TargetState>,
    /// `None` if its upstream has no health checks; then it counts as healthy.
    pub checks: Option<Arc<Checks>>,
    ejector: Option<Arc<Ejector<TargetState>>>,
    slow_start: Option<Duration>,
}

impl TargetMonitor {
    /// Whether the target is unavailable.
    pub fn is_down(&self) -> bool {
        self.checks.is_some() && self.state.is_down()
    }

    /// Whether this address of the target is available.
    pub fn admits(&self, address: SocketAddr) -> bool {
        self.checks.is_none() || self.state.admits(address)
    }

    /// Whether it gets a request at this moment: it is not ejected, and slow start lets it have this one. `random` is from 0
    /// to 1; without it, slow start is left aside.
    pub(crate) fn takes_its_turn(&self, random: Option<f64>) -> bool {
        if self.ejector.is_none() && self.slow_start.is_none() {
            return true;
        }
        let now = since_beginning(Instant::now());
        let outlier = &self.state.outlier;
        if self.ejector.is_some() && outlier.is_ejected(now) {
            return false;
        }
        let starts = self.slow_start.zip(random);
        starts.is_none_or(|(slow_start, random)| random < outlier.share(slow_start, now))
    }

    /// Records the outcome of a request.
    pub fn record_outcome(&self, address: SocketAddr, outcome: Outcome) {
        if let Some(checks) = &self.checks {
            self.count(address, outcome, checks, HealthSource::Passive);
        }
        if let Some(ejector) = &self.ejector {
            let (outlier, latency) = (&self.state.outlier, &self.state.latency);
            let candidate = Candidate { target: &self.target, outlier, latency };
            ejector.record(&candidate, outcome, since_beginning(Instant::now()));
        }
    }

    /// Records the outcome of a probe.
    pub fn record_probe(&self, address: SocketAddr, outcome: Outcome) {
        if let Some(checks) = &self.checks {
            self.count(address, outcome, checks, HealthSource::Active);
        }
    }

    fn count(&self, address: SocketAddr, outcome: Outcome, checks: &Checks, source: HealthSource) {
        let limits = if source == HealthSource::Active { &checks.active } else { &checks.passive };
        let Some((counter, limit)) = limits.judge(outcome) else { return };
        if let Some(healthy) = self.state.count(address, (counter, limit), source) {
            let why = format_args!("{limit} {}", counter.as_str());
            tell(&checks.upstream, &self.target, address, healthy, why);
        }
    }
}

/// Creates the monitors of one upstream's targets, from its configuration.
pub struct TargetMonitors<'u> {
    upstream: &'u Upstream,
    checks: Option<Arc<Checks>>,
    ejector: Option<Arc<Ejector<TargetState>>>,
    all: Option<Arc<TargetStates>>,
}

impl<'u> TargetMonitors<'u> {
    /// Those of an upstream, given the state of all targets.
    pub fn new(upstream: &'u Upstream, all: &Arc<TargetStates>) -> Self {
        let checks = Checks::of(upstream).map(Arc::new);
        let ejector = OutlierPolicy::of(&upstream.tags)
            .map(|policy| Arc::new(Ejector::new(&upstream.name, policy, all.group(&upstream.name))));
        Self { upstream, checks, ejector, all: is_watched(upstream).then(|| all.clone()) }
    }

    /// The monitor of a target; `None` if its upstream needs none.
    pub fn of(&self, target: &str) -> Option<Arc<TargetMonitor>> {
        let state = self.all.as_ref()?.of(&self.upstream.name, target);
        let (checks, ejector) = (self.checks.clone(), self.ejector.clone());
        let slow_start = slow_start(&self.upstream.tags);
        Some(Arc::new(TargetMonitor { target: target.into(), state, checks, ejector, slow_start }))
    }
}

fn tell(upstream: &str, target: &str, address: SocketAddr, healthy: bool, why: std::fmt::Arguments<'_>) {
    let address = address.to_string();
    if healthy {
        tracing::warn!(upstream, target, address, "the target is healthy again: {why}");
    } else {
        tracing::warn!(upstream, target, address, "the target is unhealthy and is not asked: {why}");
    }
}

/// The state of all targets, by their upstream's name and as they are written. By the name, because an upstream that is
/// deleted and made anew has another id.
#[derive(Default)]
pub struct TargetStates(Mutex<ByUpstream>);

type ByUpstream = HashMap<Box<str>, Targets>;

/// The state of one upstream's targets.
#[derive(Default)]
struct Targets {
    states: HashMap<Box<str>, Arc<TargetState>>,
    /// The same, for those that eject some of them.
    group: Group<TargetState>,
    /// The id of the upstream, while there is one.
    id: Option<Uuid>,
    /// When the upstream was deleted, or replaced by another of its name.
    deleted: Option<Instant>,
}

/// How long the state of a deleted upstream's targets is kept, as in Kong, because tools delete and make anew.
const KEPT_FOR: Duration = Duration::from_secs(10);

impl Targets {
    fn group(&self) -> MutexGuard<'_, Vec<Arc<TargetState>>> {
        self.group.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes what is not needed with this upstream and these targets; returns whether anything is.
    fn keep(&mut self, upstream: Option<&Upstream>, named: Option<&HashMap<&str, u16>>) -> bool {
        let id = upstream.map(|upstream| upstream.id);
        if self.id.is_some() && self.id != id {
            self.deleted = Some(Instant::now());
        }
        self.id = id;
        self.deleted = self.deleted.filter(|deleted| deleted.elapsed() < KEPT_FOR);
        if self.deleted.is_none() {
            self.states.retain(|target, _| named.is_some_and(|named| named.contains_key(&**target)));
            let mut group = self.group();
            if group.len() != self.states.len() {
                *group = self.states.values().cloned().collect();
            }
        }
        let weight = |target: &str| named.and_then(|named| named.get(target)).copied().unwrap_or_default();
        for (target, state) in &self.states {
            state.is_in_use.store(weight(target) > 0, Ordering::Relaxed);
            if upstream.is_some_and(|upstream| !super::are_used(upstream)) {
                state.forget();
            }
        }
        upstream.map_or(self.deleted.is_some(), is_watched)
    }
}

impl TargetStates {
    fn lock(&self) -> MutexGuard<'_, ByUpstream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<(Box<str>, Box<str>, Arc<TargetState>)> {
        let all = self.lock();
        let each = all.iter().flat_map(|(upstream, targets)| {
            targets
                .states
                .iter()
                .map(move |(target, state)| (upstream.clone(), target.clone(), state.clone()))
        });
        each.collect()
    }

    /// The state of one target.
    pub fn of(&self, upstream: &str, target: &str) -> Arc<TargetState> {
        let mut all = self.lock();
        if let Some(state) = all.get(upstream).and_then(|targets| targets.states.get(target)) {
            return state.clone();
        }
        let targets = all.entry(upstream.into()).or_default();
        let state = Arc::new(TargetState::of(target));
        targets.states.insert(target.into(), state.clone());
        targets.group().push(state.clone());
        state
    }

    /// The targets that an upstream has now.
    fn group(&self, upstream: &str) -> Group<TargetState> {
        self.lock().entry(upstream.into()).or_default().group.clone()
    }

    /// Follows a configuration that is about to be active: removes targets that no longer exist or are no longer monitored, those
    /// of a deleted upstream a while later, and forgets the health of those that are no longer checked.
    pub fn keep_those_of(&self, document: &Document) {
        let mut all = self.lock();
        if all.is_empty() {
            return;
        }
        let mut named: HashMap<Uuid, HashMap<&str, u16>> = HashMap::new();
        for target in &document.targets {
            let weight = named.entry(target.upstream).or_default().entry(&target.target).or_default();
            *weight = target.weight.max(*weight);
        }
        let upstreams: HashMap<&str, &Upstream> =
            document.upstreams.iter().map(|upstream| (upstream.name.as_str(), &**upstream)).collect();
        all.retain(|name, targets| {
            let upstream = upstreams.get(&**name).copied();
            targets.keep(upstream, upstream.and_then(|upstream| named.get(&upstream.id)))
        });
    }
}

/// Whether the state of the upstream's targets is needed.
pub(super) fn is_watched(upstream: &Upstream) -> bool {
    super::are_used(upstream)
        || OutlierPolicy::of(&upstream.tags).is_some()
        || slow_start(&upstream.tags).is_some()
        || LimitPolicy::of(&upstream.tags).is_some_and(|policy| policy.target_max_requests.is_some())
        || matches!(upstream.algorithm, Algorithm::LeastConnections | Algorithm::Latency)
}

/// The health of one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressStatus {
    /// The address.
    pub address: SocketAddr,
    /// Whether it is healthy.
    pub is_healthy: bool,
    /// Since when, and why.
    pub changed: HealthChange,
}

/// The health of one target.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TargetStatus {
    /// Its addresses as far as they are known.
    pub addresses: Vec<AddressStatus>,
}

impl TargetStatus {
    /// What is known of an address.
    pub fn of(&self, address: SocketAddr) -> Option<AddressStatus> {
        self.addresses.iter().find(|known| known.address == address).copied()
    }
}

/// The health of a target of an upstream that uses health checks.
pub fn standing(all: &TargetStates, upstream: &str, target: &str) -> TargetStatus {
    all.of(upstream, target).status()
}

/// Whether a target is ejected, and how often it was, by what it did.
pub fn ejections(all: &TargetStates, upstream: &str, target: &str) -> (bool, [(&'static str, u64); 3]) {
    let state = all.of(upstream, target);
    (state.outlier.is_ejected(since_beginning(Instant::now())), state.outlier.counts())
}

/// Sets the health of an address of a target, or of all, as an operator says. `addresses` are those it has now, if they
/// could be found.
pub fn mark(
    all: &TargetStates,
    upstream: &Upstream,
    (target, addresses): (&str, &[SocketAddr]),
    address: Option<SocketAddr>,
    healthy: bool,
) {
    let state = all.of(&upstream.name, target);
    if !addresses.is_empty() {
        state.follow(addresses);
    }
    for address in state.set(address, healthy, HealthSource::Operator) {
        tell(&upstream.name, target, address, healthy, format_args!("an operator says so"));
    }
}
