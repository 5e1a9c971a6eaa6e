//! Making and editing an entity: a form, a review of what would change, then the change.
use super::entity::schema;
use super::list;
use super::{Shown, Submitted};
use crate::api::{Answer, ApiError};
use crate::export;
use crate::form::{self, Changed, FieldErrors, Pairs, first, plain};
use crate::format::NONE;
use crate::kinds::Kind;
use crate::page::{Page, Visit};
use crate::schema::{self, Field, leaves};
use crate::texts;
use crate::url::{query, segment};
use axum::http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::{Value, json};

/// What a form is about.
struct Subject {
    kind: &'static Kind,
    /// The id in addresses; none for a new entity.
    id: Option<String>,
    fields: Vec<Field>,
    current: Value,
    etag: Option<String>,
}

/// The form for a new entity.
pub(super) async fn create(visit: &Visit, kind: &'static Kind, asked: &Pairs) -> Shown {
    let name = first(asked, "name");
    if kind.collection == "plugins" && name.is_empty() {
        return choose_plugin(visit, asked).await;
    }
    let subject = subject(visit, kind, None, asked).await?;
    let prefilled = asked.iter().map(|(name, value)| (name.clone(), Value::String(value.clone()))).collect();
    Ok(form_page(visit, &subject, &Value::Object(prefilled), &Vec::new(), Vec::new()))
}

/// The form for an entity.
pub(super) async fn edit(visit: &Visit, kind: &'static Kind, id: &str, asked: &Pairs) -> Shown {
    let subject = subject(visit, kind, Some(id), asked).await?;
    Ok(form_page(visit, &subject, &subject.current, &Vec::new(), Vec::new()))
}

/// A form was sent: to be reviewed, or to be saved.
pub(super) async fn submit(
    visit: &Visit,
    kind: &'static Kind,
    id: Option<&str>,
    asked: &Pairs,
    sent: &Pairs,
) -> Result<Submitted, ApiError> {
    let draft = first(sent, "draft");
    let is_confirmed = !draft.is_empty();
    let stored = visit.drafts.get(draft);
    let inputs = match (is_confirmed, &stored) {
        (true, Some(inputs)) => inputs,
        (true, None) => return Ok(Submitted::Page(expired())),
        (false, _) => sent,
    };
    let subject = subject(visit, kind, id, if id.is_none() { inputs } else { asked }).await?;
    let (after, errors) = form::read(&subject.fields, inputs);
    if !errors.is_empty() || !first(sent, "back").is_empty() {
        return Ok(Submitted::Page(again(visit, &subject, inputs, &errors, Vec::new())));
    }
    let changed = match &subject.id {
        Some(_) => form::changes(&subject.fields, &subject.current, &after),
        None => form::changes(&subject.fields, &defaults(&subject.fields), &after),
    };
    if changed.is_empty() && subject.id.is_some() {
        let notes = vec![texts::of("messages.nothing_changes").to_owned()];
        return Ok(Submitted::Page(again(visit, &subject, inputs, &Vec::new(), notes)));
    }
    match is_confirmed {
        true => save(visit, &subject, inputs, &changed, first(sent, "etag"), draft).await,
        false => match check(visit, &subject, &changed).await {
            Some(error) => Ok(Submitted::Page(wrong(visit, &subject, inputs, &error))),
            None => Ok(Submitted::Page(review(visit, &subject, inputs, &changed))),
        },
    }
}

/// What is wrong with the entity as it would be. Rules across entities are checked when it is saved.
async fn check(visit: &Visit, subject: &Subject, changed: &[Changed]) -> Option<ApiError> {
    let before = if subject.id.is_some() { &subject.current } else { &Value::Null };
    let after = form::changed(&subject.fields, before, changed);
    let checked = visit.api.send(Method::POST, &subject.kind.check(), Some(&after), None).await;
    checked.err().filter(|error| error.status == StatusCode::BAD_REQUEST)
}

/// The form again, with what the Admin API says is wrong.
fn wrong(visit: &Visit, subject: &Subject, inputs: &Pairs, error: &ApiError) -> Page {
    again(visit, subject, inputs, &error.fields(), vec![error.message()]).status(error.status)
}

async fn subject(
    visit: &Visit,
    kind: &'static Kind,
    id: Option<&str>,
    asked: &Pairs,
) -> Result<Subject, ApiError> {
    let (current, etag) = match id {
        Some(id) => {
            let Answer { body, etag, .. } = visit.api.get(&kind.path(id)).await?;
            (body, etag)
        }
        None => (json!({ "name": first(asked, "name") }), None),
    };
    let fields = schema(visit, kind, &current).await?;
    Ok(Subject { kind, id: id.map(str::to_owned), fields, current, etag })
}

fn expired() -> Page {
    Page::new("", texts::of("change.expired"), html! { p { (texts::of("messages.form_expired")) } })
        .status(StatusCode::GONE)
}

/// An entity of defaults alone: what a new one differs from.
fn defaults(fields: &[Field]) -> Value {
    let each = fields.iter().map(|field| match &field.kind {
        schema::Kind::Record(inner) => (field.name.clone(), defaults(inner)),
        _ => (field.name.clone(), field.default.clone().unwrap_or_default()),
    });
    Value::Object(each.collect())
}

async fn save(
    visit: &Visit,
    subject: &Subject,
    inputs: &Pairs,
    changed: &[Changed],
    etag: &str,
    draft: &str,
) -> Result<Submitted, ApiError> {
    let (method, path) = request_line(subject, inputs);
    let if_match = Some(etag).filter(|etag| !etag.is_empty());
    match visit.api.send(method, &path, Some(&form::patch(changed)), if_match).await {
        Ok(Answer { body, .. }) => {
            visit.drafts.remove(draft);
            let id = subject.kind.id(&body);
            Ok(Submitted::Done(visit.at(&format!("{}/{}", subject.kind.collection, segment(&id)))))
        }
        Err(error) if error.status == StatusCode::PRECONDITION_FAILED => {
            let notes = vec![texts::of("messages.changed_meanwhile").to_owned()];
            Ok(Submitted::Page(again(visit, subject, inputs, &Vec::new(), notes).status(error.status)))
        }
        Err(error) if matches!(error.status, StatusCode::UNAUTHORIZED | StatusCode::NOT_FOUND) => Err(error),
        Err(error) => Ok(Submitted::Page(wrong(visit, subject, inputs, &error))),
    }
}

/// The request that saves a form.
fn request_line(subject: &Subject, inputs: &Pairs) -> (Method, String) {
    let Subject { kind, id, .. } = subject;
    if let Some(id) = id {
        return (Method::PATCH, kind.path(id));
    }
    let nested = kind.parent().and_then(|(parent, path)| {
        let id = first(inputs, parent.field);
        (!id.is_empty()).then(|| format!("{}/{path}", parent.path(id)))
    });
    (Method::POST, nested.unwrap_or_else(|| format!("/{}", kind.collection)))
}

/// The form again, with what the person has written, but for secrets.
fn again(visit: &Visit, subject: &Subject, inputs: &Pairs, errors: &FieldErrors, notes: Vec<String>) -> Page {
    let (written, _) = form::read(&subject.fields, inputs);
    let secrets = leaves(&subject.fields).into_iter().filter(|field| field.is_secret);
    let lost = secrets.filter(|field| !first(inputs, &field.path).is_empty());
    let lost = lost.map(|field| (field.path.clone(), texts::of("messages.write_again").to_owned()));
    let errors: FieldErrors = errors.iter().cloned().chain(lost).collect();
    form_page(visit, subject, &written, &errors, notes)
}

fn form_page(
    visit: &Visit,
    subject: &Subject,
    entity: &Value,
    errors: &FieldErrors,
    notes: Vec<String>,
) -> Page {
    let action = match &subject.id {
        Some(id) => format!("edit/{}/{}", subject.kind.collection, segment(id)),
        None => format!("new/{}", subject.kind.collection),
    };
    let content = html! {
        form.entity method="post" action=(visit.at(&action)) {
            (visit.proof())
            (form::inputs(&subject.fields, entity, errors))
            div.bar { button.primary { (texts::of("change.review")) } }
        }
    };
    Page::new(subject.kind.collection, title(subject), content).notes(notes)
}

fn title(subject: &Subject) -> String {
    match subject.id {
        Some(_) => texts::filled(
            "change.edit",
            &[("kind", &subject.kind.one()), ("name", &list::name(subject.kind, &subject.current))],
        ),
        None => texts::filled("list.new", &[("kind", &subject.kind.one())]),
    }
}

fn review(visit: &Visit, subject: &Subject, inputs: &Pairs, changed: &[Changed]) -> Page {
    let draft = visit.drafts.put(kept(subject, inputs));
    let (method, path) = request_line(subject, inputs);
    let hidden: Vec<_> =
        changed.iter().filter(|change| change.is_secret).map(|change| change.path.as_str()).collect();
    let command = export::curl(&method, &path, &form::patch(changed), &hidden);
    let content = html! {
        p { (texts::of("change.this_would_change")) }
        div.scroll {
            table.difference {
                caption.unseen { (texts::of("words.changes")) }
                thead { tr { th scope="col" { (texts::of("change.field")) } th scope="col" { (texts::of("change.before")) } th scope="col" { (texts::of("change.after")) } } }
                tbody { @for change in changed { (row(change)) } }
            }
        }
        form method="post" {
            (visit.proof())
            input type="hidden" name="draft" value=(draft);
            input type="hidden" name="etag" value=(subject.etag.as_deref().unwrap_or_default());
            div.bar { button.primary { (texts::of("change.save")) } button name="back" value="yes" { (texts::of("words.back")) } }
        }
        h2 { (texts::of("change.the_same_by_the_admin")) }
        pre.copyable { (command) }
    };
    Page::new(subject.kind.collection, title(subject), content)
}

/// The inputs that mean something; nothing else of what was sent is kept.
fn kept(subject: &Subject, inputs: &Pairs) -> Pairs {
    let fields = leaves(&subject.fields);
    let parent = subject.kind.parent().map(|(parent, _)| parent.field);
    let is_kept = |name: &str| parent == Some(name) || fields.iter().any(|field| field.path == name);
    inputs.iter().filter(|(name, _)| is_kept(name)).cloned().collect()
}

fn row(change: &Changed) -> Markup {
    let shown = |value: &Value| match value {
        Value::Null => html! { span.none { (NONE) } },
        _ if change.is_secret => html! { span.none { (texts::of("messages.hidden")) } },
        value => html! { code { (plain(value)) } },
    };
    html! { tr { th scope="row" { (change.path) } td { (shown(&change.before)) } td { (shown(&change.after)) } } }
}

/// The plugins to choose from.
async fn choose_plugin(visit: &Visit, asked: &Pairs) -> Shown {
    let enabled = visit.api.get("/plugins/enabled").await?.body;
    let mut names: Vec<_> = enabled["enabled_plugins"].as_array().into_iter().flatten().map(plain).collect();
    names.sort_unstable();
    let address = |name: &str| {
        let scope = asked.iter().map(|(field, value)| (field.as_str(), value.as_str()));
        visit.at(&format!("new/plugins{}", query([("name", name)].into_iter().chain(scope))))
    };
    let content = html! {
        p { (texts::of("change.which_plugin")) }
        ul.choices { @for name in &names { li { a href=(address(name)) { (name) } } } }
    };
    Ok(Page::new("plugins", texts::of("change.new_plugin"), content))
}
