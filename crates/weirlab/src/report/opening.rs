//! What a report says before any figure: what was compared, on what machine, how busy that was, and whether the A/A
//! controls agree.
use super::words::percent;
use crate::analysis::{Analysis, Conditions, MIN_JUDGED_PAIRS, Spread};
use crate::chart::thousands;
use crate::result::{Run, TargetManifest};
use serde::Serialize;

/// The opening, a line for each fact.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Opening {
    /// Why the run is called disturbed; empty if it is not.
    pub(super) disturbed: String,
    /// Names and what is to be said of each.
    pub(super) facts: Vec<(&'static str, String)>,
}

impl Opening {
    /// Of a run.
    pub(super) fn of(run: &Run, analysis: &Analysis) -> Opening {
        let conditions = &analysis.conditions;
        Opening {
            disturbed: conditions.disturbances.join("; "),
            facts: vec![
                ("Compared", compared(run)),
                ("Machine", machine(run)),
                ("Meanwhile", meanwhile(conditions)),
                ("A/A control", control(conditions)),
            ],
        }
    }

    /// As lines of text; a disturbed run says so in the first.
    #[must_use]
    pub(super) fn text(&self) -> String {
        let disturbed = (!self.disturbed.is_empty()).then(|| format!("DISTURBED RUN: {}.", self.disturbed));
        let facts = self.facts.iter().map(|(name, fact)| format!("{name}: {fact}."));
        disturbed.into_iter().chain(facts).collect::<Vec<_>>().join("\n").replace('\u{a0}', " ")
    }
}

/// Such as `weir (weir 0.1.0, 0123456789ab) and nginx (nginx/1.26.3); 2 cases, kind run, profile quick`.
fn compared(run: &Run) -> String {
    let mut labels: Vec<&str> = Vec::new();
    for cell in run.cells.iter().filter(|cell| !cell.control) {
        if !labels.contains(&cell.target.as_str()) {
            labels.push(&cell.target);
        }
    }
    let named = |label: &&str| match run.manifest.targets.get(*label).map(identity).unwrap_or_default() {
        identity if identity.is_empty() => (*label).to_owned(),
        identity => format!("{label} ({identity})"),
    };
    let targets = super::words::list(&labels.iter().map(named).collect::<Vec<_>>());
    let cases = run.cases.len();
    let cases = if cases == 1 { "1 case".to_owned() } else { format!("{cases} cases") };
    format!("{targets}; {cases}, {} with profile {}", run.kind, run.profile)
}

/// Its version and commit.
fn identity(target: &TargetManifest) -> String {
    let commit = target.commit.as_ref().map(|commit| {
        let dirty = if target.dirty { " with changes" } else { "" };
        format!("{}{dirty}", commit.chars().take(12).collect::<String>())
    });
    let version = Some(target.version.clone()).filter(|version| !version.is_empty());
    version.into_iter().chain(commit).collect::<Vec<_>>().join(", ")
}

fn machine(run: &Run) -> String {
    let manifest = &run.manifest;
    let memory = format!("{} MiB", thousands(manifest.memory_mib as f64));
    let kernel = manifest.kernel.split(' ').take(2).collect::<Vec<_>>().join(" ");
    format!("{} × {}, {memory}, {kernel}; {}", manifest.cpus, manifest.cpu, manifest.pinning)
}

/// How busy the machine was: the median over blocks, and the lowest and the highest block.
fn meanwhile(conditions: &Conditions) -> String {
    let said = |spread: Option<Spread>, what: &str| spread.map(|spread| format!("{what} {}", shares(spread)));
    let before = conditions
        .pressure_before
        .map(|share| format!("before the run tasks waited for a CPU {} of the time", percent(share)));
    let parts = [
        before,
        said(conditions.others, "other processes used"),
        said(conditions.steal, "the hypervisor gave to others"),
        said(conditions.pressure, "tasks waited for a CPU, the laboratory’s own too,"),
        conditions.mhz.map(|mhz| format!("CPUs ran at {} MHz", frequencies(mhz))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return "unknown: no block was measured under load".to_owned();
    }
    let parts = parts.join("; ");
    match conditions.blocks {
        0 => format!("{parts}; no block was measured under load"),
        blocks => format!("{parts} (medians of {blocks} blocks, their range in brackets)"),
    }
}

fn shares(spread: Spread) -> String {
    format!("{} [{} to {}]", percent(spread.median), percent(spread.low), percent(spread.high))
}

fn frequencies(mhz: Spread) -> String {
    let (low, high) = (thousands(mhz.low), thousands(mhz.high));
    if low == high { high } else { format!("{} [{low} to {high}]", thousands(mhz.median)) }
}

fn control(conditions: &Conditions) -> String {
    let unjudged = format!("with fewer than {MIN_JUDGED_PAIRS} pairs of blocks");
    let Some((low, high)) = conditions.floor else {
        return match conditions.controls {
            0 => "none was measured; differences below 10\u{a0}% are not judged".to_owned(),
            _ => format!("cannot be judged {unjudged}"),
        };
    };
    let floor = match (percent(low), percent(high)) {
        (low, high) if low == high => format!("±{high}"),
        (low, high) => format!("±{low} to ±{high}, by case"),
    };
    let judged = conditions.controls - conditions.unjudged;
    let cases = if judged == 1 { "case" } else { "cases" };
    let others = match conditions.unjudged {
        0 => String::new(),
        unjudged_cases => format!("; cannot be judged in {unjudged_cases} {unjudged}"),
    };
    format!(
        "agrees in {} of {judged} {cases}, where 19 of 20 should; noise floor {floor}{others}",
        conditions.agreeing
    )
}
