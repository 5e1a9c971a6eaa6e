//! Writes: which entities they change, decided on the entities as they are when it is the write's turn.
use super::collection::{EntityPath, naming_fields};
use super::conditions::Conditions;
use super::immutable::{custom_schema, keeps_id, keeps_immutable, keeps_parent, keeps_plugin};
use super::kong_words::WrittenEntity;
use super::merge::merge;
use super::request_body::Body;
use super::resolve::ResolvedPath;
use super::response::{ApiError, UnresolvedReference, Verb};
use super::{form, snis};
use crate::control::Control;
use crate::registry::Op;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use weir_model::check::protocols_match;
use weir_model::entity::{Entity, EntityKind, Plugin, Route};
use weir_model::rule::expires;
use weir_model::schema::{FieldError, Json, JsonMap, Kind, RecordSchema, References, quoted};
use weir_model::{Entities, PluginSchema, ReadOptions, Uuid, config_schema, is_reference};
use weir_net::tls::ca_certificates;

/// A write that a client asks for.
pub(super) struct Edit {
    pub(super) control: Arc<Control>,
    pub(super) entity_path: EntityPath,
    /// The ids, or names, in the path.
    pub(super) ids: Vec<String>,
    pub(super) verb: Verb,
    pub(super) body: Body,
    pub(super) conditions: Conditions,
    /// Whether passwords are hashed already.
    pub(super) skip_hash: bool,
    /// Since 1970.
    pub(super) now: Duration,
}

impl Edit {
    /// The changes to make.
    pub(super) fn decide(&self, entities: &Entities) -> Result<Vec<Op>, ApiError> {
        let resolved = self.entity_path.resolve(&self.ids, entities)?;
        match self.verb {
            Verb::Create => self.create(&resolved, entities),
            Verb::Replace => self.replace(&resolved, entities),
            Verb::Update => self.update(&resolved, entities),
            Verb::Delete => self.delete(&resolved, entities),
        }
    }

    /// The upstream that loses a target by it.
    pub(super) fn deletes_target_of(&self, entities: &Entities) -> Option<Uuid> {
        let is_of_target = self.verb == Verb::Delete && self.entity_path.kind() == EntityKind::Targets;
        let resolved = is_of_target.then(|| self.entity_path.resolve(&self.ids, entities).ok())??;
        match resolved.found? {
            Entity::Targets(target) => Some(target.upstream),
            _ => None,
        }
    }

    fn create(&self, resolved: &ResolvedPath<'_>, entities: &Entities) -> Result<Vec<Op>, ApiError> {
        if let EntityPath::Members(membership) = self.entity_path {
            let writer = Writer::new(&self.control, self.now);
            return membership.additions(&self.ids, &self.body.members, &writer, entities);
        }
        let mut written = self.written(resolved.kind, None);
        resolved.fill(&mut written);
        self.put(written, resolved, !self.skip_hash, entities)
    }

    fn replace(&self, resolved: &ResolvedPath<'_>, entities: &Entities) -> Result<Vec<Op>, ApiError> {
        self.conditions.allow(resolved.found, entities)?;
        let mut written = self.written(resolved.kind, None);
        resolved.fill(&mut written);
        keep_old(&mut written, resolved);
        let ops = self.put(written, resolved, !self.skip_hash, entities)?;
        resolved.found.map_or(Ok(()), |found| keeps_immutable(&ops, found))?;
        Ok(ops)
    }

    fn update(&self, resolved: &ResolvedPath<'_>, entities: &Entities) -> Result<Vec<Op>, ApiError> {
        let found = resolved.existing()?;
        self.conditions.allow(Some(found), entities)?;
        let change = self.written(resolved.kind, Some(found));
        keeps_id(&change, found)?;
        keeps_plugin(&change, found)?;
        let of_plugin = custom_schema(found);
        let hashed = of_plugin.and_then(|schema| change.get(schema.hashed?));
        let (hash, has_password) =
            (hashed.is_some() && !self.skip_hash, hashed.is_some_and(|it| !it.is_null()));
        let mut written = members(found);
        if of_plugin.and_then(|schema| schema.ttl).is_some_and(|ttl| change.contains_key(ttl)) {
            // A `ttl` counts from now.
            written.remove("created_at");
        }
        merge(&mut written, change, resolved.kind.schema(), self.config_schema(found));
        written.insert("id".to_owned(), found.id().to_string().into());
        let ops = self.put(written, resolved, hash, entities)?;
        keeps_immutable(&ops, found)?;
        if !has_password {
            keeps_parent(&ops, found)?;
        }
        Ok(ops)
    }

    fn delete(&self, resolved: &ResolvedPath<'_>, entities: &Entities) -> Result<Vec<Op>, ApiError> {
        if let EntityPath::Members(membership) | EntityPath::Member(membership) = self.entity_path {
            return membership.removals(&self.ids, entities);
        }
        // At the top level, deleting what is not there succeeds.
        if matches!(self.entity_path, EntityPath::Entity(_)) && resolved.found.is_none() {
            self.conditions.allow(None, entities)?;
            return Ok(Vec::new());
        }
        let found = resolved.existing()?;
        if matches!(self.entity_path, EntityPath::Named(_)) {
            return Err(ApiError::Method);
        }
        self.conditions.allow(Some(found), entities)?;
        Ok(vec![Op::Delete(found.kind(), found.id())])
    }

    /// The members of the body, each value converted to its field's type; `found` is the existing entity.
    fn written(&self, kind: EntityKind, found: Option<&Entity>) -> JsonMap {
        let mut written = self.body.members.clone();
        if self.body.untyped {
            let named = written.get("name").and_then(Json::as_str);
            let schema = named.and_then(|name| config_schema(self.control.plugins(), kind, name));
            form::typed(kind, &mut written, schema.or_else(|| self.config_schema(found?)));
        }
        written
    }

    /// What declares the `config` of an entity.
    fn config_schema(&self, entity: &Entity) -> Option<&'static RecordSchema> {
        let name = match entity {
            Entity::Plugins(plugin) => &plugin.name,
            Entity::Vaults(vault) => &vault.name,
            _ => return None,
        };
        config_schema(self.control.plugins(), entity.kind(), name)
    }

    /// Puts an entity, and the entities that are written with it.
    fn put(
        &self,
        mut written: JsonMap,
        resolved: &ResolvedPath<'_>,
        hash_passwords: bool,
        entities: &Entities,
    ) -> Result<Vec<Op>, ApiError> {
        let kind = resolved.kind;
        let id = written.get("id").and_then(Json::as_str).and_then(weir_model::rule::id);
        if let Some(id) = id.filter(|id| resolved.found.is_none() && entities.get(kind, *id).is_some()) {
            return Err(ApiError::PrimaryKeyTaken(id));
        }
        let names = snis::taken(kind, &mut written)?;
        let writer = Writer { plugins: self.control.plugins(), hash_passwords, now: self.now };
        let entity = writer.entity(kind, written, entities)?;
        let id = entity.id();
        let mut ops = vec![Op::Put(entity)];
        if let Some(names) = names {
            ops.extend(snis::ops(id, &names, &writer, entities)?);
        }
        if let Some((owner, field)) = resolved.owner {
            let mut owner_written = members(owner);
            owner_written.insert(field.to_owned(), id.to_string().into());
            let writer = Writer { hash_passwords: false, ..writer };
            ops.push(Op::Put(writer.entity(owner.kind(), owner_written, entities)?));
        }
        Ok(ops)
    }
}

/// Adds what stays of an entity that is replaced. A target keeps its weight and the time of its creation unless others are
/// written; a certificate loses the server names that are not written.
fn keep_old(written: &mut JsonMap, resolved: &ResolvedPath<'_>) {
    match resolved.kind {
        EntityKind::Targets => {
            let mut old = resolved.found.map(members).unwrap_or_default();
            for field in ["weight", "created_at"] {
                if let Some(value) = old.remove(field) {
                    written.entry(field).or_insert(value);
                }
            }
        }
        // A `ttl` counts from the write, because what a client has read is what was left of it.
        EntityKind::Custom(kind)
            if resolved.found.is_some()
                && kind
                    .schema()
                    .ttl
                    .is_some_and(|ttl| written.get(ttl).is_some_and(|ttl| !ttl.is_null())) =>
        {
            written.remove("created_at");
        }
        EntityKind::Certificates => {
            written.entry("snis").or_insert_with(|| Json::Array(Vec::new()));
        }
        _ => {}
    }
}

/// Refuses references by `id` whose value is no UUID.
pub(super) fn no_ids(kind: EntityKind, written: &JsonMap) -> Result<(), ApiError> {
    let is_none = |field: &'static str| {
        let id = written.get(field)?.as_object()?.get("id").filter(|id| !id.is_null())?;
        id.as_str().and_then(weir_model::rule::id).is_none().then(|| format!("{field}.id"))
    };
    let wrong = naming_fields(kind).filter_map(|(field, _)| is_none(field));
    let violations: Vec<_> = wrong.map(|path| FieldError::new(&path, "expected a valid UUID")).collect();
    if violations.is_empty() { Ok(()) } else { Err(ApiError::schema(&violations)) }
}

/// Refuses references to vaults in the secrets of credentials, because any client could guess such a text.
fn no_guessable_secret(kind: EntityKind, written: &JsonMap) -> Result<(), ApiError> {
    let EntityKind::Custom(kind) = kind else { return Ok(()) };
    let schema = kind.schema();
    let secrets = schema.record.fields.iter();
    let secrets = secrets.filter(|field| field.is_confidential() || schema.hashed == Some(field.name));
    let mut secrets = secrets.filter_map(|field| Some((field.name, written.get(field.name)?.as_str()?)));
    let message = "references are not resolved in credentials, so this text itself would be the secret";
    match secrets.find(|(_, text)| is_reference(text)) {
        Some((field, _)) => Err(ApiError::violation(field, message)),
        None => Ok(()),
    }
}

/// An entity's members.
fn members(entity: &Entity) -> JsonMap {
    match entity.to_value() {
        Json::Object(members) => members,
        _ => JsonMap::new(),
    }
}

/// Reads what is written of entities.
#[derive(Clone, Copy)]
pub(super) struct Writer<'w> {
    plugins: &'w [PluginSchema],
    hash_passwords: bool,
    now: Duration,
}

impl<'w> Writer<'w> {
    /// A writer of entities without passwords.
    pub(super) fn new(control: &'w Control, now: Duration) -> Writer<'w> {
        Writer { plugins: control.plugins(), hash_passwords: false, now }
    }

    /// Reads an entity, with the time of now.
    pub(super) fn entity(
        &self,
        kind: EntityKind,
        mut written: JsonMap,
        entities: &Entities,
    ) -> Result<Entity, ApiError> {
        no_ids(kind, &written)?;
        no_guessable_secret(kind, &written)?;
        if let Some(unresolved) = unresolved(kind, &written, entities) {
            return Err(ApiError::UnresolvedReference(unresolved));
        }
        self.stamp(kind, &mut written);
        if let Some(digest) = certificate_digest(kind, &written) {
            written.insert("cert_digest".to_owned(), digest.into());
        }
        let references = &ByIdOrName(entities);
        let reading = ReadOptions { plugins: self.plugins, references, hash_passwords: self.hash_passwords };
        let members = Json::Object(written);
        let wrong = |errors: Vec<FieldError>| {
            let written = WrittenEntity { kind, members: &members, plugins: self.plugins };
            ApiError::Schema(written.violations(&errors))
        };
        let entity = Entity::read(kind, &members, &[], reading).map_err(wrong)?;
        has_not_expired(&entity, self.now)?;
        if let Entity::Plugins(plugin) = &entity {
            runs_for_its_routes(plugin, entities)?;
        }
        Ok(entity)
    }

    fn stamp(&self, kind: EntityKind, written: &mut JsonMap) {
        let Some(field) = kind.schema().field("created_at") else { return };
        let now = match field.kind {
            Kind::Integer(..) => Json::from(self.now.as_secs()),
            _ => (self.now.as_millis() as f64 / 1000.0).into(),
        };
        if kind.schema().field("updated_at").is_some() {
            written.insert("updated_at".to_owned(), now.clone());
        }
        if written.get("created_at").is_none_or(Json::is_null) {
            written.insert("created_at".to_owned(), now);
        }
    }
}

/// Checked when the plugin is written only: a route may change its protocols later.
fn runs_for_its_routes(plugin: &Plugin, entities: &Entities) -> Result<(), ApiError> {
    let route = plugin.route.and_then(|id| entities.get(EntityKind::Routes, id)).and_then(as_route);
    let named = plugin.service.map(|id| (EntityKind::Services, id));
    let of_service =
        named.into_iter().flat_map(|named| entities.referencing(named, EntityKind::Routes, None));
    protocols_match(plugin, route, of_service.filter_map(as_route))
        .map_err(|message| ApiError::violation("protocols", message))
}

fn as_route(entity: &Entity) -> Option<&Route> {
    match entity {
        Entity::Routes(route) => Some(route),
        _ => None,
    }
}

/// Refuses an expired authority. Only writes are checked, because a node that starts later must start.
fn has_not_expired(entity: &Entity, now: Duration) -> Result<(), ApiError> {
    let Entity::CaCertificates(authority) = entity else { return Ok(()) };
    match expires(&authority.cert) {
        Some(expires) if expires < now.as_secs().cast_signed() => {
            Err(ApiError::violation("", "certificate expired, \"Not After\" time is in the past"))
        }
        _ => Ok(()),
    }
}

/// The SHA-256 of an authority's certificate, in hexadecimal digits; none of what is no certificate.
fn certificate_digest(kind: EntityKind, written: &JsonMap) -> Option<String> {
    if kind != EntityKind::CaCertificates {
        return None;
    }
    let certificates = ca_certificates(written.get("cert")?.as_str()?).ok()?;
    let digest = Sha256::digest(certificates.first()?);
    Some(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A reference by name to an entity that is not there.
fn unresolved(kind: EntityKind, written: &JsonMap, entities: &Entities) -> Option<UnresolvedReference> {
    naming_fields(kind).find_map(|(field, kind)| {
        let named = written.get(field)?.as_object().filter(|named| !named.contains_key("id"))?;
        let (key, value) = named.iter().find(|(_, value)| value.is_string())?;
        let is_there = entities.resolve(kind.as_str(), value.as_str()?).is_some();
        let by = || (quoted(key).into_owned(), value.as_str().map(quoted).into());
        (!is_there).then(|| UnresolvedReference { field, kind, by: by() })
    })
}

/// Accepts any id: whether the entity exists is a rule across entities, with an error of its own.
struct ByIdOrName<'e>(&'e Entities);

impl References for ByIdOrName<'_> {
    fn resolve(&self, kind: &str, name: &str) -> Option<Uuid> {
        self.0.resolve(kind, name).or_else(|| weir_model::rule::id(name))
    }

    fn names(&self, kind: &str) -> Vec<&str> {
        self.0.names(kind)
    }
}
