//! What was measured, as a table and as JSON.
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
    /// Until all others had everything.
    pub connected_s: f64,
    /// The CPU time of the idle control plane, in percent of a core.
    pub idle_cpu_percent: f64,
    /// Its memory with all data planes.
    pub rss_kib: u64,
    /// What of that came with each data plane.
    pub rss_kib_per_data_plane: f64,
    /// How many changes were made.
    pub changes: usize,
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
}

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

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let mib = |kib: f64| format!("{:.1} MiB", kib / 1024.0);
        let rows = [
            (
                "full sync of the first data plane",
                format!("{:.2} s, {} bytes", self.full_sync_s, self.full_sync_bytes),
            ),
            ("full sync of all others at once", format!("{:.2} s", self.connected_s)),
            ("idle control plane, CPU", format!("{:.2} % of a core", self.idle_cpu_percent)),
            ("idle control plane, memory", mib(self.rss_kib as f64)),
            ("memory for each data plane", format!("{:.1} KiB", self.rss_kib_per_data_plane)),
            ("change until a data plane has it", self.one_ms.to_string()),
            ("change until all have it", self.all_ms.to_string()),
            ("bytes for a change and data plane", format!("{:.0}", self.bytes_per_change)),
            ("control plane killed until all are back", format!("{:.2} s", self.restart_s)),
            ("bytes for that and data plane", format!("{:.0}", self.bytes_per_return)),
        ];
        for (name, value) in rows {
            table.add_row([name.to_owned(), value]);
        }
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Left);
        }
        let Figures { data_planes, routes, changes, .. } = self;
        writeln!(f, "{data_planes} data planes, {routes} routes, {changes} changes\n")?;
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
