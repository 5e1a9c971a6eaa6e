//! A write of everything at once: `PUT configs`. Objects of a kind are replaced if its version is a later one.
use super::{Changes, ObjectWriteError, WriteContext, owned};
use crate::apisix::object::{Invalid, Key, Kind, Objects, all, id_text, stored, to_entity};
use crate::apisix::translate::translate;
use crate::registry::Op;
use serde_json::json;
use std::collections::BTreeMap;
use weir_model::Entities;
use weir_model::entity::EntityKind;
use weir_model::schema::Json;

/// What a client wants there to be.
#[derive(Clone)]
pub(crate) struct Configs {
    /// The client's own name of this state.
    pub(crate) digest: String,
    /// Lists of objects by their kinds, and versions of the lists.
    pub(crate) body: Json,
}

/// The kinds whose objects are replaced.
pub(crate) fn kinds() -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(|kind| kind.is_listed())
}

/// The field with a number that clients write with each object, and read back. It has no effect.
pub(crate) const MODIFIED_INDEX: &str = "modifiedIndex";

/// The object that holds the digest, the versions and the numbers.
pub(crate) fn state_key() -> Key {
    Key { kind: Kind::Configs, owner: None, id: "state".to_owned() }
}

/// The field with the version of the objects of a kind.
pub(crate) fn version_field(kind: Kind) -> String {
    format!("{}_conf_version", kind.name())
}

/// All objects as they will be, each with its place in the list that it comes from.
struct Wanted(BTreeMap<Key, (usize, Json)>);

impl Objects for Wanted {
    fn value(&self, key: &Key) -> Option<&Json> {
        self.0.get(key).map(|(_, value)| value)
    }
}

pub(super) fn decide(
    entities: &Entities,
    configs: &Configs,
    context: &WriteContext,
) -> Result<Vec<Op>, ObjectWriteError> {
    let state = stored(entities, &state_key()).map_or(Json::Null, |state| state.value.clone());
    if state["digest"] == configs.digest.as_str() {
        return Ok(Vec::new());
    }
    let (mut wanted, mut versions, mut indices) = (Wanted(BTreeMap::new()), json!({}), json!({}));
    for kind in kinds() {
        let (version, is_later) = version(&state["versions"], kind, &configs.body)?;
        versions[version_field(kind)] = version.into();
        if is_later {
            let (objects, of_kind) = listed(kind, &configs.body)?;
            wanted.0.extend(objects.0);
            indices[kind.name()] = of_kind;
        } else {
            indices[kind.name()] = state[MODIFIED_INDEX][kind.name()].clone();
            let kinds = [Some(kind), (kind == Kind::Consumers).then_some(Kind::Credentials)];
            let kept = kinds.into_iter().flatten().flat_map(|kind| all(entities, kind));
            wanted.0.extend(kept.map(|(key, object)| (key, (0, object.value.clone()))));
        }
    }
    let state = json!({
        "digest": configs.digest, "last_modified": context.now, "versions": versions, MODIFIED_INDEX: indices,
    });
    replace(entities, &wanted, &state, context)
}

/// The version that the objects of a kind will have, and whether they are replaced.
fn version(versions: &Json, kind: Kind, body: &Json) -> Result<(u64, bool), Invalid> {
    let field = version_field(kind);
    let now = versions[&field].as_u64().unwrap_or(0);
    match &body[&field] {
        Json::Null => Ok((now + 1, true)),
        written => match written.as_u64() {
            None => Err(Invalid(format!("{field} must be a number"))),
            Some(version) if version < now => {
                Err(Invalid(format!("{field} must be greater than or equal to ({now})")))
            }
            Some(version) => Ok((version, version > now)),
        },
    }
}

/// Removes the number from an object of the body, and returns it; null if there is none.
pub(crate) fn take_modified_index(value: &mut Json) -> Result<Json, Invalid> {
    match value.as_object_mut().and_then(|members| members.remove(MODIFIED_INDEX)) {
        Some(index) if !index.is_i64() && !index.is_u64() => {
            Err(Invalid::configuration(format!("{MODIFIED_INDEX}: expected an integer, got {index}")))
        }
        index => Ok(index.unwrap_or_default()),
    }
}

/// The objects of a kind in the body, and their numbers by their ids.
fn listed(kind: Kind, body: &Json) -> Result<(Wanted, Json), Invalid> {
    let (mut found, mut indices) = (BTreeMap::new(), json!({}));
    let list: &[Json] = match &body[kind.name()] {
        Json::Null => &[],
        Json::Array(list) => list,
        // Taken for no objects, it would delete those that there are.
        _ => return Err(Invalid(format!("invalid {}: expected a list", kind.name()))),
    };
    for (index, value) in list.iter().enumerate() {
        let wrong =
            |Invalid(why): Invalid| Invalid(format!("invalid {} at index {index}, err: {why}", kind.name()));
        let id = id_text(&value["id"]).or_else(|| id_text(&value[kind.id_field()]));
        let id = id.ok_or_else(|| wrong(Invalid(format!("missing {} id", kind.singular()))))?;
        let key = Key::below(kind, &id).map_err(wrong)?;
        let mut value = value.clone();
        let modified_index = take_modified_index(&mut value).map_err(wrong)?;
        if !modified_index.is_null() {
            indices[&id] = modified_index;
        }
        let duplicate = Invalid(format!("found duplicate id {} in {}", key.id, kind.name()));
        if found.insert(key, (index, value)).is_some() {
            return Err(duplicate);
        }
    }
    Ok((Wanted(found), indices))
}

/// The changes from what there is to what is wanted.
fn replace(
    entities: &Entities,
    wanted: &Wanted,
    state: &Json,
    context: &WriteContext,
) -> Result<Vec<Op>, ObjectWriteError> {
    let mut before = Vec::new();
    for (key, _) in Kind::ALL.into_iter().flat_map(|kind| all(entities, kind)) {
        before.push((EntityKind::ApisixObjects, key.object_uuid()));
        before.extend(owned(entities, &key, &context.plugins));
    }
    let mut after = vec![to_entity(&state_key(), state, stored(entities, &state_key()), context.index)?];
    for (key, (index, value)) in &wanted.0 {
        let wrong = |Invalid(why): Invalid| {
            Invalid(format!("invalid {} at index {index}, err: {why}", key.kind.name()))
        };
        let translated = translate(key, value, wanted, &context.plugins).map_err(wrong)?;
        after.push(to_entity(key, &translated.value, stored(entities, key), context.index)?);
        after.extend(translated.entities);
    }
    let mut changes = Changes { entities, put: Vec::new(), gone: Vec::new() };
    changes.replace(before, after);
    Ok(changes.into_ops())
}
