//! Each plugin names the phases of its hooks: one that it forgets would be a hook that never runs.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The hooks that run in a phase, which has their name in capitals.
const HOOKS: [&str; 8] =
    ["rewrite", "access", "response", "response_body", "log", "preread", "log_stream", "certificate"];

/// The blocks `impl Hooks for …`, each with the name of its plugin.
fn implementations(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let blocks = text.split("\nimpl Hooks for ").skip(1);
    blocks.filter_map(|block| block.split_once("\n}\n").unwrap_or((block, "")).0.split_once(" {\n"))
}

/// The hooks that a block has, and those whose phases it names.
fn hooks_and_phases(block: &str) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let has = |hook: &&str| block.contains(&format!("\n    fn {hook}("));
    let names = |hook: &&str| {
        let phase = format!("Phases::{}", hook.to_uppercase());
        let is_end = |rest: &str| !rest.starts_with(|next: char| next == '_' || next.is_alphanumeric());
        block.match_indices(&phase).any(|(at, _)| is_end(&block[at + phase.len()..]))
    };
    (HOOKS.into_iter().filter(has).collect(), HOOKS.into_iter().filter(names).collect())
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// What stands before the hooks of another plugin has its phases, and passes every hook on.
#[test]
fn a_plugin_names_the_phases_of_its_hooks_and_no_others() {
    let mut plugins = 0;
    for file in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let text = fs::read_to_string(&file).unwrap();
        for (plugin, block) in implementations(&text) {
            if block.contains("self.inner.phases()") {
                let missing: Vec<_> =
                    HOOKS.iter().filter(|hook| !block.contains(&format!("self.inner.{hook}("))).collect();
                assert!(missing.is_empty(), "{plugin} passes no {missing:?} on");
                continue;
            }
            plugins += 1;
            assert!(block.contains("fn phases("), "{plugin} says nothing of its phases");
            let (hooks, phases) = hooks_and_phases(block);
            assert_eq!(hooks, phases, "{plugin}: hooks, and the phases that `phases` names");
        }
    }
    assert_eq!(plugins, weir_plugins::PLUGINS.len());
}

#[test]
fn the_hooks_of_the_contract_are_known_here() {
    let contract =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../plugin/src/phases.rs")).unwrap();
    let declared = contract.lines().filter_map(|line| line.trim().strip_prefix("pub const "));
    let constants = declared.filter_map(|line| line.split_once(": Self = ").map(|(name, _)| name));
    let phases = constants.map(str::to_lowercase);
    let phases: BTreeSet<_> = phases.filter(|name| name != "none" && name != "all").collect();
    assert_eq!(phases, HOOKS.map(str::to_owned).into());
}

#[test]
fn a_phase_that_is_forgotten_shows() {
    let text = "\nimpl Hooks for Some {\n    fn phases(&self) -> Phases {\n        Phases::RESPONSE_BODY\n    }\n\n    \
                fn response(&self) {}\n}\n";
    let (plugin, block) = implementations(text).next().unwrap();
    let (hooks, phases) = hooks_and_phases(block);
    assert_eq!((plugin, hooks, phases), ("Some", ["response"].into(), ["response_body"].into()));
}
