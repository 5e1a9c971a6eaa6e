//! A control plane with data planes behind the front: each part of it runs, and what it uses is shown by itself.
#![allow(clippy::unwrap_used, clippy::expect_used)]
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The scenarios of `graviton`, in small: two data planes, and a key that only a control plane can have sent them.
const SCENARIO: &str = "
title = 'of a test'
source = 'this test'
needs = ['hybrid']
[variables]
instances = 2
[[sweep]]
variable = 'instances'
values = [1, 2]
[gateway]
instances = '{{ instances }}'
workers = 1
[load]
connections = 4
threads = 1
[[load.request]]
path = '/orders/'
headers = { apikey = 'k' }
status = [200]
[[parity]]
path = '/orders/'
headers = { apikey = 'k' }
status = 200
upstream_body = true
[[parity]]
path = '/orders/'
status = 401
";

const CONFIGURATION: &str = "_format_version: '3.0'
services:
- {name: orders, url: 'http://{{ upstream }}', routes: [{name: orders, paths: [/orders]}]}
plugins: [{name: key-auth}]
consumers: [{username: alice, keyauth_credentials: [{key: k}]}]
";

fn measure(out: &Path) -> Value {
    let scenario = tempfile::tempdir().unwrap();
    fs::write(scenario.path().join("scenario.toml"), SCENARIO).unwrap();
    fs::write(scenario.path().join("kong.yml"), CONFIGURATION).unwrap();
    fs::write(scenario.path().join("WHY.md"), "For a test.\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirlab"));
    command.current_dir(crate::catalogue_bench::root()).stdin(Stdio::null()).arg("run").arg(scenario.path());
    command.args(["--scheme", "http", "--targets", "weir,nginx", "--no-control", "--rounds", "1"]);
    command.args(["--duration", "300ms", "--weir"]).arg(crate::catalogue_bench::weir());
    let output = command.arg("--out").arg(out).output().expect("weirlab starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let folder = fs::read_dir(out).unwrap().next().unwrap().unwrap().path();
    for (file, row) in [("result.txt", "| data plane 2  | weir"), ("report.html", ">data plane 2</th>")] {
        let text = fs::read_to_string(folder.join(file)).unwrap();
        assert!(text.contains(row), "{file}: {text}");
    }
    serde_json::from_str(&fs::read_to_string(folder.join("data.json")).unwrap()).unwrap()
}

#[test]
fn a_fleet_is_measured_part_by_part() {
    let out = tempfile::tempdir().unwrap();
    let data = measure(out.path());
    let cells = data["cells"].as_array().unwrap();
    for (cell, count) in cells.iter().filter(|cell| cell["target"] == "weir").zip([1, 2]) {
        assert_eq!(cell["status"]["is"], "measured", "{cell}");
        assert!(cell["parity"].as_array().unwrap().iter().all(|parity| parity["agrees"] == true), "{cell}");
        let block = &cell["blocks"][0];
        assert!(block["good"].as_u64().unwrap() > 0, "{block}");
        let parts = block["parts"].as_array().unwrap();
        let names: Vec<_> = parts.iter().map(|part| part["name"].as_str().unwrap()).collect();
        let planes = ["data plane 1", "data plane 2"];
        let expected = [&["control plane", "front"], &planes[..count], &["upstream", "generator"]].concat();
        assert_eq!(names, expected);
        for part in parts.iter().filter(|part| part["name"] != "control plane") {
            assert!(part["cpu_us"].as_f64().unwrap() > 0.0, "nothing went through it: {part}");
        }
        let planes = parts.iter().filter(|part| part["name"].as_str().unwrap().starts_with("data plane"));
        let cpu_us: f64 = planes.map(|part| part["cpu_us"].as_f64().unwrap()).sum();
        assert!((cpu_us - block["target"]["cpu_us"].as_f64().unwrap()).abs() < 1.0, "{block}");
    }
    let pinning = data["manifest"]["pinning"].as_str().unwrap();
    assert!(pinning.contains("control plane and front with the upstream"), "{pinning}");
    let nginx = cells.iter().find(|cell| cell["target"] == "nginx").unwrap();
    assert_eq!(nginx["status"]["is"], "skipped", "{nginx}");
}
