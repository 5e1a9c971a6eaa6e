//! Every page can be used without a mouse, read by weak eyes and heard, on a wide screen and on a phone, light and dark.
use super::access::new_token;
use super::{fill, in_chromium, with_ui};
use crate::fleet::{control_plane, data_plane, shared, state};
use crate::harness::{Gateway, eventually};
use serde_json::json;

const CHECK: &str = include_str!("accessibility.js");

const PAGES: [&str; 16] = [
    "/",
    "/traffic",
    "/errors",
    "/requests",
    "/changes",
    "/routes",
    "/routes/orders",
    "/upstreams/pool",
    "/edit/routes/orders",
    "/new/plugins?name=rate-limiting",
    "/delete/services/orders",
    "/export/services/orders",
    "/try",
    "/plugin-costs",
    "/nodes",
    "/login",
];

const SCREENS: [&str; 4] = ["screen:1280 light", "screen:1280 dark", "screen:390 light", "screen:390 dark"];

/// Checks these pages of a gateway on each screen.
#[track_caller]
fn check(gateway: &Gateway, pages: &[&str]) {
    let loads: Vec<_> = pages.iter().map(|page| format!("go:location.assign('{page}')")).collect();
    for screen in SCREENS {
        let steps = loads.iter().flat_map(|load| [load, CHECK]);
        let mut seen = in_chromium(gateway, "/node", &[screen].into_iter().chain(steps).collect::<Vec<_>>());
        assert_eq!(seen.pop(), Some(json!([])), "{screen}: what the browser complains of");
        for (page, values) in pages.iter().zip(seen[1..].chunks(2)) {
            assert_eq!(values[1], json!([]), "{page}, {screen}");
        }
    }
}

#[test]
fn every_page_is_accessible() {
    let gateway = with_ui();
    fill(&gateway);
    for _ in 0..3 {
        gateway.get("/orders");
        gateway.get("/nowhere");
    }
    check(&gateway, &PAGES);
}

#[test]
fn the_pages_of_a_fleet_and_of_a_closed_node_are_accessible() {
    let identity = shared();
    let control = control_plane(&identity).set("admin_gui_listen", "127.0.0.1:0").start();
    let data = data_plane(&identity, &control).start();
    eventually("the data plane is connected", || state(&control) == "connected");
    check(&control, &["/nodes", "/"]);
    drop(data);
    eventually("the data plane is gone", || state(&control) == "offline");
    check(&control, &["/nodes"]);
    let (_, hash) = new_token(&[]);
    let closed = Gateway::empty().set("admin_gui_listen", "127.0.0.1:0").set("admin_auth", &hash).start();
    check_page(&closed, "/", &["wait:document.getElementById('token') === document.activeElement"]);
}

#[test]
fn a_page_whose_node_does_not_answer_is_accessible() {
    let gateway = with_ui();
    fill(&gateway);
    gateway.get("/orders");
    check_page(
        &gateway,
        "/",
        &[
            "window.fetch = () => Promise.reject(new Error('away')), true",
            "wait:!document.getElementById('connection').hidden",
        ],
    );
}

/// Checks a page on each screen after these steps, which must give true.
#[track_caller]
fn check_page(gateway: &Gateway, path: &str, steps: &[&str]) {
    for screen in SCREENS {
        let load = format!("go:location.assign('{path}')");
        let all: Vec<_> = [screen, &load].into_iter().chain(steps.iter().copied()).chain([CHECK]).collect();
        let seen = in_chromium(gateway, "/login", &all);
        let expected = steps.iter().map(|_| json!(true)).chain([json!([]), json!([])]).collect::<Vec<_>>();
        assert_eq!(seen[2..], expected, "{path}, {screen}");
    }
}
