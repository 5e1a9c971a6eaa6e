//! Axes: from values and times to places, and which of them are named.
use super::Unit;
use crate::format::time;

/// Distances between named times, in seconds.
const TIME_STEPS: [u64; 21] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400,
    172_800, 604_800, 2_592_000,
];
const MAX_TIME_TICKS: u64 = 5;

/// A line from one place to another on which values lie.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    start: f64,
    end: f64,
    is_log: bool,
}

impl Scale {
    pub(super) fn linear((low, high): (f64, f64), (start, end): (f64, f64)) -> Scale {
        Scale { low, high, start, end, is_log: false }
    }

    /// Equal factors are equally far apart. Values must be above 0.
    pub(super) fn log((low, high): (f64, f64), (start, end): (f64, f64)) -> Scale {
        Scale { low: low.ln(), high: high.ln(), start, end, is_log: true }
    }

    /// Where a value lies, to a tenth; never beyond the ends.
    pub(super) fn place(&self, value: f64) -> f64 {
        let value = if self.is_log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        let place = self.start + share * (self.end - self.start);
        (place * 10.0).round() / 10.0
    }
}

/// Round values from 0 to one that nothing exceeds.
pub(super) fn value_ticks(highest: f64, unit: Unit) -> Vec<f64> {
    let least = if unit == Unit::Seconds { 1e-5 } else { 1.0 };
    let highest = if highest.is_finite() && highest > 0.0 { highest } else { least };
    let step = round_step(highest / 3.0);
    let count = (highest / step - 1e-9).ceil().max(1.0) as u32;
    (0..=count).map(|index| f64::from(index) * step).collect()
}

/// 1, 2 or 5 times a power of ten, at least this.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= least * 0.999).unwrap_or(power * 10.0)
}

/// Powers of ten between two values.
pub(super) fn log_ticks((low, high): (f64, f64)) -> Vec<f64> {
    let powers = low.log10().ceil() as i32..=high.log10().floor() as i32;
    powers.map(|power| 10_f64.powi(power)).collect()
}

/// Round times of a frame, and their names in UTC.
pub(super) fn time_ticks((from, to): (u64, u64)) -> Vec<(u64, String)> {
    let wanted = (to - from) / MAX_TIME_TICKS;
    let step =
        TIME_STEPS.into_iter().find(|step| *step >= wanted).unwrap_or(wanted.next_multiple_of(2_592_000));
    let times = (from.next_multiple_of(step)..=to).step_by(step as usize);
    times.map(|at| (at, tick_name(at, step))).collect()
}

fn tick_name(at: u64, step: u64) -> String {
    let text = time(at as i64);
    let part = match step {
        0..60 => 11..19,
        60..86_400 => 11..16,
        _ => 5..10,
    };
    text[part].to_owned()
}

/// The time of day.
pub(super) fn clock(at: u64) -> String {
    tick_name(at, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_named_up_to_a_round_one() {
        for (highest, expected) in
            [(2.4, vec![0.0, 1.0, 2.0, 3.0]), (0.0, vec![0.0, 0.5, 1.0]), (90.0, vec![0.0, 50.0, 100.0])]
        {
            assert_eq!(value_ticks(highest, Unit::PerSecond), expected);
        }
        for nothing in [f64::NAN, f64::INFINITY, -1.0] {
            assert!(value_ticks(nothing, Unit::Seconds).iter().all(|tick| tick.is_finite()));
        }
    }

    #[test]
    fn times_are_named_as_finely_as_fits() {
        let names = |from, to| time_ticks((from, to)).into_iter().map(|(_, name)| name).collect::<Vec<_>>();
        assert_eq!(names(1_795_457_084, 1_795_457_104), ["18:04:45", "18:04:50", "18:04:55", "18:05:00"]);
        assert_eq!(names(1_795_456_500, 1_795_457_100), ["17:56", "17:58", "18:00", "18:02", "18:04"]);
        assert_eq!(names(1_795_000_000, 1_795_500_000).len(), 3);
        assert!(names(0, u64::from(u32::MAX)).len() < 8);
    }

    #[test]
    fn places_stay_on_the_axis() {
        let scale = Scale::linear((0.0, 10.0), (100.0, 0.0));
        assert_eq!(
            [-5.0, 0.0, 5.0, 10.0, 1e9].map(|value| scale.place(value)),
            [100.0, 100.0, 50.0, 0.0, 0.0]
        );
        let log = Scale::log((1e-6, 1.0), (0.0, 60.0));
        assert_eq!([0.0, 1e-6, 1e-3, 1.0].map(|value| log.place(value)), [0.0, 0.0, 30.0, 60.0]);
        assert_eq!(log_ticks((5e-6, 2e-3)), [1e-5, 1e-4, 1e-3]);
    }
}
