//! What data planes with labels get.
use super::{changed, document, entity};
use crate::sync::inventory::Inventory;
use crate::sync::{Cohorts, Labels, Replacement, Selector, digests};
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use std::sync::Arc;
use weir_model::entity::{CustomEntity, CustomEntitySchema, CustomRecord, Entity, EntityKind};
use weir_model::schema::Record;
use weir_model::{Change, Document, Uuid};

/// A credential, as plugins declare them.
#[derive(Clone, PartialEq, Record)]
struct Credential {
    #[field(auto)]
    id: Uuid,
    #[field(foreign = "consumers")]
    consumer: Uuid,
}

impl CustomEntity for Credential {
    const ENTITY: &'static CustomEntitySchema = &CustomEntitySchema::of::<Self>("credentials");
}

fn credential(id: u128, consumer: u128) -> Entity {
    let (id, consumer) = (Uuid::from_u128(id), Uuid::from_u128(consumer));
    Entity::Custom(CustomRecord::new(Credential { id, consumer }))
}

fn reference(id: u128) -> Json {
    json!({ "id": Uuid::from_u128(id).to_string() })
}

fn tagged(kind: EntityKind, id: u128, tags: &[&str], rest: Json) -> Entity {
    let mut written = rest;
    written["tags"] = json!(tags);
    entity(kind, id, &written)
}

fn service(id: u128, tags: &[&str]) -> Entity {
    tagged(EntityKind::Services, id, tags, json!({ "host": "a" }))
}

fn route(id: u128, service: u128, tags: &[&str]) -> Entity {
    tagged(EntityKind::Routes, id, tags, json!({ "paths": ["/"], "service": reference(service) }))
}

fn consumer(id: u128, tags: &[&str]) -> Entity {
    tagged(EntityKind::Consumers, id, tags, json!({ "username": format!("consumer-{id}") }))
}

/// A member of a group, which stands for everything that names a consumer.
fn member(id: u128, consumer: u128) -> Entity {
    let written = json!({ "consumer": reference(consumer), "consumer_group": reference(500) });
    entity(EntityKind::ConsumerGroupConsumers, id, &written)
}

fn labels(written: &[(&str, &str)]) -> Labels {
    written.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn cohorts(document: Document) -> Cohorts {
    let selector = Selector::new(["region".to_owned(), "tier".to_owned()]);
    Cohorts::new(Arc::new([]), selector, 1, 1, Arc::new(document))
}

/// The ids of what data planes with these labels get.
fn ids(cohorts: &mut Cohorts, written: &[(&str, &str)]) -> Vec<u128> {
    let document = cohorts.of(&labels(written)).document().clone();
    let mut ids: Vec<_> = document.entities().map(|entity| entity.id().as_u128()).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn tags_select_and_what_belongs_to_an_entity_follows_it() {
    let mut cohorts = cohorts(document([
        service(1, &["region:eu", "team:payments"]),
        service(2, &["region:us", "region:asia"]),
        service(3, &["unlabelled"]),
        route(11, 1, &[]),
        route(12, 2, &[]),
        route(13, 3, &["tier:gold"]),
        consumer(21, &["region:eu", "tier:gold"]),
        consumer(22, &[]),
        credential(31, 21),
        credential(32, 22),
        member(41, 21),
    ]));
    assert_eq!(ids(&mut cohorts, &[]), [3, 22, 32]);
    assert_eq!(ids(&mut cohorts, &[("region", "eu")]), [1, 3, 11, 22, 32]);
    assert_eq!(ids(&mut cohorts, &[("region", "asia"), ("tier", "silver")]), [2, 3, 12, 22, 32]);
    let gold = [("region", "eu"), ("tier", "gold")];
    assert_eq!(ids(&mut cohorts, &gold), [1, 3, 11, 13, 21, 22, 31, 32, 41]);
}

#[test]
fn labels_that_do_not_select_share_a_cohort() {
    let mut cohorts = cohorts(document([service(1, &["region:eu"])]));
    for name in ["a", "b"] {
        cohorts.of(&labels(&[("region", "eu"), ("hostname", name)]));
    }
    assert_eq!(cohorts.identities().count(), 1);
    cohorts.retain(|labels| labels.is_empty());
    assert_eq!(cohorts.identities().count(), 0);
}

#[test]
fn without_keys_every_data_plane_gets_everything() {
    let document = Arc::new(document([service(1, &["region:eu"])]));
    let mut cohorts = Cohorts::new(Arc::new([]), Selector::default(), 1, 1, document.clone());
    assert!(Arc::ptr_eq(cohorts.of(&labels(&[("region", "us")])).document(), &document));
}

fn any_tags() -> impl Strategy<Value = Vec<&'static str>> {
    prop::sample::subsequence(vec!["region:eu", "region:us", "tier:gold", "other"], 0..3)
}

fn any_entity() -> impl Strategy<Value = Entity> {
    (0..5, 0..4_u128, 0..4_u128, any_tags()).prop_map(|(kind, id, parent, tags)| match kind {
        0 => service(id, &tags),
        1 => route(100 + id, parent, &tags),
        2 => consumer(200 + id, &tags),
        3 => member(300 + id, 200 + parent),
        _ => credential(400 + id, 200 + parent),
    })
}

fn any_changes() -> impl Strategy<Value = Vec<Change>> {
    let change =
        (any_entity(), prop::bool::weighted(0.25)).prop_map(|(entity, is_deleted)| match is_deleted {
            true => Change::delete(entity.kind(), entity.id()),
            false => Change::put(entity),
        });
    prop::collection::vec(change, 1..5)
}

const COHORTS: [&[(&str, &str)]; 4] =
    [&[], &[("region", "eu")], &[("region", "us"), ("tier", "gold")], &[("tier", "gold")]];

/// Makes each of the cohorts.
fn touch(cohorts: &mut Cohorts) {
    for written in COHORTS {
        cohorts.of(&labels(written));
    }
}

proptest! {
    /// Changes of a view lead to what selecting anew from the whole document gives.
    #[test]
    fn a_view_follows_changes(rounds in prop::collection::vec(any_changes(), 1..20)) {
        let mut all = Arc::new(document([]));
        let mut followed = cohorts(document([]));
        touch(&mut followed);
        for (changes, sequence) in rounds.into_iter().zip(2..) {
            all = changed(&all, &changes);
            followed.apply(sequence, &changes, digests(&changes));
            let mut anew = cohorts(Document::clone(&all));
            for written in COHORTS {
                let (followed, anew) = (followed.of(&labels(written)), anew.of(&labels(written)));
                prop_assert_eq!(followed.document(), anew.document());
                prop_assert_eq!(followed.inventory(), &Inventory::of(anew.document()));
            }
        }
        let mut replaced = cohorts(document([]));
        touch(&mut replaced);
        replaced.replace(9, Replacement::new(all));
        for written in COHORTS {
            prop_assert_eq!(replaced.of(&labels(written)).document(), followed.of(&labels(written)).document());
        }
    }
}
