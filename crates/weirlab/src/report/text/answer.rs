//! The answer in sentences.
use super::probe;
use super::table::{interval, note};
use crate::analysis::{Analysis, CaseAnalysis, CellAnalysis, Knee, Verdict, judge};
use crate::report::answer::subject;
use crate::result::Run;
use crate::stats::Estimate;

/// What a run comes to, a line each: first its subject (Weir where it is measured, else the baseline) against each target
/// over all cases, then case by case, then what is missing.
pub fn answer(run: &Run, analysis: &Analysis) -> String {
    let subject = &subject(analysis);
    let mut lines: Vec<String> = Vec::new();
    let compared = |case: &&CaseAnalysis| !rivals(case, subject).is_empty();
    if analysis.cases.iter().filter(compared).count() > 1 {
        let targets = targets(analysis, subject).into_iter();
        lines.extend(targets.filter_map(|target| overall(analysis, subject, target)));
    }
    lines.extend(analysis.cases.iter().filter_map(|case| in_case(case, subject)));
    lines.extend(analysis.probes.iter().map(probe::sentence));
    lines.extend(analysis.knees.iter().map(capacity));
    lines.extend(run.chains.iter().map(|chain| {
        format!("{}: {:.1} µs of CPU time a request, {}", chain.target, chain.cpu_us, chain.case)
    }));
    lines.extend(run.flames.iter().map(|flame| format!("{}: {}", flame.file, flame.title)));
    if lines.is_empty() {
        lines.push("Nothing was measured that could be compared.".to_owned());
    }
    lines.extend(analysis.cases.iter().flat_map(missing));
    if run.interrupted {
        lines.push("The run was interrupted: this is of what was measured until then.".to_owned());
    }
    lines.join("\n")
}

/// Targets of a case that nothing is known of, with the reason.
fn missing(case: &CaseAnalysis) -> Vec<String> {
    let lost = |cell: &&CellAnalysis| {
        let refused =
            matches!(cell.verdict, Verdict::NotMeasured(_)) || cell.counts.void + cell.counts.invalid > 0;
        cell.summary.is_none() && !cell.control && refused
    };
    let notes = case.cells.iter().filter(lost).filter_map(note);
    notes.map(|note| format!("{}: {note}", case.case.name)).collect()
}

/// Such as `kong/plain-1 http: weir holds p99=5ms up to at least 42000 requests/s with 1 worker (limited: …).`
fn capacity(knee: &Knee) -> String {
    let (case, target, slo) = (&knee.case, &knee.target, &knee.slo);
    let workers = plural(knee.workers as usize, "worker");
    let reservations = knee.reservations();
    let reservations = if reservations.is_empty() { reservations } else { format!(" ({reservations})") };
    if knee.rate > 0.0 {
        let (bound, rate) = (knee.bound(), knee.rate);
        format!(
            "{case}: {target} holds {slo} up to {bound}{rate:.0} requests/s with {workers}{reservations}."
        )
    } else if knee.limited_by.is_some() {
        format!(
            "{case}: at what rate {target} holds {slo} with {workers} could not be determined{reservations}."
        )
    } else {
        format!("{case}: {target} holds {slo} at no rate with {workers}{reservations}.")
    }
}

/// Cells other than the subject's and the control that have been measured.
fn rivals<'a>(case: &'a CaseAnalysis, subject: &str) -> Vec<&'a CellAnalysis> {
    let other = |cell: &&CellAnalysis| {
        cell.target != subject && !matches!(cell.verdict, Verdict::Control | Verdict::NotMeasured(_))
    };
    case.cells.iter().filter(other).collect()
}

fn targets<'a>(analysis: &'a Analysis, subject: &str) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for cell in analysis.cases.iter().flat_map(|case| rivals(case, subject)) {
        if !names.contains(&cell.target.as_str()) {
            names.push(&cell.target);
        }
    }
    names
}

/// Such as `weir against nginx: 0.67 × the CPU per request over 5 cases (lowest 0.66, highest 0.68): less in 5.`
fn overall(analysis: &Analysis, subject: &str, target: &str) -> Option<String> {
    let judged: Vec<(Verdict, f64)> = analysis
        .cases
        .iter()
        .filter_map(|case| {
            let cell = case.cell(target)?;
            Some((verdict(cell, case, subject)?, against(cell, subject)?.value))
        })
        .collect();
    let mean = crate::stats::mean(&judged.iter().map(|(_, ratio)| ratio.ln()).collect::<Vec<_>>())?.exp();
    let (least, most) = judged
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(least, most), (_, ratio)| (least.min(*ratio), most.max(*ratio)));
    let count = |wanted: fn(&Verdict) -> bool| judged.iter().filter(|(verdict, _)| wanted(verdict)).count();
    let counts = [
        ("less in", count(|verdict| matches!(verdict, Verdict::Slower))),
        ("the same in", count(|verdict| matches!(verdict, Verdict::Same(_)))),
        ("more in", count(|verdict| matches!(verdict, Verdict::Faster))),
        ("cannot tell in", count(|verdict| matches!(verdict, Verdict::CannotTell(_)))),
    ];
    let counts =
        counts.iter().filter(|(_, count)| *count > 0).map(|(words, count)| format!("{words} {count}"));
    let (cases, counts) = (plural(judged.len(), "case"), counts.collect::<Vec<_>>().join(", "));
    Some(format!(
        "{subject} against {target}: {mean:.2} × the CPU per request over {cases} (lowest {least:.2}, highest {most:.2}): {counts}."
    ))
}

/// Such as `kong/plain-1 http: weir spends 13.0 µs of CPU per request (12.5–13.4): 0.67 × nginx (0.66–0.68), …`.
fn in_case(case: &CaseAnalysis, subject: &str) -> Option<String> {
    let cpu = case.cell(subject)?.summary.as_ref()?.cpu_us?;
    let rivals = rivals(case, subject).into_iter();
    let ratios: Vec<String> = rivals.filter_map(|cell| in_cell(cell, case, subject)).collect();
    let name = &case.case.name;
    let ratios = if ratios.is_empty() { String::new() } else { format!(": {}", ratios.join(", ")) };
    Some(format!("{name}: {subject} spends {} µs of CPU per request{ratios}.", interval(Some(cpu), 1)))
}

fn in_cell(cell: &CellAnalysis, case: &CaseAnalysis, subject: &str) -> Option<String> {
    let ratio = format!("{} × {}", interval(Some(against(cell, subject)?), 2), cell.target);
    Some(match verdict(cell, case, subject)? {
        Verdict::Same(within) => format!("{ratio} (the same within ±{:.1} %)", within * 100.0),
        Verdict::CannotTell(_) => format!("{ratio} (cannot tell)"),
        _ => ratio,
    })
}

/// How the cell's target stands to the subject.
fn verdict(cell: &CellAnalysis, case: &CaseAnalysis, subject: &str) -> Option<Verdict> {
    Some(judge(&cell.ratio_to(subject)?.cpu?, case.noise.floor))
}

/// The subject over the cell's target.
fn against(cell: &CellAnalysis, subject: &str) -> Option<Estimate> {
    Some(cell.ratio_to(subject)?.cpu?.ratio.inverse())
}

fn plural(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}
