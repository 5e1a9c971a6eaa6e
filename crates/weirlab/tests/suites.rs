//! Suites with parameters, run for real, and what they leave.
use super::session::{data, folder, run, text, weir};
use std::fs;

#[test]
fn the_sample_of_kong_needs_no_rust() {
    let out = tempfile::tempdir().unwrap();
    let version = format!("version={}", weir().display());
    let mut arguments = vec!["run", "--suite", "kong-sample", "--no-control", "--format", "wrk"];
    arguments.extend(["--rounds", "2", "--duration", "300ms", "--parameter", version.as_str()]);
    arguments.extend(["--parameter", "connections=4,8", "--parameter", "threads=1"]);
    let output = run(&arguments, out.path());
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}{}", text(&output.stderr));

    for connections in [4, 8] {
        let heading = format!("### Test Suite: kong-perf/single-route[connections={connections}] http\n");
        let (_, suite) = printed.split_once(&heading).unwrap_or_else(|| panic!("{heading}{printed}"));
        let suite = suite.split("### Test Suite").next().unwrap();
        for (line, count) in [
            ("### Result for ", 2),
            (&format!("  {connections} connections in 1 threads, closed loop"), 2),
            ("  Thread Stats   Avg      Stdev     Max   +/- Stdev", 2),
            ("  Latency Distribution", 2),
            ("Requests/sec: ", 2),
            ("Transfer/sec: ", 2),
            ("### Combined result for ", 1),
        ] {
            let found = suite.lines().filter(|found| found.starts_with(line)).count();
            assert_eq!(found, count, "{line}: {suite}");
        }
    }
    assert!(printed.trim_end().ends_with("report.html"), "{printed}");
    let data = data(out.path());
    assert_eq!(data["cases"][1]["axis"]["name"], "connections", "{}", data["cases"]);
    assert_eq!(data["cases"][1]["variables"]["connections"], "8");
}

#[test]
fn the_benchmark_of_apisix_has_charts_by_cores_and_flame_graphs() {
    let out = tempfile::tempdir().unwrap();
    let weir = weir();
    let mut arguments = vec!["run", "--suite", "apisix", "--no-control", "--weir", weir.to_str().unwrap()];
    arguments.extend(["--rounds", "2", "--duration", "300ms", "--parameter", "workers=1,2"]);
    let output = run(&[arguments.as_slice(), &["--parameter", "flame=1s"]].concat(), out.path());
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let data = data(out.path());
    let names: Vec<&str> =
        data["cases"].as_array().unwrap().iter().map(|case| case["name"].as_str().unwrap()).collect();
    let wanted = [
        "apisix/document-plain[workers=1] http",
        "apisix/document-plain[workers=2] http",
        "apisix/document-two-plugins[workers=1] http",
        "apisix/document-two-plugins[workers=2] http",
    ];
    assert_eq!(names, wanted);
    let of_weir = |cell: &&serde_json::Value| cell["target"] == "weir";
    for cell in data["cells"].as_array().unwrap().iter().filter(of_weir) {
        assert_eq!(cell["status"]["is"], "measured", "{cell}");
    }
    let folder = folder(out.path());
    // On a machine that is busy otherwise, no block may count, and then there is nothing to draw.
    let counted = fs::read_to_string(folder.join("result.txt")).unwrap().matches("RPS     Avg: ").count();
    let charts = fs::read_dir(folder.join("charts")).map_or(0, |entries| {
        entries.flatten().filter(|entry| entry.file_name().to_string_lossy().contains("-by-workers-")).count()
    });
    assert!(charts > 0 || counted < 6, "{counted} cells count, and {charts} charts by workers");
    for flame in data["flames"].as_array().unwrap() {
        let graph = fs::read_to_string(folder.join(flame["file"].as_str().unwrap())).unwrap();
        assert!(graph.contains("<svg"), "{flame}");
    }
    let said = text(&output.stderr);
    let missing = said.matches("no flame graph of apisix/document-").count();
    assert!(missing > 0 || data["flames"].as_array().unwrap().len() >= 4, "{}", data["flames"]);
}

#[test]
fn a_variable_that_a_scenario_lacks_is_named_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let suite = folder.path().join("own.toml");
    let write = |variable: &str| {
        let run = format!(
            "scenario = \"weir/response-size\"\ntargets = [\"weir\"]\nvariables = {{ {variable} = 10 }}\n"
        );
        fs::write(&suite, format!("title = \"own\"\n\n[[run]]\n{run}")).unwrap();
    };
    write("bites");
    let weir = weir();
    let mut arguments = vec!["run", "--suite", suite.to_str().unwrap(), "--weir", weir.to_str().unwrap()];
    arguments.extend(["--no-control", "--rounds", "1", "--duration", "100ms"]);
    let refused = run(&arguments, folder.path());
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("own.toml:6:15: weir/response-size has no variable `bites`"), "{said}");
    assert!(said.contains("did you mean `bytes`?"), "{said}");

    write("bytes");
    let out = tempfile::tempdir().unwrap();
    assert!(run(&arguments, out.path()).status.success());
    let data = data(out.path());
    assert_eq!(data["cases"].as_array().unwrap().len(), 1, "the sweep is left out: {}", data["cases"]);
}
