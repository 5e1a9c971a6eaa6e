//! Outcomes as one table.
use super::outcome::Outcome;
use comfy_table::{CellAlignment, Table, TableStyle, presets};

const HEADER: [&str; 11] = [
    "scenario",
    "target",
    "sent",
    "right",
    "wrong",
    "lost",
    "unexcused",
    "duplicated",
    "hung",
    "longest wait",
    "verdict",
];

/// For a terminal.
#[must_use]
pub fn table(outcomes: &[Outcome]) -> String {
    written(outcomes, presets::UTF8_FULL_CONDENSED)
}

/// For a document.
#[must_use]
pub fn markdown(outcomes: &[Outcome]) -> String {
    written(outcomes, presets::ASCII_MARKDOWN)
}

fn written(outcomes: &[Outcome], preset: TableStyle) -> String {
    let mut table = Table::new();
    table.load_style(preset);
    table.set_header(HEADER);
    for outcome in outcomes {
        table.add_row(row(outcome));
    }
    for column in table.column_iter_mut().skip(2).take(8) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn row(outcome: &Outcome) -> [String; 11] {
    let numbers = [
        outcome.sent,
        outcome.right,
        outcome.wrong,
        outcome.lost,
        outcome.unexcused,
        outcome.duplicated,
        outcome.hung,
    ]
    .map(|number| number.to_string());
    let [sent, right, wrong, lost, unexcused, duplicated, hung] = numbers;
    [
        outcome.scenario.clone(),
        outcome.target.clone(),
        sent,
        right,
        wrong,
        lost,
        unexcused,
        duplicated,
        hung,
        format!("{:.2} s", outcome.longest_wait),
        verdict(outcome),
    ]
}

fn verdict(outcome: &Outcome) -> String {
    if outcome.holds() {
        return "holds".to_owned();
    }
    let (writes, counted) = (outcome.writes, outcome.counted);
    let idle = outcome.inactive.iter().map(|why| format!("not run: {why}"));
    let broken = [
        (outcome.wrong > 0, "wrong answers"),
        (outcome.duplicated > 0, "duplicates"),
        (outcome.hung > 0, "hangs"),
        (outcome.unexcused > 0, "losses"),
        (writes.is_some_and(|writes| writes.lost > 0), "lost writes"),
        (writes.is_some_and(|writes| writes.afterwards == 0), "no writes afterwards"),
        (counted == Some(false), "no counts afterwards"),
        (!outcome.recovered, "no recovery"),
    ];
    let broken = broken.iter().filter(|(is, _)| *is).map(|(_, what)| (*what).to_owned());
    idle.chain(broken).collect::<Vec<_>>().join(", ")
}
