//! The periods of limits in configurations.

use super::counter::Limit;
use super::window::Period;
use weir_plugin::{FieldError, Record};

/// The limits.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(crate) struct Periods {
    /// Requests per second.
    #[field(gt = 0)]
    pub second: Option<f64>,
    /// Requests per minute.
    #[field(gt = 0)]
    pub minute: Option<f64>,
    /// Requests per hour.
    #[field(gt = 0)]
    pub hour: Option<f64>,
    /// Requests per day.
    #[field(gt = 0)]
    pub day: Option<f64>,
    /// Requests per month.
    #[field(gt = 0)]
    pub month: Option<f64>,
    /// Requests per year.
    #[field(gt = 0)]
    pub year: Option<f64>,
}

impl Periods {
    /// The limits that are set, the shortest first.
    pub(crate) fn limits(&self) -> Vec<Limit> {
        let Self { second, minute, hour, day, month, year } = *self;
        let limits = Period::ALL.iter().zip([second, minute, hour, day, month, year]);
        limits.filter_map(|(period, value)| Some(Limit::new(*period, value?))).collect()
    }
}

/// At least one limit must be set, and a longer period must not have a lower limit than a shorter one.
fn violations(periods: &Periods) -> Vec<FieldError> {
    let limits = periods.limits();
    if limits.is_empty() {
        let periods = Period::ALL.map(Period::name).join(", ");
        return vec![FieldError::new("", format!("set at least one limit: {periods}"))];
    }
    let lower = limits.windows(2).filter(|pair| pair[1].value < pair[0].value);
    let violation = |pair: &[Limit]| {
        let (short, long) = (pair[0], pair[1]);
        let message = format!(
            "the limit per {} ({}) cannot be lower than the limit per {} ({}); raise it, or leave one out",
            long.period.name(),
            long.value,
            short.period.name(),
            short.value
        );
        FieldError::new(long.period.name(), message)
    };
    lower.map(violation).collect()
}
