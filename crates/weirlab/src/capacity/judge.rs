//! What a probe says of a rate, and how long it must be to say anything.
use super::search::{Probe, Slo};
use crate::observe::Layout;
use crate::result::Block;
use std::time::Duration;

/// The share of their CPUs beyond which generator and upstream are what limits.
const FULL: f64 = 0.9;
/// How many answers must lie above a quantile.
const ABOVE: f64 = 10.0;
/// So many more are due than are needed, for chance and what is in flight at the end.
const MARGIN: f64 = 1.2;
/// The longest window of a probe.
const MAX_WINDOW: Duration = Duration::from_secs(60);

/// The reason if generator and upstream are saturated before the target.
pub(crate) const NO_CPU_LEFT: &str = "generator and upstream had no CPU left";

/// The window that a probe at the rate needs for the quantiles of the service level, at least the one that was asked for.
///
/// # Errors
/// When even the longest is too short.
pub(crate) fn window(slo: &Slo, rate: f64, asked: Duration) -> Result<Duration, String> {
    let highest = slo.latencies.iter().map(|(quantile, _)| *quantile).fold(0.0, f64::max);
    let needed = MARGIN * ABOVE / (1.0 - highest) / rate;
    let longest = MAX_WINDOW.max(asked);
    if needed <= longest.as_secs_f64() {
        return Ok(asked.max(Duration::from_secs_f64(needed)));
    }
    Err(format!("{rate:.0} requests per second for {} s are too few for {slo}", longest.as_secs()))
}

/// What a block says. The generator's fault comes first; a rate that holds holds however little CPU was left; one that
/// does not is the target's fault only if generator and upstream could have done more.
pub(crate) fn judge(slo: &Slo, block: &Block, layout: &Layout) -> Probe {
    if let Some(why) = block.void.as_ref().filter(|_| !block.overloaded) {
        return Probe::Void(why.clone());
    }
    let holds = if block.overloaded { Some(false) } else { holds(slo, block) };
    match holds {
        Some(true) => Probe::Holds,
        _ if has_no_cpu_left(block, layout) => Probe::Void(NO_CPU_LEFT.to_owned()),
        Some(false) => Probe::Fails,
        None => Probe::Void(format!("{} answers are too few for {slo}", block.good)),
    }
}

/// Whether the block's answers held the service level; none where they are too few.
pub(crate) fn holds(slo: &Slo, block: &Block) -> Option<bool> {
    slo.holds(&block.latencies, block.good, block.errors.values().sum())
}

fn has_no_cpu_left(block: &Block, layout: &Layout) -> bool {
    let full = |used_us: f64, cpus: usize| cpus > 0 && used_us >= FULL * 1e6 * block.measured_s * cpus as f64;
    let (generator, upstream) = (block.generator_cpu_us, block.upstream_cpu_us);
    let of_both = layout.upstream.iter().filter(|cpu| !layout.generator.contains(cpu)).count();
    full(generator, layout.generator.len())
        || full(upstream, layout.upstream.len())
        || full(generator + upstream, layout.generator.len() + of_both)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Histogram;

    /// Two seconds at 1000 per second, each answered within a millisecond.
    fn block() -> Block {
        let mut response = Histogram::default();
        (0..2000).for_each(|_| response.record(Duration::from_micros(900)));
        let latencies =
            crate::result::Latencies { service: response.clone(), response, ..Default::default() };
        Block {
            measured_s: 2.0,
            warm_up_s: 0.5,
            steady: Some(true),
            answers: 2000,
            good: 2000,
            latencies,
            offered: Some(1000.0),
            generator_cpu_us: 5e5,
            upstream_cpu_us: 5e5,
            ..Block::default()
        }
    }

    /// Of two CPUs the target has one.
    fn layout() -> Layout {
        Layout::plan(&[0, 1], 1)
    }

    fn slo(text: &str) -> Slo {
        Slo::parse(text).unwrap()
    }

    #[test]
    fn a_rate_holds_or_fails() {
        assert_eq!(judge(&slo("p99=2ms"), &block(), &layout()), Probe::Holds);
        assert_eq!(judge(&slo("p99=500us"), &block(), &layout()), Probe::Fails);
        assert!(
            matches!(judge(&slo("p99.9=2ms"), &block(), &layout()), Probe::Void(why) if why.contains("too few"))
        );
    }

    #[test]
    fn a_target_that_falls_behind_fails_unless_the_generator_did() {
        let void = Some("97.0 % of the offered requests were answered".to_owned());
        let behind = Block { void, overloaded: true, ..block() };
        assert_eq!(judge(&slo("p99=2ms"), &behind, &layout()), Probe::Fails);
        let at_fault = Block { overloaded: false, ..behind };
        assert!(matches!(judge(&slo("p99=2ms"), &at_fault, &layout()), Probe::Void(_)));
    }

    #[test]
    fn generator_and_upstream_may_be_what_limits() {
        let full = Block { generator_cpu_us: 1.0e6, upstream_cpu_us: 0.85e6, ..block() };
        let void = Probe::Void(NO_CPU_LEFT.to_owned());
        assert_eq!(judge(&slo("p99=500us"), &full, &layout()), void);
        assert_eq!(judge(&slo("p99=500us"), &Block { overloaded: true, ..full.clone() }, &layout()), void);
        assert_eq!(judge(&slo("p99=2ms"), &full, &layout()), Probe::Holds);
        // With a CPU each there is room, unless one of them has none.
        let apart = Layout::plan(&[0, 1, 2], 1);
        assert_eq!(judge(&slo("p99=500us"), &full, &apart), Probe::Fails);
        let upstream = Block { generator_cpu_us: 0.1e6, upstream_cpu_us: 1.9e6, ..full };
        assert_eq!(judge(&slo("p99=500us"), &upstream, &apart), void);
    }

    #[test]
    fn the_window_is_long_enough_for_the_quantile() {
        let asked = Duration::from_secs(2);
        assert_eq!(window(&slo("p99=5ms"), 1000.0, asked), Ok(asked));
        let longer = window(&slo("p99.9=5ms,p50=1ms"), 1000.0, asked).unwrap();
        assert!((11.9..12.1).contains(&longer.as_secs_f64()), "{longer:?}");
        let never = window(&slo("p99.9=5ms"), 100.0, asked).unwrap_err();
        assert!(never.contains("too few for p99.9=5ms"), "{never}");
        assert_eq!(window(&slo("errors=1%"), 10.0, asked), Ok(asked));
    }
}
