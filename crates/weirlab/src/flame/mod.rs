//! Flame graphs of targets under load: `perf` samples their stacks, `inferno` folds and draws them.
//!
//! Stacks are unwound by DWARF, because neither release builds nor the C library keep frame pointers; see
//! `docs/laboratory/flame.md`.
mod draw;
mod fold;
mod perf;

pub use draw::{differential, graph};
pub use perf::{record, save, stacks};

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

/// What was sampled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stacks {
    /// Stacks, folded: `thread;outermost;…;innermost count`.
    pub folded: String,
    /// How many samples there are.
    pub samples: u64,
    /// What was counted.
    pub event: String,
}

/// What a recording left.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Stacks, folded: `thread;outermost;…;innermost count`.
    pub folded: PathBuf,
    /// The graph.
    pub graph: PathBuf,
    /// How many samples there are.
    pub samples: u64,
    /// What was counted: CPU cycles, or the clock where the machine does not count them.
    pub event: String,
}

/// Why there is no flame graph.
#[derive(Debug)]
pub enum FlameError {
    /// `perf` is not there.
    PerfMissing,
    /// The kernel does not let this user sample; its `perf_event_paranoid`.
    NotPermitted(String),
    /// The processes did nothing while they were watched, or are gone.
    NoSamples(Vec<u32>),
    /// `perf` failed for another reason; its output.
    Perf(String),
    /// Stacks could not be folded or drawn.
    Draw(String),
    /// A file could not be read or written.
    File(PathBuf, io::Error),
}

impl fmt::Display for FlameError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlameError::PerfMissing => write!(
                formatter,
                "perf is not installed, and flame graphs need it: apt-get install linux-perf (Debian), \
                 linux-tools-generic (Ubuntu), perf (Fedora)"
            ),
            FlameError::NotPermitted(level) => write!(
                formatter,
                "the kernel lets this user sample nothing (kernel.perf_event_paranoid is {level}): run as root, or \
                 sysctl kernel.perf_event_paranoid=1"
            ),
            FlameError::NoSamples(pids) => write!(
                formatter,
                "no samples of {pids:?}: the processes did nothing or ended while they were watched; record longer, \
                 under load"
            ),
            FlameError::Perf(said) => write!(formatter, "perf failed: {said}"),
            FlameError::Draw(why) => write!(formatter, "the stacks cannot be drawn: {why}"),
            FlameError::File(path, error) => write!(formatter, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for FlameError {}

fn read(path: &Path) -> Result<Vec<u8>, FlameError> {
    fs::read(path).map_err(|error| FlameError::File(path.to_owned(), error))
}

pub(crate) fn write(path: &Path, content: &[u8]) -> Result<(), FlameError> {
    fs::write(path, content).map_err(|error| FlameError::File(path.to_owned(), error))
}
