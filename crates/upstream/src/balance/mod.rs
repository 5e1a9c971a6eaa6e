//! Load balancing: the upstream's algorithm picks a target among those that are healthy and were not tried yet, and of these
//! among those of the highest priority.

mod key;
pub mod latency;
mod ring;
mod round_robin;

pub use key::{HashSource, Key};
pub use ring::Rings;
pub use round_robin::Cursors;

use super::endpoint::Endpoint;
use super::health::{OutlierPolicy, TargetMonitor, TargetState};
use super::limit::{LimitState, UpstreamLimit};
use key::Inputs;
use ring::{Ring, Seed};
use round_robin::SmoothWeightedRoundRobin;
use std::cmp::Reverse;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;
use weir_model::entity::{Algorithm, Upstream};
use weir_model::tags;

/// How many random turns are tried before a linear scan.
const ATTEMPTS: usize = 8;

/// The targets of one upstream, as one service reaches them.
pub struct Balancer {
    /// The targets, as endpoints, those of higher priorities first.
    pub endpoints: Vec<Endpoint>,
    weights: Vec<u16>,
    /// The targets by priority, the highest first.
    tiers: Vec<Tier>,
    cursors: Arc<Cursors>,
    choice: Choice,
    /// The percentage of the weight that the healthy targets must exceed, if the upstream sets one.
    threshold: Option<f64>,
    /// The limits of the upstream, if it has any.
    pub limit: Option<Arc<UpstreamLimit>>,
    /// The most requests in flight to each target, if they are limited.
    target_max: Option<usize>,
    /// Whether requests in flight are counted, and latencies measured.
    measures: bool,
    /// Whether targets may be ejected or in slow start.
    may_pass_over: bool,
}

/// A target, as one service reaches it.
pub struct BalancedEndpoint {
    /// How it is reached.
    pub endpoint: Endpoint,
    /// Its share of the requests.
    pub weight: u16,
    /// It gets requests only while no target of a higher priority is available.
    pub priority: i32,
}

/// Targets of one priority, which are next to each other.
struct Tier {
    range: Range<usize>,
    turns: SmoothWeightedRoundRobin,
}

/// The algorithm's own state, beside the turns.
enum Choice {
    RoundRobin,
    LeastConnections,
    Latency,
    Hash(Box<(Inputs, Arc<Ring>)>),
}

/// The inputs of a pick, which differ for each request and attempt.
pub struct PickContext<'a> {
    /// The worker that picks, because each worker has its own turns.
    pub worker: usize,
    /// Endpoints that were tried for this request.
    pub tried: &'a [u32],
    /// The hash of the request.
    pub hash: Option<u64>,
    /// Generates random numbers.
    pub random: &'a dyn Fn() -> u64,
}

/// A search for a target.
struct Search<'a> {
    context: &'a PickContext<'a>,
    /// Leaves out targets that are ejected, and some turns of those in slow start.
    strict: bool,
}

/// The picked target, and its in-flight lease, if requests to it are counted.
pub struct Pick<'b> {
    /// The target.
    pub endpoint: &'b Endpoint,
    /// Counts the request, where requests are counted.
    pub lease: Option<Lease>,
}

/// Counts a request in flight to a target until it is dropped.
pub struct Lease {
    state: Arc<TargetState>,
    since: Instant,
    /// Where others may wait for it to end.
    room: Option<Arc<LimitState>>,
}

impl Lease {
    fn new(state: &Arc<TargetState>) -> Lease {
        state.in_flight.fetch_add(1, Ordering::SeqCst);
        Lease { state: state.clone(), since: Instant::now(), room: None }
    }

    /// One of at most so many; none if there are as many already.
    fn within(state: &Arc<TargetState>, most: usize, room: Option<&Arc<LimitState>>) -> Option<Lease> {
        // Never more for a moment: another worker would find the target full, and wait although nothing wakes it.
        let more = |count| (count < most).then_some(count + 1);
        state.in_flight.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
        Some(Lease { state: state.clone(), since: Instant::now(), room: room.cloned() })
    }

    /// Records that the target has responded; the client was waited for so long meanwhile.
    pub fn answered(&self, client_took: Duration) {
        self.state.latency.add(self.since.elapsed().saturating_sub(client_took));
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.state.in_flight.fetch_sub(1, Ordering::SeqCst);
        if let Some(room) = &self.room {
            room.free();
        }
    }
}

impl Balancer {
    /// A balancer over these targets, within these limits.
    pub fn new(
        upstream: &Upstream,
        mut targets: Vec<BalancedEndpoint>,
        (cursors, rings): (Arc<Cursors>, &Rings),
        limit: Option<Arc<UpstreamLimit>>,
    ) -> Self {
        targets.sort_by_key(|target| Reverse(target.priority));
        let choice = match upstream.algorithm {
            Algorithm::RoundRobin => Choice::RoundRobin,
            Algorithm::LeastConnections => Choice::LeastConnections,
            Algorithm::Latency => Choice::Latency,
            Algorithm::ConsistentHashing => {
                let seed = |it: &BalancedEndpoint| Seed::new(&it.endpoint.name(), it.weight, it.priority);
                let ring = rings.get(upstream, targets.iter().map(seed));
                Choice::Hash(Box::new((Inputs::of(upstream), ring)))
            }
        };
        let asked = super::health::are_used(upstream) && upstream.healthchecks.threshold > 0.0;
        let threshold = asked.then_some(upstream.healthchecks.threshold);
        let weights: Vec<u16> = targets.iter().map(|target| target.weight).collect();
        let tiers = tiers(&targets, &weights);
        let endpoints = targets.into_iter().map(|target| target.endpoint).collect();
        let target_max = limit.as_ref().and_then(|limit| limit.policy().target_max_requests);
        let outliers = OutlierPolicy::of(&upstream.tags);
        let measures = matches!(choice, Choice::LeastConnections | Choice::Latency)
            || target_max.is_some()
            || outliers.is_some_and(|policy| policy.latency.is_some());
        let may_pass_over = outliers.is_some() || tags::number_of(&upstream.tags, tags::SLOW_START).is_some();
        Self {
            endpoints,
            weights,
            tiers,
            cursors,
            choice,
            threshold,
            limit,
            target_max,
            measures,
            may_pass_over,
        }
    }

    /// Whether there is a target that may get requests, should it be healthy.
    pub fn has_targets(&self) -> bool {
        self.weights.iter().any(|weight| *weight > 0)
    }

    /// What of the request is hashed, if anything is.
    pub fn key(&self, request: &impl HashSource) -> Option<Key> {
        match &self.choice {
            Choice::Hash(hash) => hash.0.key(request),
            _ => None,
        }
    }

    /// What of a session is hashed, if anything is: it has an address and nothing else.
    pub fn session_hash(&self, client: IpAddr) -> Option<u64> {
        match &self.choice {
            Choice::Hash(hash) => hash.0.of_address(client),
            _ => None,
        }
    }

    /// The next target that was not tried for this request yet; `None` if the upstream has no available one.
    pub fn pick(&self, context: &PickContext<'_>) -> Option<Pick<'_>> {
        if self.threshold.is_some_and(|threshold| self.healthy_percentage() <= threshold) {
            return None;
        }
        loop {
            let endpoint = &self.endpoints[self.choose(context)?];
            let Some(monitor) = endpoint.monitor.as_ref().filter(|_| self.measures) else {
                return Some(Pick { endpoint, lease: None });
            };
            let lease = match self.target_max {
                None => Some(Lease::new(&monitor.state)),
                Some(most) => {
                    Lease::within(&monitor.state, most, self.limit.as_ref().map(|limit| limit.state()))
                }
            };
            // Otherwise another worker has taken the last room of the target meanwhile: it is not chosen again.
            if lease.is_some() {
                return Some(Pick { endpoint, lease });
            }
        }
    }

    /// Whether an available target has as many requests as it may have.
    pub fn is_saturated(&self) -> bool {
        self.endpoints.iter().any(|endpoint| !endpoint.is_down() && self.is_full(endpoint))
    }

    fn is_full(&self, endpoint: &Endpoint) -> bool {
        let in_flight = |it: &Arc<TargetMonitor>| it.state.in_flight.load(Ordering::SeqCst);
        self.target_max.is_some_and(|most| endpoint.monitor.as_ref().map_or(0, in_flight) >= most)
    }

    /// The index of the target that the algorithm chooses. Where all others are unavailable, ejected ones are better than none.
    fn choose(&self, context: &PickContext<'_>) -> Option<usize> {
        let strict = Search { context, strict: self.may_pass_over };
        let chosen = self.choose_by(&strict);
        if chosen.is_some() || !self.may_pass_over {
            chosen
        } else {
            self.choose_by(&Search { context, strict: false })
        }
    }

    fn choose_by(&self, search: &Search<'_>) -> Option<usize> {
        match (&self.choice, search.context.hash) {
            (Choice::Hash(hash), Some(key)) => hash.1.find(key, |index| self.is_open(index, search)),
            _ => {
                let position = self.position(search.context);
                self.tiers.iter().find_map(|tier| self.pick_of(tier, position, search))
            }
        }
    }

    /// The algorithm's choice among the targets of one priority.
    fn pick_of(&self, tier: &Tier, position: usize, search: &Search<'_>) -> Option<usize> {
        match self.choice {
            Choice::RoundRobin | Choice::Hash(_) => self.next_turn(tier, position, search),
            Choice::LeastConnections => self.least_connections(tier, position, search),
            Choice::Latency => self.lowest_latency(tier, search),
        }
    }

    fn is_open(&self, index: usize, search: &Search<'_>) -> bool {
        let endpoint = &self.endpoints[index];
        !search.context.tried.contains(&endpoint.id)
            && !endpoint.is_down()
            && !self.is_full(endpoint)
            && (!search.strict || self.takes_its_turn(endpoint, search))
    }

    /// Whether it is neither ejected nor held back by slow start. Hashing leaves slow start aside, because a key leads to one target.
    fn takes_its_turn(&self, endpoint: &Endpoint, search: &Search<'_>) -> bool {
        let is_hashed = matches!(self.choice, Choice::Hash(_)) && search.context.hash.is_some();
        let random = || ((search.context.random)() % 1024) as f64 / 1024.0;
        let random = (!is_hashed).then(random);
        endpoint.monitor.as_ref().is_none_or(|monitor| monitor.takes_its_turn(random))
    }

    /// The healthy share of the weight.
    fn healthy_percentage(&self) -> f64 {
        let (mut healthy, mut total) = (0.0, 0.0);
        for (endpoint, weight) in self.endpoints.iter().zip(&self.weights) {
            let share = endpoint.monitor.as_ref().map_or(1.0, |monitor| monitor.state.share());
            healthy += f64::from(*weight) * share;
            total += f64::from(*weight);
        }
        if total > 0.0 { healthy / total * 100.0 } else { 0.0 }
    }

    /// The position in the order of turns. A retry takes no turn: with two targets, the one that fails would otherwise have
    /// every turn.
    fn position(&self, context: &PickContext<'_>) -> usize {
        if context.tried.is_empty() { self.cursors.next(context.worker) } else { (context.random)() as usize }
    }

    /// Round-robin. Turns of targets that are unavailable or failed are distributed over the others at random.
    fn next_turn(&self, tier: &Tier, position: usize, search: &Search<'_>) -> Option<usize> {
        let first = tier.turns.at(position)?;
        if self.is_open(first, search) {
            return Some(first);
        }
        let drawn = (0..ATTEMPTS).filter_map(|_| tier.turns.at((search.context.random)() as usize));
        drawn.chain(tier.turns.all()).find(|&index| self.is_open(index, search))
    }

    /// Least connections: the next in turn among the targets with the fewest requests in flight per weight.
    fn least_connections(&self, tier: &Tier, position: usize, search: &Search<'_>) -> Option<usize> {
        let first = tier.turns.at(position)?;
        let load = |index: usize| {
            let monitor = self.endpoints[index].monitor.as_ref();
            monitor.map_or(0, |monitor| monitor.state.in_flight.load(Ordering::Relaxed)) as u64 + 1
        };
        self.open_from(first, tier, search).min_by(|&a, &b| {
            let (a, b) = ((load(a), u64::from(self.weights[a])), (load(b), u64::from(self.weights[b])));
            (a.0 * b.1).cmp(&(b.0 * a.1))
        })
    }

    /// Latency: of two random targets, the one with the lower average latency per weight. A target without samples
    /// counts as the average of the others.
    fn lowest_latency(&self, tier: &Tier, search: &Search<'_>) -> Option<usize> {
        let chance = || tier.range.start + (search.context.random)() as usize % tier.range.len();
        let one = self.open_from(chance(), tier, search).next()?;
        let Some(other) = self.open_from(chance(), tier, search).find(|&index| index != one) else {
            return Some(one);
        };
        let score = |index: usize| self.latency(index, tier) / f64::from(self.weights[index]);
        Some(if score(other) < score(one) { other } else { one })
    }

    fn latency(&self, index: usize, tier: &Tier) -> f64 {
        let of =
            |endpoint: &Endpoint| endpoint.monitor.as_ref().and_then(|monitor| monitor.state.latency.now());
        of(&self.endpoints[index]).unwrap_or_else(|| {
            let all = self.endpoints[tier.range.clone()].iter().filter_map(of);
            let (count, sum) = all.fold((0, 0.0), |(n, sum), l| (n + 1, sum + l));
            sum / f64::from(count.max(1))
        })
    }

    /// The available targets of one priority with a weight, starting at one and wrapping around.
    fn open_from<'s>(
        &'s self,
        first: usize,
        tier: &'s Tier,
        search: &'s Search<'s>,
    ) -> impl Iterator<Item = usize> + 's {
        let around = (first..tier.range.end).chain(tier.range.start..first);
        around.filter(move |&index| self.weights[index] > 0 && self.is_open(index, search))
    }
}

/// The targets of each priority; they are sorted by it.
fn tiers(targets: &[BalancedEndpoint], weights: &[u16]) -> Vec<Tier> {
    let mut end = 0;
    let same = targets.chunk_by(|a, b| a.priority == b.priority);
    let tier = |chunk: &[BalancedEndpoint]| {
        let range = end..end + chunk.len();
        end = range.end;
        Tier { turns: SmoothWeightedRoundRobin::new(weights, range.clone()), range }
    };
    same.map(tier).collect()
}

#[cfg(test)]
mod tests;
