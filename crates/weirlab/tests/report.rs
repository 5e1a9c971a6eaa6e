//! The page of a run: complete, escaped, self-contained, and fit for a phone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use weirlab::analysis::Analysis;
use weirlab::report;
use weirlab::report::format::{self, Format};
use weirlab::result::{Run, Status};

const PUBLISHED: &str = "# by Kong\nversion,case,rps,p99_ms,p95_ms\n3.9,plain-1,134940.8,6.79,3.70\n3.9,plain-100,130779.5,7.08,3.79\n";

fn written(run: &Run) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("data.json"), "{}").unwrap();
    let page = report::write(run, folder.path(), Some(PUBLISHED)).unwrap();
    let text = fs::read_to_string(page).unwrap();
    // The template engine escapes slashes, too.
    (folder, text.replace("&#x2f;", "/"))
}

/// The page of the whole sample, made once: its intervals take seconds in a build that is not optimised.
fn whole() -> &'static (tempfile::TempDir, String) {
    static WHOLE: OnceLock<(tempfile::TempDir, String)> = OnceLock::new();
    WHOLE.get_or_init(|| written(&crate::sample::plausible()))
}

/// The sample's first case alone.
fn single() -> Run {
    let mut run = crate::sample::plausible();
    run.cases.truncate(1);
    let name = run.cases[0].name.clone();
    run.cells.retain(|cell| cell.case == name);
    run.capacities.clear();
    run
}

/// A part of the page, from a mark to another.
fn part<'page>(page: &'page str, from: &str, to: &str) -> &'page str {
    let begin = page.find(from).unwrap_or_else(|| panic!("no {from}"));
    let rest = &page[begin..];
    &rest[..rest.find(to).unwrap_or(rest.len())]
}

#[test]
fn the_page_opens_with_the_answer() {
    let (_, page) = whole();
    let header = part(page, "<header>", "</header>");
    for said in [
        "<strong>weir</strong> spends",
        "of CPU per request",
        "× nginx (",
        "× the floor",
        "The noise floor is ±",
    ] {
        assert!(header.contains(said), "{said} is not in {header}");
    }
    // The truth of the sample: nginx costs 1.5 times as much.
    let ratio: f64 =
        part(header, "</strong>: ", "\u{a0}×").trim_start_matches("</strong>: ").parse().unwrap();
    assert!((ratio - 1.0 / 1.5).abs() < 0.03, "{ratio}");
}

#[test]
fn what_was_compared_and_where_precedes_any_figure() {
    let (_, page) = whole();
    let before = part(page, "<header>", "<h1>");
    for said in ["weir (weir 0.1.0)", "nginx (nginx/1.26.3)", "2 × Synthetic CPU", "2,100 MHz", "agrees in"]
    {
        assert!(before.contains(said), "{said} is not in {before}");
    }
    assert!(!page.contains("Disturbed run"), "a quiet run is called disturbed");
}

#[test]
fn a_disturbed_run_says_so_first_and_in_its_title() {
    let mut run = single();
    for block in run.cells.iter_mut().flat_map(|cell| &mut cell.blocks) {
        block.machine.steal = 0.2;
    }
    let (folder, page) = written(&run);
    assert!(page.contains("<title>Disturbed run: "), "{}", part(&page, "<title>", "</title>"));
    let said = "the hypervisor gave 20 % of the CPU time to others";
    assert!(part(&page, "<header>", "<dl").contains(said), "{}", part(&page, "<header>", "</header>"));
    let text = format::print(&run, &Analysis::of(&run), Format::Text).unwrap();
    assert!(text.starts_with(&format!("DISTURBED RUN: {said}")), "{text}");
    drop(folder);
}

/// Why a run is disturbed in whose blocks tasks waited for a CPU for 40 % of the time, and others used a share of the CPUs.
fn waiting(cpu_sharing: bool, others: f64) -> Vec<String> {
    let mut run = single();
    run.manifest.cpu_sharing = cpu_sharing;
    for block in run.cells.iter_mut().flat_map(|cell| &mut cell.blocks) {
        block.machine.pressure = Some(0.4);
        let own = block.target.cpu_us + block.generator_cpu_us + block.upstream_cpu_us;
        block.machine.busy_us = Some(own + others * block.measured_s * 1e6 * f64::from(run.manifest.cpus));
    }
    Analysis::of(&run).conditions.disturbances
}

#[test]
fn tasks_that_waited_for_a_cpu_while_it_was_measured_disturb_a_run() {
    let own_cpus = waiting(false, 0.0);
    assert!(
        own_cpus.iter().any(|why| why.contains("waited for a CPU 40 % of the time, although")),
        "{own_cpus:?}"
    );
    let shared = waiting(true, 0.1);
    assert!(shared.iter().any(|why| why.contains("for other processes too")), "{shared:?}");
    let for_each_other = waiting(true, 0.0);
    assert!(for_each_other.is_empty(), "parts that share CPUs wait for each other: {for_each_other:?}");
}

#[test]
fn every_figure_has_an_interval_that_says_what_it_is() {
    let run = single();
    let analysis = Analysis::of(&run);
    let json: serde_json::Value =
        serde_json::from_str(&format::print(&run, &analysis, Format::Json).unwrap()).unwrap();
    let nginx = json["cells"].as_array().unwrap().iter().find(|cell| cell["target"] == "nginx").unwrap();
    for (figure, interval) in [
        ("requests_per_second", "95 % confidence interval"),
        ("cpu_us", "95 % confidence interval"),
        ("ratio", "95 % confidence interval"),
        ("p50_ms", "range of blocks"),
        ("p95_ms", "range of blocks"),
        ("p99_ms", "range of blocks"),
    ] {
        let found = &nginx[figure];
        assert_eq!(found["interval"], interval, "{figure}: {found}");
        let [low, value, high] = ["low", "value", "high"].map(|end| found[end].as_f64().unwrap());
        assert!(low <= value && value <= high && low < high, "{figure}: {found}");
    }
    let csv = format::print(&run, &analysis, Format::Csv).unwrap();
    let columns = |line: &str| line.matches(',').count();
    assert!(csv.lines().all(|line| columns(line) == columns(csv.lines().next().unwrap())), "{csv}");
    let markdown = format::print(&run, &analysis, Format::Markdown).unwrap();
    assert!(markdown.contains("### kong/plain-1 https\n\n| target "), "{markdown}");
    assert!(markdown.contains(" |\n\nA/A control "), "what follows a row is one: {markdown}");
}

/// The first blocks of each target alone.
fn of_rounds(rounds: usize) -> Run {
    let mut run = single();
    run.cells.iter_mut().for_each(|cell| cell.blocks.truncate(rounds));
    run
}

#[test]
fn a_control_of_few_pairs_is_not_judged() {
    for rounds in [1, 2] {
        let run = of_rounds(rounds);
        let analysis = Analysis::of(&run);
        let (_folder, page) = written(&run);
        let figures = [Format::Text, Format::Markdown, Format::Csv, Format::Json];
        let printed = figures.map(|format| format::print(&run, &analysis, format).unwrap());
        for text in printed.iter().chain([&page]) {
            let words = text.split(|letter: char| !letter.is_alphanumeric());
            assert!(!words.clone().any(|word| word == "inf" || word == "NaN"), "{text}");
        }
        for text in [&printed[0], &page] {
            assert!(text.contains("cannot be judged with fewer than 3 pairs"), "{text}");
            assert!(!text.contains("agrees in"), "{text}");
        }
        assert!(analysis.conditions.disturbances.is_empty(), "{:?}", analysis.conditions.disturbances);
    }
    let (_folder, page) = written(&of_rounds(1));
    assert!(page.contains("of CPU per request (one sample)"), "{}", part(&page, "<header>", "</header>"));
    assert!(Analysis::of(&of_rounds(5)).conditions.floor.is_some());
}

#[test]
fn the_use_of_others_is_of_the_time_that_it_was_counted_in() {
    let mut run = single();
    for block in run.cells.iter_mut().flat_map(|cell| &mut cell.blocks) {
        let own = block.target.cpu_us + block.generator_cpu_us + block.upstream_cpu_us;
        // A generator of another maker: its life is four times its window, and others use a tenth of the CPUs all along.
        let span = 4.0 * block.measured_s;
        block.machine.busy_us = Some(own + 0.1 * span * 1e6 * f64::from(run.manifest.cpus));
        block.machine.span_s = Some(span);
    }
    let others = Analysis::of(&run).conditions.others.unwrap();
    assert!((others.median - 0.1).abs() < 0.001, "{others:?}");
}

#[test]
fn a_cell_has_one_rate_on_the_page() {
    let (_folder, page) = written(&single());
    let row = part(&page, "<section id=\"cases\">", "</tr>\n<tr>");
    let cells: Vec<&str> = row.split("<td class=\"num\">").collect();
    let rate = cells[4].split('<').next().unwrap();
    let beside = part(&page, "measured here, kong/plain-1 https", "</tbody>");
    assert!(
        rate.contains(',') && beside.contains(&format!("<td class=\"num\">{rate}</td>")),
        "{rate}: {beside}"
    );
}

#[test]
fn chains_are_printed_where_tables_are() {
    let run = crate::sample::plausible();
    let analysis = Analysis::of(&run);
    for format in [Format::Text, Format::Markdown, Format::Json] {
        let printed = format::print(&run, &analysis, format).unwrap();
        assert!(printed.contains("the gateway itself"), "{printed}");
    }
}

#[test]
fn a_case_that_was_only_watched_has_no_table_of_nothing() {
    let mut run = single();
    run.kind = "flame".to_owned();
    run.cells.retain(|cell| cell.target == "weir");
    run.cells[0].blocks.clear();
    let analysis = Analysis::of(&run);
    let markdown = format::print(&run, &analysis, Format::Markdown).unwrap();
    assert!(!markdown.contains("| target"), "{markdown}");
    assert_eq!(format::print(&run, &analysis, Format::Csv).unwrap().lines().count(), 1);
}

#[test]
fn what_has_no_figures_has_its_reason() {
    let (_, page) = whole();
    let case = part(page, "<article id=\"case-kong-rate-limiting-key-auth-1-http\"", "</article>");
    assert!(
        case.contains("nginx: <strong>skipped</strong>, needs key-auth, which it does not have"),
        "{case}"
    );
    assert!(case.contains("kong: <strong>not measured</strong>, kong is not on this machine"), "{case}");
    let spoiled = part(page, "<article id=\"case-kong-plain-1-https\"", "</article>");
    assert!(
        spoiled.contains("<strong>void</strong>, 1 block left out: the generator was saturated"),
        "{spoiled}"
    );
    assert!(spoiled.contains("<strong>invalid</strong>, 1 block left out: 3 closed"), "{spoiled}");
}

#[test]
fn published_figures_stand_apart() {
    let (_, page) = whole();
    let apart = part(page, "<section id=\"published\"", "</section>");
    assert!(
        apart.contains("134,941")
            && apart.contains("not measured here")
            && apart.contains("measured here, kong/plain-1 https")
    );
    assert!(!apart.contains("130,780"), "a case that was not run is shown");
    assert!(!page.replace(apart, "").contains("134,941"), "a published figure stands among ours");
    let wrong = report::write(&single(), tempfile::tempdir().unwrap().path(), Some("3.9,plain-1,fast\n"));
    assert!(wrong.unwrap_err().to_string().contains("3.9,plain-1,fast"));
}

#[test]
fn an_interrupted_run_without_samples_is_reported() {
    let mut run = crate::sample::plausible();
    run.interrupted = true;
    run.capacities.clear();
    run.chains.clear();
    for cell in &mut run.cells {
        cell.blocks.clear();
        cell.parity.clear();
    }
    let (folder, page) = written(&run);
    assert!(page.contains("<strong>Interrupted.</strong>") && page.contains("No figures"), "{page}");
    assert!(part(&page, "id=\"overview\"", "</section>").contains("no samples"));
    assert_eq!(fs::read_dir(folder.path().join("charts")).unwrap().count(), 0);
    run.cells.clear();
    run.cases.clear();
    assert!(written(&run).1.contains("No figures"));
}

#[test]
fn nothing_in_the_data_becomes_markup() {
    const EVIL: &str = "</style></title><script>alert('1')</script>\"&";
    let mut run = single();
    run.id = EVIL.to_owned();
    run.baseline = EVIL.to_owned();
    run.manifest.kernel = EVIL.to_owned();
    run.flames[0].title = EVIL.to_owned();
    (run.chains[0].route, run.chains[0].parts[0].name) = (EVIL.to_owned(), EVIL.to_owned());
    for cell in run.cells.iter_mut().filter(|cell| cell.target == "weir") {
        cell.target = EVIL.to_owned();
        cell.parity[0].agrees = false;
        cell.parity[0].got = EVIL.to_owned();
    }
    run.cells[5].status = Status::Failed(EVIL.to_owned());
    for case in &mut run.cases {
        case.title = EVIL.to_owned();
    }
    let (folder, page) = written(&run);
    assert!(!page.contains("<script"), "{}", part(&page, "<script", "</"));
    assert_eq!(page.matches("</style>").count(), 1);
    assert!(page.contains("&lt;script&gt;alert"));
    for chart in charts(folder.path()) {
        let text = fs::read_to_string(&chart).unwrap();
        let document =
            roxmltree::Document::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", chart.display()));
        assert!(document.descendants().all(|node| node.tag_name().name() != "script"));
    }
}

fn charts(folder: &Path) -> Vec<std::path::PathBuf> {
    fs::read_dir(folder.join("charts")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn each_chart_is_also_a_file() {
    let (folder, page) = whole();
    let files = charts(folder.path());
    let shown = page.matches("<figure>").count();
    assert_eq!(files.len(), shown);
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        assert!(page.contains(&format!("href=\"charts/{name}\"")), "{name} is not linked");
    }
    for kind in ["ratios", "cpu", "rps", "latency", "p50-by", "p99-by", "waterfall", "knee", "scaling"] {
        assert!(page.contains(&format!("charts/{kind}-")), "no chart of {kind}");
    }
}

#[test]
fn versions_are_drawn_in_their_order() {
    let mut run = single();
    for cell in &mut run.cells {
        cell.target = cell.target.replace("nginx", "weir@git:main").replace("haproxy", "weir@git:HEAD~10");
    }
    let (_folder, page) = written(&run);
    let chart = part(&page, "<section id=\"versions\"", "</section>");
    assert!(chart.find("git:main").unwrap() < chart.find("git:HEAD~10").unwrap());
}

#[test]
fn the_page_is_small_and_fetches_nothing() {
    let (_, page) = whole();
    assert!(page.len() < 400_000, "{} bytes", page.len());
    assert!(page.contains("default-src 'none'"));
    assert!(!page.contains("url(") && !page.contains("@import"));
    for attribute in [" src=\"", " href=\""] {
        for (place, _) in page.match_indices(attribute) {
            let target = &page[place + attribute.len()..];
            let target = &target[..target.find('"').unwrap()];
            let beside = !target.contains("//") && !target.starts_with('/');
            assert!(beside || target.starts_with("data:"), "{target}");
        }
    }
}

/// The page as a phone shows it, 360 pixels wide: what it says of itself to the page around it.
#[test]
fn a_phone_needs_no_sideways_scroll() {
    const ASKED: &str = "<script>addEventListener('load', () => parent.postMessage(document.documentElement.scrollWidth + ' wide, ' + \
        performance.getEntriesByType('resource').length + ' fetched', '*'))</script></head>";
    let Some(browser) = browser() else {
        eprintln!("not tested here: there is no chromium");
        return;
    };
    let (folder, page) = whole();
    let policy = part(page, "<meta http-equiv=", "\n");
    let asked = page.replace(policy, "").replace("</head>", ASKED);
    fs::write(folder.path().join("asked.html"), asked).unwrap();
    let around = "<!doctype html><p>silent</p><iframe src='asked.html' style='width:360px;height:640px;border:0'></iframe>\
        <script>onmessage = event => document.querySelector('p').textContent = event.data</script>";
    fs::write(folder.path().join("around.html"), around).unwrap();
    let profile = folder.path().join("profile");
    let mut command = Command::new(browser);
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--no-first-run",
        "--disable-sync",
    ]);
    command.args([
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-dev-shm-usage",
    ]);
    command.args(["--timeout=20000", "--virtual-time-budget=5000", "--dump-dom"]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    command.arg(format!("file://{}", folder.path().join("around.html").display()));
    let output = command.stdin(Stdio::null()).output().unwrap();
    let seen = String::from_utf8_lossy(&output.stdout);
    assert!(
        seen.contains("<p>360 wide, 0 fetched</p>"),
        "{seen}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn browser() -> Option<&'static str> {
    let runs = |name: &&str| {
        let mut command = Command::new(name);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(runs)
}
