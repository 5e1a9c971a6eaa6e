//! The figures of a run in a Prometheus of the user's.
use super::prometheus::{Receiver, folder, over, value, weirlab};
use serde_json::Value;
use std::fs;
use std::net::TcpListener;
use std::process::Output;
use std::time::{SystemTime, UNIX_EPOCH};

/// A short run that writes its figures.
fn run(url: &str) -> (Output, tempfile::TempDir) {
    let out = tempfile::tempdir().unwrap();
    let arguments = ["run", "kong/plain-1", "--scheme", "http", "--targets", "nginx,direct", "--rounds", "2"];
    let mut command = weirlab();
    command.args(arguments).args(["--duration", "200ms", "--remote-write", url, "--out"]).arg(out.path());
    (command.output().unwrap(), out)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The last two hours.
fn lately() -> (f64, f64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    (now - 7200.0, now + 60.0)
}

#[test]
fn each_block_is_a_sample_of_each_figure() {
    let receiver = Receiver::start(&["--web.enable-remote-write-receiver"]);
    let (output, out) = run(&format!("{}/api/v1/write", receiver.url));
    assert!(output.status.success(), "{}", said(&output));
    let text = fs::read_to_string(folder(out.path()).join("data.json")).unwrap();
    let data: Value = serde_json::from_str(&text).unwrap();
    for cell in data["cells"].as_array().unwrap() {
        for block in cell["blocks"].as_array().unwrap() {
            let (target, round) = (cell["target"].as_str().unwrap(), &block["round"]);
            let labels =
                format!("{{suite=\"kong\",target=\"{target}\",round=\"{round}\",run={}}}", data["id"]);
            let samples = over(&receiver.url, &format!("weirlab_block_responses{labels}"), lately());
            assert_eq!(samples.len(), 1, "{labels}: {samples:?}");
            assert_eq!(value(&samples[0]), block["answers"].as_f64().unwrap());
            assert_eq!(samples[0]["metric"]["case"], cell["case"]);
        }
    }
    let rates = over(&receiver.url, "weirlab_block_requests_per_second > 0", lately());
    assert!(!rates.is_empty());

    // Once more is the same once more, which Prometheus takes.
    let mut again = weirlab();
    again
        .arg("report")
        .arg(folder(out.path()))
        .args(["--remote-write", &format!("{}/api/v1/write", receiver.url)]);
    let again = again.output().unwrap();
    assert!(again.status.success() && said(&again).contains("samples written"), "{}", said(&again));
}

#[test]
fn a_refusal_is_shown_with_its_status_and_its_body_and_the_run_stays() {
    let receiver = Receiver::start(&[]);
    let (output, out) = run(&format!("{}/api/v1/write", receiver.url));
    let said = said(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    for part in [
        "refused with status 404: remote write receiver",
        "--web.enable-remote-write-receiver",
        "weirlab report",
    ] {
        assert!(said.contains(part), "no {part} in {said}");
    }
    assert!(folder(out.path()).join("report.html").exists());
}

#[test]
fn a_receiver_that_is_not_there_is_named_without_its_password() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (output, out) = run(&format!("http://me:hush@{address}/api/v1/write"));
    let said = said(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains(&format!("http://{address}/api/v1/write")) && !said.contains("hush"), "{said}");
    let data = fs::read_to_string(folder(out.path()).join("data.json")).unwrap();
    assert!(!data.contains("hush"));
}

#[test]
fn a_wrong_address_is_refused_before_anything_is_measured() {
    let (output, out) = run("localhost:9090");
    assert_eq!(output.status.code(), Some(3));
    assert!(said(&output).contains("write it as http://HOST:9090/api/v1/write"), "{}", said(&output));
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
}
