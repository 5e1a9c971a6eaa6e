//! Between the names that people give to entities and those that analytics know: ids and addresses.
use super::{StatusCode, invalid};
use serde_json::{Map, Value, json};
use std::cell::OnceCell;
use std::collections::HashMap;
use weir_analytics::entities::{Entities, Entity, Kind, NONE, OTHERS};
use weir_cluster::control_plane::Member;
use weir_model::schema::{did_you_mean, quoted};
use weir_model::{Document, Uuid};

/// The names of a configuration's entities and of data planes, by kind. They are listed when they are first asked for.
pub(super) struct Names<'d> {
    document: &'d Document,
    members: &'d [Member],
    routes: OnceCell<ById<'d>>,
    services: OnceCell<ById<'d>>,
    consumers: OnceCell<ById<'d>>,
    nodes: OnceCell<ById<'d>>,
}

type ById<'d> = HashMap<Uuid, Option<&'d str>>;

impl<'d> Names<'d> {
    pub(super) fn new(document: &'d Document, members: &'d [Member]) -> Self {
        let (routes, services, consumers, nodes) = Default::default();
        Names { document, members, routes, services, consumers, nodes }
    }

    fn by_id(&self, kind: Kind) -> Option<&ById<'d>> {
        let document = self.document;
        Some(match kind {
            Kind::Route => self.routes.get_or_init(|| {
                document.routes.iter().map(|route| (route.id, route.name.as_deref())).collect()
            }),
            Kind::Service => self.services.get_or_init(|| {
                document.services.iter().map(|service| (service.id, service.name.as_deref())).collect()
            }),
            Kind::Consumer => self.consumers.get_or_init(|| {
                document
                    .consumers
                    .iter()
                    .map(|consumer| (consumer.id, consumer.username.as_deref()))
                    .collect()
            }),
            Kind::Node => self.nodes.get_or_init(|| {
                self.members.iter().map(|member| (member.id, Some(member.hostname.as_str()))).collect()
            }),
            _ => return None,
        })
    }

    /// The name of the entity with this id; none if it has none, or is gone.
    pub(super) fn name(&self, kind: Kind, id: &str) -> Option<&'d str> {
        self.by_id(kind)?.get(&id.parse().ok()?).copied().flatten()
    }

    /// Id and name of an entity; an upstream's address is both, and so is a model's name. Requests of no entity, and those of all that are not
    /// counted one by one, have no id.
    pub(super) fn of(&self, entity: Entity, entities: &Entities) -> Map<String, Value> {
        let id = entities.name(entity);
        let name = match (entity.id, &id) {
            (NONE, _) => Some("none"),
            (OTHERS, _) => Some("others"),
            (_, Some(name)) if matches!(entity.kind, Kind::Upstream | Kind::Model) => Some(&**name),
            (_, Some(id)) => self.name(entity.kind, id),
            _ => None,
        };
        Map::from_iter([("id".to_owned(), json!(id.as_deref())), ("name".to_owned(), json!(name))])
    }

    /// The id of the entity that has this name.
    fn called(&self, kind: Kind, name: &str) -> Option<Uuid> {
        let mut all = self.by_id(kind).into_iter().flatten();
        all.find(|(_, known)| **known == Some(name)).map(|(id, _)| *id)
    }

    /// The id of the configured entity that has this id or name.
    pub(super) fn configured(&self, kind: Kind, asked: &str) -> Option<Uuid> {
        let by_id =
            || asked.parse().ok().filter(|id| self.by_id(kind).is_some_and(|all| all.contains_key(id)));
        by_id().or_else(|| self.called(kind, asked))
    }

    /// What the metrics call the entity that has this id or name: by its name if it has one.
    pub(super) fn in_metrics(&self, kind: Kind, asked: &str) -> Result<String, (StatusCode, String)> {
        let id = self.configured(kind, asked).ok_or_else(|| self.unknown(kind, asked))?.to_string();
        Ok(self.name(kind, &id).map_or(id, str::to_owned))
    }

    /// The id and the name of what the metrics call so; the name alone if it is not configured. An empty name stands for
    /// requests of no entity.
    pub(super) fn of_metric(&self, kind: Kind, called: &str) -> (Option<String>, Option<String>) {
        match self.configured(kind, called) {
            _ if called.is_empty() => (None, Some("none".to_owned())),
            Some(id) => {
                let id = id.to_string();
                let name = self.name(kind, &id).map(str::to_owned);
                (Some(id), name)
            }
            None => (None, Some(called.to_owned())),
        }
    }

    /// The entity of this id, name or address; `none` stands for requests of no entity, `others` for those that are not
    /// counted one by one.
    pub(super) fn find(
        &self,
        kind: Kind,
        asked: &str,
        entities: &Entities,
    ) -> Result<Entity, (StatusCode, String)> {
        let called = self.called(kind, asked);
        let id = called.map_or_else(|| asked.to_owned(), |id| id.to_string());
        let number = match asked {
            "none" if called.is_none() => Some(NONE),
            "others" if called.is_none() => Some(OTHERS),
            _ => entities.find(kind, &id),
        };
        number.map(|number| Entity::new(kind, number)).ok_or_else(|| self.unknown(kind, asked))
    }

    /// What is counted of the entities of a question: the node without any, and the pair of two. Then these entities.
    pub(super) fn wanted(
        &self,
        asked: &[(Kind, &str)],
        entities: &Entities,
    ) -> Result<(Entity, Vec<Entity>), (StatusCode, String)> {
        let find = |(kind, asked): &(Kind, &str)| self.find(*kind, asked, entities);
        let found = asked.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        let counted = match found[..] {
            [] => Entity::NODE,
            [one] => one,
            [route, consumer, ..] => pair(consumer, route, entities)?,
        };
        Ok((counted, found))
    }

    fn unknown(&self, kind: Kind, asked: &str) -> (StatusCode, String) {
        let known = self.by_id(kind).into_iter().flatten();
        let hint = did_you_mean(asked, known.filter_map(|(_, name)| *name));
        (StatusCode::NOT_FOUND, format!("there is no {} `{}`{hint}", kind.name(), quoted(asked)))
    }
}

/// The pair of a consumer and a route. Without a request, it is that of no consumer, of which nothing is counted.
fn pair(consumer: Entity, route: Entity, entities: &Entities) -> Result<Entity, (StatusCode, String)> {
    if matches!(consumer.id, NONE | OTHERS) || route.id == OTHERS {
        return Err(invalid(
            "consumer, route: pairs are counted of a consumer and a route that have names; ask for one of the two",
        ));
    }
    Ok(Entity::new(Kind::Pair, entities.find_pair(consumer.id, route.id).unwrap_or(NONE)))
}
