//! Figures that are not of requests under load, as a table and in sentences.
use crate::analysis::{ProbedCase, ProbedCell};
use crate::chart::significant;
use crate::result::Status;
use crate::stats::Estimate;
use comfy_table::{CellAlignment, Table, presets};

/// A row for each target of each case.
pub(in crate::report) fn table(cases: &[ProbedCase]) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["target", "case", "what", "figure", "worst", "blocks"]);
    for case in cases {
        for cell in &case.cells {
            table.add_row(row(case, cell));
        }
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn row(case: &ProbedCase, cell: &ProbedCell) -> [String; 6] {
    let worst =
        cell.worst.map_or_else(String::new, |worst| format!("{} {}", significant(worst, 3), case.unit));
    [
        cell.target.clone(),
        case.case.clone(),
        case.what.clone(),
        cell.value.map_or_else(|| absent(&cell.status), |value| written(value, &case.unit)),
        worst,
        cell.blocks.to_string(),
    ]
}

/// Such as `weir/start-10000-routes http, exec to first answer: weir 0.0345 s (0.0331–0.0360), nginx 0.102 s (…).`
pub(super) fn sentence(case: &ProbedCase) -> String {
    let figure = |cell: &ProbedCell| Some(format!("{} {}", cell.target, written(cell.value?, &case.unit)));
    let cells: Vec<String> = case.cells.iter().filter_map(figure).collect();
    let cells = if cells.is_empty() { "no block counts".to_owned() } else { cells.join(", ") };
    format!("{}, {}: {cells}.", case.case, case.what)
}

fn written(estimate: Estimate, unit: &str) -> String {
    let value = significant(estimate.value, 3);
    if estimate.samples < 2 {
        return format!("{value} {unit} (one sample)");
    }
    format!("{value} {unit} ({}–{})", significant(estimate.low, 3), significant(estimate.high, 3))
}

fn absent(status: &Status) -> String {
    match status {
        Status::Measured => "no block counts",
        Status::Skipped(_) => "skipped",
        Status::Different(_) => "different",
        Status::Failed(_) => "failed",
        Status::Unmeasured(_) => "not measured",
    }
    .to_owned()
}
