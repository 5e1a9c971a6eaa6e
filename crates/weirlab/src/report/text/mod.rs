//! A run as text: `result.txt` in the layout that users of Kong's framework know, tables, and the answer in sentences.
mod answer;
pub mod chain;
mod parts;
pub(super) mod probe;
mod sweep;
mod table;

pub use answer::answer;
pub use table::{INTERVALS, notes, table};

use super::opening::Opening;
use crate::analysis::{Analysis, CaseAnalysis, CellAnalysis, Combined, Sample, Usable, usable};
use crate::load::text::{Summary, wrk};
use crate::result::{Block, Cell, Run, Status};
use std::fmt::{self, Write};

/// The content of `result.txt`: what was compared and under what conditions, what chains cost, then for each case that was measured the blocks of each target as wrk would print them and what they come to,
/// then a table of the answer; at the end the answer in sentences.
pub fn result(run: &Run, analysis: &Analysis) -> String {
    let mut text = String::new();
    // A String takes whatever is written to it.
    let _ = write_result(&mut text, run, analysis);
    text
}

fn write_result(out: &mut String, run: &Run, analysis: &Analysis) -> fmt::Result {
    writeln!(out, "{}\n", Opening::of(run, analysis).text())?;
    for chain in &run.chains {
        writeln!(out, "### What each plugin costs\n{}", chain::text(chain))?;
    }
    for case in analysis.cases.iter().filter(|case| !is_watched(run, case)) {
        write_suite(out, run, case)?;
        writeln!(out, "\n{}\n\n{}", table(case, &analysis.baseline), notes(case).join("\n"))?;
        if let Some(parts) = parts::table(case) {
            writeln!(out, "\n{parts}")?;
        }
    }
    for scaling in analysis.scalings.iter().filter(|scaling| scaling.has_several_points()) {
        let (axis, scenario, scheme) = (&scaling.axis, &scaling.scenario, &scaling.scheme);
        writeln!(
            out,
            "### CPU per request by {axis}: {scenario} {scheme}\n\n{}\n",
            sweep::table(scaling, analysis)
        )?;
    }
    if !analysis.probes.is_empty() {
        writeln!(out, "### Beside requests\n\n{}\n", probe::table(&analysis.probes))?;
    }
    writeln!(out, "{}", answer(run, analysis))
}

/// Each case with the blocks of each target as wrk would print them, and what they come to.
pub(super) fn suites(run: &Run, analysis: &Analysis) -> String {
    let mut text = String::new();
    for case in analysis.cases.iter().filter(|case| !is_watched(run, case)) {
        // A String takes whatever is written to it.
        let _ = write_suite(&mut text, run, case);
    }
    text
}

fn write_suite(out: &mut String, run: &Run, case: &CaseAnalysis) -> fmt::Result {
    writeln!(out, "### Test Suite: {}", case.case.name)?;
    run.cells
        .iter()
        .filter(|cell| cell.case == case.case.name)
        .try_for_each(|cell| write_cell(out, case, cell))
}

/// Whether the case was put under load to be watched, and no block of it was to be measured.
pub(super) fn is_watched(run: &Run, case: &CaseAnalysis) -> bool {
    let watched = ["capacity", "flame", "waterfall"].contains(&run.kind.as_str());
    let mut cells = run.cells.iter().filter(|cell| cell.case == case.case.name);
    watched && cells.all(|cell| cell.status == Status::Measured && cell.blocks.is_empty())
}

fn write_cell(out: &mut String, case: &CaseAnalysis, cell: &Cell) -> fmt::Result {
    let target = &cell.target;
    match &cell.status {
        Status::Measured => {}
        Status::Skipped(why) => return writeln!(out, "### Result for {target}: skipped: {why}"),
        Status::Different(why) => {
            return writeln!(out, "### Result for {target}: not measured, answers differ: {why}");
        }
        Status::Failed(why) => return writeln!(out, "### Result for {target}: failed: {why}"),
        Status::Unmeasured(why) => return writeln!(out, "### Result for {target}: unmeasured: {why}"),
    }
    for (index, block) in cell.blocks.iter().enumerate() {
        writeln!(out, "### Result for {target} (run {}):", index + 1)?;
        write_block(out, case, block)?;
    }
    if let Some(why) = &cell.cut_short {
        writeln!(out, "### {target} was measured no further: {why}")?;
    }
    match case.cell(target) {
        Some(CellAnalysis { summary: Some(summary), .. }) => {
            write!(out, "### Combined result for {target}:\n{}", combined(&summary.combined))
        }
        _ => writeln!(out, "### Combined result for {target}:\nno run counts"),
    }
}

fn write_block(out: &mut String, case: &CaseAnalysis, block: &Block) -> fmt::Result {
    out.push_str(&wrk(&Summary::of_block(&case.case, block)));
    writeln!(out, "CPU/request: {:>10.2}us", Sample::of(block).cpu_us)?;
    match usable(block) {
        Usable::Yes => Ok(()),
        Usable::Void(why) => writeln!(out, "Does not count: {why}"),
        Usable::Invalid(why) => writeln!(out, "Does not count: wrong or missing answers: {why}"),
    }
}

/// A combined result in the layout of Kong's framework.
#[must_use]
pub fn combined(combined: &Combined) -> String {
    let Combined { rps, latency_average_ms: average, latency_max_ms: longest, p90_ms, p99_ms } = combined;
    format!(
        "RPS     Avg: {rps:.2}\nLatency Avg: {average:.2}ms    Max: {longest:.2}ms\n   P90 (ms): {}\n   P99 (ms): {}\n",
        listed(p90_ms),
        listed(p99_ms)
    )
}

/// Such as `6.99, 9.72, n too small`.
fn listed(quantiles: &[Option<f64>]) -> String {
    let texts: Vec<String> = quantiles.iter().map(|quantile| milliseconds(*quantile)).collect();
    texts.join(", ")
}

/// Two digits behind the point, three below a tenth of a millisecond.
fn milliseconds(quantile: Option<f64>) -> String {
    match quantile {
        None => "n too small".to_owned(),
        Some(ms) if ms < 0.1 => format!("{ms:.3}"),
        Some(ms) => format!("{ms:.2}"),
    }
}
