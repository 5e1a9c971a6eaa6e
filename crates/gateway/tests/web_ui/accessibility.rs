//! Every page can be used without a mouse, read by weak eyes and heard, on a wide screen and on a phone, light and dark.
use super::access::new_token;
use super::analytics::sent;
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
    check_on(gateway, &SCREENS, pages);
}

#[track_caller]
fn check_on(gateway: &Gateway, screens: &[&str], pages: &[&str]) {
    let loads: Vec<_> = pages.iter().map(|page| format!("go:location.assign('{page}')")).collect();
    for screen in screens {
        let steps = loads.iter().flat_map(|load| [load, CHECK]);
        let mut seen = in_chromium(gateway, "/node", &[*screen].into_iter().chain(steps).collect::<Vec<_>>());
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
    check_on(
        &gateway,
        &["screen:1280 light forced", "screen:390 dark forced"],
        &["/", "/traffic", "/routes/orders"],
    );
    check_on(&gateway, &["screen:320 light"], &["/", "/traffic", "/services", "/routes/orders", "/errors"]);
}

#[test]
fn forced_colours_and_paper_show_what_colours_and_controls_say() {
    let sent = sent();
    let counted = "wait:document.querySelectorAll('#charts path.area').length > 1";
    let marked = "(() => {
        const [here, other] = ['[aria-current]', ':not([aria-current])'].map((which) =>
            getComputedStyle(document.querySelector(`nav.sections a${which}`)).backgroundColor);
        return here !== other;
    })()";
    let areas = "new Set([...document.querySelectorAll('#charts path.area')].map((area) => {
        const { fill, fillOpacity } = getComputedStyle(area);
        return `${fill} ${fillOpacity}`;
    })).size > 1";
    let shown = |selector: &str| format!("document.querySelector('{selector}').checkVisibility()");
    let (nav, frames, address) = (shown("nav.sections"), shown("nav.frames"), shown(".printed"));
    let steps = [
        "screen:1280 light forced",
        counted,
        marked,
        areas,
        &address,
        "screen:800 dark print",
        "document.documentElement.dataset.theme = 'dark', dispatchEvent(new Event('beforeprint'))",
        "document.querySelector('.printed').textContent === location.href",
        &nav,
        &frames,
        &address,
        "getComputedStyle(document.body).backgroundColor",
        "getComputedStyle(document.querySelector('h1')).color",
    ];
    let mut seen = in_chromium(&sent.gateway, "/?from=-1h", &steps);
    let dark_text = seen.remove(12).as_str().unwrap().to_owned();
    assert_eq!(dark_text, "rgb(27, 34, 43)", "{seen:?}");
    let (yes, no, white) = (json!(true), json!(false), json!("rgb(255, 255, 255)"));
    assert_eq!(seen[1..5], [yes.clone(), yes.clone(), yes.clone(), no.clone()], "{seen:?}");
    assert_eq!(seen[6..], [yes.clone(), yes.clone(), no.clone(), no, yes, white, json!([])], "{seen:?}");
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
