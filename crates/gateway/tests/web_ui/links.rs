//! Links lead within the web UI, wherever it is.
use super::{Browser, fill, unescaped, with_ui};
use crate::harness::{Gateway, Message, document, service};

/// Where a link of the page at a path leads.
fn resolved(path: &str, link: &str) -> String {
    let path = path.split('?').next().unwrap();
    if link.is_empty() || link.starts_with(['?', '#']) {
        return format!("{path}{link}");
    }
    let mut segments: Vec<_> = path[..path.rfind('/').unwrap()].split('/').collect();
    let mut link = link.strip_prefix("./").unwrap_or(link);
    while let Some(rest) = link.strip_prefix("../") {
        segments.pop();
        link = rest;
    }
    segments.push(link);
    segments.join("/")
}

/// Follows every link from the first page below a path, and returns how many there are.
fn follow_links(base: &str, ask: &dyn Fn(&str) -> Message) -> usize {
    let mut found = vec![format!("{base}/")];
    let mut at = 0;
    while let Some(path) = found.get(at).cloned() {
        at += 1;
        let response = ask(&path);
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        if !response.header("content-type").unwrap_or_default().starts_with("text/html") {
            continue;
        }
        let page = response.text();
        for link in ["href=\"", "src=\"", "action=\""].into_iter().flat_map(|name| page.split(name).skip(1)) {
            let link = resolved(&path, &unescaped(link.split('"').next().unwrap()));
            let link = link.split('#').next().unwrap().to_owned();
            let is_known = || found.iter().any(|known| known.split('?').next() == link.split('?').next());
            if !link.ends_with("/theme") && !link.is_empty() && !is_known() {
                found.push(link);
            }
        }
    }
    assert!(found.iter().all(|path| path.starts_with(base)), "{found:?}");
    found.len()
}

#[test]
fn every_link_works_below_a_path() {
    let gateway = with_ui();
    fill(&gateway);
    let configuration =
        document(&[service("/weir", gateway.web_ui(), "", "strip_path: true, preserve_host: true")], "");
    let proxy = Gateway::builder(&configuration).start();
    assert!(follow_links("/weir", &|path| proxy.get(path)) > 40, "a proxy that removes the path");
    let below =
        Gateway::empty().set("admin_gui_listen", "127.0.0.1:0").set("admin_gui_path", "/weir").start();
    fill(&below);
    assert!(follow_links("/weir", &|path| Browser::of(&below).get(path)) > 40, "admin_gui_path");
}

/// The names in the rows of a list.
fn rows(page: &str) -> Vec<String> {
    let Some((_, body)) = page.split_once("<tbody>") else { return Vec::new() };
    let rows = body.split("<th scope=\"row\">").skip(1);
    rows.map(|row| row.split('>').nth(1).unwrap().split('<').next().unwrap().to_owned()).collect()
}

#[test]
fn a_long_list_is_read_by_pages_and_can_be_entered_at_any() {
    let services: Vec<_> =
        (0..25).map(|n| service(&format!("/{n}"), "127.0.0.1:9", "tags: [all]", "")).collect();
    let gateway = Gateway::builder(&document(&services, "")).set("admin_gui_listen", "127.0.0.1:0").start();
    let mut browser = Browser::of(&gateway);
    let all = rows(&browser.page("/services?size=1000"));
    assert_eq!(all.len(), 25);
    let mut address = "/services?size=10&tags=all".to_owned();
    for (page, count) in [(1, 10), (2, 10), (3, 5)] {
        let text = browser.page(&address);
        let expected = &all[(page - 1) * 10..][..count];
        assert_eq!(rows(&text), expected, "{address}");
        let entered = browser.page(&format!("/services?size=10&tags=all&page={page}"));
        assert_eq!(rows(&entered), expected, "page {page}");
        assert!(entered.contains(&format!("name=\"page\" min=\"1\" value=\"{page}\"")), "{entered}");
        let next = text.split("rel=\"next\" href=\"").nth(1);
        assert_eq!((next.is_some(), text.contains("rel=\"prev\"")), (page < 3, page > 1), "page {page}");
        address = format!("/{}", unescaped(next.unwrap_or_default().split('"').next().unwrap()));
    }
    for nonsense in ["4", "0", "-1", "x", "99999999999999999999"] {
        let text = browser.page(&format!("/services?size=10&page={nonsense}"));
        assert_eq!(rows(&text), all[..10], "page {nonsense}");
        assert!(text.contains("is not understood"), "page {nonsense}");
    }
    assert!(!browser.page("/services").contains("name=\"page\""));
}
