//! Where and with what a run was measured.
use crate::result::{HostManifest, Run};
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
    facts.extend(manifest.hosts.iter().map(machine));
    facts.retain(|(_, value)| !value.trim().is_empty());
    let short = |hash: &String| hash.chars().take(16).collect();
    let configurations = manifest.configurations.iter().map(|(name, hash)| (name.clone(), short(hash)));
    Provenance { facts, targets: targets(run), configurations: configurations.collect() }
}

/// A machine of several, in a line.
fn machine((name, host): (&String, &HostManifest)) -> (String, String) {
    let changed: Vec<String> = host.prepared.iter().map(|(name, how)| format!("{name} {how}")).collect();
    let text = format!(
        "{}; {} × {}, {} MiB, {}; load average {:.2} for each core; round trip {:.0} µs, clock {:+.0} µs; {}",
        host.roles.join(", "),
        host.cpus,
        host.cpu,
        host.memory_mib,
        host.kernel,
        host.load_average,
        host.round_trip_us,
        host.clock_offset_us,
        if changed.is_empty() { "no setting changed".to_owned() } else { changed.join("; ") }
    );
    (format!("Host {name}"), text)
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
