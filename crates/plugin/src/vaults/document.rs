//! A document with secrets in the place of the references to them.
use super::{Request, SecretError, Vaults};
use crate::Definition;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use weir_model::entity::{Certificate, EntityKind, Key, Plugin, Vault};
use weir_model::schema::{FieldSchema, Json, Kind, RecordSchema};
use weir_model::{Document, SecretReference, Uuid, is_reference};

/// A document to be compiled: secrets stand in the place of the references to them.
pub struct ResolvedDocument<'d> {
    /// The document. An entity without references is the original one.
    pub document: Cow<'d, Document>,
    /// The entities that refer to secrets, about which no message may quote a value.
    pub secretive: HashSet<(EntityKind, Uuid)>,
    /// What vaults were asked for.
    pub(super) used: HashSet<SecretReference>,
}

/// Entities with secrets, so that one whose secrets have not changed is the same from one document to the next.
#[derive(Default)]
pub(super) struct ResolvedEntities(Mutex<Known>);

#[derive(Default)]
struct Known {
    certificates: HashMap<Uuid, (Arc<Certificate>, Arc<Certificate>)>,
    keys: HashMap<Uuid, (Arc<Key>, Arc<Key>)>,
    plugins: HashMap<Uuid, (Arc<Plugin>, Arc<Plugin>)>,
    /// What was logged of references that lead to no secret.
    logged: HashMap<String, String>,
}

impl Vaults {
    /// A document with the secrets of its references. One that leads to no secret becomes an empty text, which the log
    /// says. Waits for vaults whose secrets are not cached.
    pub fn resolve<'d>(
        &self,
        document: &'d Document,
        plugins: &'static [Definition],
    ) -> ResolvedDocument<'d> {
        let mut found = References::default();
        found.collect(document, plugins);
        let known = found.texts.iter().filter_map(|text| self.request(text, &document.vaults).ok());
        let known: Vec<Request> = known.collect();
        self.cache.fetch(&known);
        let used = known.into_iter().map(|request| request.reference).collect();
        if found.texts.is_empty() {
            return ResolvedDocument { document: Cow::Borrowed(document), secretive: HashSet::new(), used };
        }
        let mut resolved = document.clone();
        let mut memory = self.resolved.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *memory);
        let mut pass = Pass { vaults: self, entities: &document.vaults, before, now: &mut memory };
        found.certificates.iter().for_each(|at| pass.certificate(&mut resolved.certificates[*at]));
        found.keys.iter().for_each(|at| pass.key(&mut resolved.keys[*at]));
        found.plugins.iter().for_each(|(at, schema)| pass.plugin(&mut resolved.plugins[*at], schema));
        let ids = |kind, ids: Vec<Uuid>| ids.into_iter().map(move |id| (kind, id));
        let secretive = ids(EntityKind::Certificates, memory.certificates.keys().copied().collect())
            .chain(ids(EntityKind::Keys, memory.keys.keys().copied().collect()))
            .chain(ids(EntityKind::Plugins, memory.plugins.keys().copied().collect()))
            .collect();
        ResolvedDocument { document: Cow::Owned(resolved), secretive, used }
    }
}

/// The references of a document, and the places of the entities that have some.
#[derive(Default)]
struct References<'d> {
    texts: HashSet<&'d str>,
    certificates: Vec<usize>,
    keys: Vec<usize>,
    plugins: Vec<(usize, &'static RecordSchema)>,
}

/// Whether an entity of a document refers to secrets.
pub fn has_references(document: &Document, plugins: &'static [Definition]) -> bool {
    let mut found = References::default();
    found.collect(document, plugins);
    !found.texts.is_empty()
}

impl<'d> References<'d> {
    fn collect(&mut self, document: &'d Document, plugins: &'static [Definition]) {
        for (at, certificate) in document.certificates.iter().enumerate() {
            let texts = [Some(&certificate.cert), Some(&certificate.key)];
            let others = [certificate.cert_alt.as_ref(), certificate.key_alt.as_ref()];
            if self.add(texts.into_iter().chain(others).flatten()) {
                self.certificates.push(at);
            }
        }
        for (at, key) in document.keys.iter().enumerate() {
            let pem = key.pem.iter().flat_map(|pem| [&pem.private_key, &pem.public_key]).flatten();
            if self.add(key.jwk.iter().chain(pem)) {
                self.keys.push(at);
            }
        }
        let schemas = plugins.iter().map(|definition| (definition.name, definition.schema.config));
        let schemas: HashMap<_, _> = schemas.collect();
        for (at, plugin) in document.plugins.iter().enumerate() {
            let Some(schema) = schemas.get(&*plugin.name).copied() else { continue };
            let mut texts = Vec::new();
            in_record(&plugin.config, schema, &mut texts);
            if self.add(texts) {
                self.plugins.push((at, schema));
            }
        }
    }

    /// Adds those among the texts of an entity. Returns whether there is one.
    fn add<S: AsRef<str> + ?Sized + 'd>(&mut self, texts: impl IntoIterator<Item = &'d S>) -> bool {
        let mut found = false;
        for text in texts.into_iter().map(AsRef::as_ref).filter(|text| is_reference(text)) {
            self.texts.insert(text);
            found = true;
        }
        found
    }
}

/// Finds the texts of fields that take references.
fn in_record<'d>(record: &'d Json, schema: &RecordSchema, texts: &mut Vec<&'d str>) {
    let Some(members) = record.as_object() else { return };
    for (name, value) in members {
        if let Some(field) = schema.field(name) {
            in_value(value, &field.kind, field, texts);
        }
    }
}

fn in_value<'d>(value: &'d Json, kind: &Kind, field: &FieldSchema, texts: &mut Vec<&'d str>) {
    match (kind, value) {
        (Kind::Record(schema), value) => in_record(value, schema, texts),
        (Kind::Array(kind), Json::Array(values)) => {
            values.iter().for_each(|value| in_value(value, kind, field, texts));
        }
        (Kind::Map(kind), Json::Object(members)) => {
            members.values().for_each(|value| in_value(value, kind, field, texts));
        }
        (_, Json::String(text)) if field.takes_references() && is_reference(text) => texts.push(text),
        _ => {}
    }
}

/// One document being resolved.
struct Pass<'p> {
    vaults: &'p Vaults,
    entities: &'p [Arc<Vault>],
    before: Known,
    now: &'p mut Known,
}

impl Pass<'_> {
    fn certificate(&mut self, entity: &mut Arc<Certificate>) {
        let (original, mut resolved) = (entity.clone(), Certificate::clone(entity));
        let owner = format!("certificate {}", entity.id);
        let texts = [Some(&mut resolved.cert), Some(&mut resolved.key)];
        let others = [resolved.cert_alt.as_mut(), resolved.key_alt.as_mut()];
        texts.into_iter().chain(others).flatten().for_each(|text| self.text(text, &owner));
        *entity = unchanged(self.before.certificates.remove(&original.id), &original, resolved);
        self.now.certificates.insert(original.id, (original, entity.clone()));
    }

    fn key(&mut self, entity: &mut Arc<Key>) {
        let (original, mut resolved) = (entity.clone(), Key::clone(entity));
        let owner = format!("key {}", entity.id);
        let pem = resolved.pem.iter_mut().flat_map(|pem| [&mut pem.private_key, &mut pem.public_key]);
        resolved.jwk.iter_mut().chain(pem.flatten()).for_each(|text| self.text(text, &owner));
        *entity = unchanged(self.before.keys.remove(&original.id), &original, resolved);
        self.now.keys.insert(original.id, (original, entity.clone()));
    }

    fn plugin(&mut self, entity: &mut Arc<Plugin>, schema: &RecordSchema) {
        let (original, mut resolved) = (entity.clone(), Plugin::clone(entity));
        let owner = format!("plugin {} {}", entity.name, entity.id);
        self.record(&mut resolved.config, schema, &owner);
        *entity = unchanged(self.before.plugins.remove(&original.id), &original, resolved);
        self.now.plugins.insert(original.id, (original, entity.clone()));
    }

    fn record(&mut self, record: &mut Json, schema: &RecordSchema, owner: &str) {
        let Some(members) = record.as_object_mut() else { return };
        for (name, value) in members {
            if let Some(field) = schema.field(name) {
                self.value(value, &field.kind, field, owner);
            }
        }
    }

    fn value(&mut self, value: &mut Json, kind: &Kind, field: &FieldSchema, owner: &str) {
        match (kind, value) {
            (Kind::Record(schema), value) => self.record(value, schema, owner),
            (Kind::Array(kind), Json::Array(values)) => {
                values.iter_mut().for_each(|value| self.value(value, kind, field, owner));
            }
            (Kind::Map(kind), Json::Object(members)) => {
                members.values_mut().for_each(|value| self.value(value, kind, field, owner));
            }
            (_, Json::String(text)) if field.takes_references() => self.text(text, owner),
            _ => {}
        }
    }

    /// Puts the secret in the place of a reference, or nothing.
    fn text(&mut self, text: &mut String, owner: &str) {
        if !is_reference(text) {
            return;
        }
        let request = self.vaults.request(text, self.entities);
        match request.and_then(|request| self.vaults.cache.get(&request)) {
            Ok(secret) => *text = secret,
            Err(reason) => {
                let reference = std::mem::take(text);
                self.log(SecretError { reference, reason }, owner);
            }
        }
    }

    /// Logs that a reference leads to no secret, once for as long as that stays so.
    fn log(&mut self, error: SecretError, owner: &str) {
        let key = format!("{owner} {}", error.reference);
        let said = self.before.logged.remove(&key).or_else(|| self.now.logged.get(&key).cloned());
        if said.as_ref() != Some(&error.reason) {
            tracing::warn!("{owner}: {error}: an empty text is used until the next rotation");
        }
        self.now.logged.insert(key, error.reason);
    }
}

/// The entity of last time, if neither it nor a secret has changed.
fn unchanged<T: PartialEq>(before: Option<(Arc<T>, Arc<T>)>, original: &Arc<T>, resolved: T) -> Arc<T> {
    match before {
        Some((of, known)) if Arc::ptr_eq(&of, original) && *known == resolved => known,
        _ => Arc::new(resolved),
    }
}
