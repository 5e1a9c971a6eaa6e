//! Axes: from values to places.
use super::figure::{significant, trimmed};

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// In equal steps.
    Linear,
    /// In equal factors.
    Log,
}

/// One axis: what lies where, and which values are named.
#[derive(Clone, Debug)]
pub struct Axis {
    kind: Kind,
    low: f64,
    high: f64,
    /// Values and their names.
    pub(super) ticks: Vec<(f64, String)>,
    /// What it shows.
    pub(super) title: String,
}

impl Axis {
    /// From 0 to a round value at or above all of `values`.
    pub fn from_zero(title: &str, values: impl IntoIterator<Item = f64>) -> Axis {
        let highest = values.into_iter().filter(|value| value.is_finite()).fold(0.0, f64::max);
        let highest = if highest > 0.0 { highest } else { 1.0 };
        let step = round_step(highest / 4.0);
        let count = (highest / step - 1e-9).ceil() as u32;
        let ticks = (0..=count).map(|index| named(f64::from(index) * step)).collect();
        Axis { kind: Kind::Linear, low: 0.0, high: f64::from(count) * step, ticks, title: title.to_owned() }
    }

    /// Around all of `values`.
    pub fn around(title: &str, kind: Kind, values: impl IntoIterator<Item = f64>) -> Axis {
        let usable = |value: &f64| value.is_finite() && (kind == Kind::Linear || *value > 0.0);
        let values: Vec<f64> = values.into_iter().filter(usable).collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = if values.is_empty() { (1.0, 2.0) } else { widened(kind, low, high) };
        let ticks = match kind {
            Kind::Linear => linear_ticks(low, high),
            Kind::Log => log_ticks(low, high),
        };
        Axis { kind, low, high, ticks: ticks.into_iter().map(named).collect(), title: title.to_owned() }
    }

    /// With these values named and no others; it reaches from the first to the last of them.
    pub fn named(title: &str, kind: Kind, ticks: Vec<(f64, String)>) -> Axis {
        let low = ticks.first().map_or(0.0, |tick| tick.0);
        let high = ticks.last().map_or(1.0, |tick| tick.0);
        let (low, high) = if high > low { (low, high) } else { (low - 0.5, low + 0.5) };
        Axis { kind, low, high, ticks, title: title.to_owned() }
    }

    /// With room for half a step before the first name and behind the last.
    pub fn categories(title: &str, names: impl IntoIterator<Item = String>) -> Axis {
        let ticks: Vec<_> = names.into_iter().enumerate().map(|(index, name)| (index as f64, name)).collect();
        let high = ticks.len().max(1) as f64 - 0.5;
        Axis { kind: Kind::Linear, low: -0.5, high, ticks, title: title.to_owned() }
    }

    /// Reaches at least to a value, whether or not it is named.
    pub fn reaching(mut self, value: f64) -> Axis {
        self.high = self.high.max(value);
        self
    }

    /// Names the ticks anew.
    pub fn with_names(mut self, name: impl Fn(f64) -> String) -> Axis {
        for (value, text) in &mut self.ticks {
            *text = trimmed(&name(*value));
        }
        self
    }

    /// Where a value lies: 0 at the beginning, 1 at the end.
    pub(super) fn place(&self, value: f64) -> f64 {
        let map = |value: f64| if self.kind == Kind::Log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let place = (map(value) - map(self.low)) / (map(self.high) - map(self.low));
        place.clamp(0.0, 1.0)
    }
}

fn named(value: f64) -> (f64, String) {
    (value, trimmed(&significant(value, 3)))
}

fn widened(kind: Kind, low: f64, high: f64) -> (f64, f64) {
    match kind {
        Kind::Log => {
            let factor = (high / low).powf(0.06).max(1.02);
            (low / factor, high * factor)
        }
        Kind::Linear => {
            let margin = ((high - low) * 0.06).max(high.abs() * 0.01).max(f64::EPSILON);
            (low - margin, high + margin)
        }
    }
}

/// 1, 2 or 5 times a power of ten: the least at or above `least`.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * power)
        .find(|step| *step >= least * 0.999)
        .unwrap_or(power)
}

fn linear_ticks(low: f64, high: f64) -> Vec<f64> {
    let step = round_step((high - low) / 5.0);
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last).map(|index| index as f64 * step).collect()
}

/// Round values, in finer steps the less of a decade there is.
fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = (high / low).log10();
    let steps: &[f64] = match decades {
        _ if decades < 0.35 => return linear_ticks(low, high),
        _ if decades < 0.7 => &[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0],
        _ if decades < 1.0 => &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
        _ if decades < 3.0 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let all = (first..=last).flat_map(|power| steps.iter().map(move |step| step * 10_f64.powi(power)));
    all.filter(|value| (low..=high).contains(value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_from_zero_ends_at_a_round_value() {
        let axis = Axis::from_zero("µs", [14.4, 21.8]);
        assert_eq!(axis.place(0.0), 0.0);
        assert_eq!(axis.high, 30.0);
        let names: Vec<&str> = axis.ticks.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["0", "10", "20", "30"]);
    }

    #[test]
    fn equal_factors_are_equally_far_apart_on_a_log_axis() {
        let axis = Axis::around("×", Kind::Log, [0.25, 4.0]);
        assert!((axis.place(1.0) - 0.5).abs() < 1e-9);
        assert!((axis.place(0.5) - 0.5 + axis.place(2.0) - 0.5).abs() < 1e-9);
        assert!(axis.ticks.iter().any(|(value, _)| *value == 1.0));
    }

    #[test]
    fn values_that_cannot_be_drawn_do_no_harm() {
        for values in [vec![], vec![f64::NAN], vec![0.0, -1.0], vec![5.0, 5.0]] {
            let axis = Axis::around("ms", Kind::Log, values.clone());
            assert!((0.0..=1.0).contains(&axis.place(5.0)), "{values:?}");
            assert!(Axis::from_zero("ms", values).place(0.5).is_finite());
        }
    }
}
