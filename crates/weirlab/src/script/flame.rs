//! Flame graphs of a script's gateway.
use super::ScriptError;
use super::output::save;
use crate::flame::{graph, stacks};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A flame graph to record.
#[derive(Clone, Debug)]
pub struct FlameGraph {
    file: PathBuf,
    title: String,
    duration: Duration,
    frequency: u32,
}

impl FlameGraph {
    /// One in a file, an SVG, of ten seconds with 499 samples each.
    #[must_use]
    pub fn new(file: impl Into<PathBuf>) -> FlameGraph {
        FlameGraph {
            file: file.into(),
            title: "Flame graph".to_owned(),
            duration: Duration::from_secs(10),
            frequency: 499,
        }
    }

    /// What stands above it.
    #[must_use]
    pub fn title(mut self, title: &str) -> FlameGraph {
        title.clone_into(&mut self.title);
        self
    }

    /// How long the gateway is watched.
    #[must_use]
    pub fn duration(mut self, duration: Duration) -> FlameGraph {
        self.duration = duration;
        self
    }

    /// Samples a second.
    #[must_use]
    pub fn frequency(mut self, frequency: u32) -> FlameGraph {
        self.frequency = frequency;
        self
    }

    /// Records the process tree below a process.
    pub(super) fn record(self, pid: u32, folder: &Path) -> Result<PathBuf, ScriptError> {
        let mut tree = crate::observe::ProcessTree::new(pid);
        tree.sample();
        let stacks = stacks(&tree.pids(), self.duration, self.frequency, folder)?;
        let about = format!("{} samples of {}", stacks.samples, stacks.event);
        save(&self.file, &graph(&stacks.folded, &self.title, &about)?)?;
        Ok(self.file)
    }
}
