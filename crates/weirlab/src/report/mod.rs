//! A run as one self-contained page with its charts, derived from the run's data alone. Nothing is fetched and no script
//! runs: the page says so to the browser itself.
mod answer;
mod cases;
mod chains;
pub mod figures;
pub mod format;
mod opening;
mod page;
mod pictures;
mod probes;
mod provenance;
mod published;
mod rates;
mod seconds;
mod series;
pub mod text;
mod words;

use crate::result::Run;
use crate::result::store::{RunFolder, StoreError};
use std::fmt;
use std::path::{Path, PathBuf};

/// The page's file name within the folder of the run.
pub const PAGE: &str = "report.html";

/// The folder of the charts within the folder of the run.
pub const CHARTS: &str = "charts";

/// Writes the page and the charts into the folder of a run. `published` is Kong's table of published figures as CSV.
///
/// # Errors
/// When they cannot be written, or the published figures cannot be read.
pub fn write(run: &Run, folder: &Path, published: Option<&str>) -> Result<PathBuf, ReportError> {
    let (page, charts) = page::draw(run, folder, published)?;
    let place = RunFolder::create(folder, CHARTS)?;
    for (name, chart) in charts {
        place.write(&format!("{name}.svg"), chart.as_bytes())?;
    }
    RunFolder::create(folder, "")?.write(PAGE, page.as_bytes())?;
    Ok(folder.join(PAGE))
}

/// Why there is no report.
#[derive(Debug)]
pub enum ReportError {
    /// A file could not be written.
    Store(StoreError),
    /// The published figures are not what they should be.
    Published(String),
    /// The template does not fit the data: a defect of the laboratory.
    Template(minijinja::Error),
}

impl fmt::Display for ReportError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReportError::Store(error) => error.fmt(formatter),
            ReportError::Published(line) => {
                let columns = "version,case,rps,p99_ms,p95_ms";
                write!(formatter, "published figures: {line:?} is not a line of {columns}; fix the file")
            }
            ReportError::Template(error) => write!(
                formatter,
                "the report cannot be laid out, which is a defect of weirlab: {error:#}; the data is untouched"
            ),
        }
    }
}

impl std::error::Error for ReportError {}

impl From<StoreError> for ReportError {
    fn from(error: StoreError) -> ReportError {
        ReportError::Store(error)
    }
}

impl From<minijinja::Error> for ReportError {
    fn from(error: minijinja::Error) -> ReportError {
        ReportError::Template(error)
    }
}
