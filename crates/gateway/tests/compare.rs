//! `weir compare`: two gateways asked the same, and what is told of their differences.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, Upstream, closed_port, document, service, weir};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

/// A folder with a file of requests, and what the command says of it.
struct Comparison {
    folder: TempDir,
    a: SocketAddr,
    b: SocketAddr,
}

/// What the command did.
struct Said {
    good: bool,
    output: String,
    errors: String,
}

impl Comparison {
    fn of(a: SocketAddr, b: SocketAddr, requests: &str) -> Self {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("requests"), requests).unwrap();
        Self { folder, a, b }
    }

    fn page(&self) -> PathBuf {
        self.folder.path().join("page.html")
    }

    fn run(&self, more: &[&str]) -> Said {
        let (a, b) = (format!("http://{}", self.a), format!("http://{}", self.b));
        let mut command = weir();
        command.current_dir(self.folder.path()).args([
            "compare",
            "--a",
            &a,
            "--b",
            &b,
            "--report",
            "page.html",
        ]);
        let output = command.args(more).arg("requests").output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said { good: output.status.success(), output: text(output.stdout), errors: text(output.stderr) }
    }
}

/// Answers with a body that holds a number which grows with each request.
fn counting(fields: &'static str, word: &'static str) -> Upstream {
    let count = AtomicUsize::new(0);
    Upstream::start(move |mut peer, _| {
        while peer.request().is_some() {
            let count = count.fetch_add(1, Ordering::SeqCst);
            let body = format!(r#"{{"count": {count}, "items": [{{"word": "{word}"}}]}}"#);
            peer.send(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len()));
        }
    })
}

#[test]
fn differences_are_grouped_by_cause() {
    let a = counting("Date: then\r\nX-Both: 1\r\nX-Only: a\r\n", "one");
    let b = counting("Date: now\r\nX-Both: 1\r\nX-More: b\r\n", "<b>two</b>");
    let comparison = Comparison::of(a.address, b.address, "GET /x?apikey=secret\nGET /y\nDELETE /z\n");
    let said = comparison.run(&[]);
    assert!(!said.good);
    let expected = "requests  difference\n     2  JSON body, items.*.word: another value\n     2  header x-more: only from b\n     \
                    2  header x-only: only from a\n0 of 2 requests were answered alike.\n1 not sent: DELETE may change data: \
                    add --unsafe-methods to send it\nThe page: page.html\n";
    assert_eq!(said.output, expected);
    let page = std::fs::read_to_string(comparison.page()).unwrap();
    assert!(page.contains("&lt;b&gt;two&lt;/b&gt;") && !page.contains("<b>two"), "{page}");
    assert!(page.contains("GET /x?apikey=***") && !page.contains("secret"), "{page}");
}

#[test]
fn unsafe_requests_are_sent_once_to_each() {
    let (a, b) = (counting("", "w"), counting("", "w"));
    let comparison = Comparison::of(a.address, b.address, "POST /x\n\n{}\n");
    let said = comparison.run(&["--unsafe-methods"]);
    assert_eq!(said.output, "1 of 1 requests were answered alike.\nThe page: page.html\n");
    assert!(said.good);
    // Were `a` asked twice, their counts would differ now.
    assert!(comparison.run(&["--unsafe-methods"]).good);
}

#[test]
fn own_rules_come_first() {
    let (a, b) = (counting("X-A: 1\r\nDate: then\r\n", "one"), counting("X-A: 2\r\nDate: now\r\n", "two"));
    let comparison = Comparison::of(a.address, b.address, "/x\n");
    let rules = "[[header]]\nname = 'x-*'\ncompare = 'ignore'\n[[header]]\nname = 'Date'\ncompare = 'value'\n\
                 [[json]]\npath = 'items'\ncompare = 'presence'\n";
    std::fs::write(comparison.folder.path().join("rules.toml"), rules).unwrap();
    let said = comparison.run(&["--rules", "rules.toml"]);
    assert!(said.output.contains("     1  header date: another value\n0 of 1"), "{}", said.output);
    std::fs::write(comparison.folder.path().join("rules.toml"), "[[header]]\nnam = 'x'\n").unwrap();
    let said = comparison.run(&["--rules", "rules.toml"]);
    assert!(said.errors.contains("rules.toml: ") && said.errors.contains("line 2"), "{}", said.errors);
}

#[test]
fn two_nodes_with_the_same_configuration_answer_alike() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    let file = document(&[service("/x", upstream.address, "", "")], "");
    let (a, b) = (Gateway::start(&file), Gateway::start(&file));
    let log = "::1 - - [x] \"GET /x/1 HTTP/1.1\" 200 2 \"-\" \"curl/8\"\n::1 - - [x] \"GET /none HTTP/1.1\" 404 2 \"-\" \"-\"\n";
    let comparison = Comparison::of(a.proxy(), b.proxy(), log);
    let said = comparison.run(&["-H", "Host: a.test"]);
    assert_eq!(said.output, "2 of 2 requests were answered alike.\nThe page: page.html\n");
    assert!(said.good);
}

#[test]
fn a_gateway_that_does_not_answer_is_named() {
    let a = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let said = Comparison::of(a.address, closed_port(), "/x\n").run(&[]);
    assert!(!said.good && said.output.contains("1 not compared: b did not answer: "), "{}", said.output);
    let said = Comparison::of(a.address, a.address, "\n").run(&[]);
    assert!(said.errors.contains("requests: no request found: write one on each line"), "{}", said.errors);
}

#[test]
fn the_built_in_rules_are_rules() {
    let printed = weir().args(["compare", "--print-rules"]).output().unwrap();
    assert!(printed.status.success());
    let a = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let comparison = Comparison::of(a.address, a.address, "/x\n");
    std::fs::write(comparison.folder.path().join("rules.toml"), printed.stdout).unwrap();
    assert!(comparison.run(&["--rules", "rules.toml"]).good);
}
