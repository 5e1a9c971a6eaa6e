//! Where and with what a run was measured.
use crate::result::Run;
use serde::Serialize;

/// The manifest, as the page shows it.
#[derive(Serialize)]
pub(super) struct Provenance {
    facts: Vec<(String, String)>,
    targets: Vec<TargetFacts>,
    configurations: Vec<(String, String)>,
}

#[derive(Serialize)]
struct TargetFacts {
    label: String,
    version: String,
    source: String,
    driver: String,
    binary: String,
    sha256: String,
}

pub(super) fn provenance(run: &Run) -> Provenance {
    let manifest = &run.manifest;
    let fact = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let sharing = if manifest.cpu_sharing { "yes: trust CPU per request rather than rates" } else { "no" };
    let mut facts = vec![
        fact("Began", &manifest.started),
        fact("Ended", &manifest.ended),
        fact("Command", &manifest.command.join(" ")),
        fact("Kind and profile", &format!("{}, {}", run.kind, run.profile)),
        fact("Seed", &run.seed.to_string()),
        fact("Laboratory", &manifest.laboratory),
        fact("Compiler", &manifest.rustc),
        fact("Kernel", &manifest.kernel),
        fact("CPU", &format!("{} × {}", manifest.cpus, manifest.cpu)),
        fact("Memory", &format!("{} MiB", manifest.memory_mib)),
        fact("CPUs shared", sharing),
        fact("Pinning", &manifest.pinning),
    ];
    facts.extend(manifest.machine.iter().map(|(name, value)| (name.clone(), value.clone())));
    facts.retain(|(_, value)| !value.trim().is_empty());
    let short = |hash: &String| hash.chars().take(16).collect();
    let configurations = manifest.configurations.iter().map(|(name, hash)| (name.clone(), short(hash)));
    Provenance { facts, targets: targets(run), configurations: configurations.collect() }
}

fn targets(run: &Run) -> Vec<TargetFacts> {
    let targets = run.manifest.targets.iter().map(|(label, target)| {
        let commit = target.commit.as_deref().map(|commit| commit.chars().take(12).collect::<String>());
        let dirty = if target.dirty { " with changes" } else { "" };
        TargetFacts {
            label: label.clone(),
            version: target.version.clone(),
            source: commit.map_or(String::new(), |commit| format!("{commit}{dirty}")),
            driver: target.driver.clone(),
            binary: target.binary.clone(),
            sha256: target.sha256.chars().take(16).collect(),
        }
    });
    targets.collect()
}
