//! The answer of one case as a table.
use crate::analysis::{CaseAnalysis, CellAnalysis, Effect, MIN_JUDGED_PAIRS, Verdict};
use crate::report::figures::{CellFigures, Figure};
use crate::stats::Estimate;
use comfy_table::{CellAlignment, Table, presets};

/// What the brackets of a table mean.
pub const INTERVALS: &str = "In round brackets: 95 % confidence interval, of rates and costs over blocks, of ratios over pairs of blocks. In square \
                             brackets: the lowest and the highest block; quantiles are of the answers of all blocks.";

/// For each target of a case rate, latencies, CPU per request, its ratio to the baseline, and verdict.
pub fn table(case: &CaseAnalysis, baseline: &str) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let ratio = format!("× {baseline}");
    table.set_header([
        "target",
        "requests/s",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "CPU µs/request",
        &ratio,
        "verdict",
    ]);
    for cell in &case.cells {
        table.add_row(row(&CellFigures::of(case, cell, baseline)));
    }
    for column in table.column_iter_mut().skip(1).take(6) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

/// What is to be said below the table, a line each: what noise explains, and why blocks do not count. In Markdown an
/// empty line must precede them, or they would be rows.
pub fn notes(case: &CaseAnalysis) -> Vec<String> {
    let notes = case.cells.iter().flat_map(|cell| {
        note(cell).into_iter().chain(cell.clock()).chain(cell.first_byte().map(|text| text + "."))
    });
    std::iter::once(noise(case)).chain(notes).collect()
}

fn row(cell: &CellFigures) -> [String; 8] {
    [
        cell.target.clone(),
        written(cell.requests_per_second, |value| format!("{value:.0}")),
        quantile(cell, cell.p50_ms),
        quantile(cell, cell.p95_ms),
        quantile(cell, cell.p99_ms),
        written(cell.cpu_us, |value| format!("{value:.1}")),
        written(cell.ratio, |value| format!("{value:.2}")),
        cell.verdict.clone(),
    ]
}

/// Where there are answers, but too few of them, it says so.
fn quantile(cell: &CellFigures, figure: Option<Figure>) -> String {
    match (figure, cell.requests_per_second) {
        (None, Some(_)) => super::milliseconds(None),
        (figure, _) => written(figure, |value| super::milliseconds(Some(value))),
    }
}

/// Such as `13.0 (12.5–13.4)`.
fn written(figure: Option<Figure>, write: impl Fn(f64) -> String) -> String {
    let Some(Figure { value, low, high, interval }) = figure else { return String::new() };
    let (open, close) = interval.brackets();
    match low.zip(high) {
        Some((low, high)) => format!("{} {open}{}–{}{close}", write(value), write(low), write(high)),
        None => format!("{} (one sample)", write(value)),
    }
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
        Some(control) if !case.noise.is_judged() => format!(
            "A/A control {}: with fewer than {MIN_JUDGED_PAIRS} pairs of blocks noise cannot be judged.",
            effect(control)
        ),
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
