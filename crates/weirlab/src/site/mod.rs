//! A static site of a series of runs: a trend for each case and machine, with releases marked. `index.html` is
//! self-contained; `index.md` shows the same charts from SVG files, for hosts that render Markdown. On request each run's
//! report lies below `runs/`.
mod trend;

use crate::analysis::Analysis;
use crate::chart::{COLOUR_VARIABLES, STYLE};
use crate::report::{self, ReportError};
use crate::result::store::RunFolder;
use crate::result::{Run, TargetManifest};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, context};
use serde::Serialize;
use std::path::Path;
use trend::Trend;

/// A run of the series.
pub(crate) struct Entry {
    pub(crate) run: Run,
    pub(crate) analysis: Analysis,
    /// The baseline's version; empty if unknown.
    pub(crate) version: String,
}

/// A run, as the table shows it.
#[derive(Serialize)]
struct Row {
    id: String,
    date: String,
    machine: String,
    versions: String,
    disturbed: String,
    /// Where its report is; empty without one.
    report: String,
}

/// Whether a site has the reports of its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reports {
    /// The trends alone.
    Without,
    /// Each run's page, too.
    With,
}

/// Writes the site into a folder.
///
/// # Errors
/// When it cannot be written.
pub fn write(mut runs: Vec<Run>, reports: Reports, out: &Path) -> Result<(), ReportError> {
    runs.sort_by(|a, b| a.manifest.started.cmp(&b.manifest.started));
    let entries: Vec<Entry> = runs.into_iter().map(Entry::of).collect();
    let trends = trend::all(&entries);
    let charts = RunFolder::create(out, "charts")?;
    for chart in trends.iter().flat_map(|trend| &trend.charts) {
        charts.write(&format!("{}.svg", chart.name), chart.standalone.as_bytes())?;
    }
    if reports == Reports::With {
        for entry in &entries {
            report::write(&entry.run, &out.join(folder_of(&entry.run)), None)?;
        }
    }
    let rows: Vec<Row> = entries.iter().map(|entry| Row::of(entry, reports)).collect();
    let folder = RunFolder::create(out, "")?;
    for (name, text) in
        [("index.html", include_str!("index.html")), ("index.md", include_str!("index.md.j2"))]
    {
        folder.write(name, render(name, text, &rows, &trends)?.as_bytes())?;
    }
    Ok(())
}

/// The folder of a run's report. An id is the name of a folder, but data may come from anywhere.
fn folder_of(run: &Run) -> String {
    let safe = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    format!("runs/{}", run.id.chars().map(safe).collect::<String>())
}

fn render(name: &str, text: &str, rows: &[Row], trends: &[Trend]) -> Result<String, minijinja::Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.add_template(name, text)?;
    let style = format!("{COLOUR_VARIABLES}{}{STYLE}", include_str!("../report/page.css"));
    environment.get_template(name)?.render(context! { runs => Serde(rows), trends => Serde(trends), style })
}

impl Entry {
    fn of(run: Run) -> Entry {
        let version = run.manifest.targets.get(&run.baseline).map(version).unwrap_or_default();
        Entry { analysis: Analysis::of(&run), run, version }
    }
}

impl Row {
    fn of(entry: &Entry, reports: Reports) -> Row {
        let Entry { run, analysis, .. } = entry;
        let targets = run.manifest.targets.iter().filter(|(label, _)| !label.ends_with(" (again)"));
        let versions = targets.map(|(label, target)| match version(target) {
            version if version.is_empty() => label.clone(),
            version => format!("{label}: {}", unrepeated(label, &version)),
        });
        let versions: Vec<String> = versions.collect();
        Row {
            id: run.id.clone(),
            date: minute(run),
            machine: machine(run),
            versions: versions.join("; "),
            disturbed: analysis.conditions.disturbances.join("; "),
            report: match reports {
                Reports::With => format!("{}/{}", folder_of(run), report::PAGE),
                Reports::Without => String::new(),
            },
        }
    }
}

/// Such as `weir 0.1.0, 84e372eaf1b2`.
fn version(target: &TargetManifest) -> String {
    let commit = target.commit.iter().map(|commit| commit.chars().take(12).collect());
    let known = Some(target.version.clone()).filter(|version| !version.is_empty());
    known.into_iter().chain(commit).collect::<Vec<String>>().join(", ")
}

/// What a program says of its version without its name in front, such as `nginx/1.22.1` of `nginx version: nginx/1.22.1`.
fn unrepeated<'a>(label: &str, version: &'a str) -> &'a str {
    let name = label.split(['@', ' ']).next().unwrap_or(label);
    let rest = version.get(name.len()..).filter(|_| version.to_lowercase().starts_with(&name.to_lowercase()));
    let rest = rest.map(|rest| rest.trim_start().strip_prefix("version").unwrap_or(rest));
    rest.and_then(|rest| rest.strip_prefix([':', ' '])).map_or(version, str::trim_start)
}

/// The day.
fn date(run: &Run) -> String {
    run.manifest.started.chars().take(10).collect()
}

/// The day and the time of it, such as `2026-11-22 10:05`.
fn minute(run: &Run) -> String {
    run.manifest.started.chars().take(16).collect::<String>().replace('T', " ")
}

/// Runs are comparable on one machine alone.
fn machine(run: &Run) -> String {
    let kernel = run.manifest.kernel.split(' ').take(2).collect::<Vec<_>>().join(" ");
    format!("{} × {}, {kernel}", run.manifest.cpus, run.manifest.cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_does_not_repeat_the_target() {
        assert_eq!(unrepeated("nginx", "nginx version: nginx/1.22.1"), "nginx/1.22.1");
        assert_eq!(unrepeated("weir@main", "weir 0.1.0, 0123456789ab"), "0.1.0, 0123456789ab");
        assert_eq!(unrepeated("haproxy", "HAProxy version 3.0.11"), "3.0.11");
        assert_eq!(unrepeated("nginx", "nginx/1.22.1"), "nginx/1.22.1");
    }
}
