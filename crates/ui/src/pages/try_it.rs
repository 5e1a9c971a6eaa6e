//! How the gateway would handle a request, and why.
use super::Shown;
use crate::form::{Pairs, first, plain};
use crate::page::{Page, Visit};
use crate::texts;
use axum::http::{Method, StatusCode, Uri};
use maud::{Markup, html};
use serde_json::{Map, Value, json};

pub(super) async fn page(visit: &Visit, asked: &Pairs) -> Shown {
    Ok(render(visit, asked, html! {}))
}

/// A request that was described in the form.
pub(super) async fn send(visit: &Visit, form: &Pairs) -> Shown {
    let question = match question(first(form, "method"), first(form, "url"), headers(form)) {
        Ok(question) => question,
        Err(wrong) => return Ok(render(visit, form, html! { p.note.error role="alert" { (wrong) } })),
    };
    let answer = visit.api.send(Method::POST, "/explain", Some(&question), None).await;
    let result = match answer {
        Ok(answer) => explained(answer.body),
        Err(error) if error.status == StatusCode::BAD_REQUEST => {
            html! { p.note.error role="alert" { (texts::with_code(&error.message())) } }
        }
        Err(error) => return Err(error),
    };
    Ok(render(visit, form, result))
}

/// The request as `/explain` takes it.
fn question(method: &str, url: &str, headers: Map<String, Value>) -> Result<Value, &'static str> {
    let uri: Uri = url.trim().parse().map_err(|_| texts::of("try_it.this_is_not_a_url"))?;
    let host = uri.authority().ok_or(texts::of("try_it.the_url_has_no_host"))?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let scheme = uri.scheme_str().unwrap_or("http");
    let mut question =
        json!({ "method": method, "scheme": scheme, "host": host.host(), "path": path, "headers": headers });
    if let Some(port) = host.port_u16() {
        question["port"] = port.into();
    }
    Ok(question)
}

/// Lines `Name: value`.
fn headers(form: &Pairs) -> Map<String, Value> {
    let lines = first(form, "headers").lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.trim().to_owned(), value.trim().into())).collect()
}

fn render(visit: &Visit, given: &Pairs, result: Markup) -> Page {
    let method = Some(first(given, "method")).filter(|method| !method.is_empty()).unwrap_or("GET");
    let content = html! {
        p.about { (texts::of("try_it.which_route_a_request_matches")) }
        form.card method="post" action=(visit.at("try")) {
            (visit.proof())
            div.field { label for="method" { (texts::of("words.method")) } input id="method" name="method" value=(method) list="methods"; }
            datalist id="methods" { @for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"] { option value=(method) {} } }
            div.field {
                label for="url" { "URL" }
                input id="url" name="url" value=(first(given, "url")) placeholder="http://localhost:8000/orders?page=2" required;
            }
            div.field {
                label for="headers" { (texts::of("words.headers")) }
                textarea id="headers" name="headers" rows="3" placeholder="apikey: demo-key" { (first(given, "headers")) }
                p.help { (texts::marked_up("try_it.one_line_each", &[("line", html! { code { (texts::of("try_it.name_value")) } })])) }
            }
            button.primary { (texts::of("try_it.explain")) }
        }
        (result)
    };
    Page::new("try", texts::of("words.try_a_request"), content)
}

fn explained(mut explained: Value) -> Markup {
    // What a plugin answers may be known only when the request comes.
    if let Some(answer) = explained.get_mut("answer").filter(|it| it["status"].is_null() && it.is_object()) {
        *answer = json!({ "decided_by": answer["plugin"] });
    }
    html! {
        h2 { (texts::of("try_it.what_the_gateway_does")) }
        (tree(&explained))
    }
}

/// Whether there is nothing to show of a value.
fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

/// Any JSON, as nested lists of names and values.
fn tree(value: &Value) -> Markup {
    match value {
        Value::Object(members) => html! {
            dl.facts { @for (name, value) in members.iter().filter(|(_, value)| !is_empty(value)) { dt { (name.replace('_', " ")) } dd { (tree(value)) } } }
        },
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => html! {
            ol { @for item in items { li { (tree(item)) } } }
        },
        Value::Array(items) => html! { (items.iter().map(plain).collect::<Vec<_>>().join(", ")) },
        scalar => html! { (plain(scalar)) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_that_decides_is_shown_in_the_place_of_what_it_decides() {
        let answer =
            json!({ "upstream": null, "answer": { "status": null, "message": null, "plugin": "mocking" } });
        let page = explained(answer).into_string();
        assert!(page.contains("<dt>decided by</dt><dd>mocking</dd>") && !page.contains("upstream"), "{page}");
        let choice =
            json!({ "upstream": { "url": null, "targets": [], "decided_by": "ai-proxy" }, "answer": null });
        let page = explained(choice).into_string();
        assert!(page.contains("<dt>decided by</dt><dd>ai-proxy</dd>") && !page.contains("targets"), "{page}");
    }
}
