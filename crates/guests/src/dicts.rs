//! The dictionaries that Lua shares between the workers of a node: those of Kong, and those of the settings.

use crate::settings::LuaSettings;
use std::sync::{Arc, OnceLock};
use weir_plugin::{Retained, SharedDict};

/// How large a dictionary is.
enum Size {
    Megabytes(usize),
    /// As large as the setting says.
    OfCache,
}

use Size::{Megabytes, OfCache};

/// Kong's dictionaries.
const KONG: [(&str, Size); 11] = [
    ("kong", Megabytes(5)),
    ("kong_locks", Megabytes(8)),
    ("kong_healthchecks", Megabytes(5)),
    ("kong_cluster_events", Megabytes(5)),
    ("kong_rate_limiting_counters", Megabytes(12)),
    ("kong_core_db_cache", OfCache),
    ("kong_core_db_cache_miss", Megabytes(12)),
    ("kong_db_cache", OfCache),
    ("kong_db_cache_miss", Megabytes(12)),
    ("kong_secrets", Megabytes(5)),
    ("prometheus_metrics", Megabytes(5)),
];

/// Those that hold what plugins rely on, such as credentials: code in a sandbox does not see them.
pub(crate) const HIDDEN: [&str; 6] = [
    "kong_locks",
    "kong_core_db_cache",
    "kong_core_db_cache_miss",
    "kong_db_cache",
    "kong_db_cache_miss",
    "kong_secrets",
];

/// The dictionaries of a node, by name.
#[derive(Default)]
pub(crate) struct Dicts(OnceLock<Vec<(Box<str>, SharedDict)>>);

impl Dicts {
    /// Those of the node whose state this is, made at the first use.
    pub(crate) fn of(retained: &Retained) -> Arc<Self> {
        let dicts = retained.get::<Self>();
        dicts.0.get_or_init(|| make(retained));
        dicts
    }

    /// The one of this name.
    pub(crate) fn get(&self, name: &str) -> Option<&SharedDict> {
        self.iter().find(|(known, _)| *known == name).map(|(_, dict)| dict)
    }

    /// Their names with them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &SharedDict)> {
        self.0.get().into_iter().flatten().map(|(name, dict)| (&**name, dict))
    }
}

/// The names of those of a node with these settings.
pub(crate) fn names(settings: &LuaSettings) -> impl Iterator<Item = &str> {
    let own = settings.shared_dicts.iter().map(|(name, _)| name.as_str());
    own.chain(KONG.iter().map(|(name, _)| *name))
}

fn make(retained: &Retained) -> Vec<(Box<str>, SharedDict)> {
    let settings = retained.get::<LuaSettings>();
    let kong = KONG.iter().map(|(name, size)| match size {
        Megabytes(size) => (*name, size << 20),
        OfCache => (*name, settings.cache_memory),
    });
    let own = settings.shared_dicts.iter().map(|(name, bytes)| (name.as_str(), *bytes));
    let mut dicts: Vec<(Box<str>, SharedDict)> = Vec::new();
    // A dictionary of the settings takes the place of Kong's.
    for (name, bytes) in own.chain(kong) {
        if !dicts.iter().any(|(known, _)| **known == *name) {
            dicts.push((name.into(), retained.shared_dict(&format!("lua.{name}"), bytes)));
        }
    }
    dicts
}
