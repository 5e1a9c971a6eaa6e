//! Kong Manager on another server: a browser that shows its pages may use the Admin API, and no other page may.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, Message, Peer, Upstream, chromium};
use serde_json::json;
use std::net::SocketAddr;

const MANAGER: &str = "https://manager.example.com";

fn with_manager(url: &str) -> Gateway {
    Gateway::empty()
        .set("database", "sqlite")
        .set("admin_gui_listen", "127.0.0.1:0")
        .set("admin_gui_url", url)
        .start()
}

#[track_caller]
fn ask(address: SocketAddr, method: &str, path: &str, headers: &str) -> Message {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    Peer::connect(address).send(request).response_to(method)
}

#[test]
fn pages_of_admin_gui_url_may_use_the_admin_api_and_no_others() {
    let gateway = with_manager("https://manager.example.com/kong, http://localhost:8002");
    let admin = gateway.admin_addresses()[0];
    let asked = |method, origin: &str| ask(admin, method, "/services", &format!("Origin: {origin}\r\n"));
    for origin in [MANAGER, "http://localhost:8002"] {
        let answer = asked("GET", origin);
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, Some(origin)));
        assert_eq!(answer.header("vary"), Some("Origin"));
        assert_eq!(
            answer.header("access-control-allow-credentials"),
            None,
            "browsers keep cookies to themselves"
        );
    }
    for origin in
        ["https://example.com", "null", "http://manager.example.com", "https://manager.example.com:8443"]
    {
        let answer = asked("GET", origin);
        // Its browser compares the header with the page's own origin.
        assert_eq!(
            (answer.status, answer.header("access-control-allow-origin")),
            (403, Some(MANAGER)),
            "{origin}"
        );
        assert!(answer.text().contains("admin_gui_url"), "{}", answer.text());
        assert_eq!(asked("POST", origin).status, 403, "{origin}");
    }
    assert_eq!(ask(admin, "GET", "/services", "").header("access-control-allow-origin"), Some(MANAGER));
}

#[test]
fn a_preflight_needs_no_token_and_opens_nothing_else() {
    let hash = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let gateway = Gateway::builder("_format_version: '3.0'\n")
        .set("admin_auth", hash)
        .set("admin_gui_url", MANAGER)
        .start();
    let admin = gateway.admin_addresses()[0];
    let from = |origin: &str| {
        format!(
            "Origin: {origin}\r\nAccess-Control-Request-Method: PATCH\r\n\
             Access-Control-Request-Headers: content-type,kong-admin-token\r\n"
        )
    };
    let answer = ask(admin, "OPTIONS", "/services", &from(MANAGER));
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (204, Some(MANAGER)));
    assert!(answer.header("access-control-allow-methods").unwrap().contains("PATCH"));
    assert_eq!(answer.header("access-control-allow-headers"), Some("content-type,kong-admin-token"));
    assert_eq!(ask(admin, "OPTIONS", "/services", &from("https://example.com")).status, 401);
    let page = format!("Origin: {MANAGER}\r\n");
    let answer = ask(admin, "GET", "/services", &page);
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (401, Some(MANAGER)));
    assert_eq!(ask(admin, "GET", "/services", &format!("{page}Kong-Admin-Token: secret\r\n")).status, 200);
}

#[test]
fn kconfig_tells_where_the_admin_api_is() {
    let gateway = Gateway::empty()
        .set("admin_gui_listen", "127.0.0.1:0")
        .set("admin_gui_url", "https://manager.example.com/kong")
        .set("admin_gui_api_url", "https://admin.example.com/it's")
        .set("admin_gui_path", "/kong")
        .start();
    let answer = ask(gateway.web_ui(), "GET", "/kong/kconfig.js", "");
    let port = gateway.admin_addresses()[0].port();
    let expected = format!(
        "window.K_CONFIG = {{\n  'ADMIN_GUI_URL': 'https://manager.example.com/kong',\n  'ADMIN_GUI_PATH': '/kong',\n  \
         'ADMIN_API_URL': 'https://admin.example.com/it\\'s',\n  'ADMIN_API_PORT': '{port}',\n  \
         'ADMIN_API_SSL_PORT': '',\n  'KONG_VERSION': '3.9.1',\n  'KONG_EDITION': 'community',\n  \
         'ANONYMOUS_REPORTS': 'false'\n}}\n"
    );
    assert_eq!((answer.status, answer.text()), (200, expected.as_str()));
    assert_eq!(answer.header("content-type"), Some("application/javascript; charset=UTF-8"));
    for outside in ["/kconfig.js", "/", "/kongs/kconfig.js"] {
        assert_eq!(ask(gateway.web_ui(), "GET", outside, "").status, 404, "{outside}");
    }
    let redirect = ask(gateway.web_ui(), "GET", "/kong", "");
    assert_eq!((redirect.status, redirect.header("location")), (308, Some("/kong/")));
    assert!(ask(gateway.web_ui(), "GET", "/kong/", "").text().contains("Weir"));
    assert_eq!(ask(gateway.web_ui(), "GET", "/kong/services", "").status, 200);
}

#[test]
fn settings_that_browsers_could_not_use_stop_the_start() {
    for (name, value, expected) in [
        ("admin_gui_url", "*", "`*` is not a URL like `https://manager.example.com`"),
        ("admin_gui_path", "/manager/", "`/manager/` is not a path like `/manager`"),
    ] {
        let (status, log) = Gateway::empty().set(name, value).fail();
        assert!(!status.success() && log.contains(expected), "{log}");
    }
}

/// Asks for a URL from within a page, and waits for the answer; `blocked` if the browser keeps it from the page.
fn request(method: &str, url: &str, body: &str) -> String {
    format!(
        "(() => {{ const asked = new XMLHttpRequest(); asked.open('{method}', '{url}', false); \
         asked.setRequestHeader('Content-Type', 'application/json'); \
         try {{ asked.send('{body}'); return asked.status; }} catch {{ return 'blocked'; }} }})()"
    )
}

#[test]
fn a_browser_lets_the_manager_in_and_keeps_other_pages_out() {
    // What the two pages are served from is nothing but their origin.
    let page =
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\nConnection: close\r\n\r\npage";
    let (manager, other) = (Upstream::answering(page), Upstream::answering(page));
    let gateway = with_manager(&format!("http://{}", manager.address));
    let (admin, gui) = (gateway.admin_addresses()[0], gateway.web_ui());
    let load = format!(
        "(() => {{ const script = document.createElement('script'); script.src = 'http://{gui}/kconfig.js'; \
         document.head.append(script); }})()"
    );
    let port = "window.K_CONFIG && window.K_CONFIG.ADMIN_API_PORT";
    let services = format!("http://{admin}/services");
    let body = r#"{"name": "orders", "host": "orders.test"}"#;
    let (list, create) = (request("GET", &services, ""), request("POST", &services, body));
    let put = request("PUT", &format!("{services}/late"), r#"{"host": "late.test"}"#);
    let seen = chromium(&format!("http://{}/", manager.address), &[&load, &list, &create, &put, port]);
    assert_eq!(seen[1..4], [json!(200), json!(201), json!(200)], "{seen:?}");
    assert_eq!(seen[4], json!(admin.port().to_string()), "{seen:?}");
    let seen = chromium(&format!("http://{}/", other.address), &[&list, &create]);
    assert_eq!(seen[..2], [json!("blocked"), json!("blocked")], "{seen:?}");
    assert_eq!(gateway.admin("/services").json()["data"].as_array().unwrap().len(), 2);
}
