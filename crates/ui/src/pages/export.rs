//! An entity as a member of a declarative file, and as a command.
use super::Shown;
use super::entity::{is_reference, schema};
use super::list;
use crate::export::{curl, yaml};
use crate::kinds::Kind;
use crate::page::{Page, Visit};
use crate::schema::{Field, leaves, value_at};
use crate::texts;
use axum::http::Method;
use maud::html;
use serde_json::{Value, json};

pub(super) async fn page(visit: &Visit, kind: &Kind, id: &str) -> Shown {
    let entity = visit.api.get(&kind.path(id)).await?.body;
    let fields = schema(visit, kind, &entity).await?;
    let (given, secrets) = given(&fields, &entity);
    let command = curl(&Method::PATCH, &kind.path(id), &given, &[]);
    let content = html! {
        @if !secrets.is_empty() { p.note { (texts::marked_up("export.secrets", &[("fields", html! { @for path in &secrets { code { (path) } " " } })])) } }
        h2 { (texts::of("export.as_a_file")) }
        pre.copyable { (yaml(kind.schema(), &given)) }
        h2 { (texts::of("export.by_the_admin_api")) }
        pre.copyable { (command) }
    };
    let name = list::name(kind, &entity);
    let title = texts::filled("export.title", &[("kind", &kind.one()), ("name", &name)]);
    Ok(Page::new(kind.collection, title, content))
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
        if field.is_secret && !is_reference(value) {
            secrets.push(&*field.path);
            continue;
        }
        *field.path.split('.').fold(&mut given, |place, name| &mut place[name]) = value.clone();
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
        let expected = json!({ "name": "a" });
        assert_eq!(given(&fields, &entity), (expected, vec!["config.password"]));
    }
}
