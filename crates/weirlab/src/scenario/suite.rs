//! Suites: named lists of scenarios and the targets they are put before.
use super::ScenarioError;
use super::file::Scheme;
use crate::catalogue::{nearest, read_toml};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// A list of what to run, one after the other.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// What it is for, in a few words.
    pub title: String,
    /// What is run.
    #[serde(rename = "run")]
    pub entries: Vec<SuiteEntry>,
}

/// One line of a suite.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteEntry {
    /// A scenario, by any name that finds one or more.
    pub scenario: String,
    /// The scheme; none for the scenario's preferred one.
    pub scheme: Option<Scheme>,
    /// The targets, by name.
    pub targets: Vec<String>,
}

impl Suite {
    /// The suite of that name, `suites/NAME.toml` below the root, or at that path.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn find(name: &str, root: &Path) -> Result<Suite, ScenarioError> {
        let named = root.join("suites").join(format!("{name}.toml"));
        let given = PathBuf::from(name);
        match [named, given].into_iter().find(|file| file.is_file()) {
            Some(file) => read_toml(&file),
            None => {
                let known = names(root);
                Err(ScenarioError::Unknown {
                    what: "suite",
                    name: name.to_owned(),
                    nearest: nearest(name, known.iter().map(String::as_str)),
                    place: root.join("suites"),
                })
            }
        }
    }
}

fn names(root: &Path) -> Vec<String> {
    let files = std::fs::read_dir(root.join("suites")).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.path().file_stem()?.to_str()?.to_owned())).collect()
}
