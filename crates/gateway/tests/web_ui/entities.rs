//! Every kind of entity that the Admin API has is on the pages.
use super::{Browser, created, fill, with_ui};
use crate::harness::{Gateway, eventually};
use serde_json::{Value, json};
use std::collections::HashSet;

/// Collections without pages, each with the reason.
const WITHOUT_PAGES: [(&str, &str); 1] = [(
    "oauth2_tokens",
    "the gateway makes them while it serves, and each is a secret; they have no schema for a form",
)];

/// The collections of entities at the top level, which can be listed and written, as the Admin API describes itself.
fn collections(described: &Value) -> Vec<String> {
    let paths = described["paths"].as_object().unwrap();
    let lists = paths.iter().filter(|(_, operations)| {
        let is_list = operations["get"]["operationId"].as_str().is_some_and(|id| id.starts_with("list-"));
        is_list && operations["post"].is_object()
    });
    let names = lists.filter_map(|(path, _)| path.strip_prefix('/').filter(|name| !name.contains('/')));
    names.map(str::to_owned).collect()
}

/// How many collections are below one of a collection.
fn below(described: &Value, collection: &str) -> usize {
    let parent = format!("/{collection}/{{{collection}}}/");
    let paths = described["paths"].as_object().unwrap();
    paths.keys().filter(|path| path.strip_prefix(&parent).is_some_and(|rest| !rest.contains('/'))).count()
}

#[test]
fn every_collection_of_the_admin_api_has_a_list_and_a_form() {
    let gateway = with_ui();
    let described = gateway.admin("/openapi.json").json();
    let all = collections(&described);
    assert!(all.len() > 15, "{all:?}");
    let mut browser = Browser::of(&gateway);
    for (collection, reason) in WITHOUT_PAGES {
        assert!(all.iter().any(|known| known == collection) && !reason.is_empty(), "{collection}");
    }
    let has_pages = |name: &&String| WITHOUT_PAGES.iter().all(|(without, _)| without != name);
    for collection in all.iter().filter(has_pages).map(String::as_str).chain(["targets"]) {
        let form = browser.page(&format!("/new/{collection}"));
        assert!(form.contains(" name=\"") || form.contains("Which plugin"), "{collection}: {form}");
        let list = browser.get(&format!("/{collection}"));
        // Targets have a list below each upstream alone.
        assert_eq!(list.status == 200, collection != "targets", "{collection}: {}", list.text());
    }
    fill(&gateway);
    let page = browser.page("/consumers/alice");
    let forms: HashSet<_> =
        page.split("href=\"../new/").skip(1).map(|rest| rest.split('?').next().unwrap()).collect();
    // The groups of a consumer are on the pages of the groups.
    assert_eq!(forms.len(), below(&described, "consumers") - 1, "{forms:?}");
}

#[test]
fn buttons_of_one_page_have_different_names() {
    let gateway = with_ui();
    fill(&gateway);
    let mut browser = Browser::of(&gateway);
    for path in ["/consumers/alice", "/services/orders", "/upstreams/pool"] {
        let page = browser.page(path);
        let buttons: Vec<_> = page
            .split("class=\"button\"")
            .skip(1)
            .map(|rest| rest.split(['>', '<']).nth(1).unwrap())
            .collect();
        let different: HashSet<_> = buttons.iter().collect();
        assert_eq!(different.len(), buttons.len(), "{path}: {buttons:?}");
    }
}

/// A client of OAuth 2.0 that was made by a form.
fn with_client(browser: &mut Browser<'_>, gateway: &Gateway) -> String {
    let consumer = created(gateway, "/consumers", &json!({ "username": "bob" }));
    let form = format!("/new/oauth2?consumer={consumer}");
    let made = browser
        .save(&form, &[("name", "shop"), ("client_id", "shop-1"), ("redirect_uris", "https://a.test/")]);
    assert_eq!(made.status, 303, "{}", made.text());
    gateway.admin("/oauth2/shop-1").json()["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_client_of_oauth2_is_made_found_changed_and_linked() {
    let gateway = with_ui();
    let mut browser = Browser::of(&gateway);
    let id = with_client(&mut browser, &gateway);
    let link = format!("oauth2/{id}\">shop</a>");
    for path in ["/oauth2", "/consumers/bob", "/search?q=shop-1"] {
        assert!(browser.page(path).contains(&link), "{path}: {}", browser.page(path));
    }
    let secret = gateway.admin("/oauth2/shop-1").json()["client_secret"].as_str().unwrap().to_owned();
    for path in [format!("/oauth2/{id}"), format!("/edit/oauth2/{id}"), format!("/export/oauth2/{id}")] {
        assert!(!browser.page(&path).contains(&secret), "{path}");
    }
    assert_eq!(browser.save(&format!("/edit/oauth2/{id}"), &[("tags", "a")]).status, 303);
    let client = gateway.admin("/oauth2/shop-1").json();
    assert_eq!((&client["tags"], &client["client_secret"]), (&json!(["a"]), &json!(secret)));
    let change = format!("put <a href=\"oauth2/{id}\">");
    eventually("the change is listed", || browser.page("/changes").contains(&change));
    assert_eq!(browser.page("/oauth2/shop-1").matches("<h1>").count(), 1);
}
