//! What was measured, as a table beside the goals, and as JSON.
use super::RealDataPlane;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::fmt;

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// How many data planes there were.
    pub data_planes: u32,
    /// How many routes.
    pub routes: u32,
    /// Until the first data plane had everything.
    pub full_sync_s: f64,
    /// What it received for that.
    pub full_sync_bytes: u64,
    /// Until all others, which have everything, were connected.
    pub connected_s: f64,
    /// The CPU time of the idle control plane, in percent of a core.
    pub idle_cpu_percent: f64,
    /// Its memory with all data planes.
    pub rss_kib: u64,
    /// What of that came with each data plane.
    pub rss_kib_per_data_plane: f64,
    /// How many changes were made.
    pub changes: usize,
    /// The CPU time of the control plane for a change and data plane, in microseconds.
    pub change_cpu_us: f64,
    /// From the request that makes a change until a data plane has it.
    pub one_ms: Spread,
    /// The same, until all have it.
    pub all_ms: Spread,
    /// What a data plane receives for a change.
    pub bytes_per_change: f64,
    /// From the death of the control plane until all data planes are back.
    pub restart_s: f64,
    /// What a data plane receives for that.
    pub bytes_per_return: f64,
    /// Of analytics, if data planes hand them in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub analytics: Option<AnalyticsCost>,
    /// Of a real data plane.
    pub real: RealDataPlane,
}

/// What analytics cost.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct AnalyticsCost {
    /// How many frames were handed in.
    pub frames: u64,
    /// What each data plane sends for that in a second.
    pub bytes_per_second: f64,
    /// The CPU time of the control plane, in percent of a core.
    pub cpu_percent: f64,
    /// Its memory.
    pub rss_kib: u64,
}

/// A row of the table: what was measured, its value, and the goal, which is met or not.
type Row = (&'static str, String, Option<(String, bool)>);

/// How values are spread.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Spread {
    /// Half of them are at most this.
    pub p50: f64,
    /// 99 of a hundred are at most this.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// Of these values; 0 if there are none.
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Spread {
        let mut values: Vec<_> = values.collect();
        values.sort_by(f64::total_cmp);
        let rank = |share: f64| {
            let at = (values.len() as f64 * share).ceil() as usize;
            values.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        Spread { p50: rank(0.5), p99: rank(0.99), max: rank(1.0) }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms", self.p50, self.p99, self.max)
    }
}

impl Figures {
    /// The goals are those for 1,000 data planes, 10,000 routes, services and consumers, and ten changes a second.
    fn rows(&self) -> Vec<Row> {
        let analytics = self.analytics.iter().flat_map(AnalyticsCost::rows);
        self.of_the_fleet().into_iter().chain(analytics).chain(self.of_the_real_data_plane()).collect()
    }

    fn of_the_fleet(&self) -> [Row; 11] {
        let one = |limit: [f64; 2]| {
            let is_met = self.one_ms.p50 <= limit[0] && self.one_ms.p99 <= limit[1];
            Some((format!("p50 {} ms, p99 {} ms", limit[0], limit[1]), is_met))
        };
        let memory_limit = 64.0 * 1024.0 + 40.0 * f64::from(self.data_planes);
        [
            (
                "full sync of a simulated data plane",
                format!("{:.2} s, {} bytes", self.full_sync_s, self.full_sync_bytes),
                None,
            ),
            ("all others connect at once", format!("{:.2} s", self.connected_s), None),
            (
                "idle control plane, CPU",
                format!("{:.2} % of a core", self.idle_cpu_percent),
                at_most(self.idle_cpu_percent, 2.0, " %"),
            ),
            (
                "idle control plane, memory",
                mib(self.rss_kib as f64),
                Some((mib(memory_limit), self.rss_kib as f64 <= memory_limit)),
            ),
            ("memory for each data plane", format!("{:.1} KiB", self.rss_kib_per_data_plane), None),
            ("change until a data plane has it", self.one_ms.to_string(), one([30.0, 100.0])),
            ("change until all have it", self.all_ms.to_string(), None),
            ("CPU for a change and data plane", format!("{:.0} µs", self.change_cpu_us), None),
            (
                "bytes for a change and data plane",
                format!("{:.0}", self.bytes_per_change),
                at_most(self.bytes_per_change, 600.0, ""),
            ),
            (
                "control plane killed until all are back",
                format!("{:.2} s", self.restart_s),
                at_most(self.restart_s, 15.0, " s"),
            ),
            (
                "bytes for that and data plane",
                format!("{:.0}", self.bytes_per_return),
                at_most(self.bytes_per_return, 1024.0, ""),
            ),
        ]
    }

    fn of_the_real_data_plane(&self) -> [Row; 5] {
        let real = &self.real;
        let (peak, steady) = (real.peak_kib as f64, real.steady_kib as f64);
        // A million consumers have goals of their own.
        let is_large = real.consumers >= 1_000_000;
        let full_sync_limit = if is_large { 60.0 } else { 2.0 };
        let memory_goal = match is_large {
            true => Some(("1024.0 MiB".to_owned(), peak <= 1024.0 * 1024.0)),
            false => at_most(peak / steady, 1.3, " of steady"),
        };
        [
            (
                "real data plane started until it has everything",
                format!("{:.2} s", real.full_sync_s),
                at_most(real.full_sync_s, full_sync_limit, " s"),
            ),
            ("its peak memory", format!("{}, {:.2} of steady", mib(peak), peak / steady), memory_goal),
            ("its steady memory", mib(steady), None),
            (
                "started without control plane until it answers",
                format!("{:.2} s", real.first_answer_s),
                if is_large { None } else { at_most(real.first_answer_s, 1.0, " s") },
            ),
            ("memory of its control plane", mib(real.control_plane_kib as f64), None),
        ]
    }
}

impl AnalyticsCost {
    fn rows(&self) -> [Row; 3] {
        [
            ("analytics, sent by a data plane", format!("{:.2} kB/s", self.bytes_per_second / 1e3), None),
            (
                "analytics, CPU of the control plane",
                format!("{:.2} % of a core, {} frames", self.cpu_percent, self.frames),
                None,
            ),
            ("analytics, memory of the control plane", mib(self.rss_kib as f64), None),
        ]
    }
}

fn mib(kib: f64) -> String {
    format!("{:.1} MiB", kib / 1024.0)
}

fn at_most(value: f64, limit: f64, unit: &str) -> Option<(String, bool)> {
    Some((format!("{limit}{unit}"), value <= limit))
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        for (name, value, goal) in self.rows() {
            let goal = goal.map(|(goal, is_met)| format!("{} {goal}", if is_met { "≤" } else { "not ≤" }));
            table.add_row([name.to_owned(), value, goal.unwrap_or_default()]);
        }
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Left);
        }
        let Figures { data_planes, routes, changes, .. } = self;
        let consumers = self.real.consumers;
        writeln!(
            f,
            "{data_planes} data planes, {routes} routes, {changes} changes; one with {consumers} consumers\n"
        )?;
        write!(f, "{table}")
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn ranks_are_of_the_values_themselves() {
        let spread = Spread::of((1..=200).rev().map(f64::from));
        assert_eq!([spread.p50, spread.p99, spread.max], [100.0, 198.0, 200.0]);
        let none = Spread::of(std::iter::empty());
        assert_eq!([none.p50, none.max], [0.0, 0.0]);
    }
}
