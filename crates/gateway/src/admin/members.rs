//! Memberships of consumer groups: the consumers of a group and the groups of a consumer, as Kong shows them.
use super::collection::{EntityPath, Membership};
use super::edit::Writer;
use super::item::tagged;
use super::representation::Representation;
use super::request::ApiRequest;
use super::resolve::look_up;
use super::response::{ApiError, UnresolvedReference, json_response};
use crate::registry::{CommittedWrite, Op};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;
use weir_model::entity::EntityKind::{ConsumerGroupConsumers, Consumers};
use weir_model::entity::{Entity, EntityKind};
use weir_model::schema::{Json, JsonMap, quoted};
use weir_model::{Entities, Uuid};

/// `GET` of a group, with its consumers. Its ETag is that of the group alone, because writes compare that one; so it
/// does not cover the consumers in the response.
pub(super) fn read_group(entity_path: EntityPath, call: &ApiRequest) -> Result<Response, ApiError> {
    let entities = call.control.registry().entities();
    let group = entity_path.resolve(&call.ids, &entities)?.existing()?;
    let lists = call.argument("list_consumers") != Some("false");
    let consumers = lists.then(|| {
        let consumers = Membership::CONSUMERS.listed(group.id(), None, &entities);
        consumers.map(|consumer| Representation::of(consumer, &entities)).collect::<Vec<_>>()
    });
    let shown = Representation::of(group, &entities);
    drop(entities);
    let (tag, shown) = (shown.etag(), shown.to_json());
    let mut body = json!({ "consumer_group": shown });
    if let Some(consumers) = consumers {
        body["consumers"] = consumers.iter().map(Representation::to_json).collect();
    }
    Ok(tagged(json_response(StatusCode::OK, &body), &tag))
}

impl Membership {
    /// The group, or consumer, that the members belong to.
    pub(super) fn owner(self, text: &str, entities: &Entities) -> Result<Uuid, ApiError> {
        look_up(self.owner, text, entities)?.found.map(Entity::id).ok_or(ApiError::NotFound)
    }

    /// The members, by id, from the one after this id.
    pub(super) fn listed(
        self,
        owner: Uuid,
        after: Option<Uuid>,
        entities: &Entities,
    ) -> impl Iterator<Item = &Entity> {
        let pairs = entities.referencing((self.owner, owner), ConsumerGroupConsumers, None);
        let mut ids: Vec<Uuid> = pairs.filter_map(|pair| self.member_of(pair)).collect();
        ids.retain(|id| after.is_none_or(|after| *id > after));
        ids.sort_unstable();
        ids.into_iter().filter_map(move |id| entities.get(self.kind, id))
    }

    /// The member that a path names, and the id of the membership entity.
    pub(super) fn member<'e>(
        self,
        owner: &str,
        text: &str,
        entities: &'e Entities,
    ) -> Result<Option<(&'e Entity, Uuid)>, ApiError> {
        let owner = self.owner(owner, entities)?;
        let Some(found) = look_up(self.kind, text, entities)?.found else { return Ok(None) };
        let (consumer, group) =
            if self.kind == Consumers { (found.id(), owner) } else { (owner, found.id()) };
        // A consumer is in few groups, while a group may have very many consumers.
        let mut pairs = entities.referencing((Consumers, consumer), ConsumerGroupConsumers, None);
        let pair = pairs.find(|pair| Membership::CONSUMERS.owner_of(pair) == Some(group));
        Ok(pair.map(|pair| (found, pair.id())))
    }

    fn member_of(self, pair: &Entity) -> Option<Uuid> {
        named(pair, self.kind)
    }

    fn owner_of(self, pair: &Entity) -> Option<Uuid> {
        named(pair, self.owner)
    }

    /// Adds those that the body names.
    pub(super) fn additions(
        self,
        ids: &[String],
        body: &JsonMap,
        writer: &Writer<'_>,
        entities: &Entities,
    ) -> Result<Vec<Op>, ApiError> {
        let owner = self.owner(ids.first().map(String::as_str).unwrap_or_default(), entities)?;
        let add = |text: &str| {
            let member = self.found(text, entities)?;
            let (consumer, group) = if self.kind == Consumers { (member, owner) } else { (owner, member) };
            let mut written = JsonMap::new();
            written.insert("consumer".to_owned(), consumer.to_string().into());
            written.insert("consumer_group".to_owned(), group.to_string().into());
            writer.entity(ConsumerGroupConsumers, written, entities).map(Op::Put)
        };
        self.texts(body)?.into_iter().map(add).collect()
    }

    /// What the body names: one, or a list.
    fn texts(self, body: &JsonMap) -> Result<Vec<&str>, ApiError> {
        let wrong = |field: &str, message: String| Err(ApiError::violation(field, message));
        if let Some(other) = body.keys().find(|name| *name != self.argument) {
            return wrong("", format!("unknown field `{other}`; there is `{}`", self.argument));
        }
        let expected = || format!("expected the name or id of one of the {}, or a list", self.kind.as_str());
        match body.get(self.argument) {
            Some(Json::String(text)) => Ok(vec![text]),
            Some(Json::Array(texts)) if !texts.is_empty() => match texts.iter().map(Json::as_str).collect() {
                Some(texts) => Ok(texts),
                None => wrong(self.argument, expected()),
            },
            Some(Json::Null) | None => wrong(self.argument, format!("required: set `{}`", self.argument)),
            Some(_) => wrong(self.argument, expected()),
        }
    }

    fn found(self, text: &str, entities: &Entities) -> Result<Uuid, ApiError> {
        let found = look_up(self.kind, text, entities)?.found.map(Entity::id);
        let key = if weir_model::rule::id(text).is_some() { "id" } else { self.kind.key().unwrap_or("id") };
        let by = || (key.to_owned(), quoted(text).into());
        found.ok_or_else(|| {
            ApiError::UnresolvedReference(UnresolvedReference {
                field: self.argument,
                kind: self.kind,
                by: by(),
            })
        })
    }

    /// Removes the member that the path names, or all of them.
    pub(super) fn removals(self, ids: &[String], entities: &Entities) -> Result<Vec<Op>, ApiError> {
        let delete = |id| Op::Delete(ConsumerGroupConsumers, id);
        match ids {
            [owner, member] => {
                let (_, pair) = self.member(owner, member, entities)?.ok_or(ApiError::NotFound)?;
                Ok(vec![delete(pair)])
            }
            [owner, ..] => {
                let owner = self.owner(owner, entities)?;
                let pairs = entities.referencing((self.owner, owner), ConsumerGroupConsumers, None);
                Ok(pairs.map(|pair| delete(pair.id())).collect())
            }
            [] => Err(ApiError::NotFound),
        }
    }

    /// The response after members were added: their owner, and the members.
    pub(super) fn added(self, written: &CommittedWrite, entities: &Entities) -> Response {
        let pairs = || written.entities().filter(|entity| entity.kind() == ConsumerGroupConsumers);
        let shown =
            |kind: EntityKind, id| Some(Representation::of(entities.get(kind, id?)?, entities).to_json());
        let owner = pairs().next().and_then(|pair| shown(self.owner, self.owner_of(pair)));
        let members: Json = pairs().filter_map(|pair| shown(self.kind, self.member_of(pair))).collect();
        let name = self.owner.as_str().trim_end_matches('s');
        json_response(StatusCode::CREATED, &json!({ name: owner, self.kind.as_str(): members }))
    }
}

/// The consumer, or the group, of a membership.
fn named(pair: &Entity, kind: EntityKind) -> Option<Uuid> {
    pair.references().into_iter().find(|reference| reference.kind == kind).map(|reference| reference.id)
}
