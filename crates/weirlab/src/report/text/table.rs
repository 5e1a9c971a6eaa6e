//! The answer of one case as a table.
use super::milliseconds;
use crate::analysis::{CaseAnalysis, CellAnalysis, Effect, Summary, Verdict};
use crate::stats::Estimate;
use comfy_table::{CellAlignment, Table, presets};

/// For each target of a case CPU per request, its ratio to the baseline, rate, latencies and verdict; below, what noise
/// explains and why blocks do not count.
pub fn table(case: &CaseAnalysis, baseline: &str) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let ratio = format!("× {baseline}");
    table.set_header(["target", "CPU µs/request", &ratio, "requests/s", "p50 ms", "p99 ms", "verdict"]);
    for cell in &case.cells {
        table.add_row(row(cell, baseline));
    }
    for column in table.column_iter_mut().skip(1).take(5) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let notes = case.cells.iter().flat_map(|cell| note(cell).into_iter().chain(cell.clock()));
    let notes: Vec<String> = notes.collect();
    let lines = std::iter::once(table.to_string()).chain(std::iter::once(noise(case))).chain(notes);
    lines.collect::<Vec<_>>().join("\n")
}

fn row(cell: &CellAnalysis, baseline: &str) -> [String; 7] {
    let summary = cell.summary.as_ref();
    let of = |text: fn(&Summary) -> String| summary.map_or_else(String::new, text);
    [
        cell.target.clone(),
        of(|summary| interval(summary.cpu_us, 1)),
        cell.ratio_to(baseline).and_then(|ratio| ratio.cpu).map_or_else(String::new, |cpu| effect(&cpu)),
        of(|summary| summary.rps.map_or_else(String::new, |rps| format!("{:.0}", rps.value))),
        of(|summary| milliseconds(summary.shown().p50_ms)),
        of(|summary| milliseconds(summary.shown().p99_ms)),
        cell.verdict.words(),
    ]
}

/// Such as `1.50 (1.47–1.53)`.
pub(super) fn effect(effect: &Effect) -> String {
    interval(Some(effect.ratio), 2)
}

pub(super) fn interval(estimate: Option<Estimate>, digits: usize) -> String {
    match estimate {
        None => String::new(),
        Some(Estimate { value, low, high, samples }) if samples > 1 => {
            format!("{value:.digits$} ({low:.digits$}–{high:.digits$})")
        }
        Some(Estimate { value, .. }) => format!("{value:.digits$} (one sample)"),
    }
}

fn noise(case: &CaseAnalysis) -> String {
    let percent = case.noise.floor * 100.0;
    match &case.noise.control {
        Some(control) => {
            format!("A/A control {}: effects up to {percent:.1} % could be noise.", effect(control))
        }
        None => format!("No A/A control: effects up to {percent:.0} % are taken for noise."),
    }
}

/// What keeps a cell or some of its blocks from counting.
pub(super) fn note(cell: &CellAnalysis) -> Option<String> {
    let target = &cell.target;
    if let Verdict::NotMeasured(why) = &cell.verdict {
        return Some(format!("{target}: {why}."));
    }
    let mut parts = Vec::new();
    let counts = &cell.counts;
    if counts.void + counts.invalid > 0 {
        let all = counts.counted + counts.void + counts.invalid;
        let reasons = counts.reasons.join("; ");
        parts.push(format!("{} of {all} blocks do not count: {reasons}", counts.void + counts.invalid));
    }
    if counts.unsteady > 0 {
        parts.push(format!("{} of {} blocks were not steady", counts.unsteady, counts.counted));
    }
    if counts.reopened > 0 {
        parts.push(format!("{} kept connections had to be opened anew", counts.reopened));
    }
    if let Verdict::CannotTell(why) = &cell.verdict {
        parts.push(why.clone());
    }
    (!parts.is_empty()).then(|| format!("{target}: {}.", parts.join("; ")))
}
