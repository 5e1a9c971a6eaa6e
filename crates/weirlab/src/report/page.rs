//! The page as a whole.
use super::ReportError;
use super::answer::{self, Answer};
use super::cases::{self, CasePart, Overview};
use super::chains::{self, ChainRows};
use super::opening::Opening;
use super::pictures::{self, Album, Picture};
use super::probes::{self, ProbeRow};
use super::provenance::{Provenance, provenance};
use super::published::{self, Compared};
use super::rates;
use super::seconds;
use super::series::{self, CapacityRow};
use super::words::Colours;
use crate::analysis::Analysis;
use crate::chart::{COLOUR_VARIABLES, STYLE};
use crate::result::Run;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, context};
use serde::Serialize;
use std::path::Path;

/// What the template is given.
#[derive(Serialize)]
struct Page {
    id: String,
    profile: String,
    started: String,
    baseline: String,
    opening: Opening,
    interrupted: bool,
    cpu_sharing: bool,
    machine: String,
    answers: Vec<Answer>,
    forests: Vec<Picture>,
    overview: Overview,
    cases: Vec<CasePart>,
    probes: Vec<ProbeRow>,
    waterfalls: Vec<Picture>,
    chains: Vec<ChainRows>,
    chain_charts: Vec<Picture>,
    sweeps: Vec<Picture>,
    capacities: Vec<CapacityRow>,
    knees: Vec<Picture>,
    versions: Vec<Picture>,
    seconds: Vec<Picture>,
    flames: Vec<Flame>,
    published: Vec<Compared>,
    provenance: Provenance,
    beside: Vec<&'static str>,
}

#[derive(Serialize)]
struct Flame {
    file: String,
    title: String,
}

/// The page, and the charts by name.
pub(super) fn draw(
    run: &Run,
    folder: &Path,
    csv: Option<&str>,
) -> Result<(String, Vec<(String, String)>), ReportError> {
    let (analysis, colours) = (Analysis::of(run), Colours::of(run));
    let mut album = Album::default();
    let page = assemble(run, &analysis, &colours, &mut album, csv, folder)?;
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.add_template("report.html", include_str!("page.html"))?;
    environment.add_template("case.html", include_str!("case.html"))?;
    environment.add_template("provenance.html", include_str!("provenance.html"))?;
    let style = format!("{COLOUR_VARIABLES}{}{STYLE}", include_str!("page.css"));
    let text = environment.get_template("report.html")?.render(context! { page => Serde(&page), style })?;
    Ok((text, album.0))
}

fn assemble(
    run: &Run,
    analysis: &Analysis,
    colours: &Colours,
    album: &mut Album,
    csv: Option<&str>,
    folder: &Path,
) -> Result<Page, ReportError> {
    let families = answer::families(analysis);
    let subject = answer::subject(analysis);
    let mut pictures = |charts: Vec<crate::chart::Chart>| -> Vec<Picture> {
        charts.iter().map(|chart| album.add(chart)).collect()
    };
    let parts = analysis.cases.iter().map(|case| {
        let mut part = cases::case(run, analysis, case, colours);
        part.charts = pictures(pictures::of_case(case, colours));
        part
    });
    let manifest = &run.manifest;
    Ok(Page {
        cases: parts.collect(),
        probes: probes::rows(analysis, colours),
        id: run.id.clone(),
        profile: run.profile.clone(),
        started: manifest.started.clone(),
        baseline: run.baseline.clone(),
        opening: Opening::of(run, analysis),
        interrupted: run.interrupted,
        cpu_sharing: manifest.cpu_sharing,
        machine: format!("{} × {}", manifest.cpus, manifest.cpu),
        answers: families
            .iter()
            .filter_map(|family| answer::answer(family, &subject, &run.baseline))
            .collect(),
        forests: pictures(
            families.iter().filter_map(|family| pictures::forest(family, analysis, colours)).collect(),
        ),
        overview: cases::overview(analysis, colours),
        waterfalls: pictures(series::waterfalls(analysis, colours)),
        chains: chains::rows(run),
        chain_charts: pictures(chains::charts(run, colours)),
        sweeps: pictures(series::sweeps(analysis, colours)),
        capacities: series::capacities(analysis, colours),
        knees: pictures(
            [
                series::knees(analysis, colours),
                rates::charts(analysis, colours),
                series::cores(analysis, colours),
            ]
            .into_iter()
            .flatten()
            .collect(),
        ),
        versions: pictures(series::versions(analysis)),
        seconds: pictures(seconds::charts(run)),
        flames: run
            .flames
            .iter()
            .map(|flame| Flame { file: flame.file.clone(), title: flame.title.clone() })
            .collect(),
        published: published::compared(csv, analysis, colours)?,
        provenance: provenance(run),
        beside: ["result.txt", "data.json"].into_iter().filter(|file| folder.join(file).exists()).collect(),
    })
}
