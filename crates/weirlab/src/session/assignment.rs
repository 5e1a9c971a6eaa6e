//! What a session measures, and why it could not.
use super::profile::Profile;
use super::target_runner::Contender;
use crate::host::Site;
use crate::scenario::CasePlan;
use std::fmt;
use std::path::PathBuf;

/// What a session measures.
pub struct Assignment {
    /// `run`, `gate`, `capacity`.
    pub kind: &'static str,
    /// The cases, each with the contenders that take part in it.
    pub entries: Vec<Entry>,
    /// The contenders; the first is the baseline.
    pub contenders: Vec<Contender>,
    /// How long and how often.
    pub profile: Profile,
    /// The seed of every random choice.
    pub seed: u64,
    /// The folder with `scenarios/`, `targets/` and `suites/`.
    pub catalogue: PathBuf,
    /// Where run folders go.
    pub out: PathBuf,
    /// Where it is measured.
    pub site: Site,
    /// Workers of each target, unless the case says.
    pub workers: usize,
}

/// A case and the contenders that take part in it.
pub struct Entry {
    /// The case.
    pub case: CasePlan,
    /// Indices of contenders.
    pub contenders: Vec<usize>,
}

/// Why a session could not begin or go on.
#[derive(Debug)]
pub enum SessionError {
    /// The run folder cannot be written.
    Folder(String),
    /// The certificate could not be made.
    Setup(String),
}

impl fmt::Display for SessionError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionError::Folder(text) | SessionError::Setup(text) => formatter.write_str(text),
        }
    }
}

impl std::error::Error for SessionError {}
