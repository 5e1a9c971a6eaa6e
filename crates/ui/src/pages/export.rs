//! An entity as a member of a declarative file, and as a command.
use super::Shown;
use super::entity::schema;
use super::list;
use crate::export::{curl, yaml};
use crate::kinds::Kind;
use crate::page::{Page, Visit};
use crate::schema::{leaves, value_at};
use axum::http::Method;
use maud::html;
use serde_json::{Map, Value};

pub(super) async fn page(visit: &Visit, kind: &Kind, id: &str) -> Shown {
    let entity = visit.api.get(&kind.path(id)).await?.body;
    let all = schema(visit, kind, &entity).await?;
    let secrets = leaves(&all).into_iter().filter(|field| field.is_secret);
    let secrets: Vec<_> = secrets.map(|field| field.path.as_str()).collect();
    let secrets: Vec<_> = secrets.into_iter().filter(|path| !value_at(&entity, path).is_null()).collect();
    let given = without_times(&entity, &secrets);
    let command = curl(&Method::PUT, &kind.path(id), &Value::Object(given.clone()), &secrets);
    let content = html! {
        @if !secrets.is_empty() { p.note { "Secrets are left out: " @for path in &secrets { code { (path) } " " } } }
        h2 { "In a declarative file, for decK too" }
        pre.copyable { (yaml(&kind.collection.replace('-', "_"), &given)) }
        h2 { "By the Admin API" }
        pre.copyable { (command) }
    };
    Ok(Page::new(kind.collection, format!("Export {} {}", kind.one, list::name(kind, &entity)), content))
}

/// The entity as one would write it.
fn without_times(entity: &Value, secrets: &[&str]) -> Map<String, Value> {
    let mut entity = entity.clone();
    for secret in secrets {
        let mut place = &mut entity;
        for name in secret.split('.') {
            place = &mut place[name];
        }
        *place = "…".into();
    }
    let members = entity.as_object().cloned().unwrap_or_default();
    let is_given = |name: &str| !matches!(name, "created_at" | "updated_at");
    members.into_iter().filter(|(name, value)| is_given(name) && !value.is_null()).collect()
}
