//! `weirlab join` on runs whose truth is known.
use crate::sample::{cell, run, swept};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use weirlab::join::prices::Prices;
use weirlab::join::{Join, JoinedCell};
use weirlab::result::store::RunFolder;
use weirlab::result::{Case, Cell, Part, Run};

const PRICES: &str = "currency = \"EUR\"\n[machines.c7g]\nper_hour = 0.36\n[machines.c6i]\nper_hour = 0.09\neach = \"instance\"\n";

/// A cell of so many data planes, of which each answers `rate` requests per second and keeps 0.8 cores busy.
fn fleet(case: &Case, rate: f64, instances: u64) -> Cell {
    let mut fleet = cell(case, "weir", 8, |_| 10.0);
    for (index, block) in fleet.blocks.iter_mut().enumerate() {
        let noise = 1.0 + 0.001 * (index % 3) as f64;
        block.measured_s = 1.0;
        block.good = (rate * instances as f64 * noise) as u64;
        block.answers = block.good;
        block.target.cpu_us = 0.8e6 * instances as f64;
        let part = |name: String| Part { name, cpu_us: 0.8e6, rss_kib: 9_000 };
        block.parts = (1..=instances).map(|nth| part(format!("data plane {nth}"))).collect();
        block.parts.push(part("front".to_owned()));
    }
    fleet
}

/// A run of one and of four data planes. The four share a part of their rate.
fn made(rate: f64, share: f64) -> Run {
    let cases = [1, 4].map(|instances| swept("graviton/no-plugins", "instances", instances));
    let cells = vec![fleet(&cases[0], rate, 1), fleet(&cases[1], rate * share, 4)];
    run(cases.into(), cells)
}

fn both() -> [(String, Run); 2] {
    [("c7g".to_owned(), made(1_500.0, 0.9)), ("c6i".to_owned(), made(1_000.0, 0.8))]
}

fn prices(folder: &Path, text: &str) -> PathBuf {
    let file = folder.join("prices.toml");
    fs::write(&file, text).unwrap();
    file
}

fn find<'a>(join: &'a Join, instances: u64, machine: &str) -> &'a JoinedCell {
    let name = format!("graviton/no-plugins[instances={instances}] http");
    let case = join.cases.iter().find(|case| case.name == name).unwrap();
    case.cells.iter().find(|cell| cell.machine == machine).unwrap()
}

#[track_caller]
fn about(found: Option<weirlab::stats::Estimate>, expected: f64) {
    let found = found.unwrap();
    assert!((found.value / expected - 1.0).abs() < 0.01, "{found:?} is not {expected}");
    assert!(found.low <= found.value && found.value <= found.high, "{found:?}");
}

#[test]
fn a_machine_that_is_none_is_refused_with_the_form_that_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().display();
    for (machines, wanted) in [
        (
            "git:main,git:HEAD".to_owned(),
            "Builds and versions are no machines: compare them in one run, by --versions",
        ),
        (
            "a=here,b=no-such-file.toml".to_owned(),
            "b=no-such-file.toml: there is neither a hosts file nor the folder of a run",
        ),
        (format!("a=here,b={empty}"), "data.json"),
        ("a=here,a=here".to_owned(), "a is the name of two machines"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weirlab"));
        command.current_dir(folder.path()).args(["run", "kong/plain-1", "--machines", &machines]);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(3) && said.contains(wanted), "{machines}: {said}");
    }
}

#[test]
fn machines_stand_beside_each_other_with_scale_out_and_cost() {
    let folder = tempfile::tempdir().unwrap();
    let prices = Prices::read(&prices(folder.path(), PRICES), &["c7g", "c6i"]).unwrap();
    let join = Join::of(&both(), Some(&prices));
    let (first, second) = (find(&join, 4, "c7g"), find(&join, 4, "c6i"));
    assert_eq!((first.instances, second.instances), (4, 4));
    about(first.rps, 5_400.0);
    about(first.efficiency, 0.9);
    about(second.efficiency, 0.8);
    about(second.to_first, 3_200.0 / 5_400.0);
    about(first.rps_per_core, 5_400.0 / 3.2);
    // 0.36 an hour for all four: a ten-thousandth a second. And four times 0.09, which is as much.
    about(first.cost, 0.0001 / 5_400.0 * 1e6);
    about(second.cost, 0.0001 / 3_200.0 * 1e6);
    let single = find(&join, 1, "c6i");
    assert!(single.efficiency.is_none());
    about(single.cost, 0.09 / 3600.0 / 1_000.0 * 1e6);
    assert!((single.parts[0].cores - 0.8).abs() < 1e-9 && single.parts[1].name == "front");
}

#[test]
fn without_prices_there_is_no_cost() {
    let join = Join::of(&both(), None);
    assert!(join.currency.is_none() && find(&join, 4, "c7g").cost.is_none());
    let folder = tempfile::tempdir().unwrap();
    weirlab::join::write(&join, folder.path()).unwrap();
    let page = fs::read_to_string(folder.path().join("index.html")).unwrap();
    assert!(!page.contains("per million") && page.contains("scale-out"), "{page}");
}

fn weirlab(folder: &Path, arguments: &[&str]) -> Output {
    for (name, run) in both() {
        RunFolder::create(folder, &name).unwrap().save(&run).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirlab"));
    command.current_dir(folder).arg("join").args(arguments).args(["--out", "joined"]).output().unwrap()
}

#[test]
fn the_command_writes_a_page_its_charts_and_a_table() {
    let folder = tempfile::tempdir().unwrap();
    prices(folder.path(), PRICES);
    let output = weirlab(folder.path(), &["c7g=c7g", "c6i=c6i/data.json", "--prices", "prices.toml"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for part in ["× c7g", "EUR per million requests", "data plane 4 0.80", "joined/index.html", "0.36 EUR"] {
        assert!(said.contains(part), "no {part} in {said}");
    }
    let page = fs::read_to_string(folder.path().join("joined/index.html")).unwrap();
    let charts: Vec<_> = fs::read_dir(folder.path().join("joined/charts")).unwrap().collect();
    assert_eq!(charts.len(), 5, "rate, p99, per core, scale-out, cost");
    for chart in charts {
        let name = chart.unwrap().file_name().to_string_lossy().into_owned();
        assert!(page.contains(&format!("charts/{name}")), "{name}");
    }
    assert!(folder.path().join("joined/join.json").exists() && !page.contains("<script"));
}

#[test]
fn a_wrong_call_says_where_and_how_to_fix_it() {
    let folder = tempfile::tempdir().unwrap();
    let one = PRICES.split("[machines.c6i]").next().unwrap();
    for (text, arguments, wanted) in [
        (one, ["c7g=c7g", "c6i=c6i"], "prices.toml:3:1"),
        (one, ["c7g=c7g", "c6i=c6i"], "add [machines.c6i] with per_hour"),
        (&PRICES.replace("0.09", "-1"), ["c7g=c7g", "c6i=c6i"], "per_hour of c6i is -1"),
        (
            &PRICES.replace("per_hour = 0.09", "per_hours = 0.09"),
            ["c7g=c7g", "c6i=c6i"],
            "did you mean `per_hour`?",
        ),
        (PRICES, ["c7g=c7g", "c7g=c6i"], "c7g is the name of two machines"),
        (PRICES, ["c7g=c7g", "c6i"], "write it as NAME=PATH"),
        (PRICES, ["c7g=c7g", "c6i=nowhere"], "nowhere/data.json"),
    ] {
        prices(folder.path(), text);
        let output = weirlab(folder.path(), &[arguments[0], arguments[1], "--prices", "prices.toml"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        let known = said.contains(wanted) || (wanted.contains("nowhere") && said.contains("nowhere: "));
        assert!(known, "no {wanted} in {said}");
    }
}
