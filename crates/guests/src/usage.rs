//! The memory that Lua takes, as monitoring shows it.

use crate::dicts::Dicts;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use weir_plugin::Retained;

/// The memory that the Lua of a node takes, in bytes.
#[derive(Debug, Clone, Default)]
pub struct LuaMemory {
    /// Of each VM of a worker, what it held when its last call began.
    pub vms: Vec<usize>,
    /// The shared dictionaries, once Lua runs.
    pub dicts: Vec<DictMemory>,
}

/// The memory of a shared dictionary, in bytes.
#[derive(Debug, Clone)]
pub struct DictMemory {
    /// Its name.
    pub name: String,
    /// What it may take.
    pub capacity: usize,
    /// What it takes.
    pub used: usize,
}

impl LuaMemory {
    /// That of the node whose state this is. Other threads use the VMs meanwhile.
    pub fn of(retained: &Retained) -> Self {
        let dicts = retained.get::<Dicts>();
        let dict = |(name, dict): (&str, &weir_plugin::SharedDict)| {
            let (capacity, free) = (dict.capacity(), dict.free_space());
            DictMemory { name: name.to_owned(), capacity, used: capacity - free }
        };
        let mut dicts: Vec<_> = dicts.iter().map(dict).collect();
        dicts.sort_by(|one, other| one.name.cmp(&other.name));
        Self { vms: retained.get::<VmSizes>().all(), dicts }
    }
}

/// What each VM of the workers holds, as far as it is there.
#[derive(Default)]
pub(crate) struct VmSizes(Mutex<Vec<Weak<AtomicUsize>>>);

impl VmSizes {
    /// Adds a VM, which keeps its size up to date.
    pub(crate) fn add(&self, size: &Arc<AtomicUsize>) {
        let mut sizes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sizes.retain(|size| size.strong_count() > 0);
        sizes.push(Arc::downgrade(size));
    }

    fn all(&self) -> Vec<usize> {
        let sizes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sizes.iter().filter_map(Weak::upgrade).map(|size| size.load(Ordering::Relaxed)).collect()
    }
}
