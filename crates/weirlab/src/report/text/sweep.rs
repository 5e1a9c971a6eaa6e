//! The figures along the axis of a sweep as a table.
use super::milliseconds;
use super::table::{effect, interval};
use crate::analysis::{Analysis, Scaling, ScalingLine, ScalingPoint};
use comfy_table::{CellAlignment, Table, presets};

/// For each value of the variable and each target: CPU per request with its interval, the ratio to the baseline, rate
/// and latency.
pub(super) fn table(scaling: &Scaling, analysis: &Analysis) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let ratio = format!("× {}", analysis.baseline);
    table.set_header([&scaling.axis, "target", "CPU µs/request", &ratio, "requests/s", "p99 ms"]);
    for value in values(scaling) {
        for line in &scaling.lines {
            let points = line.points.iter().filter(|point| point.value == value);
            table.add_rows(points.map(|point| row(line, point, analysis)));
        }
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        if index != 1 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

fn values(scaling: &Scaling) -> Vec<f64> {
    let points = scaling.lines.iter().flat_map(|line| &line.points);
    let mut values: Vec<f64> = points.map(|point| point.value).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

fn row(line: &ScalingLine, point: &ScalingPoint, analysis: &Analysis) -> [String; 6] {
    let case = analysis.cases.iter().find(|case| case.case.name == point.case);
    let cell = case.and_then(|case| case.cell(&line.target));
    let ratio = cell.and_then(|cell| cell.ratio_to(&analysis.baseline)?.cpu);
    [
        point.value.to_string(),
        line.target.clone(),
        interval(point.cpu_us, 1),
        ratio.map_or_else(String::new, |ratio| effect(&ratio)),
        point.rps.map_or_else(String::new, |rps| format!("{:.0}", rps.value)),
        milliseconds(point.p99_ms),
    ]
}
