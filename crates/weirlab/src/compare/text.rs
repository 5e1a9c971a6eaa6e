//! A comparison as text: plain for the terminal, or Markdown.
use super::{CellComparison, Comparison, Difference};
use crate::stats::Estimate;
use comfy_table::{CellAlignment, Table, presets};

/// The whole comparison. Tables are Markdown either way; `heading` precedes each heading (`## ` for Markdown).
pub(crate) fn render(comparison: &Comparison, heading: &str) -> String {
    let mut parts =
        vec![format!("{heading}{} against {}", comparison.new, comparison.old), warning(comparison)];
    if comparison.cells.is_empty() {
        parts.push("The runs have no measured cell in common.".to_owned());
    } else {
        parts.push(cells(&comparison.cells));
    }
    if !comparison.differences.is_empty() {
        parts.push(format!("{heading}What else differs"));
        parts.push(differences(&comparison.differences));
    }
    for (run, only) in [(&comparison.old, &comparison.only_old), (&comparison.new, &comparison.only_new)] {
        if !only.is_empty() {
            parts.push(format!("Only in {run}: {}.", only.join(", ")));
        }
    }
    parts.join("\n\n")
}

fn warning(comparison: &Comparison) -> String {
    let direct = comparison
        .cells
        .iter()
        .filter_map(|cell| cell.change.as_ref())
        .any(|change| change.through.is_empty());
    let interleaved =
        "The two runs were not interleaved: what the machine did meanwhile is in the difference.";
    let through = "Where both measured the same build of other targets, ratios to these are compared.";
    let plain = "Where they did not (\"as it is\"), costs are compared as they are, and the machine cannot be distinguished from \
                 the gateway. To be sure, measure both versions in one run (--versions).";
    if direct { format!("{interleaved} {through} {plain}") } else { format!("{interleaved} {through}") }
}

fn cells(cells: &[CellComparison]) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header([
        "case",
        "target",
        "CPU µs old",
        "CPU µs new",
        "new / old",
        "through",
        "CPU per request",
    ]);
    for cell in cells {
        table.add_row(row(cell));
    }
    for column in table.column_iter_mut().skip(2).take(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn row(cell: &CellComparison) -> [String; 7] {
    let cost = |cpu: Option<Estimate>| cpu.map_or_else(String::new, |cpu| format!("{:.1}", cpu.value));
    let (ratio, through, verdict) = match &cell.change {
        None => (String::new(), String::new(), "no CPU time"),
        Some(change) => {
            let Estimate { value, low, high, .. } = change.ratio;
            let through =
                if change.through.is_empty() { "as it is".to_owned() } else { change.through.join(", ") };
            (format!("{value:.2} ({low:.2}–{high:.2})"), through, change.verdict.words())
        }
    };
    let (case, target) = (cell.case.clone(), cell.target.clone());
    [case, target, cost(cell.old_cpu_us), cost(cell.new_cpu_us), ratio, through, verdict.to_owned()]
}

fn differences(differences: &[Difference]) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["what", "old", "new"]);
    for difference in differences {
        table.add_row([&difference.what, &difference.old, &difference.new]);
    }
    table.to_string()
}
