//! What an etcd holds, as entities: APISIX's objects, and what derives from those that can be translated.
use super::encryption::decrypt;
use super::message::{Event, KeyValue};
use crate::apisix::object::{Invalid, Key, Kind, Objects, id_text, object_entity, stored};
use crate::apisix::translate::{named_by, translate};
use crate::depth::{MAX_DEPTH, is_deeper};
use crate::settings::Keyring;
use crate::store::UnusableObject;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::mem;
use weir_model::entity::{Entity, EntityKind};
use weir_model::schema::Json;
use weir_model::{Change, Entities, PluginSchema, Uuid};

/// The value of the keys that stand for empty lists.
const EMPTY_LIST: &[u8] = b"init_dir";

/// Keys below the prefix that hold no objects: what nodes report, and the list of plugins of APISIX.
const OTHERS: [&str; 2] = ["data_plane/", "plugins"];

/// Whether an entity can be compiled among others; otherwise why not.
pub(crate) type Check = Box<dyn Fn(&Entity, &Entities) -> Result<(), String> + Send>;

/// The objects and their entities, as of a revision.
pub(super) struct Content {
    entities: Entities,
    /// The entities that derive from each object.
    derived: HashMap<Key, Vec<(EntityKind, Uuid)>>,
    /// The objects that are not active, by their keys below the prefix, and why.
    unusable: BTreeMap<String, String>,
    /// The objects whose newest values cannot be read, and why: what was there before stays active.
    outdated: BTreeMap<String, String>,
    /// The keys in etcd begin with this.
    prefix: String,
    keyring: Keyring,
    plugins: Vec<PluginSchema>,
    check: Check,
}

/// The objects that others may refer to.
struct Usable<'c>(&'c Content);

impl Objects for Usable<'_> {
    fn value(&self, key: &Key) -> Option<&Json> {
        let Usable(content) = self;
        let is_usable = !content.unusable.contains_key(&key.to_string());
        stored(&content.entities, key).filter(|_| is_usable).map(|object| &object.value)
    }
}

impl Content {
    pub(super) fn new(prefix: &str, keyring: Keyring, plugins: Vec<PluginSchema>, check: Check) -> Content {
        let (entities, derived, unusable, outdated) = Default::default();
        Content { entities, derived, unusable, outdated, prefix: prefix.to_owned(), keyring, plugins, check }
    }

    /// Replaces everything, but for what cannot be read now and could be read before.
    pub(super) fn replace(&mut self, pairs: Vec<KeyValue>) {
        let before = mem::take(&mut self.entities);
        (self.derived, self.unusable, self.outdated) = Default::default();
        let put = |kv| Event { kind: 0, kv: Some(kv) };
        self.follow(pairs.into_iter().map(put).collect(), &before);
    }

    pub(super) fn entities(&self) -> &Entities {
        &self.entities
    }

    pub(super) fn unusable(&self) -> Vec<UnusableObject> {
        let each =
            |(key, reason): (&String, &String)| UnusableObject { key: key.clone(), reason: reason.clone() };
        self.unusable.iter().chain(&self.outdated).map(each).collect()
    }

    /// An object without which requests might pass that it refuses: a rule for all of them that cannot be used, or a route
    /// that cannot even be closed, because nothing is known of it.
    pub(super) fn missed(&self) -> Option<String> {
        let is_missed = |name: &str| {
            key_of(name).is_ok_and(|key| match key.kind {
                Kind::GlobalRules => true,
                Kind::Routes | Kind::StreamRoutes => stored(&self.entities, &key).is_none(),
                _ => false,
            })
        };
        let (name, why) = self.unusable.iter().find(|(name, _)| is_missed(name))?;
        Some(format!(
            "{}{name} cannot be used: {why}: change or delete it, because requests would pass without it",
            self.prefix
        ))
    }

    /// Applies what has changed in etcd; returns the changes of entities.
    pub(super) fn apply(&mut self, events: Vec<Event>) -> Vec<Change> {
        self.follow(events, &Entities::default())
    }

    /// The same. Objects that cannot be read are as they were, among the entities or before.
    fn follow(&mut self, events: Vec<Event>, before: &Entities) -> Vec<Change> {
        let (mut changes, mut touched) = (Vec::new(), BTreeSet::new());
        for event in events {
            if let Some((key, change)) = self.object(event, before) {
                self.entities.restore(change.clone());
                changes.push(change);
                touched.insert(key);
            }
        }
        let mut affected: Vec<_> = self.with_dependents(touched).into_iter().collect();
        // In this order what is referred to is settled before what refers to it.
        affected.sort_by_key(|key| Kind::ALL.iter().position(|kind| *kind == key.kind));
        for key in affected {
            self.translate(key, &mut changes);
        }
        changes
    }

    /// The object that an event is about, and its change.
    fn object(&mut self, event: Event, before: &Entities) -> Option<(Key, Change)> {
        let KeyValue { key, create_revision, mod_revision, value } = event.kv?;
        let name = std::str::from_utf8(&key).ok()?.strip_prefix(&self.prefix)?.to_owned();
        if value == EMPTY_LIST || OTHERS.iter().any(|other| name.starts_with(other)) {
            return None;
        }
        let known = self.unusable.remove(&name).or(self.outdated.remove(&name));
        let is_deleted = event.kind == Event::DELETE;
        let key = match key_of(&name) {
            Ok(key) => key,
            Err(_) if is_deleted => return None,
            Err(invalid) => {
                self.set_aside(name, invalid, known);
                return None;
            }
        };
        let deleted = Change::delete(EntityKind::ApisixObjects, key.object_uuid());
        if is_deleted {
            return Some((key, deleted));
        }
        match self.read(&key, &value, [create_revision, mod_revision]) {
            Ok(entity) => Some((key, Change::put(entity))),
            Err(invalid) => {
                let Some(last) = stored(&self.entities, &key).or(stored(before, &key)).cloned() else {
                    self.set_aside(name, invalid, known);
                    return Some((key, deleted));
                };
                self.keep_last(name, invalid, known);
                Some((key, Change::put(Entity::ApisixObjects(last.into()))))
            }
        }
    }

    fn read(&self, key: &Key, value: &[u8], indices: [i64; 2]) -> Result<Entity, Invalid> {
        // The parser's message may quote a secret.
        let mut value: Json =
            serde_json::from_slice(value).map_err(|_| Invalid("it is not JSON".to_owned()))?;
        if !value.is_object() || is_deeper(&value, MAX_DEPTH - 1) {
            return Err(Invalid("it is no object, or nested too deep".to_owned()));
        }
        decrypt(key.kind, &mut value, &self.keyring);
        value[key.kind.id_field()] = key.id.clone().into();
        object_entity(key, &value, indices.map(|index| index.max(1)))
    }

    /// An object is not active. The log says so once for each reason.
    fn set_aside(&mut self, name: String, Invalid(why): Invalid, known: Option<String>) {
        if known.as_ref() != Some(&why) {
            tracing::warn!("etcd: {}{name} is not active: {why}", self.prefix);
        }
        self.unusable.insert(name, why);
    }

    /// An object stays as it was. The log says so once for each reason.
    fn keep_last(&mut self, name: String, Invalid(why): Invalid, known: Option<String>) {
        let why = format!("{why}: what it was before stays active");
        if known.as_ref() != Some(&why) {
            tracing::warn!("etcd: {}{name}: {why}", self.prefix);
        }
        self.outdated.insert(name, why);
    }

    /// These objects, and those that refer to them.
    fn with_dependents(&self, mut keys: BTreeSet<Key>) -> BTreeSet<Key> {
        loop {
            let refers = |(key, value): &(Key, &Json)| {
                !keys.contains(key)
                    && (named_by(value).any(|named| keys.contains(&named))
                        || owner(key).is_some_and(|owner| keys.contains(&owner))
                        || certificates(value).chain(metadata(value)).any(|named| keys.contains(&named)))
            };
            let found: Vec<_> = self.objects().filter(refers).map(|(key, _)| key).collect();
            if found.is_empty() {
                return keys;
            }
            keys.extend(found);
        }
    }

    fn objects(&self) -> impl Iterator<Item = (Key, &Json)> {
        self.entities.after(EntityKind::ApisixObjects, None).filter_map(|entity| match entity {
            Entity::ApisixObjects(object) => Some((Key::of(object)?, &object.value)),
            _ => None,
        })
    }

    /// Replaces what derives from an object.
    fn translate(&mut self, key: Key, changes: &mut Vec<Change>) {
        let name = key.to_string();
        let before = self.derived.remove(&key).unwrap_or_default();
        if stored(&self.entities, &key).is_none() {
            return self.forget(&before, &[], changes);
        }
        let known = self.unusable.remove(&name);
        let old: Vec<_> =
            before.iter().filter_map(|(kind, id)| self.entities.get(*kind, *id).cloned()).collect();
        match self.derive(&key) {
            Ok(entities) => self.replace_derived(key, &before, &old, entities, changes),
            Err(invalid) => {
                let closed = self.close(&key).unwrap_or_default();
                self.replace_derived(key, &before, &old, closed, changes);
                self.set_aside(name, invalid, known);
            }
        }
    }

    /// Takes what derives from an object in the place of what did before.
    fn replace_derived(
        &mut self,
        key: Key,
        before: &[(EntityKind, Uuid)],
        old: &[Entity],
        entities: Vec<Entity>,
        changes: &mut Vec<Change>,
    ) {
        let after: Vec<_> = entities.iter().map(|entity| (entity.kind(), entity.id())).collect();
        let new = entities.into_iter().filter(|entity| !old.contains(entity));
        changes.extend(new.map(Change::put));
        self.forget(before, &after, changes);
        self.derived.insert(key, after);
    }

    /// What answers in the place of a route that cannot be used. Without it, a route with less to say, and perhaps without
    /// authentication, would take its requests.
    fn close(&mut self, key: &Key) -> Option<Vec<Entity>> {
        let value = &stored(&self.entities, key).filter(|_| key.kind == Kind::Routes)?.value;
        let service = id_text(&value["service_id"]).and_then(|id| Key::new(Kind::Services, id).ok());
        let hosts =
            service.and_then(|service| Some(stored(&self.entities, &service)?.value["hosts"].clone()));
        let closed = closed_route(value, hosts);
        let broader = ["vars", "remote_addr", "remote_addrs"].iter().fold(closed.clone(), without);
        self.derive_from(key, &closed).or_else(|_| self.derive_from(key, &broader)).ok()
    }

    /// Removes what derived from an object and does no more.
    fn forget(
        &mut self,
        before: &[(EntityKind, Uuid)],
        after: &[(EntityKind, Uuid)],
        changes: &mut Vec<Change>,
    ) {
        for (kind, id) in before.iter().rev().filter(|one| !after.contains(one)) {
            let change = Change::delete(*kind, *id);
            self.entities.restore(change.clone());
            changes.push(change);
        }
    }

    /// What derives from an object, put among the entities if all of it can be compiled.
    fn derive(&mut self, key: &Key) -> Result<Vec<Entity>, Invalid> {
        if let Some(owner) = owner(key)
            && Usable(self).value(&owner).is_none()
        {
            return Err(Invalid(format!("there is no {owner}, or it is not active")));
        }
        let value = stored(&self.entities, key).map_or(Json::Null, |object| object.value.clone());
        self.derive_from(key, &value)
    }

    fn derive_from(&mut self, key: &Key, value: &Json) -> Result<Vec<Entity>, Invalid> {
        let entities = translate(key, value, &Usable(self), &self.plugins)?.entities;
        for entity in &entities {
            self.entities.restore(Change::put(entity.clone()));
        }
        let failed = entities.iter().find_map(|entity| (self.check)(entity, &self.entities).err());
        match failed {
            None => Ok(entities),
            Some(why) => {
                let gone = entities.iter().map(|entity| Change::delete(entity.kind(), entity.id()));
                gone.for_each(|change| self.entities.restore(change));
                Err(Invalid(why))
            }
        }
    }
}

/// A route with the criteria of another, that answers 503.
fn closed_route(value: &Json, hosts: Option<Json>) -> Json {
    const CRITERIA: [&str; 11] = [
        "id",
        "uri",
        "uris",
        "host",
        "hosts",
        "methods",
        "remote_addr",
        "remote_addrs",
        "vars",
        "priority",
        "status",
    ];
    let mut closed = json!({
        "upstream": { "type": "roundrobin", "nodes": { "127.0.0.1:9": 1 } },
        "plugins": { "fault-injection": { "abort": { "http_status": 503 } } },
    });
    for name in CRITERIA.into_iter().filter(|name| !value[*name].is_null()) {
        closed[name] = value[name].clone();
    }
    if let Some(hosts) =
        hosts.filter(|hosts| !hosts.is_null() && value["host"].is_null() && value["hosts"].is_null())
    {
        closed["hosts"] = hosts;
    }
    closed
}

fn without(mut value: Json, member: &&str) -> Json {
    if let Json::Object(members) = &mut value {
        members.remove(*member);
    }
    value
}

/// The object that a key below the prefix names.
fn key_of(name: &str) -> Result<Key, Invalid> {
    let known = name.split_once('/').and_then(|(kind, id)| Some((Kind::from_name(kind)?, id)));
    let (kind, id) = known.ok_or_else(|| Invalid("there are no objects of this kind here".to_owned()))?;
    Key::below(kind, id)
}

/// The consumer whose credential an object is.
fn owner(key: &Key) -> Option<Key> {
    let owner = key.owner.as_ref().filter(|_| key.kind == Kind::Credentials)?;
    Key::new(Kind::Consumers, owner.clone()).ok()
}

/// The keys of the certificates that an upstream presents.
fn certificates(value: &Json) -> impl Iterator<Item = Key> + '_ {
    let upstreams = [value, &value["upstream"]].into_iter();
    upstreams.filter_map(|upstream| Key::new(Kind::Ssls, id_text(&upstream["tls"]["client_cert_id"])?).ok())
}

/// The keys of the metadata of an object's plugins.
fn metadata(value: &Json) -> impl Iterator<Item = Key> + '_ {
    let plugins = value.get("plugins").and_then(Json::as_object);
    plugins
        .into_iter()
        .flat_map(|plugins| plugins.keys())
        .filter_map(|name| Key::new(Kind::PluginMetadata, name).ok())
}
