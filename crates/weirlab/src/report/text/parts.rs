//! What each process of a case used, as a table.
use crate::analysis::{CaseAnalysis, PartSummary};
use comfy_table::{CellAlignment, Table, presets};

/// For each target and each process its CPU time and memory; none for a case without several processes.
pub(super) fn table(case: &CaseAnalysis) -> Option<String> {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["part", "of", "CPU % of a core", "CPU µs/request", "MiB"]);
    for cell in &case.cells {
        let parts = cell.summary.iter().flat_map(|summary| &summary.parts);
        table.add_rows(parts.map(|part| row(part, &cell.target)));
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    (table.row_count() > 0).then(|| table.to_string())
}

fn row(part: &PartSummary, target: &str) -> [String; 5] {
    let memory =
        if part.rss_kib == 0 { String::new() } else { format!("{:.1}", part.rss_kib as f64 / 1024.0) };
    [
        part.name.clone(),
        target.to_owned(),
        format!("{:.1}", part.cores * 100.0),
        format!("{:.1}", part.cpu_us),
        memory,
    ]
}
