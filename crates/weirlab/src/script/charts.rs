//! Charts of a script's results, and their data as Kong's framework keeps it.
use super::output::save;
use super::{CombinedResult, ScriptError};
use crate::chart::{Bar, Bars, Chart, Estimate, latency, thousands};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Combined results of versions and suites, to be drawn.
///
/// ```no_run
/// # use weirlab::script::{Charts, CombinedResult, ScriptError};
/// # fn draw(before: CombinedResult, after: CombinedResult) -> Result<(), ScriptError> {
/// let mut charts = Charts::new("single_route");
/// charts.add("git:main~10", "no plugins", before);
/// charts.add("git:main", "no plugins", after);
/// for file in charts.save("output")? {
///     println!("{}", file.display());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Charts {
    name: String,
    rows: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    version: String,
    suite: String,
    result: CombinedResult,
}

impl Charts {
    /// Charts without results; their files begin with the name.
    #[must_use]
    pub fn new(name: &str) -> Charts {
        Charts { name: name.to_owned(), rows: Vec::new() }
    }

    /// Adds a result.
    pub fn add(&mut self, version: &str, suite: &str, result: CombinedResult) {
        self.rows.push(Entry { version: version.to_owned(), suite: suite.to_owned(), result });
    }

    /// Writes `NAME.data.json`, `NAME.rps.svg` and `NAME.p99.svg` into a folder, and returns their paths.
    ///
    /// # Errors
    /// When there is no result, or they cannot be written.
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<Vec<PathBuf>, ScriptError> {
        if self.rows.is_empty() {
            return Err(ScriptError::NoResults);
        }
        let files = [
            ("data.json", format!("{:#}\n", self.data())),
            ("rps.svg", self.rates().standalone()),
            ("p99.svg", self.latencies().standalone()),
        ];
        let write = |(ending, content): &(&str, String)| {
            let path = folder.as_ref().join(format!("{}.{ending}", self.name));
            save(&path, content.as_bytes()).map(|()| path)
        };
        files.iter().map(write).collect()
    }

    /// In the form that the charts of Kong's framework are drawn from.
    fn data(&self) -> Value {
        let row = |entry: &Entry| {
            let figures = entry.result.figures();
            json!({
                "version": entry.version, "suite": entry.suite,
                "rpss": entry.result.rates(), "rps": figures.rps,
                "latencies_p90": figures.p90_ms, "latencies_p99": figures.p99_ms,
                "latency_max": figures.latency_max_ms, "latency_avg": figures.latency_average_ms,
            })
        };
        json!({ "options": {}, "data": self.rows.iter().map(row).collect::<Vec<_>>() })
    }

    fn rates(&self) -> Chart {
        let bars = self.bars(|result| Some(result.figures().rps));
        self.chart("rps", "Requests per second", "answers per second", bars, thousands)
    }

    /// The middle of the results' quantiles, because no quantile of one is that of all.
    fn latencies(&self) -> Chart {
        let bars = self.bars(|result| {
            let known: Option<Vec<f64>> = result.figures().p99_ms.iter().copied().collect();
            crate::stats::median(&known?)
        });
        self.chart("p99", "P99, the median of runs", "ms", bars, latency)
    }

    fn bars(&self, value: impl Fn(&CombinedResult) -> Option<f64>) -> Vec<Bar> {
        let mut versions: Vec<&str> = Vec::new();
        let mut bars = Vec::new();
        for entry in &self.rows {
            let known = versions.iter().position(|version| *version == entry.version);
            let colour = known.unwrap_or(versions.len());
            if known.is_none() {
                versions.push(&entry.version);
            }
            let Some(value) = value(&entry.result) else { continue };
            bars.push(Bar {
                label: format!("{} {}", entry.version, entry.suite),
                colour,
                estimate: Estimate { value, interval: None },
                parts: Vec::new(),
            });
        }
        bars
    }

    fn chart(&self, kind: &str, title: &str, axis: &str, bars: Vec<Bar>, write: fn(f64) -> String) -> Chart {
        Bars {
            name: format!("{}-{kind}", self.name),
            title: format!("{title}: {}", self.name),
            axis: axis.to_owned(),
            bars,
            level: None,
            write,
        }
        .draw()
    }
}
