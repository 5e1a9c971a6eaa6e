//! What was not the same when two runs were measured.
use crate::result::{Manifest, TargetManifest};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Something that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// What.
    pub what: String,
    /// What it was in the old run; empty if unknown.
    pub old: String,
    /// What it is in the new one.
    pub new: String,
}

/// What differs between two manifests, but for times and command lines.
pub fn differences(old: &Manifest, new: &Manifest) -> Vec<Difference> {
    let (old, new) = (facts(old), facts(new));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let fact = |facts: &BTreeMap<String, String>, name: &str| facts.get(name).cloned().unwrap_or_default();
    let pairs = names.into_iter().map(|name| (name, fact(&old, name), fact(&new, name)));
    pairs
        .filter(|(_, old, new)| old != new)
        .map(|(what, old, new)| Difference { what: what.clone(), old, new })
        .collect()
}

/// Labels of the targets that were the same in both runs, to the bit.
pub(super) fn unchanged(old: &Manifest, new: &Manifest) -> Vec<String> {
    let same = |before: &TargetManifest, after: &TargetManifest| {
        before.version == after.version && before.sha256 == after.sha256
    };
    let kept = new
        .targets
        .iter()
        .filter(|(label, after)| old.targets.get(*label).is_some_and(|before| same(before, after)));
    kept.map(|(label, _)| label.clone()).collect()
}

fn facts(manifest: &Manifest) -> BTreeMap<String, String> {
    let own = [
        ("laboratory", manifest.laboratory.clone()),
        ("kernel", manifest.kernel.clone()),
        ("CPU", manifest.cpu.clone()),
        ("CPUs", manifest.cpus.to_string()),
        ("memory", format!("{} MiB", manifest.memory_mib)),
        ("compiler", manifest.rustc.clone()),
        ("pinning", manifest.pinning.clone()),
    ];
    let mut facts: BTreeMap<String, String> = own.map(|(name, value)| (name.to_owned(), value)).into();
    facts.extend(manifest.machine.iter().map(|(name, value)| (format!("machine: {name}"), value.clone())));
    facts.extend(
        manifest.targets.iter().map(|(label, target)| (format!("target: {label}"), target_words(target))),
    );
    facts.extend(
        manifest.configurations.iter().map(|(name, hash)| (format!("configuration: {name}"), short(hash))),
    );
    facts
}

/// Such as `nginx/1.26.3, binary ab12…`.
fn target_words(target: &TargetManifest) -> String {
    let commit =
        target.commit.as_ref().map(|commit| format!(", commit {}", short(commit))).unwrap_or_default();
    let dirty = if target.dirty { " with changes" } else { "" };
    format!("{}{commit}{dirty}, binary {}, {}", target.version, short(&target.sha256), target.driver)
}

fn short(hash: &str) -> String {
    hash.chars().take(12).collect()
}
