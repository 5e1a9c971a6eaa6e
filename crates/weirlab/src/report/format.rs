//! The figures of a run as text for a terminal, CSV, JSON or Markdown, or as wrk prints them.
use super::figures::{CellFigures, Figure, Figures};
use super::opening::Opening;
use super::text;
use crate::analysis::Analysis;
use crate::result::Run;
use std::fmt::Write;

/// How figures are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For a terminal: tables, and sentences.
    #[default]
    Text,
    /// A line for each cell; each interval has a column that says what it is.
    Csv,
    /// For programs.
    Json,
    /// For a pull request.
    #[value(alias = "md")]
    Markdown,
    /// Each block as wrk prints a run, and what they come to as Kong's framework does: for old notes.
    Wrk,
}

impl Format {
    /// Whether other lines may stand beside the figures.
    #[must_use]
    pub fn is_for_people(self) -> bool {
        matches!(self, Format::Text | Format::Markdown | Format::Wrk)
    }
}

/// The figures of a run.
///
/// # Errors
/// When they cannot be written as JSON.
pub fn print(run: &Run, analysis: &Analysis, format: Format) -> Result<String, serde_json::Error> {
    let figures = || Figures::of(run, analysis);
    Ok(match format {
        Format::Text => sections(run, analysis, ""),
        Format::Markdown => sections(run, analysis, "### "),
        Format::Csv => csv(&figures()),
        Format::Wrk => text::suites(run, analysis),
        Format::Json => serde_json::to_string_pretty(&figures())?,
    })
}

/// The opening, a table for each case, what chains cost, and the answer in sentences. Tables are Markdown either way.
fn sections(run: &Run, analysis: &Analysis, heading: &str) -> String {
    let markdown = !heading.is_empty();
    let opening = Opening::of(run, analysis).text();
    // Lines of one paragraph.
    let lines = |text: String| if markdown { text.replace('\n', "  \n") } else { text };
    let opening = lines(opening);
    let mut parts = vec![opening];
    for case in analysis.cases.iter().filter(|case| !text::is_watched(run, case)) {
        parts.push(format!("{heading}{}\n\n{}", case.case.name, text::table(case, &analysis.baseline)));
        parts.push(lines(text::notes(case).join("\n")));
    }
    if !parts[1..].is_empty() {
        parts.push(text::INTERVALS.to_owned());
    }
    if !analysis.probes.is_empty() {
        parts.push(format!("{heading}Beside requests\n\n{}", text::probe::table(&analysis.probes)));
    }
    for chain in &run.chains {
        let chain = text::chain::text(chain);
        parts.push(match markdown {
            true => format!("{heading}What each plugin costs\n\n```text\n{}\n```", chain.trim_end()),
            false => chain.trim_end().to_owned(),
        });
    }
    parts.push(lines(text::answer(run, analysis)));
    parts.join("\n\n")
}

/// The columns that have an interval.
const COLUMNS: [&str; 6] = ["requests_per_second", "p50_ms", "p95_ms", "p99_ms", "cpu_us", "ratio"];

fn csv(figures: &Figures) -> String {
    let mut text = String::from("run,case,target,control");
    for column in COLUMNS {
        // A String takes whatever is written to it.
        let _ = write!(text, ",{column},{column}_low,{column}_high,{column}_interval");
    }
    text.push_str(",verdict\n");
    for cell in &figures.cells {
        text.push_str(&csv_line(&figures.run, cell));
    }
    for capacity in &figures.capacities {
        let name = format!("{} {} workers={}", capacity.case, capacity.slo, capacity.workers);
        let others = ",,,,".repeat(COLUMNS.len() - 1);
        let _ = writeln!(
            text,
            "{},{},{},false{}{others},{}",
            quoted(&figures.run),
            quoted(&name),
            quoted(&capacity.target),
            csv_figure(Some(capacity.rate)),
            quoted(&capacity.reservations)
        );
    }
    text
}

fn csv_line(run: &str, cell: &CellFigures) -> String {
    let figures = [cell.requests_per_second, cell.p50_ms, cell.p95_ms, cell.p99_ms, cell.cpu_us, cell.ratio];
    let figures: String = figures.into_iter().map(csv_figure).collect();
    format!(
        "{},{},{},{}{figures},{}\n",
        quoted(run),
        quoted(&cell.case),
        quoted(&cell.target),
        cell.control,
        quoted(&cell.verdict)
    )
}

/// Four fields: the figure, the ends of its interval, and what that is.
fn csv_figure(figure: Option<Figure>) -> String {
    let Some(figure) = figure else { return ",,,,".to_owned() };
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value}"));
    let named = figure.low.map_or("", |_| figure.interval.name());
    format!(",{},{},{},{named}", figure.value, number(figure.low), number(figure.high))
}

/// A field as RFC 4180 writes it; in quotes where a spreadsheet would take it for a formula or it has a separator.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}
