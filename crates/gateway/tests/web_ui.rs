//! The web UI, as a browser sees it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod access;
mod accessibility;
mod analytics;
mod entities;
mod links;
mod requests;

use crate::harness::{Gateway, Message, Peer, Upstream, chromium, eventually};
use serde_json::json;

/// A browser: it keeps cookies, and fills in forms.
struct Browser<'g> {
    gateway: &'g Gateway,
    cookies: Vec<(String, String)>,
}

impl Browser<'_> {
    fn of(gateway: &Gateway) -> Browser<'_> {
        Browser { gateway, cookies: Vec::new() }
    }

    fn ask(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Message {
        let address = self.gateway.web_ui();
        let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nCookie: {}\r\nContent-Length: {}\r\n{headers}\r\n",
            cookies.join("; "),
            body.len()
        );
        let response = Peer::connect(address).send(head + body).response_to(method);
        for cookie in response.head.all("set-cookie") {
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            self.cookies.retain(|(known, _)| known != name);
            self.cookies.push((name.to_owned(), value.to_owned()));
        }
        response
    }

    #[track_caller]
    fn get(&mut self, path: &str) -> Message {
        self.ask("GET", path, "", "")
    }

    /// The page at a path, which is there.
    #[track_caller]
    fn page(&mut self, path: &str) -> String {
        let response = self.get(path);
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        response.text().to_owned()
    }

    /// Sends the form of a page, with these inputs changed.
    #[track_caller]
    fn submit(&mut self, path: &str, changed: &[(&str, &str)]) -> Message {
        let page = self.page(path);
        self.submit_form(path, &page, changed)
    }

    /// Sends the last form of a page.
    #[track_caller]
    fn submit_form(&mut self, path: &str, page: &str, changed: &[(&str, &str)]) -> Message {
        let mut inputs = inputs(&page[page.rfind("<form ").expect("a form")..]);
        for (name, value) in changed {
            inputs.retain(|(known, _)| known != name);
            inputs.push(((*name).to_owned(), (*value).to_owned()));
        }
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(inputs).finish();
        self.ask("POST", path, "", &body)
    }

    /// Fills a form in, and confirms what it would change; returns the response to the confirmation.
    #[track_caller]
    fn save(&mut self, path: &str, changed: &[(&str, &str)]) -> Message {
        let review = self.submit(path, changed);
        assert!(review.text().contains("This would change"), "{}", review.text());
        self.submit_form(path, review.text(), &[])
    }
}

/// The names and values of a form's inputs.
fn inputs(form: &str) -> Vec<(String, String)> {
    let attribute = |tag: &str, name: &str| {
        let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
        Some(unescaped(rest.split('"').next()?))
    };
    let mut inputs = Vec::new();
    for tag in form.split('<').skip(1) {
        let is_off = tag.starts_with("input type=\"checkbox\"") && !tag.contains(" checked");
        let named = attribute(tag, "name");
        match (named, tag) {
            (Some(name), tag) if tag.starts_with("input") && !is_off => {
                inputs.push((name, attribute(tag, "value").unwrap_or_default()));
            }
            (Some(name), tag) if tag.starts_with("textarea") => {
                inputs.push((name, unescaped(tag.split_once('>').unwrap().1)));
            }
            (Some(name), tag) if tag.starts_with("select") => inputs.push((name, String::new())),
            (_, tag) if tag.starts_with("option") && tag.contains(" selected") => {
                inputs.last_mut().unwrap().1 = attribute(tag, "value").unwrap_or_default();
            }
            _ => {}
        }
    }
    inputs
}

fn unescaped(text: &str) -> String {
    text.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

fn with_ui() -> Gateway {
    Gateway::empty().set("admin_gui_listen", "127.0.0.1:0").start()
}

#[track_caller]
fn created(gateway: &Gateway, path: &str, body: &serde_json::Value) -> String {
    let response = gateway.ask_admin("POST", path, &body.to_string());
    assert_eq!(response.status, 201, "{path}: {}", response.text());
    response.json()["id"].as_str().unwrap().to_owned()
}

/// A service, a route, a plugin, a consumer with a key, and an upstream with a target.
fn fill(gateway: &Gateway) {
    let tags = json!(["<img src=x onerror=alert(1)>"]);
    created(gateway, "/services", &json!({ "name": "orders", "url": "http://127.0.0.1:9", "tags": tags }));
    let route = json!({ "name": "orders", "paths": ["/orders"], "methods": ["GET"] });
    created(gateway, "/services/orders/routes", &route);
    let redis = json!({ "host": "127.0.0.1", "password": "canary-1" });
    let config = json!({ "minute": 5, "policy": "redis", "redis": redis });
    created(gateway, "/routes/orders/plugins", &json!({ "name": "rate-limiting", "config": config }));
    let name = "\u{202e}<script>alert(2)</script>";
    created(gateway, "/consumers", &json!({ "username": "alice", "custom_id": name }));
    created(gateway, "/consumers/alice/key-auth", &json!({ "key": "canary-2" }));
    created(gateway, "/consumers/alice/basic-auth", &json!({ "username": "a", "password": "canary-3" }));
    created(gateway, "/upstreams", &json!({ "name": "pool" }));
    created(gateway, "/upstreams/pool/targets", &json!({ "target": "127.0.0.1:9" }));
}

const COLLECTIONS: [&str; 12] = [
    "services",
    "routes",
    "consumers",
    "consumer_groups",
    "upstreams",
    "plugins",
    "certificates",
    "ca_certificates",
    "snis",
    "vaults",
    "keys",
    "key-sets",
];

/// The pages of a gateway that is filled.
fn addresses() -> Vec<String> {
    let mut all: Vec<_> = COLLECTIONS.iter().map(|kind| format!("/{kind}")).collect();
    all.extend(COLLECTIONS.iter().map(|kind| format!("/new/{kind}")));
    for (action, of) in [("", ""), ("edit/", ""), ("delete/", ""), ("export/", "")] {
        for entity in ["services/orders", "routes/orders", "consumers/alice", "upstreams/pool"] {
            all.push(format!("/{action}{entity}{of}"));
        }
    }
    let others = [
        "/",
        "/node",
        "/traffic",
        "/errors",
        "/changes",
        "/addresses/a",
        "/requests",
        "/try",
        "/plugin-costs",
        "/nodes",
        "/search?q=orders",
        "/login",
        "/new/plugins?name=key-auth",
    ];
    all.extend(others.map(str::to_owned));
    all
}

#[test]
fn every_page_answers_and_runs_nothing_of_others() {
    for gateway in [
        with_ui(),
        Gateway::builder("{_format_version: '3.0'}").set("admin_gui_listen", "127.0.0.1:0").start(),
    ] {
        let is_filled = gateway.admin("/").json()["configuration"]["database"] != "off";
        if is_filled {
            fill(&gateway);
        }
        for path in addresses().iter().filter(|path| is_filled || path.matches('/').count() == 1) {
            let page = Browser::of(&gateway).get(path);
            assert_eq!(page.status, 200, "{path}: {}", page.text());
            let policy = page.header("content-security-policy").unwrap();
            assert!(policy.contains("script-src 'self'") && !policy.contains("unsafe"), "{policy}");
            let text = page.text();
            assert!(text.contains("<h1>") && text.contains("<title>"), "{path}: {text}");
            assert!(
                !text.contains("<img") && !text.contains("<script>") && !text.contains(" style="),
                "{path}: {text}"
            );
            assert!(!text.contains("src=\"http") && !text.contains("href=\"http"), "{path}: {text}");
        }
    }
}

#[test]
fn secrets_are_in_no_page() {
    let gateway = with_ui();
    fill(&gateway);
    let mut browser = Browser::of(&gateway);
    let mut paths = addresses();
    for collection in ["plugins", "key-auths", "basic-auths"] {
        for entity in gateway.admin(&format!("/{collection}")).json()["data"].as_array().unwrap() {
            let id = entity["id"].as_str().unwrap();
            paths.extend(
                ["", "edit/", "delete/", "export/"].map(|action| format!("/{action}{collection}/{id}")),
            );
        }
    }
    for path in &paths {
        assert!(!browser.page(path).contains("canary"), "{path}");
    }
    let plugin = gateway.admin("/plugins").json()["data"][0]["id"].as_str().unwrap().to_owned();
    let review = browser.submit(&format!("/edit/plugins/{plugin}"), &[("config.redis.password", "canary-4")]);
    assert!(review.text().contains("config.redis.password"), "{}", review.text());
    assert!(!review.text().contains("canary"), "{}", review.text());
    let saved = browser.submit_form(&format!("/edit/plugins/{plugin}"), review.text(), &[]);
    assert_eq!(saved.status, 303, "{}", saved.text());
    assert_eq!(gateway.admin("/plugins").json()["data"][0]["config"]["redis"]["password"], "canary-4");
}

#[test]
fn entities_are_made_changed_and_deleted() {
    let gateway = with_ui();
    let mut browser = Browser::of(&gateway);
    let made = browser.save("/new/services", &[("name", "orders"), ("host", "127.0.0.1"), ("port", "9000")]);
    assert_eq!(made.status, 303, "{}", made.text());
    assert!(
        browser.page(made.header("location").unwrap().trim_start_matches("..")).contains("Service: orders")
    );
    let changed = browser.save("/edit/services/orders", &[("retries", "7"), ("tags", "a\r\nb")]);
    assert_eq!(changed.status, 303, "{}", changed.text());
    let service = gateway.admin("/services/orders").json();
    assert_eq!(
        (&service["retries"], &service["tags"], &service["port"]),
        (&json!(7), &json!(["a", "b"]), &json!(9000))
    );
    let plugin = "/new/plugins?name=key-auth&service=orders";
    assert_eq!(browser.save(plugin, &[("config.key_names", "x-key")]).status, 303);
    let plugin = &gateway.admin("/services/orders/plugins").json()["data"][0];
    assert_eq!((&plugin["name"], &plugin["config"]["key_names"]), (&json!("key-auth"), &json!(["x-key"])));
    assert_eq!(browser.save("/new/upstreams", &[("name", "pool")]).status, 303);
    assert_eq!(browser.save("/new/targets?upstream=pool", &[("target", "127.0.0.1:9")]).status, 303);
    assert!(browser.page("/upstreams/pool").contains("127.0.0.1:9"));
    let wrong = browser.submit("/delete/services/orders", &[("name", "other")]);
    assert!(wrong.text().contains("Its name is orders"), "{}", wrong.text());
    assert_eq!(browser.submit("/delete/upstreams/pool", &[("name", "pool")]).status, 303);
    assert_eq!(gateway.admin("/upstreams/pool").status, 404);
}

#[test]
fn entities_are_called_by_their_names_where_others_refer_to_them() {
    let gateway = with_ui();
    fill(&gateway);
    let mut browser = Browser::of(&gateway);
    for path in ["/plugins", "/search?q=rate-limiting", "/routes/orders"] {
        let page = browser.page(path);
        let main = page.split("<main").nth(1).unwrap();
        assert!(main.contains("<bdi>orders</bdi>") || main.contains(">orders</a>"), "{path}: {page}");
    }
}

#[test]
fn an_empty_list_shows_the_command_that_makes_the_first() {
    let gateway = with_ui();
    let mut browser = Browser::of(&gateway);
    for kind in COLLECTIONS
        .iter()
        .filter(|kind| !kind.contains("certificates") && **kind != "snis" && **kind != "keys")
    {
        let page = browser.page(&format!("/{kind}"));
        let command = page.split("<pre class=\"copyable\">").nth(1).unwrap().split("</pre>").next().unwrap();
        let (target, fields) = command.split_once(" -d ").unwrap();
        let fields: Vec<_> = fields.split(" -d ").map(|field| field.trim_matches('\'')).collect();
        let body = fields.join("&");
        let head = format!(
            "POST /{} HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n",
            target.rsplit('/').next().unwrap(),
            body.len()
        );
        let made = Peer::connect(gateway.admin_addresses()[0]).send(head + &body).response();
        assert_eq!(made.status, 201, "{command}: {}", made.text());
    }
}

#[test]
fn a_search_finds_what_is_on_a_later_page() {
    let gateway = with_ui();
    for number in 0..250 {
        let body = json!({ "name": format!("s-{number}"), "host": "a", "tags": ["all"] });
        created(&gateway, "/services", &body);
    }
    let mut browser = Browser::of(&gateway);
    for number in [0, 120, 249] {
        let page = browser.page(&format!("/search?q=S-{number}"));
        assert!(page.contains(&format!(">s-{number}</a>")), "{number}: {page}");
    }
    let page = browser.page("/search?q=all");
    assert!(page.contains("There are more than these 50") && page.matches(">s-").count() == 50, "{page}");
}

#[test]
fn what_is_wrong_is_said_at_the_field_and_nothing_is_lost() {
    let gateway = with_ui();
    fill(&gateway);
    let mut browser = Browser::of(&gateway);
    let unreadable = browser.submit("/edit/services/orders", &[("port", "eighty"), ("retries", "6")]);
    assert!(unreadable.text().contains("“eighty” is not a number"), "{}", unreadable.text());
    assert!(unreadable.text().contains("value=\"6\""), "{}", unreadable.text());
    let refused = browser.submit("/edit/services/orders", &[("port", "99999"), ("retries", "6")]);
    assert!(!refused.text().contains("This would change"), "{}", refused.text());
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains("class=\"field wrong\""), "{}", refused.text());
    assert!(
        refused.text().contains("value=\"99999\"") && refused.text().contains("value=\"6\""),
        "{}",
        refused.text()
    );
    let form = "/new/plugins?name=statsd";
    let refused = browser.submit(form, &[("config.port", "99999999")]);
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains("value should be between 0 and 65535"), "{}", refused.text());
    assert!(browser.submit(form, &[("config.port", "9125")]).text().contains("This would change"));
    // What other entities make wrong is found when it is saved.
    created(&gateway, "/services", &json!({ "name": "taken", "host": "a" }));
    let refused = browser.save("/edit/services/orders", &[("name", "taken")]);
    assert_eq!(refused.status, 409, "{}", refused.text());
    let unchanged = browser.submit("/edit/services/orders", &[]);
    assert!(unchanged.text().contains("Nothing differs"), "{}", unchanged.text());
}

#[test]
fn what_a_form_does_not_change_stays() {
    let gateway = with_ui();
    fill(&gateway);
    let add = json!({ "headers": ["x-a:line1\nline2", "x-b: v "] });
    let plugin = json!({ "name": "request-transformer", "config": { "append": add } });
    let id = created(&gateway, "/routes/orders/plugins", &plugin);
    let mut browser = Browser::of(&gateway);
    let path = format!("/edit/plugins/{id}");
    let review = browser.submit(&path, &[("tags", "a")]);
    assert!(!review.text().contains("config.append"), "{}", review.text());
    let back = browser.submit_form(&path, review.text(), &[("back", "yes")]);
    assert!(back.text().contains("line1") && !back.text().contains("This would change"), "{}", back.text());
    assert_eq!(browser.submit_form(&path, review.text(), &[]).status, 303);
    assert_eq!(
        gateway.admin(&format!("/plugins/{id}")).json()["config"]["append"]["headers"],
        add["headers"]
    );
    let wrong = [("regex_priority", "abc"), ("strip_path", "false"), ("protocols", "https")];
    let again = browser.submit("/edit/routes/orders", &wrong);
    let corrected = browser.submit_form("/edit/routes/orders", again.text(), &[("regex_priority", "3")]);
    let corrected = corrected.text();
    assert!(!corrected.contains(">paths<") && corrected.contains(">strip_path<"), "{corrected}");
}

#[test]
fn a_second_editor_gets_a_conflict() {
    let gateway = with_ui();
    fill(&gateway);
    let mut browser = Browser::of(&gateway);
    let review = browser.submit("/edit/services/orders", &[("retries", "6")]);
    assert_eq!(gateway.ask_admin("PATCH", "/services/orders", r#"{"retries": 9}"#).status, 200);
    let late = browser.submit_form("/edit/services/orders", review.text(), &[]);
    assert_eq!(late.status, 412, "{}", late.text());
    assert!(late.text().contains("Somebody has changed this"), "{}", late.text());
    assert_eq!(gateway.admin("/services/orders").json()["retries"], 9);
}

#[test]
fn forms_of_other_sites_are_refused() {
    let gateway = with_ui();
    fill(&gateway);
    let mut browser = Browser::of(&gateway);
    browser.page("/");
    let forged = browser.ask("POST", "/delete/services/orders", "", "name=orders&form_token=0");
    assert_eq!(forged.status, 403, "{}", forged.text());
    let page = browser.page("/delete/services/orders");
    let token = inputs(&page).into_iter().find(|(name, _)| name == "form_token").unwrap().1;
    let body = format!("name=orders&form_token={token}");
    let foreign =
        browser.ask("POST", "/delete/services/orders", "Origin: http://elsewhere.example\r\n", &body);
    assert_eq!(foreign.status, 403, "{}", foreign.text());
    assert_eq!(gateway.admin("/services/orders").status, 200);
}

#[test]
fn other_sites_may_link_to_pages_and_not_fetch_them() {
    let gateway = with_ui();
    let mut browser = Browser::of(&gateway);
    for (mode, part, status) in
        [("no-cors", "image", 403), ("navigate", "iframe", 403), ("navigate", "document", 200)]
    {
        let headers =
            format!("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: {mode}\r\nSec-Fetch-Dest: {part}\r\n");
        assert_eq!(browser.ask("GET", "/services", &headers, "").status, status, "{mode} {part}");
    }
}

#[test]
fn a_page_elsewhere_opens_no_stream_of_requests() {
    let gateway = with_ui();
    let address = gateway.web_ui();
    let tail = format!("GET /requests/tail HTTP/1.1\r\nHost: {address}\r\nAccept-Language: en\r\n");
    for referrer in ["", "Referer: http://elsewhere.example/\r\n"] {
        let refused = Peer::connect(address).send(format!("{tail}{referrer}\r\n")).response();
        assert_eq!(refused.status, 403, "{referrer}: {}", refused.text());
    }
    let mut page = Peer::connect(address);
    let head = page.send(format!("{tail}Referer: http://{address}/requests\r\n\r\n")).head().unwrap();
    assert_eq!(head.field("content-type"), Some("text/event-stream"), "{}", head.start);
}

#[test]
fn a_declarative_file_is_only_shown() {
    let configuration = "{_format_version: '3.0', services: [{name: orders, url: 'http://127.0.0.1:9'}]}";
    let gateway = Gateway::builder(configuration).set("admin_gui_listen", "127.0.0.1:0").start();
    let mut browser = Browser::of(&gateway);
    let (list, one) = (browser.page("/services"), browser.page("/services/orders"));
    assert!(list.contains("a declarative file") && !list.contains("New service"), "{list}");
    assert!(!one.contains("edit/services") && !one.contains("delete/services"), "{one}");
}

#[test]
fn the_costs_of_plugins_say_what_is_estimated() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    let document = format!(
        "_format_version: '3.0'\nservices:\n- url: http://{}\n  routes: [{{name: a, paths: [/], plugins: [{{name: cors}}]}}]\n",
        upstream.address
    );
    let start = |sampling: &str| {
        let gateway = Gateway::builder(&document).set("admin_gui_listen", "127.0.0.1:0");
        gateway.set("cost_sampling", sampling).start()
    };
    let gateway = start("1");
    assert_eq!(gateway.get("/").status, 200);
    let mut browser = Browser::of(&gateway);
    eventually("the plugin has costs", || browser.page("/plugin-costs").contains("cors</a>"));
    let page = browser.page("/plugin-costs");
    assert!(
        page.contains("title=\"Estimated from the requests") && page.contains(">Calls (estimate)</a>"),
        "{page}"
    );
    let page = Browser::of(&start("0")).page("/plugin-costs");
    assert!(page.contains("because cost_sampling is 0"), "{page}");
}

#[test]
fn nonsense_gives_defaults_and_unknown_entities_a_way_back() {
    let gateway = with_ui();
    let mut browser = Browser::of(&gateway);
    for path in ["/routes?size=-1", "/routes?offset=xyz", "/plugin-costs?sort=nope"] {
        assert!(browser.page(path).contains("is not understood"), "{path}");
    }
    assert!(browser.page("/requests?class=9xx&cursor=x").contains("All requests are shown"));
    assert_eq!(browser.get("/requests/7").status, 404);
    for path in [
        "/services/nope",
        "/nope",
        "/services/",
        "/requests/",
        "/edit/services/",
        "/edit/routes/nope",
        "/services/%3Cscript%3E",
        "/new/nope",
    ] {
        let page = browser.get(path);
        assert_eq!(page.status, 404, "{path}: {}", page.text());
        assert!(
            page.text().contains("verview</a>") && !page.text().contains("<script>"),
            "{path}: {}",
            page.text()
        );
    }
}

#[test]
fn assets_are_compressed_and_kept() {
    let gateway = with_ui();
    let mut browser = Browser::of(&gateway);
    let page = browser.page("/services");
    let style = page.split("href=\"").find(|rest| rest.contains("style.css")).unwrap();
    let path = format!("/{}", style.split('"').next().unwrap());
    let plain = browser.get(&path);
    assert_eq!(plain.header("content-type"), Some("text/css; charset=utf-8"));
    assert!(plain.header("cache-control").unwrap().contains("immutable"));
    let compressed = browser.ask("GET", &path, "Accept-Encoding: gzip\r\n", "");
    assert_eq!(compressed.header("content-encoding"), Some("gzip"));
    assert!(compressed.body.len() * 2 < plain.body.len());
    let etag = plain.header("etag").unwrap().to_owned();
    assert_eq!(browser.ask("GET", &path, &format!("If-None-Match: {etag}\r\n"), "").status, 304);
    assert_eq!(browser.get("/assets/0/style.css").status, 404);
}

#[test]
fn the_theme_is_kept_and_leads_back() {
    let gateway = with_ui();
    let mut browser = Browser::of(&gateway);
    let page = browser.page("/routes?tags=a");
    let token = inputs(&page).into_iter().find(|(name, _)| name == "form_token").unwrap().1;
    let body = format!("form_token={token}&theme=dark&back=routes%3Ftags%3Da");
    let chosen = browser.ask("POST", "/theme", "", &body);
    assert_eq!((chosen.status, chosen.header("location")), (303, Some("routes?tags=a")));
    assert!(browser.page("/").contains("data-theme=\"dark\""));
}

/// What expressions give in the page at a path, in a real browser, and what the browser complains of.
fn in_chromium(gateway: &Gateway, path: &str, expressions: &[&str]) -> Vec<serde_json::Value> {
    chromium(&format!("http://{}{path}", gateway.web_ui()), expressions)
}

#[test]
fn a_browser_shows_pages_without_a_complaint() {
    let gateway = with_ui();
    let seen =
        in_chromium(&gateway, "/", &["document.querySelector('pre.copyable button.copy').textContent"]);
    assert_eq!(seen, [json!("Copy"), json!([])]);
}

#[test]
fn the_first_page_is_small_and_asks_nothing_of_others() {
    let gateway = with_ui();
    fill(&gateway);
    gateway.get("/orders");
    // What the page fetches later, to refresh itself, is not counted.
    let loaded = "performance.getEntriesByType('resource').filter((it) => it.initiatorType !== 'fetch')";
    let all = format!("[...performance.getEntriesByType('navigation'), ...{loaded}]");
    let seen = in_chromium(
        &gateway,
        "/",
        &[
            "wait:!!document.querySelector('.tip')",
            &format!("{all}.length"),
            &format!("{all}.reduce((sum, it) => sum + it.transferSize, 0)"),
            &format!("{all}.every((it) => it.name.startsWith(location.origin))"),
        ],
    );
    let [requests, bytes] = [&seen[1], &seen[2]].map(|number| number.as_u64().unwrap());
    assert!((3..=5).contains(&requests), "{seen:?}");
    assert!((5_000..=60 << 10).contains(&bytes), "{seen:?}");
    assert_eq!(seen[3..], [json!(true), json!([])], "{seen:?}");
}

#[test]
fn a_browser_sends_forms() {
    let gateway = with_ui();
    let fill = "go:document.getElementById('field-name').value = 'orders'; \
                document.getElementById('field-host').value = '127.0.0.1'; \
                document.querySelector('form.entity button.primary').click()";
    let title = "document.querySelector('h1').textContent";
    let save = "go:document.querySelector('main button.primary').click()";
    let dark = "go:document.querySelector('button[value=dark]').click()";
    let theme = "document.documentElement.dataset.theme + ' ' + document.querySelector('h1').textContent";
    let seen = in_chromium(&gateway, "/new/services", &[fill, title, save, title, dark, theme]);
    assert_eq!(seen[3], "Service: orders", "{seen:?}");
    assert_eq!(seen[5..], [json!("dark Service: orders"), json!([])], "{seen:?}");
    assert_eq!(gateway.admin("/services/orders").status, 200);
}
