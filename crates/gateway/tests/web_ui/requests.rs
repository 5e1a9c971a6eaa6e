//! Single requests: the list as they end, and one in full.
use super::{Browser, in_chromium};
use crate::harness::{Gateway, eventually};
use serde_json::json;
use std::sync::mpsc::{self, TryRecvError};
use std::thread;

/// A gateway with a route that nothing is behind, and pages.
fn with_failing_route() -> Gateway {
    let configuration = "{_format_version: '3.0', services: [{name: s, url: 'http://127.0.0.1:1', retries: 0, \
                         routes: [{name: r, paths: [/a]}]}]}";
    Gateway::builder(configuration).set("admin_gui_listen", "127.0.0.1:0").start()
}

#[test]
fn a_request_in_full_is_shown_as_text() {
    let gateway = with_failing_route();
    let agent = "User-Agent: <img src=x onerror=alert(1)>\r\nDate: Mon, 23 Nov 2026 18:04:44 GMT\r\n";
    gateway.get_with("/a/<script>alert(1)</script>?q=canary", agent);
    let mut browser = Browser::of(&gateway);
    eventually("the request is listed", || browser.page("/requests?class=5xx").contains("upstream: connect"));
    let list = browser.page("/requests?class=5xx");
    let row = list.split("<tbody").nth(1).unwrap();
    let path = row.split("href=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let page = browser.page(&format!("/{path}"));
    for expected in [
        "upstream: connect",
        "<dt><bdi>Host</bdi></dt><dd><bdi>localhost</bdi>",
        "<dt><bdi>Date</bdi></dt><dd><bdi>Mon, 23 Nov 2026 18:04:44 GMT</bdi>",
        "Explain this request",
        "curl -i -g --path-as-is -X",
        "&lt;script&gt;",
        "&lt;img",
        "<svg",
    ] {
        assert!(page.contains(expected), "{expected}: {page}");
    }
    for page in [list, page] {
        assert!(!page.contains("<img") && !page.contains("<script>"), "{page}");
        assert!(!page.contains("canary"), "{page}");
    }
}

/// What expressions give in the page at a path while requests arrive.
fn under_load(gateway: &Gateway, path: &str, expressions: &[&str]) -> Vec<serde_json::Value> {
    thread::scope(|scope| {
        // Dropped at the end, also if an assertion fails, which ends the load.
        let (_running, over) = mpsc::channel::<()>();
        scope.spawn(move || {
            while over.try_recv() == Err(TryRecvError::Empty) {
                gateway.get("/a/<b>1</b>");
            }
        });
        in_chromium(gateway, path, expressions)
    })
}

#[test]
fn a_browser_reuses_rows_and_says_how_many_it_does_not_show() {
    let gateway = with_failing_route();
    let rows = "[...document.querySelectorAll('[data-rows] tr')]";
    let seen = under_load(
        &gateway,
        "/requests",
        &[
            &format!("wait:{rows}.length === 200"),
            "wait:/^[\\d\u{202f}]+ of [\\d\u{202f}]+ shown$/.test(document.querySelector('[data-counts]').textContent)",
            // The rows that the page came with are replaced first.
            "window.firstId = document.querySelector('[data-rows] th a').href; \
             new MutationObserver((all) => { window.moved = all.reduce((sum, it) => sum + it.addedNodes.length, window.moved ?? 0); })\
             .observe(document.querySelector('[data-rows]'), { childList: true }); 1",
            "wait:window.moved > 220",
            &format!("window.known = new Set({rows}); window.moved = 0; 1"),
            "wait:window.moved > 20",
            &format!("{rows}.length === 200 && {rows}.every((row) => window.known.has(row))"),
            "document.querySelector('[data-rows] th a').href !== window.firstId",
        ],
    );
    let (one, yes) = (json!(1), json!(true));
    assert_eq!(seen, [&yes, &yes, &one, &yes, &one, &yes, &yes, &yes, &json!([])].map(Clone::clone));
}

#[test]
fn a_browser_shows_requests_as_they_end() {
    let gateway = with_failing_route();
    let seen = {
        let count = "document.querySelectorAll('[data-rows] tr').length";
        under_load(
            &gateway,
            "/requests?class=5xx",
            &[
                // The script of the list may be loaded after the page.
                "wait:!document.querySelector('[data-tail]').hidden",
                &format!("wait:{count} > 3"),
                "document.querySelector('[data-pause]').click()",
                &format!("window.before = {count}, true"),
                "wait:document.querySelector('[data-resume]').textContent.match(/Show [\\d\u{202f}]+ new/)?.[0] && \
                 !document.querySelector('[data-resume]').hidden",
                &format!("window.before === {count}"),
                "window.first = document.querySelector('[data-rows] th a').href, document.querySelector('[data-resume]').click()",
                "wait:document.querySelector('[data-rows] th a').href !== window.first",
                &format!("{count} <= 500 && document.querySelector('[data-rows] th a').textContent"),
                "go:document.querySelector('[data-rows] th a').click()",
                "document.querySelector('.waterfall title').textContent.startsWith('Gateway') && \
                 document.querySelectorAll('main b').length",
            ],
        )
    };
    let [true_, null] = [json!(true), json!(null)];
    let path = json!("/a/<b>1</b>");
    let expected =
        [&true_, &true_, &null, &true_, &true_, &true_, &null, &true_, &path, &null, &json!(0), &json!([])];
    assert!(seen.iter().eq(expected), "{seen:?}");
}
