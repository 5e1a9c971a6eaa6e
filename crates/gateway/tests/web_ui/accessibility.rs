//! Every page can be used without a mouse, read by weak eyes and heard, on a wide screen and on a phone, light and dark.
use super::{fill, in_chromium, with_ui};
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

#[test]
fn every_page_is_accessible() {
    let gateway = with_ui();
    fill(&gateway);
    for _ in 0..3 {
        gateway.get("/orders");
        gateway.get("/nowhere");
    }
    let loads = PAGES.map(|page| format!("go:location.assign('{page}')"));
    for screen in ["screen:1280 light", "screen:1280 dark", "screen:390 light", "screen:390 dark"] {
        let steps = loads.iter().flat_map(|load| [load, CHECK]);
        let mut seen = in_chromium(&gateway, "/node", &[screen].into_iter().chain(steps).collect::<Vec<_>>());
        assert_eq!(seen.pop(), Some(json!([])), "{screen}: what the browser complains of");
        for (page, values) in PAGES.iter().zip(seen[1..].chunks(2)) {
            assert_eq!(values[1], json!([]), "{page}, {screen}");
        }
    }
}
