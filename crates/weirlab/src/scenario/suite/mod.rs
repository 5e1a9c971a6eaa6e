//! Suites: named lists of scenarios and the targets they are put before, with parameters and loops over them.
mod change;
mod file;
mod parameters;
mod template;

pub use change::Change;
pub use parameters::Given;

use super::ScenarioError;
use super::file::Scheme;
use crate::catalogue::{nearest, parse_toml, read_text};
use file::SuiteFile;
use parameters::Parameters;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A list of what to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Suite {
    /// What it is for, in a few words.
    pub title: String,
    /// Blocks of each cell, instead of the profile's.
    pub rounds: Option<u32>,
    /// The measured window of a block, instead of the profile's.
    pub duration: Option<Duration>,
    /// What is run: where a parameter has several values, an entry for each of them.
    pub entries: Vec<SuiteEntry>,
}

/// One run of a suite, with its parameters filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct SuiteEntry {
    /// A scenario, by any name that finds one or more.
    pub scenario: String,
    /// The scheme; none for the scenario's preferred one.
    pub scheme: Option<Scheme>,
    /// The targets, by name, or as `name@version`.
    pub targets: Vec<String>,
    /// What of the scenario is different here.
    pub change: Change,
    /// How long each target is watched for a flame graph after the measurement; none for no graph.
    pub flame: Option<Duration>,
}

impl Suite {
    /// The suite of that name, `suites/NAME.toml` below the root, or at that path. What is given takes the place of the
    /// suite's own parameters.
    ///
    /// # Errors
    /// When there is none, it cannot be read, or it has no such parameter.
    pub fn find(name: &str, given: &[Given], root: &Path) -> Result<Suite, ScenarioError> {
        let named = root.join("suites").join(format!("{name}.toml"));
        let path = PathBuf::from(name);
        match [named, path].into_iter().find(|file| file.is_file()) {
            Some(file) => read(&file, given),
            None => {
                let known = Suite::names(root);
                Err(ScenarioError::Unknown {
                    what: "suite",
                    name: name.to_owned(),
                    nearest: nearest(name, known.iter().map(String::as_str)),
                    place: root.join("suites"),
                })
            }
        }
    }

    /// The names of all suites below the root.
    #[must_use]
    pub fn names(root: &Path) -> Vec<String> {
        let files = std::fs::read_dir(root.join("suites")).into_iter().flatten().flatten();
        let files =
            files.map(|file| file.path()).filter(|path| path.extension().is_some_and(|end| end == "toml"));
        let mut names: Vec<String> =
            files.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
        names.sort();
        names
    }
}

fn read(path: &Path, given: &[Given]) -> Result<Suite, ScenarioError> {
    let text = read_text(path)?;
    let file: SuiteFile = parse_toml(path, &text)?;
    let suite = template::Source { path, text: &text };
    let parameters = Parameters::of_suite(&file.parameters, given, &suite)?;
    let mut entries = Vec::new();
    for run in &file.runs {
        entries.extend(run.entries(&parameters, &suite)?);
    }
    parameters.all_mentioned(&suite)?;
    Ok(Suite {
        title: file.title,
        rounds: file.rounds.map(std::num::NonZero::get),
        duration: file.duration.map(|span| span.0),
        entries,
    })
}

#[cfg(test)]
mod tests;
