//! The instances, and which of them a request is sent to.

use super::AiProxyMulti;
use super::config::{Config, Strategy};
use super::instance::Instance;
use crate::llm::{Reporting, TokenLimits};
use crate::shared::request_key::Key;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::Instant;
use weir_plugin::{BuildContext, Exchange, Plugin};

/// The instances, and how requests are spread over them.
pub(super) struct Pool {
    pub(super) instances: Vec<Instance>,
    pub(super) strategy: Strategy,
    pub(super) reporting: Reporting,
    pub(super) timeout: u32,
    /// How many more instances a request is sent to.
    pub(super) max_retries: usize,
    /// How long an instance may have taken to fail, if another is to be asked.
    pub(super) within: Option<Duration>,
    /// What is hashed, if it decides.
    key: Option<Key>,
    turn: AtomicU64,
}

/// What an instance is chosen by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Choice {
    by: By,
    /// Who asks: failures concern the caller alone at first.
    pub(super) caller: u64,
}

/// What chooses among the instances of a priority.
#[derive(Debug, Clone, Copy)]
enum By {
    /// Whose turn it is.
    Turn(u64),
    /// A hash of something in the request.
    Hash(u64),
}

impl Pool {
    pub(super) fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let (strategy, within, key) = (Strategy::of(&config)?, config.within(), config.balancer.key()?);
        let reporting = Reporting {
            plugin: build.entity.id,
            plugin_name: AiProxyMulti::NAME,
            name: "proxy",
            statistics: config.logging.summaries,
            payloads: config.logging.payloads,
            model_header: false,
            calls: build.retained.get(),
        };
        let max_retries = config.max_retries.map_or(usize::MAX, |most| most as usize);
        Ok(Self {
            instances: config.instances.into_iter().map(Instance::new).collect::<Result<_, _>>()?,
            strategy,
            reporting,
            timeout: config.timeout,
            max_retries,
            within,
            key,
            turn: AtomicU64::new(0),
        })
    }

    /// Whether a request may be sent to another instance behind the first.
    pub(super) fn may_fall_back(&self) -> bool {
        self.instances.len() > 1 && self.max_retries > 0 && self.strategy.may_fall_back()
    }

    /// What chooses the instance of a request.
    pub(super) fn choice(&self, exchange: &Exchange) -> Choice {
        let of_address = || hash(exchange.client_ip.to_string().as_bytes());
        let consumer = exchange.consumer().map(|consumer| hash(consumer.entity.id.as_bytes()));
        let by = match &self.key {
            None => By::Turn(self.turn.fetch_add(1, Relaxed)),
            Some(key) => By::Hash(key.value(exchange).map_or_else(of_address, |value| hash(&value))),
        };
        Choice { by, caller: consumer.unwrap_or_else(of_address) }
    }

    /// The instance to ask, but for those that were tried.
    pub(super) fn pick(&self, exchange: &Exchange, tried: &[usize], choice: Choice) -> Option<usize> {
        let limits = exchange.extensions.get::<TokenLimits>();
        // Whichever is asked next has tokens left, because otherwise the limit would refuse what another could answer.
        let limits = limits.filter(|_| self.strategy.limits || !tried.is_empty());
        let has_tokens = |index: &usize| limits.is_none_or(|of| of.admit(&self.instances[*index].name));
        let is_left = |index: &usize| self.instances[*index].weight > 0 && !tried.contains(index);
        let left: Vec<usize> = (0..self.instances.len()).filter(is_left).filter(has_tokens).collect();
        self.choose(&left, choice)
    }

    /// The instance to ask if it does not matter whether it has tokens left.
    pub(super) fn first(&self, choice: Choice) -> Option<usize> {
        let all: Vec<usize> =
            (0..self.instances.len()).filter(|index| self.instances[*index].weight > 0).collect();
        self.choose(&all, choice)
    }

    /// One of these instances: those that are well come first, and of them those of the highest priority.
    fn choose(&self, left: &[usize], choice: Choice) -> Option<usize> {
        let now = Instant::now();
        let mut well: Vec<usize> = left
            .iter()
            .copied()
            .filter(|index| self.instances[*index].health.is_well(choice.caller, now))
            .collect();
        if well.is_empty() {
            well = left.to_vec();
        }
        let highest = well.iter().map(|index| self.instances[*index].priority).max()?;
        well.retain(|index| self.instances[*index].priority == highest);
        match choice.by {
            By::Turn(turn) => self.of_turn(&well, turn),
            By::Hash(hash) => self.of_hash(&well, hash),
        }
    }

    /// The instance whose turn it is: each has as many turns as its weight, spread evenly.
    fn of_turn(&self, among: &[usize], turn: u64) -> Option<usize> {
        let total: u64 = among.iter().map(|index| self.instances[*index].weight).sum();
        let mut rest = spread(turn, total);
        among.iter().copied().find(|index| {
            let weight = self.instances[*index].weight;
            let is_it = rest < weight;
            rest = rest.saturating_sub(weight);
            is_it
        })
    }

    /// The instance that wins by the hash: where one comes or goes, others keep their requests.
    fn of_hash(&self, among: &[usize], hashed: u64) -> Option<usize> {
        let score = |index: &usize| {
            let instance = &self.instances[*index];
            let mixed = mix(hash(instance.name.as_bytes()) ^ hashed);
            // Above 0 and below 1, so that the logarithm is below 0.
            let unit = ((mixed >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
            instance.weight as f64 / -unit.ln()
        };
        among.iter().copied().max_by(|one, other| score(one).total_cmp(&score(other)))
    }
}

/// The place of a turn among `total`: each place once in so many turns, neighbours far from each other.
fn spread(turn: u64, total: u64) -> u64 {
    let golden = (total as f64 * 0.618) as u64;
    let step = (golden.max(1)..=total).find(|step| gcd(*step, total) == 1).unwrap_or(1);
    (turn % total.max(1)) * step % total.max(1)
}

fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { gcd(other, one % other) }
}

/// FNV-1a, mixed: the same on every node.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    mix(bytes.iter().fold(0xcbf2_9ce4_8422_2325, step))
}

/// Spreads the bits of a number over all of them.
fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let number = (number ^ number >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    number ^ number >> 33
}

#[cfg(test)]
mod tests {
    use super::spread;

    #[test]
    fn turns_are_spread_evenly() {
        let of = |total: u64| (0..total).map(|turn| spread(turn, total)).collect::<Vec<_>>();
        for total in 1..200 {
            let mut places = of(total);
            places.sort_unstable();
            assert!(places.into_iter().eq(0..total), "{total}");
        }
        assert_eq!(of(5), [0, 3, 1, 4, 2]);
        assert_eq!(spread(7, 0), 0);
    }
}
