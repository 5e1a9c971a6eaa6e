//! What the machine does beside the measurement.
use crate::result::Machine;
use crate::stats;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use std::{fs, io};

/// In which the kernel counts CPU time: hundredths of a second, whatever its own tick is.
const TICK_US: f64 = 10_000.0;

/// The machine's counters at one moment.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct MachineSample {
    /// By the machine's own clock, which nothing sets.
    at: Duration,
    all: u64,
    idle: u64,
    steal: u64,
    waited_us: Option<u64>,
}

impl MachineSample {
    /// Reads them.
    ///
    /// # Errors
    /// When `/proc/stat` cannot be read or is not what Linux writes.
    pub fn now() -> io::Result<Self> {
        let stat = fs::read_to_string("/proc/stat")?;
        let pressure = fs::read_to_string("/proc/pressure/cpu").ok();
        MachineSample::parse(&stat, pressure.as_deref(), now())
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/stat has no line of all CPUs"))
    }

    fn parse(stat: &str, pressure: Option<&str>, at: Duration) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let mut times = [0_u64; 8];
        for (time, field) in times.iter_mut().zip(line.split_ascii_whitespace()) {
            *time = field.parse().ok()?;
        }
        // Guests' time, which follows, is already in the user's.
        let [_, _, _, idle, waiting_for_disk, _, _, steal] = times;
        let waited_us = pressure.and_then(|text| {
            text.lines().find(|line| line.starts_with("some "))?.rsplit_once("total=")?.1.trim().parse().ok()
        });
        Some(MachineSample { at, all: times.iter().sum(), idle: idle + waiting_for_disk, steal, waited_us })
    }

    /// What it did since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &MachineSample) -> Machine {
        let all = self.all.saturating_sub(earlier.all).max(1) as f64;
        let elapsed_us = self.at.saturating_sub(earlier.at).as_secs_f64() * 1e6;
        let busy = all
            - self.idle.saturating_sub(earlier.idle) as f64
            - self.steal.saturating_sub(earlier.steal) as f64;
        let waited = self.waited_us.zip(earlier.waited_us).map(|(now, then)| now.saturating_sub(then) as f64);
        Machine {
            steal: self.steal.saturating_sub(earlier.steal) as f64 / all,
            pressure: waited.map(|waited| (waited / elapsed_us.max(1.0)).min(1.0)),
            idle: self.idle.saturating_sub(earlier.idle) as f64 / all,
            busy_us: Some(busy.max(0.0) * TICK_US),
            span_s: Some(elapsed_us / 1e6),
            mhz: None,
        }
    }
}

fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// The frequency of the CPUs at this moment in MHz, their mean; none where the kernel does not show it.
#[must_use]
pub fn frequency_mhz() -> Option<f64> {
    mean_mhz(&fs::read_to_string("/proc/cpuinfo").ok()?)
}

fn mean_mhz(cpuinfo: &str) -> Option<f64> {
    let lines = cpuinfo.lines().filter_map(|line| line.strip_prefix("cpu MHz")?.split_once(':'));
    let values: Vec<f64> = lines.filter_map(|(_, value)| value.trim().parse().ok()).collect();
    stats::mean(&values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_of_all_cpus() {
        let start = Duration::from_secs(7);
        let pressure =
            |total: u64| format!("some avg10=0.00 avg60=0.00 total={total}\nfull avg10=0 total=7\n");
        let before =
            MachineSample::parse("cpu  10 0 10 100 0 0 0 5 3 0\ncpu0 1\n", Some(&pressure(1000)), start);
        let later = start + Duration::from_secs(1);
        let after = MachineSample::parse("cpu  40 0 20 140 10 0 0 15 9 0\n", Some(&pressure(251_000)), later);
        let machine = after.unwrap().since(&before.unwrap());
        let (pressure, busy_us) = (Some(0.25), Some(400_000.0));
        let span_s = Some(1.0);
        assert_eq!(machine, Machine { steal: 0.1, pressure, idle: 0.5, busy_us, span_s, mhz: None });
    }

    #[test]
    fn the_frequency_is_the_mean_of_all_cpus() {
        let text = "processor\t: 0\ncpu MHz\t\t: 2600.000\nprocessor\t: 1\ncpu MHz\t\t: 3000.500\n";
        assert_eq!(mean_mhz(text), Some(2800.25));
        assert_eq!(mean_mhz("processor\t: 0\n"), None);
    }

    #[test]
    fn a_kernel_without_pressure_says_none() {
        let sample = MachineSample::parse("cpu  1 2 3 4 5 6 7 8 9 0\n", None, now()).unwrap();
        assert_eq!(sample.since(&sample).pressure, None);
    }
}
