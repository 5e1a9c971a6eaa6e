//! The files of plugins and modules, and what was read of them.

use crate::phase::Phase;
use crate::search::Sources;
use foldhash::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Where the files of plugins are, and what was last read of them.
#[derive(Debug)]
pub struct PluginFiles {
    pub(crate) path: String,
    pub(crate) c_path: String,
    current: RwLock<Arc<Generation>>,
    /// The address of what is current, so that each call can ask for it without a write to memory that workers share.
    address: AtomicUsize,
}

/// What was read of files since they were last read anew. Each has VMs of its own.
#[derive(Debug)]
pub(crate) struct Generation {
    pub(crate) sources: Sources,
    pub(crate) plugins: Mutex<HashMap<String, Arc<Code>>>,
}

/// What was read before, to go back to.
pub struct FormerFiles(pub(crate) Arc<Generation>);

/// A plugin as its files have it.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) handler: Handler,
    /// Whether it names a function that reads the body of requests.
    pub(crate) reads_bodies: bool,
    /// Whether it names what reads the service's response, which is kept for it as it came.
    pub(crate) reads_service: bool,
}

/// What the fields of a handler say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Handler {
    pub(crate) priority: i32,
    pub(crate) version: String,
    /// The phases that it has methods for.
    pub(crate) phases: Vec<Phase>,
}

impl Handler {
    pub(crate) fn has(&self, phase: Phase) -> bool {
        self.phases.contains(&phase)
    }
}

impl PluginFiles {
    /// Those in the places that `lua_package_path` and `lua_package_cpath` name.
    pub fn new(path: &str, c_path: &str) -> Self {
        let first = Arc::new(Generation { sources: Sources::new(path, c_path), plugins: Mutex::default() });
        let address = AtomicUsize::new(address(&first));
        Self { path: path.to_owned(), c_path: c_path.to_owned(), current: RwLock::new(first), address }
    }

    /// Where modules are looked for.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// What was last read.
    pub(crate) fn current(&self) -> Arc<Generation> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether this was last read. Who has it keeps its address from being that of another.
    pub(crate) fn is_current(&self, files: &Arc<Generation>) -> bool {
        self.address.load(Ordering::Acquire) == address(files)
    }

    /// Uses from now on what was read before.
    pub fn go_back(&self, former: FormerFiles) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        self.address.store(address(&former.0), Ordering::Release);
        *current = former.0;
    }
}

fn address(files: &Arc<Generation>) -> usize {
    Arc::as_ptr(files).addr()
}
