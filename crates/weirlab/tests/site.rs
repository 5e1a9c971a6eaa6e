//! The site of a series of runs: one trend for each case and machine, with releases marked.
use crate::sample;
use roxmltree::Document;
use std::fs;
use std::path::Path;
use weirlab::result::Run;
use weirlab::site::{self, Reports};

/// A run of `weir` and `nginx` on a day, with this version of `weir`.
fn run(day: u32, version: &str, cost: f64) -> Run {
    let case = sample::case("kong/plain-1", "http");
    let cells = [("weir", cost), ("nginx", 20.0)]
        .map(|(target, cost)| sample::cell(&case, target, 4, |round| cost + f64::from(round) * 0.1));
    let mut run = sample::run(vec![case], cells.into());
    run.id = format!("2026-11-{day}T10-00-00Z");
    run.manifest.started = format!("2026-11-{day}T10:00:00Z");
    run.manifest.targets.get_mut("weir").unwrap().version = version.to_owned();
    run
}

fn written(runs: Vec<Run>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    site::write(runs, Reports::Without, folder.path()).unwrap();
    folder
}

fn text(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn a_trend_goes_by_date_and_marks_new_versions() {
    let folder =
        written(vec![run(22, "weir 0.2.0", 14.0), run(20, "weir 0.1.0", 15.0), run(21, "weir 0.1.0", 15.0)]);
    let chart = text(folder.path(), "charts/trend-0-cpu.svg");
    let about = Document::parse(&chart).unwrap();
    let about =
        about.descendants().find(|node| node.tag_name().name() == "desc").unwrap().text().unwrap().to_owned();
    let at = |text: &str| about.find(text).unwrap_or_else(|| panic!("no {text} in {about}"));
    assert!(at("2026-11-20T10-00-00Z 15.") < at("2026-11-21T10-00-00Z 15."), "{about}");
    assert!(at("2026-11-21T10-00-00Z 15.") < at("2026-11-22T10-00-00Z 14."), "{about}");
    assert!(about.contains("nginx: "), "{about}");
    assert_eq!(chart.matches("2026-11-20 ◆").count() + chart.matches("2026-11-22 ◆").count(), 2, "{chart}");
    assert!(!chart.contains("2026-11-21 ◆"), "the same version is marked twice");
}

#[test]
fn runs_of_one_day_have_the_time() {
    let mut later = run(20, "weir 0.2.0", 14.0);
    (later.id, later.manifest.started) = ("2026-11-20T12-30-00Z".into(), "2026-11-20T12:30:00Z".into());
    let folder = written(vec![run(20, "weir 0.1.0", 15.0), later, run(21, "weir 0.2.0", 15.0)]);
    let chart = text(folder.path(), "charts/trend-0-cpu.svg");
    for said in ["\n2026-11-20 10:00 ◆", "\n12:30 ◆"] {
        assert!(chart.contains(said), "no {said} in {chart}");
    }
    assert!(!chart.contains("2026-11-21 10:00"), "{chart}");
}

#[test]
fn a_machine_has_trends_of_its_own() {
    let mut other = run(21, "weir 0.1.0", 9.0);
    other.manifest.cpu = "Another CPU".to_owned();
    let folder = written(vec![run(20, "weir 0.1.0", 15.0), other]);
    let page = text(folder.path(), "index.html");
    assert_eq!(page.matches("<article>").count(), 2);
    for (chart, marked) in [("trend-0-cpu", "2026-11-20 ◆"), ("trend-1-cpu", "2026-11-21 ◆")] {
        assert!(text(folder.path(), &format!("charts/{chart}.svg")).contains(marked), "{chart}");
    }
    let first = text(folder.path(), "charts/trend-0-cpu.svg");
    assert!(first.contains("2026-11-20T10-00-00Z") && !first.contains("2026-11-21T10-00-00Z"), "{first}");
}

#[test]
fn both_pages_show_every_chart_and_run() {
    let folder = written(vec![run(20, "weir 0.1.0", 15.0), run(21, "weir 0.2.0", 14.0)]);
    let charts: Vec<_> =
        fs::read_dir(folder.path().join("charts")).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(charts.len(), 2, "CPU and rate");
    for page in ["index.html", "index.md"] {
        let page = text(folder.path(), page);
        for said in ["2026-11-20T10-00-00Z", "2026-11-21 10:00", "weir: 0.2.0", "2 × Synthetic CPU"] {
            assert!(page.contains(said), "no {said} in {page}");
        }
        for chart in &charts {
            assert!(page.contains(&format!("charts/{}", chart.file_name().to_string_lossy())), "{page}");
        }
    }
}

#[test]
fn nothing_in_the_data_becomes_markup() {
    let mut evil = run(20, "<script>", 15.0);
    evil.id = "<script>".to_owned();
    evil.manifest.cpu = "<script>".to_owned();
    let page = text(written(vec![evil]).path(), "index.html");
    assert!(!page.contains("<script") && page.contains("&lt;script&gt;"), "{page}");
}

#[test]
fn a_run_without_samples_has_no_place_in_a_trend() {
    let mut empty = run(21, "weir 0.1.0", 15.0);
    empty.cells.iter_mut().for_each(|cell| cell.blocks.clear());
    let folder = written(vec![run(20, "weir 0.1.0", 15.0), empty]);
    assert!(!text(folder.path(), "charts/trend-0-cpu.svg").contains("2026-11-21"));
}

#[test]
fn a_run_without_samples_is_listed_alone() {
    let mut empty = run(20, "weir 0.1.0", 15.0);
    empty.cells.clear();
    let folder = written(vec![empty]);
    assert!(text(folder.path(), "index.html").contains("2026-11-20T10-00-00Z"));
    assert_eq!(fs::read_dir(folder.path().join("charts")).unwrap().count(), 0);
}

#[test]
fn the_reports_of_runs_are_there_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let mut odd = run(21, "weir 0.2.0", 14.0);
    odd.id = "../odd".to_owned();
    site::write(vec![run(20, "weir 0.1.0", 15.0), odd], Reports::With, folder.path()).unwrap();
    let [html, markdown] = ["index.html", "index.md"].map(|page| text(folder.path(), page));
    for report in ["runs/2026-11-20T10-00-00Z/report.html", "runs/___odd/report.html"] {
        assert!(
            html.contains(&format!("href=\"{report}\"")) && markdown.contains(report),
            "{report}: {markdown}"
        );
        assert!(folder.path().join(report).exists(), "{report}");
    }
    assert!(!text(written(vec![run(20, "weir 0.1.0", 15.0)]).path(), "index.html").contains("report.html"));
}
