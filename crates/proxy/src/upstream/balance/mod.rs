//! Which of an upstream's targets is asked: the algorithm, among those that are healthy and were not tried yet.

mod key;
pub(crate) mod latency;
mod ring;
mod turns;

pub(crate) use key::Key;
pub(crate) use ring::Rings;
pub(crate) use turns::Cursors;

use super::endpoint::Endpoint;
use super::health::Vitals;
use crate::exchange::Exchange;
use key::Inputs;
use ring::Ring;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use turns::Turns;
use weir_model::entity::{Algorithm, Upstream};

/// How often chance is asked for another turn before all are gone through.
const ATTEMPTS: usize = 8;

/// The targets of one upstream, as one service reaches them.
pub(crate) struct Balancer {
    pub(crate) endpoints: Vec<Endpoint>,
    weights: Vec<u16>,
    turns: Turns,
    choice: Choice,
    /// The percentage of the weight above which what is healthy has to be; None: nobody asks for it.
    threshold: Option<f64>,
}

/// What decides, beside the turns.
enum Choice {
    Turns,
    LeastConnections,
    Latency,
    Hash(Box<(Inputs, Arc<Ring>)>),
}

/// What the choice depends on, from request to request and from try to try.
pub(crate) struct Asking<'a> {
    pub(crate) worker: usize,
    /// Endpoints that were tried for this request.
    pub(crate) tried: &'a [u32],
    pub(crate) hash: Option<u64>,
    pub(crate) random: &'a dyn Fn() -> u64,
}

/// The target that is asked, and its being asked, where that is measured.
pub(crate) struct Pick<'b> {
    pub(crate) endpoint: &'b Endpoint,
    pub(crate) lease: Option<Lease>,
}

/// A request that a target is busy with.
pub(crate) struct Lease {
    vitals: Arc<Vitals>,
    since: Instant,
}

impl Lease {
    fn new(vitals: &Arc<Vitals>) -> Lease {
        vitals.in_flight.fetch_add(1, Ordering::Relaxed);
        Lease { vitals: vitals.clone(), since: Instant::now() }
    }

    /// The target has answered.
    pub(crate) fn answered(&self) {
        self.vitals.latency.add(self.since.elapsed());
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.vitals.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Balancer {
    pub(crate) fn new(
        upstream: &Upstream,
        targets: Vec<(Endpoint, u16)>,
        (cursors, rings): (Arc<Cursors>, &Rings),
    ) -> Self {
        let (endpoints, weights): (Vec<Endpoint>, Vec<u16>) = targets.into_iter().unzip();
        let choice = match upstream.algorithm {
            Algorithm::RoundRobin => Choice::Turns,
            Algorithm::LeastConnections => Choice::LeastConnections,
            Algorithm::Latency => Choice::Latency,
            Algorithm::ConsistentHashing => {
                let names: Vec<String> = endpoints.iter().map(Endpoint::name).collect();
                let targets = names.iter().map(String::as_str).zip(weights.iter().copied());
                Choice::Hash(Box::new((Inputs::of(upstream), rings.get(upstream, targets))))
            }
        };
        let asked = super::health::are_used(upstream) && upstream.healthchecks.threshold > 0.0;
        let threshold = asked.then_some(upstream.healthchecks.threshold);
        Self { turns: Turns::new(&weights, cursors), endpoints, weights, choice, threshold }
    }

    /// What of the request is hashed, if anything is.
    pub(crate) fn key(&self, exchange: &Exchange) -> Option<Key> {
        match &self.choice {
            Choice::Hash(hash) => hash.0.key(exchange),
            _ => None,
        }
    }

    /// What of a session is hashed, if anything is: it has an address and nothing else.
    pub(crate) fn session_hash(&self, client: IpAddr) -> Option<u64> {
        match &self.choice {
            Choice::Hash(hash) => hash.0.of_address(client),
            _ => None,
        }
    }

    /// The next target that was not tried for this request yet; none where the upstream has none that may be asked.
    pub(crate) fn pick(&self, asking: &Asking<'_>) -> Option<Pick<'_>> {
        if self.threshold.is_some_and(|threshold| self.healthy_percentage() <= threshold) {
            return None;
        }
        let index = match (&self.choice, asking.hash) {
            (Choice::Turns, _) | (Choice::Hash(_), None) => self.next_turn(asking),
            (Choice::Hash(hash), Some(key)) => hash.1.find(key, |index| self.is_open(index, asking.tried)),
            (Choice::LeastConnections, _) => self.least_connections(asking),
            (Choice::Latency, _) => self.lowest_latency(asking),
        }?;
        let endpoint = &self.endpoints[index];
        let measured = matches!(self.choice, Choice::LeastConnections | Choice::Latency);
        let lease = endpoint.watch.as_ref().filter(|_| measured).map(|watch| Lease::new(&watch.vitals));
        Some(Pick { endpoint, lease })
    }

    fn is_open(&self, index: usize, tried: &[u32]) -> bool {
        let endpoint = &self.endpoints[index];
        !tried.contains(&endpoint.id) && !endpoint.is_down()
    }

    /// How much of the weight is healthy.
    fn healthy_percentage(&self) -> f64 {
        let (mut healthy, mut total) = (0.0, 0.0);
        for (endpoint, weight) in self.endpoints.iter().zip(&self.weights) {
            let share = endpoint.watch.as_ref().map_or(1.0, |watch| watch.vitals.share());
            healthy += f64::from(*weight) * share;
            total += f64::from(*weight);
        }
        if total > 0.0 { healthy / total * 100.0 } else { 0.0 }
    }

    /// Whose turn it is. A retry takes no turn: with two targets, the one that fails would otherwise have every turn.
    fn first(&self, asking: &Asking<'_>) -> Option<usize> {
        if asking.tried.is_empty() {
            return self.turns.next(asking.worker);
        }
        self.turns.drawn((asking.random)())
    }

    /// Round-robin. The turns of targets that may not be asked, or that failed, are spread over the others by chance.
    fn next_turn(&self, asking: &Asking<'_>) -> Option<usize> {
        let first = self.first(asking)?;
        if self.is_open(first, asking.tried) {
            return Some(first);
        }
        let drawn = (0..ATTEMPTS).map(|_| self.turns.at((asking.random)() as usize));
        drawn.chain(self.turns.all()).find(|&index| self.is_open(index, asking.tried))
    }

    /// Of the targets with the fewest requests under way in proportion to their weights, the next in turn.
    fn least_connections(&self, asking: &Asking<'_>) -> Option<usize> {
        let first = self.first(asking)?;
        let load = |index: usize| {
            let watch = self.endpoints[index].watch.as_ref();
            watch.map_or(0, |watch| watch.vitals.in_flight.load(Ordering::Relaxed)) as u64 + 1
        };
        self.open_from(first, asking.tried).min_by(|&a, &b| {
            let (a, b) = ((load(a), u64::from(self.weights[a])), (load(b), u64::from(self.weights[b])));
            (a.0 * b.1).cmp(&(b.0 * a.1))
        })
    }

    /// Of two targets by chance, the one that answered faster of late in proportion to their weights. One that nothing
    /// is known of counts as the average of the others.
    fn lowest_latency(&self, asking: &Asking<'_>) -> Option<usize> {
        let chance = || (asking.random)() as usize % self.endpoints.len().max(1);
        let one = self.open_from(chance(), asking.tried).next()?;
        let Some(other) = self.open_from(chance(), asking.tried).find(|&index| index != one) else {
            return Some(one);
        };
        let score = |index: usize| self.latency(index) / f64::from(self.weights[index]);
        Some(if score(other) < score(one) { other } else { one })
    }

    fn latency(&self, index: usize) -> f64 {
        let of = |endpoint: &Endpoint| endpoint.watch.as_ref().and_then(|watch| watch.vitals.latency.now());
        of(&self.endpoints[index]).unwrap_or_else(|| {
            let (count, sum) =
                self.endpoints.iter().filter_map(of).fold((0, 0.0), |(n, sum), l| (n + 1, sum + l));
            sum / f64::from(count.max(1))
        })
    }

    /// The targets with a weight that may be asked, from one on and around.
    fn open_from<'s>(&'s self, first: usize, tried: &'s [u32]) -> impl Iterator<Item = usize> + 's {
        let count = self.endpoints.len();
        let around = (0..count).map(move |step| (first + step) % count);
        around.filter(move |&index| self.weights[index] > 0 && self.is_open(index, tried))
    }
}

#[cfg(test)]
mod tests;
