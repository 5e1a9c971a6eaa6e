//! What can be wrong with a catalogue, its scenarios and its targets.
use std::io;
use std::path::PathBuf;

/// Why a scenario or a target cannot be used. Each text says how to fix it.
#[derive(Debug)]
pub enum CatalogueError {
    /// There is no catalogue at or above these folders.
    NoCatalogue(String),
    /// Nothing has this name.
    Unknown {
        /// `scenario`, `target` or `suite`.
        what: &'static str,
        /// The name that was asked for.
        name: String,
        /// Names that resemble it.
        nearest: Vec<String>,
        /// Where such things were looked for.
        place: PathBuf,
    },
    /// A file cannot be read.
    Unreadable(PathBuf, io::Error),
    /// A file cannot be written.
    Unwritable(PathBuf, io::Error),
    /// A file does not say what it should, at a place.
    Invalid {
        /// The file.
        file: PathBuf,
        /// The line, from 1 on.
        line: usize,
        /// The column, from 1 on; 0 where it is not known.
        column: usize,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// A file is well formed but makes no sense.
    Unfit(PathBuf, String),
    /// A target's program is not on this machine; the text says how to install it.
    Missing(String),
}

impl std::fmt::Display for CatalogueError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CatalogueError::NoCatalogue(text) | CatalogueError::Missing(text) => formatter.write_str(text),
            CatalogueError::Unknown { what, name, nearest, place } => {
                write!(formatter, "there is no {what} {name} in {}", place.display())?;
                match nearest.as_slice() {
                    [] => write!(formatter, "; `weirlab list {}` shows what there is", listed(what)),
                    names => write!(formatter, "; the nearest: {}", names.join(", ")),
                }
            }
            CatalogueError::Unreadable(file, error) => {
                write!(formatter, "cannot read {}: {error}", file.display())
            }
            CatalogueError::Unwritable(file, error) => {
                write!(formatter, "cannot write {}: {error}", file.display())
            }
            CatalogueError::Invalid { file, line, column: 0, message } => {
                write!(formatter, "{}:{line}: {message}", file.display())
            }
            CatalogueError::Invalid { file, line, column, message } => {
                write!(formatter, "{}:{line}:{column}: {message}", file.display())
            }
            CatalogueError::Unfit(file, message) => write!(formatter, "{}: {message}", file.display()),
        }
    }
}

/// What `weirlab list` calls them.
fn listed(what: &str) -> &'static str {
    match what {
        "target" => "targets",
        "suite" => "suites",
        "fault scenario" => "faults",
        _ => "scenarios",
    }
}

impl std::error::Error for CatalogueError {}
