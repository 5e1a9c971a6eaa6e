//! An entity as a member of a declarative file, and as a command.
use super::Shown;
use super::entity::schema;
use super::list;
use crate::export::{curl, yaml};
use crate::kinds::Kind;
use crate::page::{Page, Visit};
use crate::schema::{Field, leaves, value_at};
use axum::http::Method;
use maud::html;
use serde_json::{Value, json};

/// What stands for a secret.
const LEFT_OUT: &str = "…";

pub(super) async fn page(visit: &Visit, kind: &Kind, id: &str) -> Shown {
    let entity = visit.api.get(&kind.path(id)).await?.body;
    let fields = schema(visit, kind, &entity).await?;
    let (given, secrets) = given(&fields, &entity);
    let command = curl(&Method::PUT, &kind.path(id), &given, &[]);
    let content = html! {
        @if !secrets.is_empty() { p.note { "Secrets are left out: " @for path in &secrets { code { (path) } " " } } }
        h2 { "In a declarative file, for decK too" }
        pre.copyable { (yaml(&kind.collection.replace('-', "_"), &given)) }
        h2 { "By the Admin API" }
        pre.copyable { (command) }
    };
    Ok(Page::new(kind.collection, format!("Export {} {}", kind.one, list::name(kind, &entity)), content))
}

/// The entity as one would write it, and the paths of its secrets. What its schema does not know, such as an alias of a
/// field, is left out, because nothing says whether it is secret.
fn given<'f>(fields: &'f [Field], entity: &Value) -> (Value, Vec<&'f str>) {
    let (mut given, mut secrets) = (json!({}), Vec::new());
    for field in leaves(fields) {
        let value = value_at(entity, &field.path);
        if value.is_null() || matches!(&*field.path, "created_at" | "updated_at") {
            continue;
        }
        let place = field.path.split('.').fold(&mut given, |place, name| &mut place[name]);
        *place = if field.is_secret { LEFT_OUT.into() } else { value.clone() };
        secrets.extend(field.is_secret.then_some(&*field.path));
    }
    (given, secrets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_what_the_schema_does_not_know_are_left_out() {
        let schema = json!({ "fields": [
            { "name": { "type": "string" } },
            { "config": { "type": "record", "fields": [{ "password": { "type": "string" } }] } },
        ] });
        let entity = json!({ "name": "a", "config": { "password": "canary", "redis_password": "canary" } });
        let fields = crate::schema::fields(&schema);
        let expected = json!({ "name": "a", "config": { "password": "…" } });
        assert_eq!(given(&fields, &entity), (expected, vec!["config.password"]));
    }
}
