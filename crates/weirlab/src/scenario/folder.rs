//! Where scenarios are found, and what is asked of them.
use super::file::{ScenarioFile, Scheme};
use super::{CasePlan, ScenarioError, expand};
use crate::catalogue::{Entry, Kind, read_toml, select};
use std::path::{Path, PathBuf};

const SCENARIOS: Kind = Kind { what: "scenario", below: "scenarios", marker: "scenario.toml" };

/// A folder with a `scenario.toml`, read.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its path below `scenarios/`, such as `kong/plain-1`.
    pub name: String,
    /// What it calls itself.
    pub title: String,
    /// Where the case comes from, in words.
    pub source: String,
    /// Where it is.
    pub folder: PathBuf,
    pub(super) file: ScenarioFile,
}

/// The scenarios that the names stand for: folders, names below `scenarios/`, all below a name, or `*` for any
/// characters. No names stand for all.
///
/// # Errors
/// When a name stands for nothing, or what it stands for cannot be read.
pub fn find(names: &[String], root: &Path) -> Result<Vec<Scenario>, ScenarioError> {
    select(&SCENARIOS, names, root)?.into_iter().map(Scenario::read).collect()
}

impl Scenario {
    fn read(entry: Entry) -> Result<Scenario, ScenarioError> {
        let file: ScenarioFile = read_toml(&entry.folder.join("scenario.toml"))?;
        Ok(Scenario {
            name: entry.name,
            title: file.title.clone(),
            source: file.source.clone(),
            folder: entry.folder,
            file,
        })
    }

    /// The schemes that it is made for, the preferred one first.
    #[must_use]
    pub fn schemes(&self) -> &[Scheme] {
        &self.file.schemes
    }

    /// The scenario as a profile has it, such as with the connections of Kong's own protocol; itself where the profile
    /// changes nothing.
    #[must_use]
    pub fn in_profile(mut self, profile: &str) -> Scenario {
        if let Some(other) = self.file.profile.get(profile) {
            let load = &mut self.file.load;
            load.connections = other.connections.clone().unwrap_or_else(|| load.connections.clone());
            load.threads = other.threads.clone().unwrap_or_else(|| load.threads.clone());
            load.rate = other.rate.clone().or_else(|| load.rate.clone());
        }
        self
    }

    /// A case for each point of its sweeps, over the scheme, or over its preferred one.
    ///
    /// # Errors
    /// When it is not made for the scheme, or does not fit together.
    pub fn cases(&self, scheme: Option<Scheme>) -> Result<Vec<CasePlan>, ScenarioError> {
        let preferred = self.file.schemes.first().copied().unwrap_or(Scheme::Https);
        expand::cases(self, scheme.unwrap_or(preferred))
    }
}
