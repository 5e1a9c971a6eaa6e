//! Joined runs as text. Tables are Markdown.
use super::{Join, JoinedCase, JoinedCell};
use crate::stats::Estimate;
use comfy_table::{CellAlignment, Table, presets};

/// What readers must know of the figures.
pub(crate) const NOTES: [&str; 4] = [
    "The runs were made one after the other, on machines that are meant to differ. In brackets: 95 % confidence interval.",
    "Requests per core: for each core that the gateways kept busy.",
    "Scale-out: the rate of n gateways, divided by n times the rate of one; 1 is perfect.",
    "Cost: of the machines that the gateways run on, busy at this rate; upstream, load and control plane are not in it.",
];

/// All of it.
pub(crate) fn render(join: &Join) -> String {
    let mut parts = vec![machines(join)];
    for case in &join.cases {
        parts.push(format!("{}\n\n{}", case.name, figures(join, case)));
    }
    parts.push(format!("CPU time of each part, in cores\n\n{}", cores(join)));
    parts.push(NOTES.join("\n"));
    parts.join("\n\n")
}

fn table(header: &[String], left: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(header);
    for column in table.column_iter_mut().skip(left) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn machines(join: &Join) -> String {
    let mut table =
        table(&["machine", "what", "run", "targets", "price per hour", "disturbed"].map(str::to_owned), 9);
    for machine in &join.machines {
        let price = machine.price.map(|price| format!("{} {}", price.per_hour, currency(join)));
        table.add_row([
            &machine.name,
            &machine.what,
            &machine.run,
            &machine.targets,
            &price.unwrap_or_default(),
            &machine.disturbed,
        ]);
    }
    table.to_string()
}

/// The heads of the columns of a case's table.
pub(super) fn header(join: &Join) -> Vec<String> {
    let first = join.machines.first().map_or("", |machine| machine.name.as_str());
    let mut header =
        vec!["machine".to_owned(), "target".to_owned(), "gateways".to_owned(), "requests/s".to_owned()];
    header.push(format!("× {first}"));
    header.extend(["p99 ms", "CPU µs/request", "requests/s per core", "scale-out"].map(str::to_owned));
    header.extend(join.currency.as_ref().map(|currency| format!("{currency} per million requests")));
    header
}

/// The columns of a cell.
pub(super) fn row(join: &Join, cell: &JoinedCell) -> Vec<String> {
    let mut row = vec![
        cell.machine.clone(),
        cell.target.clone(),
        cell.instances.to_string(),
        written(cell.rps, 0),
        written(cell.to_first, 2),
        cell.p99_ms.map_or("too few".to_owned(), |p99| format!("{p99:.2}")),
        written(cell.cpu_us, 1),
        written(cell.rps_per_core, 0),
        written(cell.efficiency, 2),
    ];
    row.extend(join.currency.is_some().then(|| written(cell.cost, 4)));
    row
}

fn figures(join: &Join, case: &JoinedCase) -> String {
    let mut table = table(&header(join), 2);
    case.cells.iter().for_each(|cell| {
        table.add_row(row(join, cell));
    });
    table.to_string()
}

fn cores(join: &Join) -> String {
    let mut table = table(&["case", "machine", "target", "parts"].map(str::to_owned), 9);
    for (case, cell) in join.cases.iter().flat_map(|case| case.cells.iter().map(move |cell| (case, cell))) {
        table.add_row([&case.name, &cell.machine, &cell.target, &parts(cell)]);
    }
    table.to_string()
}

/// Such as `data plane 1 0.98, front 0.31`.
pub(super) fn parts(cell: &JoinedCell) -> String {
    let said = cell.parts.iter().map(|part| format!("{} {:.2}", part.name, part.cores));
    said.collect::<Vec<_>>().join(", ")
}

fn currency(join: &Join) -> &str {
    join.currency.as_deref().unwrap_or_default()
}

fn written(estimate: Option<Estimate>, digits: usize) -> String {
    match estimate {
        None => String::new(),
        Some(Estimate { value, low, high, .. }) if low.is_finite() && high.is_finite() && low < high => {
            format!("{value:.digits$} ({low:.digits$}–{high:.digits$})")
        }
        Some(Estimate { value, .. }) => format!("{value:.digits$}"),
    }
}
