//! What this node is, and where to begin. It is the first page where nothing is measured.
use super::Shown;
use crate::form::plain;
use crate::format::{NONE, count};
use crate::kinds::{IN_NAVIGATION, KINDS};
use crate::page::{Page, Visit};
use crate::texts;
use maud::{Markup, html};
use serde_json::Value;

/// The key of the title of the page of the node.
pub(super) const NODE: &str = "words.this_node";

/// The page; `note` is what is said first.
pub(super) async fn page(visit: &Visit, title: &str, note: Markup) -> Shown {
    let node = visit.api.get("/").await?.body;
    let status = visit.api.get("/status").await?.body;
    let services = visit.api.get("/services?size=1").await?.body;
    let is_empty = services["data"].as_array().is_some_and(Vec::is_empty);
    let content = html! {
        (note)
        (figures(&status))
        @if is_empty { (first_steps(visit, &node)) }
        section.cards aria-label=(texts::of("overview.configuration")) {
            @for kind in &KINDS[..IN_NAVIGATION] {
                a.card href=(visit.at(kind.collection)) { strong { (kind.many()) } span { (kind.about()) } }
            }
        }
        (facts(&node, &status))
    };
    Ok(Page::new(if title == NODE { "node" } else { "" }, texts::of(title), content))
}

fn figures(status: &Value) -> Markup {
    let server = &status["server"];
    let number = |name: &str| server[name].as_u64().map_or(NONE.to_owned(), count);
    html! {
        dl.figures {
            div { dt { (texts::of("overview.requests_since_the_start")) } dd { (number("total_requests")) } }
            div { dt { (texts::of("words.open_connections")) } dd { (number("connections_active")) } }
            div { dt { (texts::of("overview.revision_in_force")) } dd { (plain(&status["revision"]["in_force"])) } }
        }
        @if let Some(error) = status["revision"]["error"].as_str() {
            p.note.error role="alert" { (texts::filled("overview.not_in_force", &[("reason", &error)])) }
        }
    }
}

/// Where commands reach the Admin API.
pub(super) fn admin_api(node: &Value) -> String {
    let listener = plain(&node["configuration"]["admin_listen"][0]);
    match listener.split_once(' ') {
        _ if listener.is_empty() => "ADMIN_API".to_owned(),
        Some((address, flags)) if flags.split(' ').any(|flag| flag == "ssl") => format!("https://{address}"),
        Some((address, _)) => address.to_owned(),
        None => listener,
    }
}

/// What to do where nothing is configured.
pub(super) fn first_steps(visit: &Visit, node: &Value) -> Markup {
    let admin = admin_api(node);
    let command = format!(
        "curl -X POST {admin}/services -d name=example -d url=http://127.0.0.1:9000\n\
         curl -X POST {admin}/services/example/routes -d 'paths[]=/example'"
    );
    html! {
        div.card {
            h2 { (texts::of("overview.nothing_is_configured_yet")) }
            @if let Some(why) = visit.read_only { p { (why) } } @else {
                p { (texts::of("overview.make")) }
                pre.copyable { (command) }
            }
        }
    }
}

fn facts(node: &Value, status: &Value) -> Markup {
    let configuration = &node["configuration"];
    let rows = [
        ("Weir", env!("CARGO_PKG_VERSION").to_owned()),
        (texts::of("overview.compatible_with_kong"), plain(&node["version"])),
        (texts::of("words.host"), plain(&node["hostname"])),
        (texts::of("overview.node_id"), plain(&node["node_id"])),
        (texts::of("overview.role"), plain(&configuration["role"])),
        (texts::of("overview.database"), plain(&configuration["database"])),
        (texts::of("overview.requests_arrive_at"), listed(&configuration["proxy_listen"])),
        (texts::of("overview.admin_api"), listed(&configuration["admin_listen"])),
        (texts::of("overview.committed_revision"), plain(&status["revision"]["committed"])),
    ];
    html! {
        h2 { (texts::of("words.this_node")) }
        dl.facts { @for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) { dt { (name) } dd { (value) } } }
    }
}

fn listed(value: &Value) -> String {
    match value.as_array() {
        Some(values) => values.iter().map(plain).collect::<Vec<_>>().join(", "),
        None => plain(value),
    }
}
