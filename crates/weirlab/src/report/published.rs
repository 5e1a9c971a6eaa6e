//! Kong's published figures beside ours.
use super::ReportError;
use super::words::Colours;
use crate::analysis::{Analysis, CellAnalysis};
use crate::chart::{latency, thousands};
use serde::Serialize;

/// One case that both measured.
#[derive(Serialize)]
pub(super) struct Compared {
    case: String,
    name: String,
    theirs: Vec<Row>,
    ours: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    label: String,
    colour: usize,
    rps: String,
    p99: String,
    p95: String,
}

/// The cases that have a row in the published table.
pub(super) fn compared(
    csv: Option<&str>,
    analysis: &Analysis,
    colours: &Colours,
) -> Result<Vec<Compared>, ReportError> {
    let mut all = Vec::new();
    let Some(csv) = csv else { return Ok(all) };
    // Kong's figures are of HTTPS alone.
    for case in analysis.cases.iter().filter(|case| case.case.scheme == "https") {
        let Some(published) = &case.case.published else { continue };
        let theirs = rows_of(csv, published)?;
        let ours = case.cells.iter().filter(|cell| !cell.control).filter_map(|cell| measured(cell, colours));
        if !theirs.is_empty() {
            let name = case.case.name.clone();
            all.push(Compared { case: published.clone(), name, theirs, ours: ours.collect() });
        }
    }
    Ok(all)
}

/// The figures that the case's own table has.
fn measured(cell: &CellAnalysis, colours: &Colours) -> Option<Row> {
    let summary = cell.summary.as_ref()?;
    let quantile = |value: Option<f64>| value.map_or("–".to_owned(), latency);
    Some(Row {
        label: cell.target.clone(),
        colour: colours.of_target(&cell.target),
        rps: summary.rps.map_or("–".to_owned(), |rps| thousands(rps.value)),
        p99: quantile(summary.shown().p99_ms),
        p95: quantile(summary.shown().p95_ms),
    })
}

fn rows_of(csv: &str, case: &str) -> Result<Vec<Row>, ReportError> {
    let lines = csv.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines = lines.filter(|line| !line.starts_with("version,"));
    let mut rows = Vec::new();
    for line in lines {
        let wrong = || ReportError::Published(line.to_owned());
        let fields: Vec<&str> = line.split(',').collect();
        let [version, name, figures @ ..] = fields.as_slice() else { return Err(wrong()) };
        let figures: Vec<f64> =
            figures.iter().map(|field| field.parse()).collect::<Result<_, _>>().map_err(|_| wrong())?;
        let [rps, p99, p95] = figures.as_slice() else { return Err(wrong()) };
        if *name == case {
            let (p99, p95) = (format!("{p99:.2} ms"), format!("{p95:.2} ms"));
            rows.push(Row { label: format!("Kong {version}"), colour: 0, rps: thousands(*rps), p99, p95 });
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_case_are_found() {
        let csv = "# from somewhere\nversion,case,rps,p99_ms,p95_ms\n3.9,plain-1,134940.8,6.79,3.70\n3.9,plain-100,1,2,3\n";
        let rows = rows_of(csv, "plain-1").unwrap_or_default();
        assert_eq!(rows.len(), 1);
        assert_eq!(
            (rows[0].label.as_str(), rows[0].rps.as_str(), rows[0].p95.as_str()),
            ("Kong 3.9", "134,941", "3.70 ms")
        );
    }

    #[test]
    fn a_line_that_is_no_row_is_named() {
        for line in ["3.9,plain-1,134940.8,6.79", "3.9", "3.9,plain-1,many,6.79,3.7"] {
            let error = rows_of(line, "plain-1").err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(line), "{error}");
        }
    }
}
