//! What a report opens with: a sentence for each group of cases.
use super::words::{interval, list, micros, percent, ratio};
use crate::analysis::{Analysis, CaseAnalysis, CellAnalysis, MIN_JUDGED_PAIRS, Verdict};
use serde::Serialize;

/// Cases of one scheme and family.
pub(super) struct Family<'run> {
    /// Such as `kong over HTTPS`.
    pub(super) name: String,
    pub(super) cases: Vec<&'run CaseAnalysis>,
}

/// An answer.
#[derive(Serialize)]
pub(super) struct Answer {
    /// What it is about.
    heading: String,
    /// The subject's label.
    subject: String,
    /// What the subject costs.
    cost: String,
    /// What that is to others.
    comparison: String,
    /// How far it can be trusted.
    trust: String,
}

/// Cases by scheme and the first part of the scenario's name.
pub(super) fn families(analysis: &Analysis) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for case in &analysis.cases {
        let scenario = &case.case.scenario;
        let family = scenario.split_once('/').map_or(scenario.as_str(), |(family, _)| family);
        let name = format!("{family} over {}", case.case.scheme.to_uppercase());
        match families.iter_mut().find(|known| known.name == name) {
            Some(known) => known.cases.push(case),
            None => families.push(Family { name, cases: vec![case] }),
        }
    }
    families
}

/// The target that the report speaks of: Weir where it is measured, else the baseline.
pub(in crate::report) fn subject(analysis: &Analysis) -> String {
    let mut cells = analysis.cases.iter().flat_map(|case| &case.cells).filter(|cell| !cell.control);
    if analysis.baseline.starts_with("weir") {
        return analysis.baseline.clone();
    }
    let ours = cells.find(|cell| cell.target.starts_with("weir") && cell.summary.is_some());
    ours.map_or(analysis.baseline.clone(), |cell| cell.target.clone())
}

/// What to say of a family; nothing where the subject has no samples.
pub(super) fn answer(family: &Family<'_>, subject: &str, baseline: &str) -> Option<Answer> {
    let measured: Vec<(&CaseAnalysis, &CellAnalysis)> =
        family.cases.iter().filter_map(|case| Some((*case, case.cell(subject)?))).collect();
    let costs: Vec<_> = measured.iter().filter_map(|(_, cell)| cell.summary.as_ref()?.cpu_us).collect();
    let ends = ends(costs.iter().map(|cost| cost.value))?;
    let cost = match costs.as_slice() {
        [one] => format!(
            "{} of CPU per request ({})",
            micros(one.value),
            match one.samples {
                1 => interval(*one, micros),
                _ => format!(
                    "95\u{a0}% confidence interval {}",
                    interval(*one, |v| micros(v).replace(" µs", ""))
                ),
            }
        ),
        costs => format!(
            "{} of CPU per request (lowest and highest of {} cases)",
            range(ends, micros),
            costs.len()
        ),
    };
    Some(Answer {
        heading: heading(family),
        subject: subject.to_owned(),
        cost,
        comparison: list(&comparisons(&measured)),
        trust: trust(family, baseline),
    })
}

fn heading(family: &Family<'_>) -> String {
    match family.cases.as_slice() {
        [one] => one.case.name.clone(),
        cases => format!("{}, {} cases", family.name, cases.len()),
    }
}

/// The subject over each other target: with its interval for a single case, as extremes for several.
fn comparisons(measured: &[(&CaseAnalysis, &CellAnalysis)]) -> Vec<String> {
    let mut targets: Vec<&str> = Vec::new();
    for to in measured.iter().flat_map(|(case, _)| &case.cells).filter(|cell| !cell.control) {
        if !targets.contains(&to.target.as_str()) {
            targets.push(&to.target);
        }
    }
    targets.into_iter().filter_map(|target| comparison(measured, target)).collect()
}

fn comparison(measured: &[(&CaseAnalysis, &CellAnalysis)], target: &str) -> Option<String> {
    let effects: Vec<_> = measured.iter().filter_map(|(_, cell)| cell.ratio_to(target)?.cpu).collect();
    let name = if target == "floor" { "the floor" } else { target };
    match effects.as_slice() {
        [one] => Some(format!("{}\u{a0}× {name} ({})", ratio(one.ratio.value), interval(one.ratio, ratio))),
        _ => {
            let ends = ends(effects.iter().map(|effect| effect.ratio.value))?;
            let cases = if effects.len() < measured.len() {
                format!(" ({} of {} cases)", effects.len(), measured.len())
            } else {
                String::new()
            };
            Some(format!("{}\u{a0}× {name}{cases}", range(ends, ratio)))
        }
    }
}

fn trust(family: &Family<'_>, baseline: &str) -> String {
    let controlled = || family.cases.iter().filter(|case| case.noise.control.is_some());
    let judged = controlled().filter(|case| case.noise.is_judged());
    let noise = match ends(judged.map(|case| case.noise.floor)) {
        Some((low, high)) if percent(low) == percent(high) => {
            format!("The noise floor is ±{}.", percent(high))
        }
        Some((low, high)) => format!("The noise floor is ±{} to ±{}, by case.", percent(low), percent(high)),
        None if controlled().count() > 0 => {
            format!("With fewer than {MIN_JUDGED_PAIRS} pairs of blocks the A/A control cannot be judged.")
        }
        None => "No A/A control was measured, so differences below 10\u{a0}% are not judged.".to_owned(),
    };
    match untold(family).as_slice() {
        [] => noise,
        targets => format!("{noise} Not distinguishable from {baseline} in every case: {}.", list(targets)),
    }
}

/// Targets that have CPU time but no verdict.
fn untold(family: &Family<'_>) -> Vec<String> {
    let mut targets: Vec<String> = Vec::new();
    for cell in family.cases.iter().flat_map(|case| &case.cells) {
        let has_cpu = cell.summary.as_ref().is_some_and(|summary| summary.cpu_us.is_some());
        let open = matches!(cell.verdict, Verdict::CannotTell(_));
        if has_cpu && open && !targets.contains(&cell.target) {
            targets.push(cell.target.clone());
        }
    }
    targets
}

fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |ends, value| match ends {
        None => Some((value, value)),
        Some((low, high)) => Some((low.min(value), high.max(value))),
    })
}

fn range((low, high): (f64, f64), write: impl Fn(f64) -> String) -> String {
    let (low, high) = (write(low), write(high));
    if low == high { high } else { format!("{} to {high}", low.trim_end_matches(" µs")) }
}
