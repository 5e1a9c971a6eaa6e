//! `weir explain` and `POST /explain`: what is told of a request before anybody sends it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, Peer, Upstream, document, service, weir};
use serde_json::{Value as Json, json};
use std::path::Path;
use std::process::Output;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Runs the binary in the workspace's folder, as the documentation does.
fn run(arguments: &[&str]) -> Output {
    weir().current_dir(ROOT).args(arguments).output().expect("the binary runs")
}

/// Each `$ weir …` of the page and the lines below it, up to the end of the block. `WEIR_BLESS=1` writes what is printed.
#[test]
fn the_page_shows_what_is_printed() {
    let page = Path::new(ROOT).join("docs/explain.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let mut written = String::new();
    let mut commands = 0;
    for (place, block) in text.split("```").enumerate() {
        let command = block.strip_prefix("console\n$ weir ").and_then(|block| block.lines().next());
        match command.filter(|_| place % 2 == 1) {
            Some(command) => {
                let arguments = words(command);
                let output = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
                assert!(output.status.success(), "{command}: {output:?}");
                let printed = String::from_utf8(output.stdout).unwrap();
                assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");
                written.push_str(&format!("console\n$ weir {command}\n{printed}"));
                commands += 1;
            }
            None => written.push_str(block),
        }
        written.push_str("```");
    }
    written.truncate(written.len() - 3);
    assert!(commands > 0, "the page has no example");
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(&page, &written).unwrap();
    }
    assert_eq!(text, written, "WEIR_BLESS=1 writes the page again");
}

/// Words as a shell splits them; single quotes hold them together.
fn words(command: &str) -> Vec<String> {
    let pieces = command.split('\'').enumerate();
    pieces
        .flat_map(|(place, piece)| match place % 2 {
            0 => piece.split_whitespace().map(str::to_owned).collect(),
            _ => vec![piece.to_owned()],
        })
        .collect()
}

#[test]
fn what_is_explained_is_what_happens() {
    let upstream = Upstream::echoing();
    let services = [
        service("/a", upstream.address, "path: /base", ""),
        service("/a/b", upstream.address, "", "strip_path: false"),
        service("/key", upstream.address, "plugins: [{name: key-auth}]", ""),
    ];
    let gateway = Gateway::start(&document(
        &services,
        "consumers: [{username: al, keyauth_credentials: [{key: k}]}]\n",
    ));
    for (path, headers) in [("/a/x?q=1", json!({})), ("/a/b/c", json!({})), ("/key", json!({"apikey": "k"}))]
    {
        let told = gateway.ask_admin(
            "POST",
            "/explain",
            &json!({ "host": "localhost", "path": path, "headers": headers }).to_string(),
        );
        assert_eq!(told.status, 200, "{}", told.text());
        let told = told.json();
        assert_eq!(told["answer"], Json::Null, "{told}");
        let lines: String =
            headers.as_object().unwrap().keys().map(|name| format!("{name}: k\r\n")).collect();
        let got = gateway.get_with(path, &lines);
        let line = got.text().lines().next().unwrap();
        let asked = line.split(' ').nth(1).unwrap();
        let url = format!("http://{}{asked}", upstream.address);
        assert_eq!(told["upstream"]["url"], json!(url), "{told}");
        assert!(
            got.text()
                .contains(&format!("Host: {}\n", told["upstream"]["targets"][0]["host"].as_str().unwrap()))
        );
    }
    for path in ["/none", "/key"] {
        let told = gateway
            .ask_admin("POST", "/explain", &json!({ "host": "localhost", "path": path }).to_string())
            .json();
        let got = gateway.get(path);
        assert_eq!(told["answer"]["status"], got.status, "{told}");
        assert_eq!(told["answer"]["message"], got.json()["message"], "{told}");
    }
}

#[test]
fn the_health_of_targets_is_known() {
    let upstream = Upstream::echoing();
    let at = upstream.address;
    let gateway = Gateway::start(&format!(
        "_format_version: '3.0'\nservices: [{{name: s, host: some, routes: [{{paths: [/]}}]}}]\n\
         upstreams: [{{name: some, targets: [{{target: '{at}'}}, {{target: '127.0.0.1:1', weight: 0}}], \
         healthchecks: {{passive: {{unhealthy: {{tcp_failures: 1}}}}}}}}]\n"
    ));
    let told = || gateway.ask_admin("POST", "/explain", r#"{"host": "localhost"}"#).json()["answer"].clone();
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(told(), Json::Null);
    let mark = format!("PUT /upstreams/some/targets/{at}/unhealthy HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(Peer::connect(gateway.admin_addresses()[0]).send(mark).response().status, 204);
    let got = gateway.get("/");
    assert_eq!(got.status, 503);
    assert_eq!((&told()["status"], &told()["message"]), (&json!(503), &got.json()["message"]));
}

#[test]
fn bad_questions_name_the_field() {
    let gateway = Gateway::start("_format_version: \"3.0\"\n");
    for (body, status, field) in [
        (r#"{"path": "/"}"#, 400, "host"),
        (r#"{"host": "a", "scheme": "gopher"}"#, 400, "scheme"),
        (r#"{"host": "a", "client_ip": 7}"#, 400, "client_ip"),
        (r#"{"host": "a", "hots": "b"}"#, 400, "hots"),
        (r#"{"host": "a", "headers": {"x": [1]}}"#, 400, "headers"),
        (r#"{"host": "a", "path": "//\u0000"}"#, 400, "path"),
    ] {
        let answer = gateway.ask_admin("POST", "/explain", body);
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        let answer = answer.json();
        assert_eq!((&answer["code"], &answer["name"]), (&json!(2), &json!("schema violation")), "{body}");
        assert!(!answer["fields"][field].is_null(), "{body}: {answer}");
    }
    for body in ["{", "[]", "1"] {
        assert_eq!(gateway.ask_admin("POST", "/explain", body).status, 400, "{body}");
    }
}

#[test]
fn json_is_the_same_on_the_command_line() {
    let file = "examples/quickstart/kong.yml";
    let output =
        run(&["explain", file, "GET", "https://a.test:8443/key?x=1", "-H", "apikey: demo-key", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let told: Json = serde_json::from_slice(&output.stdout).unwrap();
    let configuration = std::fs::read_to_string(Path::new(ROOT).join(file)).unwrap();
    let gateway = Gateway::start(&configuration);
    let question = json!({
        "scheme": "https", "host": "a.test:8443", "path": "/key?x=1", "headers": { "apikey": "demo-key" },
    });
    assert_eq!(told, gateway.ask_admin("POST", "/explain", &question.to_string()).json());
    assert_eq!(told["consumer"]["name"], "demo");
}

#[test]
fn a_plugin_that_decides_is_named_in_the_place_of_what_it_decides() {
    let services = [
        service(
            "/chosen",
            "127.0.0.1:9",
            "plugins: [{name: ai-proxy, config: {route_type: llm/v1/chat, model: {provider: openai, name: m}}}]",
            "",
        ),
        service(
            "/answered",
            "127.0.0.1:9",
            "plugins: [{name: mocking, config: {delay: 1, response_example: hi}}]",
            "",
        ),
        service(
            "/function",
            "127.0.0.1:9",
            "plugins: [{name: aws-lambda, config: {aws_key: k, aws_secret: s, aws_region: eu-west-1, function_name: f}}]",
            "",
        ),
        service(
            "/empty",
            "127.0.0.1:9",
            "plugins: [{name: request-termination, config: {status_code: 418}}]",
            "",
        ),
        service(
            "/code",
            "127.0.0.1:9",
            "plugins: [{name: pre-function, config: {access: ['kong.response.exit(200)']}}]",
            "",
        ),
    ];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kong.yml");
    std::fs::write(&file, document(&services, "")).unwrap();
    for (path, expected) in [
        ("/chosen", "\nupstream   decided by ai-proxy, in the place of service "),
        ("/answered", "\nanswer     decided by mocking\n"),
        ("/function", "\nanswer     decided by aws-lambda\n"),
        ("/empty", "\nanswer     418, by request-termination\n"),
        ("/code", "\nunless     decided otherwise by pre-function\n"),
    ] {
        let output = run(&["explain", file.to_str().unwrap(), "GET", &format!("http://a{path}")]);
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(printed.contains(expected), "{path}: {printed}");
        let (has_upstream, is_answered) = (printed.contains("\nupstream "), printed.contains("\nanswer "));
        assert_ne!(has_upstream, is_answered, "{path}: {printed}");
    }
}

#[test]
fn code_that_runs_before_the_route_is_found_makes_the_rest_uncertain() {
    let services = [
        service("/key", "127.0.0.1:9", "plugins: [{name: key-auth}]", ""),
        service("/code", "127.0.0.1:9", "plugins: [{name: post-function, config: {rewrite: ['f()']}}]", ""),
    ];
    let global = "plugins: [{name: post-function, config: {rewrite: ['kong.request.get_method()']}}]\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kong.yml");
    let explain = |more: &str, path: &str| {
        std::fs::write(&file, document(&services, more)).unwrap();
        let output = run(&["explain", file.to_str().unwrap(), "GET", &format!("http://a{path}")]);
        String::from_utf8(output.stdout).unwrap()
    };
    let unless = "\nunless     decided otherwise by post-function\n";
    for (path, expected) in
        [("/key", "\nanswer     401 "), ("/none", "\nanswer     404 "), ("/code", "\nupstream ")]
    {
        let (with, without) = (explain(global, path), explain("", path));
        assert!(with.contains(expected) && without.contains(expected), "{with}\n{without}");
        assert!(with.contains(unless) && !without.contains("unless"), "{with}\n{without}");
    }
}

#[test]
fn what_cannot_be_explained_is_refused() {
    let refused = |arguments: &[&str], part: &str| {
        let output = run(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(said.contains(part), "{arguments:?}: {said}");
    };
    let file = "examples/quickstart/kong.yml";
    refused(&["explain", file, "GET", "/open"], "write the whole URL");
    refused(&["explain", file, "GET", "ftp://a/"], "scheme: expected one of http, https");
    refused(&["explain", file, "GET", "http://a/ b"], "path: ");
    refused(&["explain", "nowhere.yml", "GET", "http://a/"], "nowhere.yml");
}
