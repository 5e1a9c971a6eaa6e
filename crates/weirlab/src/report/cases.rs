//! The tables: one over all cases, one for each.
use super::words::{Colours, drawn, interval, micros, percent, ratio};
use crate::analysis::{
    Analysis, CaseAnalysis, CellAnalysis, Counts, MIN_JUDGED_PAIRS, PartSummary, Summary, Verdict,
};
use crate::chart::{latency, significant, thousands};
use crate::result::{Parity, Run, Status};
use serde::Serialize;

/// Cases down, targets across.
#[derive(Serialize)]
pub(super) struct Overview {
    targets: Vec<Name>,
    rows: Vec<OverviewRow>,
}

/// A target's label in its colour.
#[derive(Clone, Serialize)]
pub(super) struct Name {
    label: String,
    colour: usize,
}

#[derive(Serialize)]
struct OverviewRow {
    anchor: String,
    name: String,
    cells: Vec<OverviewCell>,
}

/// CPU per request, or why there is none.
#[derive(Default, Serialize)]
struct OverviewCell {
    value: String,
    interval: String,
    absent: String,
    why: String,
}

/// One case.
#[derive(Serialize)]
pub(super) struct CasePart {
    pub(super) anchor: String,
    pub(super) name: String,
    title: String,
    load: String,
    parity: ParityPart,
    noise: String,
    rows: Vec<Row>,
    parts: Vec<PartRow>,
    absent: Vec<Absent>,
    spoiled: Vec<Absent>,
    pub(super) charts: Vec<super::pictures::Picture>,
}

/// What the parity checks saw.
#[derive(Serialize)]
struct ParityPart {
    checks: usize,
    agreed: usize,
    different: Vec<Difference>,
}

#[derive(Serialize)]
struct Difference {
    target: String,
    parity: Parity,
}

/// A target that was measured.
#[derive(Serialize)]
struct Row {
    name: Name,
    cpu: Figure,
    split: String,
    rps: Figure,
    p50: Figure,
    p95: Figure,
    p99: Figure,
    memory: String,
    errors: String,
    blocks: String,
    ratio: Figure,
    verdict: &'static str,
    words: String,
    why: String,
}

/// What a process used, where a case has several.
#[derive(Serialize)]
struct PartRow {
    target: Name,
    name: String,
    cores: String,
    cpu: String,
    memory: String,
}

/// A figure and its interval.
#[derive(Default, Serialize)]
struct Figure {
    value: String,
    interval: String,
}

/// A target that has no figures, or blocks that do not count.
#[derive(Serialize)]
struct Absent {
    name: Name,
    status: &'static str,
    why: String,
}

pub(super) fn anchor(case: &CaseAnalysis) -> String {
    format!("case-{}", super::words::slug(&case.case.name))
}

pub(super) fn overview(analysis: &Analysis, colours: &Colours) -> Overview {
    let mut targets: Vec<Name> = Vec::new();
    for cell in analysis.cases.iter().flat_map(|case| &case.cells).filter(|cell| !cell.control) {
        if targets.iter().all(|known| known.label != cell.target) {
            targets.push(name(&cell.target, colours));
        }
    }
    let row = |case: &CaseAnalysis| OverviewRow {
        anchor: anchor(case),
        name: case.case.name.clone(),
        cells: targets.iter().map(|target| overview_cell(case.cell(&target.label))).collect(),
    };
    Overview { rows: analysis.cases.iter().map(row).collect(), targets }
}

fn overview_cell(cell: Option<&CellAnalysis>) -> OverviewCell {
    let absent = |absent: &str, why: &str| OverviewCell {
        absent: absent.to_owned(),
        why: why.to_owned(),
        ..OverviewCell::default()
    };
    let Some(cell) = cell else { return absent("–", "not a part of this run") };
    match (cell.summary.as_ref(), reason(&cell.status)) {
        (_, Some((status, why))) => absent(status, why),
        (None, None) => absent("no samples", "no block counts"),
        (Some(summary), None) => match summary.cpu_us {
            Some(cpu) => OverviewCell {
                value: significant(cpu.value, 3),
                interval: interval(cpu, |value| significant(value, 3)),
                ..OverviewCell::default()
            },
            None => absent("–", "has no process of its own"),
        },
    }
}

pub(super) fn case(run: &Run, analysis: &Analysis, case: &CaseAnalysis, colours: &Colours) -> CasePart {
    let rows = case.cells.iter().filter_map(|cell| row(cell, analysis, colours)).collect();
    let absent = case.cells.iter().filter_map(|cell| absent(cell, colours)).collect();
    let noted = |cell| {
        [spoiled(cell, colours), clock(cell, colours), first_byte(cell, colours)].into_iter().flatten()
    };
    let spoiled = case.cells.iter().flat_map(noted).collect();
    CasePart {
        anchor: anchor(case),
        name: case.case.name.clone(),
        title: case.case.title.clone(),
        load: case.case.load.clone(),
        parity: parity(run, case),
        noise: noise(case),
        rows,
        parts: case.cells.iter().flat_map(|cell| parts(cell, colours)).collect(),
        absent,
        spoiled,
        charts: Vec::new(),
    }
}

fn noise(case: &CaseAnalysis) -> String {
    match case.noise.control {
        Some(control) if !case.noise.is_judged() => {
            let ratio_text = interval(control.ratio, |value| format!("{value:.3}"));
            format!(
                "cannot be judged with fewer than {MIN_JUDGED_PAIRS} pairs of blocks; A/A control: {:.3} ({ratio_text})",
                control.ratio.value
            )
        }
        Some(control) => {
            let ratio_text = interval(control.ratio, |value| format!("{value:.3}"));
            let judged = if control.ratio.contains(1.0) {
                ""
            } else {
                " – 1 lies outside, as it does in one run of 20"
            };
            format!("±{}, from the A/A control: {ratio_text}{judged}", percent(case.noise.floor))
        }
        None => format!("±{} taken as given: no A/A control was measured", percent(case.noise.floor)),
    }
}

fn name(target: &str, colours: &Colours) -> Name {
    Name { label: target.to_owned(), colour: colours.of_target(target) }
}

fn row(cell: &CellAnalysis, analysis: &Analysis, colours: &Colours) -> Option<Row> {
    let summary = cell.summary.as_ref()?;
    let (verdict, why) =
        if summary.cpu_us.is_some() { judged(&cell.verdict) } else { ("plain", String::new()) };
    let to_baseline = cell.ratio_to(&analysis.baseline).and_then(|ratio| ratio.cpu);
    Some(Row {
        name: name(&cell.target, colours),
        cpu: figure(summary.cpu_us, micros),
        split: split(summary),
        rps: figure(summary.rps, thousands),
        p50: quantile(summary.shown().p50_ms, summary.ranges.p50_ms),
        p95: quantile(summary.shown().p95_ms, summary.ranges.p95_ms),
        p99: quantile(summary.shown().p99_ms, summary.ranges.p99_ms),
        memory: memory(summary.rss_kib),
        errors: errors(&cell.counts),
        blocks: blocks(&cell.counts),
        ratio: figure(to_baseline.map(|effect| effect.ratio), ratio),
        verdict,
        words: if summary.cpu_us.is_some() {
            cell.verdict.words()
        } else {
            "no process of its own".to_owned()
        },
        why,
    })
}

fn parts(cell: &CellAnalysis, colours: &Colours) -> Vec<PartRow> {
    let parts = cell.summary.iter().flat_map(|summary| &summary.parts);
    let row = |part: &PartSummary| PartRow {
        target: name(&cell.target, colours),
        name: part.name.clone(),
        cores: percent(part.cores),
        cpu: micros(part.cpu_us),
        memory: memory(part.rss_kib),
    };
    parts.map(row).collect()
}

fn figure(estimate: Option<crate::stats::Estimate>, write: fn(f64) -> String) -> Figure {
    let Some(estimate) = estimate else {
        return Figure { value: "–".to_owned(), interval: String::new() };
    };
    let bare = |value: f64| write(value).replace(" µs", "");
    let interval =
        drawn(estimate).interval.map_or(String::new(), |(low, high)| format!("{}…{}", bare(low), bare(high)));
    Figure { value: write(estimate.value), interval }
}

/// Of the answers of all blocks, with the lowest and the highest block in square brackets.
fn quantile(value: Option<f64>, range: Option<(f64, f64)>) -> Figure {
    let interval = range.map(|(low, high)| format!("[{}…{}]", latency(low), latency(high)));
    Figure { value: value.map_or("–".to_owned(), latency), interval: interval.unwrap_or_default() }
}

fn split(summary: &Summary) -> String {
    match summary.cpu_us {
        Some(_) => format!("{} / {}", significant(summary.user_us, 3), significant(summary.system_us, 3)),
        None => "–".to_owned(),
    }
}

fn memory(kib: u64) -> String {
    if kib == 0 { "–".to_owned() } else { format!("{} MiB", significant(kib as f64 / 1024.0, 3)) }
}

fn errors(counts: &Counts) -> String {
    if counts.errors.is_empty() {
        return "0".to_owned();
    }
    let classes: Vec<String> =
        counts.errors.iter().map(|(class, count)| format!("{count} {class}")).collect();
    classes.join(", ")
}

fn blocks(counts: &Counts) -> String {
    let all = counts.counted + counts.void + counts.invalid;
    let unsteady =
        if counts.unsteady > 0 { format!(", {} unsteady", counts.unsteady) } else { String::new() };
    let reopened = match counts.reopened {
        0 => String::new(),
        n => format!(", {n} kept connections opened anew"),
    };
    if all == counts.counted {
        format!("{all}{unsteady}{reopened}")
    } else {
        format!("{} of {all}{unsteady}{reopened}", counts.counted)
    }
}

fn judged(verdict: &Verdict) -> (&'static str, String) {
    match verdict {
        Verdict::Faster => ("faster", String::new()),
        Verdict::Slower => ("slower", String::new()),
        Verdict::CannotTell(why) => ("open", why.clone()),
        Verdict::Baseline | Verdict::Control | Verdict::Same(_) | Verdict::NotMeasured(_) => {
            ("plain", String::new())
        }
    }
}

pub(super) fn reason(status: &Status) -> Option<(&'static str, &str)> {
    match status {
        Status::Measured => None,
        Status::Skipped(why) => Some(("skipped", why)),
        Status::Different(why) => Some(("different", why)),
        Status::Failed(why) => Some(("failed", why)),
        Status::Unmeasured(why) => Some(("not measured", why)),
    }
}

fn absent(cell: &CellAnalysis, colours: &Colours) -> Option<Absent> {
    let (status, why) = match reason(&cell.status) {
        Some(reason) => reason,
        None if cell.summary.is_none() && cell.counts.reasons.is_empty() => {
            ("no samples", "the run ended before it")
        }
        None => return None,
    };
    Some(Absent { name: name(&cell.target, colours), status, why: why.to_owned() })
}

/// Blocks that do not count, and why.
fn spoiled(cell: &CellAnalysis, colours: &Colours) -> Option<Absent> {
    let counts = &cell.counts;
    let status = if counts.void > 0 { "void" } else { "invalid" };
    let number = counts.void + counts.invalid;
    let blocks = if number == 1 { "block" } else { "blocks" };
    let why = format!("{number} {blocks} left out: {}", counts.reasons.join("; "));
    (number > 0).then(|| Absent { name: name(&cell.target, colours), status, why })
}

/// Which clock the latencies are of, if it is not the one of the others.
fn clock(cell: &CellAnalysis, colours: &Colours) -> Option<Absent> {
    let why = cell.clock()?;
    Some(Absent { name: name(&cell.target, colours), status: "service times", why })
}

fn first_byte(cell: &CellAnalysis, colours: &Colours) -> Option<Absent> {
    let why = cell.first_byte()?;
    Some(Absent { name: name(&cell.target, colours), status: "first byte", why })
}

fn parity(run: &Run, case: &CaseAnalysis) -> ParityPart {
    let cells = || run.cells.iter().filter(|cell| cell.case == case.case.name);
    let checks = || cells().flat_map(|cell| cell.parity.iter().map(move |parity| (cell, parity)));
    let different = checks().filter(|(_, parity)| !parity.agrees);
    let different =
        different.map(|(cell, parity)| Difference { target: cell.target.clone(), parity: parity.clone() });
    ParityPart {
        checks: checks().count(),
        agreed: checks().filter(|(_, parity)| parity.agrees).count(),
        different: different.collect(),
    }
}
