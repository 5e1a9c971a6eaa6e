//! Whole sessions with real gateways: what a run leaves behind, and that it leaves nothing else.
#![allow(clippy::unwrap_used, clippy::expect_used)]
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for anything here, on any machine.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn weirlab() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirlab"));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).stdin(Stdio::null());
    command
}

pub(crate) fn run(arguments: &[&str], out: &Path) -> Output {
    weirlab().args(arguments).arg("--out").arg(out).output().expect("weirlab starts")
}

/// The only run folder below `out`.
pub(crate) fn folder(out: &Path) -> PathBuf {
    let folders: Vec<PathBuf> =
        fs::read_dir(out).expect("an output folder").map(|entry| entry.unwrap().path()).collect();
    assert_eq!(folders.len(), 1, "{folders:?}");
    folders[0].clone()
}

pub(crate) fn data(out: &Path) -> Value {
    let text = fs::read_to_string(folder(out).join("data.json")).expect("the data");
    serde_json::from_str(&text).expect("JSON")
}

pub(crate) fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

/// The processes whose command line or environment says that they belong to a session in this folder of the system.
pub(crate) fn processes_of(parent: u32) -> Vec<String> {
    let mut list = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let after = stat.rsplit(')').next().unwrap_or_default();
        let state = after.split_whitespace().next().unwrap_or_default();
        let parent_of = after.split_whitespace().nth(1).and_then(|text| text.parse::<u32>().ok());
        if parent_of == Some(parent) && state != "Z" {
            list.push(stat);
        }
    }
    list
}

#[test]
fn a_run_measures_side_by_side_and_leaves_data_text_report_and_logs() {
    let out = tempfile::tempdir().unwrap();
    let arguments = [
        "run",
        "kong/plain-1",
        "--scheme",
        "http",
        "--targets",
        "nginx,direct,floor,haproxy",
        "--rounds",
        "2",
        "--duration",
        "200ms",
    ];
    let output = run(&arguments, out.path());
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let data = data(out.path());
    assert_eq!(data["baseline"], "nginx");
    let cells = data["cells"].as_array().unwrap();
    let names: Vec<&str> = cells.iter().map(|cell| cell["target"].as_str().unwrap()).collect();
    assert_eq!(names, ["nginx", "nginx (again)", "direct", "floor", "haproxy"]);
    for cell in cells {
        assert_eq!(cell["status"]["is"], "measured", "{cell}");
        let blocks = cell["blocks"].as_array().unwrap();
        assert_eq!(blocks.len(), 2, "{}", cell["target"]);
        assert!(blocks.iter().any(|block| block["good"].as_u64().unwrap() > 0), "{cell}");
        assert!(blocks.iter().any(|block| block["target"]["cpu_us"].as_f64().unwrap() > 0.0), "{cell}");
    }
    let folder = folder(out.path());
    for file in ["result.txt", "report.html", "configurations"] {
        assert!(folder.join(file).exists(), "{file}");
    }
    let rendered = folder.join("configurations/rendered/kong-plain-1-http/nginx");
    let started: Value =
        serde_json::from_str(&fs::read_to_string(rendered.join("started.json")).unwrap()).unwrap();
    assert!(started["command"].as_array().unwrap().iter().any(|word| word == "nginx.conf"), "{started}");
    assert_eq!(started["sha256"].as_str().unwrap().len(), 64);
    assert!(fs::read_to_string(rendered.join("nginx.conf")).unwrap().contains("worker_processes"));
    let kept: Vec<_> = fs::read_dir(&rendered).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(kept.iter().all(|path| path.extension().is_none_or(|ending| ending != "pem")), "{kept:?}");
    // On a machine that is busy otherwise, no block may count; the result is printed all the same.
    let result = std::fs::read_to_string(folder.join("result.txt")).unwrap();
    assert!(result.contains("### Result for nginx (run 1):"), "{result}");
    let printed = text(&output.stdout);
    assert!(printed.contains("report.html"), "{printed}");
}

#[test]
fn a_run_is_made_again_from_its_folder_alone() {
    let out = tempfile::tempdir().unwrap();
    let arguments = [
        "run",
        "kong/plain-1",
        "--scheme",
        "http",
        "--targets",
        "nginx,floor",
        "--rounds",
        "2",
        "--duration",
        "100ms",
    ];
    let first = run(&arguments, out.path());
    assert!(first.status.success(), "{}", text(&first.stderr));
    let kept = folder(out.path());
    let scenario = kept.join("configurations/scenarios/kong/plain-1/scenario.toml");
    let changed = fs::read_to_string(&scenario).unwrap().replace("title = \"", "title = \"As it was kept: ");
    fs::write(&scenario, changed).unwrap();
    let again = tempfile::tempdir().unwrap();
    // Elsewhere, where there is no catalogue.
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirlab"));
    let reproduce =
        command.current_dir(again.path()).arg("reproduce").arg(&kept).arg("--out").arg(again.path());
    let output = reproduce.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let (old, new) = (data(out.path()), data(again.path()));
    assert_eq!(
        (&old["seed"], &old["manifest"]["configurations"]),
        (&new["seed"], &new["manifest"]["configurations"])
    );
    assert!(new["cases"][0]["title"].as_str().unwrap().starts_with("As it was kept: "), "{}", new["cases"]);
    assert!(text(&output.stdout).contains("new / old"), "{}", text(&output.stdout));

    let mut data = old;
    data["manifest"]["targets"]["nginx"]["sha256"] = "00".repeat(32).into();
    fs::write(kept.join("data.json"), data.to_string()).unwrap();
    let mut command = weirlab();
    let refused = command.arg("reproduce").arg(&kept).output().unwrap();
    let why = text(&refused.stderr);
    assert!(!refused.status.success() && why.contains("is not the program that was measured"), "{why}");
}

#[test]
fn a_target_that_lacks_a_feature_is_skipped_with_the_reason() {
    let out = tempfile::tempdir().unwrap();
    let arguments = [
        "run",
        "kong/rate-limiting-1",
        "--scheme",
        "http",
        "--targets",
        "nginx",
        "--rounds",
        "2",
        "--duration",
        "100ms",
    ];
    let output = run(&arguments, out.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let data = data(out.path());
    assert_eq!(data["cells"][0]["status"]["is"], "skipped");
    assert!(data["cells"][0]["status"]["why"].as_str().unwrap().contains("limit_req"));
}

#[test]
fn a_target_that_answers_otherwise_is_not_measured() {
    let out = tempfile::tempdir().unwrap();
    let scenario = tempfile::tempdir().unwrap();
    fs::write(
        scenario.path().join("scenario.toml"),
        "title = \"a path that no route has\"\nsource = \"this test\"\n\n[load]\nconnections = 2\nthreads = 1\n\n\
         [[load.request]]\npath = \"/elsewhere\"\n\n[[parity]]\npath = \"/elsewhere\"\nstatus = 200\n",
    )
    .unwrap();
    fs::write(scenario.path().join("WHY.md"), "To be refused.\n").unwrap();
    fs::write(
        scenario.path().join("kong.yml"),
        "_format_version: \"3.0\"\nservices:\n- {name: one, url: \"http://{{ upstream }}\", routes: [{name: one, paths: [/here]}]}\n",
    )
    .unwrap();
    let path = scenario.path().to_str().unwrap();
    let output = run(
        &[
            "run",
            path,
            "--scheme",
            "http",
            "--targets",
            "nginx",
            "--rounds",
            "2",
            "--duration",
            "100ms",
            "--no-control",
        ],
        out.path(),
    );
    assert_eq!(output.status.code(), Some(3), "nothing was measured: {}", text(&output.stderr));
    let cell = &data(out.path())["cells"][0];
    assert_eq!(cell["status"]["is"], "different", "{cell}");
    assert_eq!(cell["parity"][0]["agrees"], false);
    assert!(cell["blocks"].as_array().unwrap().is_empty());
}

#[test]
fn more_workers_than_cpus_are_warned_of() {
    let out = tempfile::tempdir().unwrap();
    let arguments = ["run", "kong/rate-limiting-1", "--scheme", "http", "--targets", "nginx"];
    let output = run(&[&arguments[..], &["--rounds", "2", "--workers", "9999"]].concat(), out.path());
    let printed = text(&output.stderr);
    assert!(printed.contains("warning: 9999 workers share "), "{printed}");
}

#[test]
fn an_interrupted_run_keeps_what_it_measured_and_ends_everything_it_started() {
    let out = tempfile::tempdir().unwrap();
    let mut child: Child = weirlab()
        .args(["run", "kong/plain-1", "--scheme", "http", "--targets", "nginx,floor", "--rounds", "500"])
        .args(["--duration", "200ms", "--out"])
        .arg(out.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let measured = || {
        let folder = fs::read_dir(out.path()).ok()?.next()?.ok()?.path();
        let text = fs::read_to_string(folder.join("data.json")).ok()?;
        let data: Value = serde_json::from_str(&text).ok()?;
        (!data["cells"][0]["blocks"].as_array()?.is_empty()).then_some(())
    };
    while measured().is_none() {
        assert!(begun.elapsed() < TIMEOUT, "nothing was measured");
        thread::sleep(Duration::from_millis(20));
    }
    let started = processes_of(child.id());
    assert!(!started.is_empty(), "the upstream at least");
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    let data = data(out.path());
    assert_eq!(data["interrupted"], true);
    assert!(folder(out.path()).join("report.html").exists());
    for stat in started {
        let pid = stat.split_whitespace().next().unwrap();
        let still = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let same = still
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().nth(19).map(str::to_owned))
            == stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19).map(str::to_owned));
        assert!(still.is_empty() || !same, "{still} is left behind");
    }
}

#[test]
fn mistakes_are_named_with_the_fix() {
    let out = tempfile::tempdir().unwrap();
    for (arguments, wanted) in [
        (vec!["run", "kong/plane-1"], "kong/plain-1"),
        (vec!["run", "kong/plain-1", "--targets", "ngynx"], "nginx"),
        (vec!["run", "kong/plain-1", "--versions", "git:no-such-branch"], "no-such-branch"),
        (vec!["run", "--suite", "bensh"], "bench"),
    ] {
        let output = run(&arguments, out.path());
        assert_eq!(output.status.code(), Some(3), "{arguments:?}");
        let printed = text(&output.stderr);
        assert!(printed.contains(wanted), "{arguments:?}: {printed}");
    }
}

#[test]
fn a_report_shows_each_second_as_the_gateway_counted_it() {
    let out = tempfile::tempdir().unwrap();
    let weir = weir();
    let usual =
        ["run", "kong/plain-1", "kong/rate-limiting-1", "--scheme", "http", "--targets", "weir,nginx"];
    let short = ["--no-control", "--rounds", "1", "--duration", "3s", "--keep-running", "--weir"];
    let output = run(&[&usual[..], &short, &[weir.to_str().unwrap()]].concat(), out.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let data = data(out.path());
    for cell in data["cells"].as_array().unwrap() {
        for block in cell["blocks"].as_array().unwrap() {
            let seconds = block["seconds"].as_array().cloned().unwrap_or_default();
            // nginx counts nothing of this kind.
            assert_eq!(seconds.is_empty(), cell["target"] == "nginx", "{}: {seconds:?}", cell["target"]);
            for second in seconds {
                assert!(second["requests_per_second"].as_f64().unwrap() > 0.0, "{second}");
                assert!(second["at_s"].as_f64().unwrap() > -2.0, "{second}");
            }
        }
    }
    let page = fs::read_to_string(folder(out.path()).join("report.html")).unwrap();
    assert!(page.contains("<h2>Each second</h2>"), "{page}");
    let chart = fs::read_to_string(folder(out.path()).join("charts/seconds-rps-weir.svg")).unwrap();
    for scenario in ["kong/plain-1", "kong/rate-limiting-1"] {
        assert!(chart.contains(scenario), "{scenario}");
    }
}

#[test]
fn a_binary_is_labelled_by_its_version_and_builds_of_one_version_by_their_hash() {
    let out = tempfile::tempdir().unwrap();
    let program = |name: &str, version: &str| {
        let path = out.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n# {name}\necho weir {version}\nexit 1\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    };
    let versions = [program("one", "0.2.0"), program("two", "0.2.0"), program("three", "0.3.0")].join(",");
    let arguments = ["run", "kong/plain-1", "--no-control", "--rounds", "1", "--versions", &versions];
    run(&arguments, &out.path().join("runs"));
    let data = data(&out.path().join("runs"));
    let labels: Vec<&str> =
        data["cells"].as_array().unwrap().iter().map(|cell| cell["target"].as_str().unwrap()).collect();
    assert_eq!(labels[2], "weir@0.3.0");
    for label in &labels[..2] {
        let hash = label.strip_prefix("weir@0.2.0+").unwrap_or_else(|| panic!("{labels:?}"));
        assert!(hash.len() == 8 && hash.chars().all(|digit| digit.is_ascii_hexdigit()), "{labels:?}");
    }
    assert_ne!(labels[0], labels[1]);
}

#[test]
fn a_gate_of_a_binary_with_itself_is_no_regression() {
    let out = tempfile::tempdir().unwrap();
    let weir = weir();
    let weir = weir.to_str().unwrap();
    let output = run(&["gate", weir, weir, "--effect", "40%", "--limit", "20s", "--seed", "3"], out.path());
    let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(matches!(output.status.code(), Some(0 | 2)), "{printed}");
    // On a machine that is busy otherwise, no block may count; then it says so.
    let undecided = output.status.code() == Some(2) && printed.contains("no pair of blocks counts");
    assert!(printed.contains("CPU per request") || undecided, "{printed}");
}

/// The gateway, built beside the laboratory.
pub(crate) fn weir() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_weirlab")).with_file_name("weir");
    assert!(path.exists(), "{} is missing: cargo build --package weir-gateway", path.display());
    path
}
