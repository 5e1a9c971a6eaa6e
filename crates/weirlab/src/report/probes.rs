//! The table of figures that are not of requests under load.
use super::cases::reason;
use super::words::{Colours, interval};
use crate::analysis::{Analysis, ProbedCase, ProbedCell};
use crate::chart::significant;
use serde::Serialize;

/// Such a figure of a target.
#[derive(Serialize)]
pub(super) struct ProbeRow {
    target: String,
    colour: usize,
    case: String,
    what: String,
    value: String,
    interval: String,
    worst: String,
    blocks: usize,
    /// In place of a figure.
    absent: &'static str,
    why: String,
}

pub(super) fn rows(analysis: &Analysis, colours: &Colours) -> Vec<ProbeRow> {
    let cells = analysis.probes.iter().flat_map(|case| case.cells.iter().map(move |cell| (case, cell)));
    cells.map(|(case, cell)| row(case, cell, colours)).collect()
}

fn row(case: &ProbedCase, cell: &ProbedCell, colours: &Colours) -> ProbeRow {
    let written = |value: f64| format!("{} {}", significant(value, 3), case.unit);
    let (absent, why) = match (cell.value, reason(&cell.status)) {
        (Some(_), _) => ("", ""),
        (None, Some(reason)) => reason,
        (None, None) => ("no samples", "no block counts"),
    };
    ProbeRow {
        target: cell.target.clone(),
        colour: colours.of_target(&cell.target),
        case: case.case.clone(),
        what: case.what.clone(),
        value: cell.value.map_or_else(String::new, |estimate| written(estimate.value)),
        interval: cell
            .value
            .map_or_else(String::new, |estimate| interval(estimate, |value| significant(value, 3))),
        worst: cell.worst.map_or_else(String::new, written),
        blocks: cell.blocks,
        absent,
        why: why.to_owned(),
    }
}
