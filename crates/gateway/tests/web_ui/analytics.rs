//! The pages of analytics: what was sent is what they show.
use super::{Browser, COLLECTIONS, in_chromium};
use crate::harness::{Gateway, Upstream, closed_port, document, eventually, service};
use serde_json::{Value, json};

const HI: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const MISSING: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
const BROKEN: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
const HOSTILE: &str = "<img src=x onerror=alert(1)>";

/// A gateway to which these were sent: 7 with 200, 5 with 404 and 4 with 503 of an upstream, 3 without a route, 2 that no
/// upstream took, 1 that a plugin refused, and 1 of a consumer.
pub(super) struct Sent {
    pub(super) gateway: Gateway,
    fine: Upstream,
    _others: [Upstream; 2],
}

const SENT: u64 = 23;

pub(super) fn sent() -> Sent {
    let [fine, missing, broken] = [HI, MISSING, BROKEN].map(Upstream::answering);
    let services = [
        service("/fine", fine.address, "", ""),
        service("/missing", missing.address, "", ""),
        service("/broken", broken.address, "", ""),
        service("/refused", closed_port(), "retries: 0", ""),
        service("/key", fine.address, "", "plugins: [{name: key-auth}]"),
    ];
    let pool = format!(
        "upstreams:\n- {{name: pool, targets: [{{target: '{}'}}]}}\nconsumers:\n- {{username: '{HOSTILE}', keyauth_credentials: [{{key: a}}]}}\n",
        fine.address
    );
    let gateway =
        Gateway::builder(&document(&services, &pool)).set("admin_gui_listen", "127.0.0.1:0").start();
    for (path, times) in
        [("/fine", 7), ("/missing", 5), ("/broken", 4), ("/nowhere", 3), ("/refused", 2), ("/key", 1)]
    {
        (0..times).for_each(|_| drop(gateway.get(path)));
    }
    gateway.get_with("/key", "apikey: a\r\n");
    eventually("all requests are on the page", || figure(&gateway, "/", "requests") == Some(SENT));
    Sent { gateway, fine, _others: [missing, broken] }
}

/// The number in the element with an id.
fn figure(gateway: &Gateway, path: &str, id: &str) -> Option<u64> {
    let page = Browser::of(gateway).page(path);
    let (_, rest) = page.split_once(&format!(" id=\"{id}\">"))?;
    let digits: String = rest.split('<').next()?.chars().filter(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[test]
fn every_number_is_what_was_sent_and_leads_to_what_it_is_made_of() {
    let sent = sent();
    let gateway = &sent.gateway;
    for (path, total) in [
        ("/errors", 15),
        ("/errors?status=5xx", 6),
        ("/errors?status=404", 8),
        ("/errors?who=upstream-response", 9),
        ("/errors?who=upstream-failure", 2),
        ("/errors?who=gateway", 4),
        ("/errors?who=client", 0),
        ("/errors?cause=plugin+key-auth", 1),
        ("/errors?route=none", 3),
        ("/errors?route=r-missing&q=404", 5),
        ("/errors?q=r-BROKEN", 4),
    ] {
        assert_eq!(figure(gateway, path, "total"), Some(total), "{path}");
    }
    let errors = Browser::of(gateway).page("/errors");
    let first = errors.split("<time title=").nth(1).unwrap().split("</time>").next().unwrap();
    assert_eq!(first.matches(':').count(), 2, "to the minute: {first}");
    for (path, requests) in [
        ("/routes/r-fine", 7),
        ("/services/s-missing", 5),
        ("/routes/r-refused?from=-24h", 2),
        (&*format!("/addresses/{}", sent.fine.address), 8),
    ] {
        assert_eq!(figure(gateway, path, "requests"), Some(requests), "{path}");
    }
    let first = Browser::of(gateway).page("/");
    for part in [
        "upstream responded</span> <a href=\"errors?status=5xx&amp;who=upstream-response&amp;from=-10m\"><strong>4<",
        "upstream failed</span> <a href=\"errors?status=5xx&amp;who=upstream-failure&amp;from=-10m\"><strong>2<",
        "connect 2</a>",
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
}

#[test]
fn tables_have_a_row_for_what_has_no_route_and_can_be_ordered() {
    let sent = sent();
    let mut browser = Browser::of(&sent.gateway);
    let rows = |page: &str| {
        let body = page.split("<tbody>").nth(1).unwrap().split("</tbody>").next().unwrap().to_owned();
        let names = body.split("<bdi>").skip(1).map(|rest| rest.split('<').next().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    let page = browser.page("/traffic");
    assert_eq!(rows(&page)[..4], ["r-fine", "r-missing", "r-broken", "(no route)"]);
    assert_eq!(rows(&page).len(), 6);
    assert!(
        page.contains("aria-sort=\"descending\"><a href=\"traffic?by=route&amp;sort=requests\">"),
        "{page}"
    );
    let by_name = browser.page("/traffic?sort=name&q=r-");
    assert_eq!(rows(&by_name), ["r-broken", "r-fine", "r-key", "r-missing", "r-refused"]);
    let failing = browser.page("/traffic?sort=5xx&by=service");
    assert_eq!(rows(&failing)[..2], ["s-broken", "s-refused"]);
    assert_eq!(
        rows(&browser.page("/traffic?by=consumer")),
        ["(no consumer)", "&lt;img src=x onerror=alert(1)&gt;"]
    );
    let addresses = rows(&browser.page("/traffic?by=upstream&from=-24h"));
    assert_eq!(addresses[0], sent.fine.address.to_string());
    let pool = browser.page("/upstreams/pool");
    assert!(pool.contains(&format!("addresses/{}", sent.fine.address).replace(':', "%3A")), "{pool}");
}

#[test]
fn a_change_is_a_mark_on_every_chart() {
    let gateway = Gateway::empty().set("admin_gui_listen", "127.0.0.1:0").start();
    super::created(&gateway, "/services", &json!({ "name": "orders", "host": "127.0.0.1" }));
    let mut browser = Browser::of(&gateway);
    eventually("the change is on the page", || browser.page("/changes").contains("services/orders"));
    let first = browser.page("/");
    assert_eq!(first.matches("<a class=\"mark\" href=\"changes?from=").count(), 4, "{first}");
    let page = browser.page("/changes?q=nope");
    assert!(page.contains("No changes in this frame"), "{page}");
}

#[test]
fn nonsense_gives_defaults_and_a_note() {
    let sent = sent();
    let mut browser = Browser::of(&sent.gateway);
    for path in [
        "/?from=xyz",
        "/?from=-1w&to=99999999999",
        "/?from=5&to=4",
        "/traffic?by=colour",
        "/traffic?sort=nope",
        "/traffic?page=-1",
        "/errors?who=anyone",
        "/errors?status=abc",
        "/errors?sort=nope",
        "/changes?to=%E2%80%AE",
        "/routes/r-fine?from=%3Cscript%3E",
    ] {
        let page = browser.page(path);
        assert!(page.contains("the default is shown") && !page.contains("<script>"), "{path}: {page}");
    }
    for path in
        ["/traffic?page=99999999", "/traffic?q=%3Cimg+src%3Dx%3E", "/errors?route=nope&cause=%3Cimg%3E"]
    {
        assert!(!browser.page(path).contains("<img"), "{path}");
    }
}

#[test]
fn without_analytics_the_pages_say_how_to_have_them() {
    let gateway = Gateway::empty().set("admin_gui_listen", "127.0.0.1:0").set("analytics", "off").start();
    super::fill(&gateway);
    let mut browser = Browser::of(&gateway);
    for path in ["/", "/traffic", "/errors", "/changes", "/routes/orders", "/upstreams/pool", "/addresses/a"]
    {
        let page = browser.page(path);
        assert!(
            page.contains("weir start --set analytics=on") && !page.contains("id=\"pause\""),
            "{path}: {page}"
        );
    }
    let page = browser.page("/");
    assert!(COLLECTIONS.iter().all(|kind| page.contains(&format!("href=\"{kind}\""))), "{page}");
}

/// The text of the figure of all requests.
const REQUESTS: &str = "document.getElementById('requests').textContent";

#[test]
fn a_browser_refreshes_what_is_shown_and_says_when_it_cannot() {
    let sent = sent();
    let steps = [
        REQUESTS,
        "document.querySelectorAll('figure.chart svg[data-plot]').length",
        &format!("get:http://{}/fine", sent.gateway.proxy()),
        &format!("wait:{REQUESTS} === '24'"),
        "window.real = window.fetch; window.fetch = () => Promise.reject(new Error('away')); 1",
        "wait:!document.getElementById('connection').hidden",
        "/^Not connected since \\d\\d:\\d\\d:\\d\\d UTC/.test(document.getElementById('connection').textContent)",
        "document.querySelector('#live.stale #requests').textContent",
        "window.fetch = window.real; 1",
        "wait:document.getElementById('connection').hidden && !document.querySelector('.stale')",
    ];
    let seen = in_chromium(&sent.gateway, "/", &steps);
    let (yes, one) = (json!(true), json!(1));
    let expected = json!(["23", 4, 200, yes, one, yes, yes, "24", one, yes, []]);
    assert_eq!(Value::from(seen), expected);
}

#[test]
fn an_idle_page_waits_for_the_first_request() {
    let upstream = Upstream::answering(HI);
    let configuration = document(&[service("/a", upstream.address, "", "")], "");
    let gateway = Gateway::builder(&configuration).set("admin_gui_listen", "127.0.0.1:0").start();
    let steps = [
        "document.getElementById('idle').textContent.includes('curl -i http://127.0.0.1:')",
        "window.asked = 0; window.real = window.fetch; window.fetch = (...all) => { asked += 1; return real(...all); }; 1",
        "wait:asked > 2",
        "document.getElementById('connection').hidden",
        &format!("get:http://{}/a", gateway.proxy()),
        &format!("wait:{REQUESTS} === '1' && !document.getElementById('idle')"),
    ];
    let seen = in_chromium(&gateway, "/", &steps);
    assert_eq!(Value::from(seen), json!([true, 1, true, true, 200, true, []]));
}

#[test]
fn a_drag_over_a_chart_is_a_frame_of_its_own() {
    let sent = sent();
    let drag = "go:(() => {
        const chart = document.querySelector('#charts svg[data-plot]');
        const box = chart.getBoundingClientRect();
        const send = (kind, share) => chart.dispatchEvent(new PointerEvent(kind, {
            bubbles: true, button: 0, clientX: box.left + box.width * share, clientY: box.top + box.height / 2,
        }));
        send('pointermove', .6); send('pointerdown', .6); send('pointermove', .8); send('pointerup', .8);
    })()";
    let frame = "(() => {
        const asked = new URLSearchParams(location.search);
        return asked.get('to') - asked.get('from');
    })()";
    let hover = "(() => {
        const chart = document.querySelector('#charts svg[data-plot]');
        const box = chart.getBoundingClientRect();
        const at = { bubbles: true, clientX: box.left + box.width * .9, clientY: box.top + box.height / 2 };
        chart.dispatchEvent(new PointerEvent('pointermove', at));
        return document.querySelector('.tip').textContent;
    })()";
    let frames = "new Set([...document.querySelectorAll('svg[data-plot]')].map((chart) => {
        const { from, to } = JSON.parse(chart.dataset.plot);
        return `${from} ${to}`;
    })).size";
    let escape =
        "go:document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }))";
    let steps = [
        "wait:!!document.querySelector('.tip')",
        hover,
        drag,
        frame,
        frames,
        "wait:!!document.querySelector('.tip')",
        escape,
        "location.search",
    ];
    let seen = in_chromium(&sent.gateway, "/", &steps);
    assert!(seen[1].as_str().unwrap().contains(" UTC2xx "), "{seen:?}");
    let seconds = seen[3].as_f64().unwrap();
    assert!((100.0..200.0).contains(&seconds), "{seen:?}");
    assert_eq!((&seen[4], &seen[7], &seen[8]), (&json!(1), &json!(""), &json!([])), "{seen:?}");
}

#[test]
fn a_reading_is_pinned_by_a_click_or_a_key_until_escape() {
    let sent = sent();
    let chart = "document.querySelector('#charts svg[data-plot]')";
    let pointer = |share: f64, kinds: &str| {
        format!(
            "(() => {{
                const box = {chart}.getBoundingClientRect();
                const at = {{ bubbles: true, button: 0, clientX: box.left + box.width * {share}, clientY: box.top + 50 }};
                for (const kind of [{kinds}]) {chart}.dispatchEvent(new PointerEvent(kind, at));
                return 1;
            }})()"
        )
    };
    let key = |key: &str| {
        format!(
            "(document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {{ key: '{key}', bubbles: true }})), 1)"
        )
    };
    let click = pointer(0.9, "'pointermove', 'pointerdown', 'pointerup'");
    let (away, focus) =
        (pointer(0.5, "'pointermove'"), format!("({chart}.focus(), window.shown = {chart}, 1)"));
    let text = "document.querySelector('.tip.pinned:not([hidden])')?.textContent ?? ''";
    let (pinned, differs) = (
        format!("({text}).includes('UTC2xx')"),
        "document.querySelector('.tip').textContent !== window.pinned",
    );
    let keep = format!(
        "(window.pinned = {text}, window.shown = {chart}, window.asked = 0, window.real = window.fetch, window.fetch = (...all) => {{ asked += 1; return real(...all); }}, 1)"
    );
    let same = format!("({text}) === window.pinned && window.shown === {chart}");
    let [escape, enter, left, end] = ["Escape", "Enter", "ArrowLeft", "End"].map(key);
    let reading = "!document.querySelector('.tip:not(.pinned)').hidden";
    let replaced = format!("wait:window.shown !== {chart}");
    let steps = [
        "wait:!!document.querySelector('.tip.pinned')",
        &click,
        &pinned,
        &keep,
        "wait:asked > 2",
        &same,
        &away,
        differs,
        &same,
        &escape,
        text,
        &replaced,
        &focus,
        &left,
        &left,
        reading,
        &enter,
        &pinned,
        &escape,
        text,
        &end,
        reading,
        &escape,
        reading,
        "location.search",
    ];
    let seen = in_chromium(&sent.gateway, "/", &steps);
    let (yes, no, one, none) = (json!(true), json!(false), json!(1), json!(""));
    let by_pointer = [&yes, &one, &yes, &one, &yes, &yes, &one, &yes, &yes, &one, &none, &yes];
    let by_keys = [&one, &one, &one, &yes, &one, &yes, &one, &none, &one, &yes, &one, &no, &none, &json!([])];
    assert_eq!(seen.iter().collect::<Vec<_>>(), [&by_pointer[..], &by_keys[..]].concat());
}

#[test]
fn pages_of_a_consumer_and_a_route_have_their_pairs() {
    let sent = sent();
    let gateway = &sent.gateway;
    let of_route = Browser::of(gateway).page("/routes/r-key");
    let (_, pairs) = of_route.split_once("Consumers of this route").expect(&of_route);
    assert!(pairs.contains("<bdi>&lt;img src=x onerror=alert(1)&gt;</bdi>"), "{pairs}");
    let consumer = link(pairs, "../consumers/").trim_start_matches("..").replace("&amp;", "&");
    let of_consumer = Browser::of(gateway).page(consumer.split('#').next().unwrap());
    let (_, pairs) = of_consumer.split_once("Routes of this consumer").expect(&of_consumer);
    let requests = link(pairs, "../requests?").replace("&amp;", "&");
    assert!(requests.contains("&consumer=") && requests.contains("?route="), "{requests}");
    assert!(pairs.contains("<bdi>r-key</bdi>") && !pairs.contains("r-fine"), "{pairs}");
    let file = link(pairs, "../csv/top?").trim_start_matches("..").replace("&amp;", "&");
    let file = Browser::of(gateway).get(&file);
    assert!(file.text().contains(",r-key,1,"), "{}", file.text());
    assert!(!Browser::of(gateway).page("/routes/r-fine").contains("Consumers of this route"));
}

/// The first address of a page that begins so.
fn link<'p>(page: &'p str, begin: &str) -> &'p str {
    let mut addresses = page.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    addresses.find(|address| address.starts_with(begin)).unwrap_or_else(|| panic!("no {begin}: {page}"))
}

#[test]
fn counts_lead_to_requests_and_tables_are_files() {
    let sent = sent();
    let mut browser = Browser::of(&sent.gateway);
    for (path, shown) in [("/errors?status=503", 4), ("/errors?route=none", 3), ("/traffic?q=r-missing", 5)] {
        let page = browser.page(path);
        let requests = browser.page(&format!("/{}", link(&page, "requests?").replace("&amp;", "&")));
        let rows = requests.split("<tbody").nth(1).unwrap().split("</tbody>").next().unwrap();
        assert_eq!(rows.matches("<tr").count(), shown, "{path}: {rows}");
        let tail = requests.split("data-tail=\"").nth(1).unwrap().split('"').next().unwrap();
        assert!(!tail.contains("from="), "what comes is in no frame: {tail}");
    }
    for (path, part) in [
        ("/errors", ",503,"),
        ("/traffic?by=service", ",s-fine,"),
        ("/changes?from=2026-01-01", "revision"),
        ("/requests?status=404", "/missing"),
    ] {
        let page = browser.page(path);
        let file = browser.get(&format!("/{}", link(&page, "csv/").replace("&amp;", "&")));
        assert_eq!(file.status, 200, "{path}: {}", file.text());
        assert!(file.header("content-type").unwrap().starts_with("text/csv"), "{path}");
        assert!(file.header("content-disposition").unwrap().starts_with("attachment"), "{path}");
        assert!(file.text().contains(part), "{path}: {}", file.text());
    }
    assert_eq!(browser.get("/csv/nope").status, 404);
}
