//! All entities together, against a model that is slow and plain: lists that are searched from one end to the other.
#![allow(clippy::unwrap_used, missing_docs)]

use EntityKind::*;
use proptest::prelude::*;
use serde_json::json;
use weir_model::entity::{CustomKind, Entity, EntityKind, OnDelete};
use weir_model::{Change, ConstraintError, Document, Entities, ReadOptions, Uuid};

const KEYS: EntityKind = EntityKind::Custom(CustomKind::of::<crate::sample::entities::KeyAuthCredential>());

const KINDS: [EntityKind; 9] =
    [Services, Routes, Consumers, ConsumerGroups, ConsumerGroupConsumers, KEYS, Plugins, Upstreams, Targets];

/// What is done to one of few entities, so that they get in each other's way.
#[derive(Debug, Clone)]
enum Step {
    Put(Entity),
    Delete(EntityKind, Uuid),
}

fn id(number: u8) -> Uuid {
    Uuid::from_u128(number.into())
}

/// An entity of few ids, names and parents.
fn entity() -> impl Strategy<Value = Entity> {
    let parents = proptest::collection::vec(proptest::option::of(0u8..4), 3);
    (proptest::sample::select(&KINDS[..]), 0u8..4, 0u8..4, parents).prop_map(|(kind, own, name, parents)| {
        let name = format!("name-{name}");
        let to = |place: usize| parents[place].map(|number| json!({ "id": id(number) }));
        let must = |place: usize| json!({ "id": id(parents[place].unwrap_or_default()) });
        let written = match kind {
            Services => json!({ "host": "a.test", "name": parents[0].map(|_| &name) }),
            Routes => json!({ "name": name, "paths": ["/"], "service": to(0) }),
            Consumers => json!({ "username": name, "custom_id": parents[0].map(|n| n.to_string()) }),
            ConsumerGroups => json!({ "name": name }),
            ConsumerGroupConsumers => json!({ "consumer_group": must(0), "consumer": must(1) }),
            Custom(_) => json!({ "key": name, "consumer": must(0) }),
            Upstreams => json!({ "name": name }),
            Targets => json!({ "target": format!("{name}:80"), "upstream": must(0) }),
            _ => json!({ "name": "http-log", "config": { "http_endpoint": "http://a.test/" },
                         "service": to(0), "route": to(1),
                         // One of the two at most.
                         (if own < 2 { "consumer" } else { "consumer_group" }): to(2) }),
        };
        let reading = ReadOptions { plugins: crate::sample::PLUGINS, references: &(), hash_passwords: false };
        Entity::read(kind, &written, &[("id", id(own))], reading).unwrap()
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let delete = (proptest::sample::select(&KINDS[..]), 0u8..4);
    let step = prop_oneof![
        4 => entity().prop_map(Step::Put),
        1 => delete.prop_map(|(kind, number)| Step::Delete(kind, id(number))),
    ];
    proptest::collection::vec(step, 0..60)
}

/// The model.
#[derive(Debug, Clone, Default)]
struct Naive(Vec<Entity>);

impl Naive {
    fn get(&self, kind: EntityKind, id: Uuid) -> Option<&Entity> {
        self.0.iter().find(|entity| (entity.kind(), entity.id()) == (kind, id))
    }

    fn put(&mut self, entity: &Entity) -> Result<(), ConstraintError> {
        let is_itself = |other: &Entity| (other.kind(), other.id()) == (entity.kind(), entity.id());
        for unique in entity.unique_values() {
            let mut others = self.0.iter().filter(|other| other.kind() == entity.kind() && !is_itself(other));
            if let Some(other) = others.find(|other| other.unique_values().contains(&unique)) {
                return Err(ConstraintError::NotUnique { unique, by: other.id() });
            }
        }
        let references = entity.references();
        if let Some(unknown) = references.into_iter().find(|to| self.get(to.kind, to.id).is_none()) {
            return Err(ConstraintError::MissingReference(unknown));
        }
        self.0.retain(|other| !is_itself(other));
        self.0.push(entity.clone());
        Ok(())
    }

    fn delete(&mut self, kind: EntityKind, id: Uuid) -> Result<(), EntityKind> {
        let names = |entity: &Entity| {
            let mut references = entity.references().into_iter();
            references.find(|to| (to.kind, to.id) == (kind, id)).map(|to| (to.on_delete, entity.clone()))
        };
        let naming: Vec<_> = self.0.iter().filter_map(names).collect();
        if let Some((_, entity)) = naming.iter().find(|(on_delete, _)| *on_delete == OnDelete::Restrict) {
            return Err(entity.kind());
        }
        naming.iter().try_for_each(|(_, entity)| self.delete(entity.kind(), entity.id()))?;
        self.0.retain(|entity| (entity.kind(), entity.id()) != (kind, id));
        Ok(())
    }

    fn sorted(&self) -> Vec<Entity> {
        let mut all = self.0.clone();
        all.sort_by_key(|entity| (entity.kind(), entity.id()));
        all
    }
}

/// Does a step, and returns what undoes it in reverse order; nothing is changed if it is refused.
fn perform(entities: &mut Entities, step: &Step) -> Result<Vec<Change>, ConstraintError> {
    match step {
        Step::Put(entity) => {
            let before = entities.put(entity.clone())?;
            Ok(vec![before.map_or(Change::delete(entity.kind(), entity.id()), Change::put)])
        }
        Step::Delete(kind, id) => Ok(entities.delete(*kind, *id)?.into_iter().map(Change::put).collect()),
    }
}

fn after(steps: &[Step]) -> Entities {
    let mut entities = Entities::default();
    for step in steps {
        let _ = perform(&mut entities, step);
    }
    entities
}

/// Whether every way to find entities agrees with the model.
fn agree(entities: &Entities, naive: &Naive) -> Result<(), TestCaseError> {
    let all = naive.sorted();
    prop_assert_eq!(entities.iter().cloned().collect::<Vec<_>>(), naive.sorted());
    for kind in KINDS {
        let of_kind: Vec<_> = all.iter().filter(|entity| entity.kind() == kind).collect();
        prop_assert_eq!(entities.after(kind, None).collect::<Vec<_>>(), of_kind.clone());
        for name in (0..4).map(|number| format!("name-{number}")) {
            let named = kind.key().and(of_kind.iter().find(|entity| entity.name() == Some(&name)));
            prop_assert_eq!(entities.find(kind, &name), named.copied());
        }
        for (parent, number) in
            KINDS.into_iter().flat_map(|parent| (0..4).map(move |number| (parent, number)))
        {
            let names = |entity: &&&Entity| {
                entity.references().iter().any(|to| (to.kind, to.id) == (parent, id(number)))
            };
            let naming: Vec<_> = of_kind.iter().filter(names).copied().collect();
            prop_assert_eq!(
                entities.referencing((parent, id(number)), kind, None).collect::<Vec<_>>(),
                naming
            );
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn changes_are_made_or_refused_as_by_the_model(steps in steps()) {
        let (mut entities, mut naive) = (Entities::default(), Naive::default());
        for step in &steps {
            let before = naive.clone();
            let done = perform(&mut entities, step);
            match step {
                Step::Put(entity) => prop_assert_eq!(done.map(drop), naive.put(entity)),
                Step::Delete(kind, id) => {
                    let expected = naive.delete(*kind, *id).map_err(ConstraintError::StillReferenced);
                    if expected.is_err() {
                        naive = before;
                    }
                    prop_assert_eq!(done.map(drop), expected);
                }
            }
            agree(&entities, &naive)?;
        }
    }

    #[test]
    fn a_document_follows_changes(steps in steps()) {
        let (mut entities, mut document) = (Entities::default(), Document::default());
        for step in &steps {
            for Change { kind, id, .. } in perform(&mut entities, step).unwrap_or_default() {
                document.apply(&Change { kind, id, entity: entities.get(kind, id).cloned() });
            }
            prop_assert_eq!(&document, &entities.document());
        }
    }

    #[test]
    fn a_document_finds_and_lists_its_entities(steps in steps()) {
        let entities = after(&steps);
        let document = entities.document();
        for (kind, number) in KINDS.into_iter().flat_map(|kind| (0..4).map(move |number| (kind, number))) {
            let found = document.find(kind, id(number));
            prop_assert_eq!(found.as_ref(), entities.get(kind, id(number)));
        }
        let listed: Vec<_> = document.entities().collect();
        prop_assert_eq!(document.len(), listed.len());
        for (place, entity) in listed.iter().enumerate() {
            let is_before = |to: weir_model::entity::Reference| {
                listed[..place].iter().any(|other| (other.kind(), other.id()) == (to.kind, to.id))
            };
            prop_assert!(entity.references().into_iter().all(is_before), "{:?} comes too early", entity);
        }
        let mut shuffled = Document::default();
        listed.into_iter().rev().for_each(|entity| shuffled.push(entity));
        shuffled.sort();
        prop_assert!(shuffled.is_sorted());
        prop_assert_eq!(shuffled, document);
    }

    #[test]
    fn what_is_undone_in_reverse_order_never_was(first in steps(), then in steps()) {
        let mut entities = after(&first);
        let before = Naive(entities.iter().cloned().collect());
        let mut undo = Vec::new();
        for step in &then {
            undo.extend(perform(&mut entities, step).unwrap_or_default());
        }
        undo.into_iter().rev().for_each(|change| entities.restore(change));
        agree(&entities, &before)?;
    }

    #[test]
    fn what_others_changed_can_be_followed_in_any_order(
        first in steps(), then in steps(), order in any::<u64>(),
    ) {
        let mut entities = after(&first);
        let target = after(&[first, then].concat());
        let put = target.iter().cloned().map(Change::put);
        let gone = entities.iter().filter(|entity| target.get(entity.kind(), entity.id()).is_none());
        let mut changes: Vec<_> =
            gone.map(|entity| Change::delete(entity.kind(), entity.id())).chain(put).collect();
        let mut state = order | 1;
        changes.sort_by_cached_key(|_| { state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1); state >> 32 });
        changes.into_iter().for_each(|change| entities.restore(change));
        agree(&entities, &Naive(target.iter().cloned().collect()))?;
    }
}

#[test]
fn keys_expire_when_their_time_is_over() {
    let key = |number: u8, ttl: Option<i64>, created: Option<i64>| {
        let written = json!({ "key": format!("key-{number}"), "consumer": { "id": id(9) }, "ttl": ttl,
                              "created_at": created });
        let reading = ReadOptions { plugins: &[], references: &(), hash_passwords: false };
        Entity::read(KEYS, &written, &[("id", id(number))], reading).unwrap()
    };
    let lasting = [key(1, None, Some(100)), key(2, Some(0), Some(100)), key(3, Some(1), None)];
    let [early, late] = [key(4, Some(10), Some(100)), key(5, Some(20), Some(100))];
    let mut entities: Entities = lasting.iter().chain([&late, &early]).cloned().collect();
    assert!(!entities.have_expired(109));
    assert_eq!(entities.expire(109), []);
    assert!(entities.have_expired(110));
    assert_eq!(entities.expire(110), [early]);
    assert!(entities.get(KEYS, id(4)).is_none() && !entities.have_expired(110));
    // A longer time counts in place of the one before.
    entities.restore(Change::put(key(5, Some(30), Some(100))));
    assert!(!entities.have_expired(129));
    entities.restore(Change::delete(KEYS, id(5)));
    assert!(!entities.have_expired(i64::MAX));
    assert_eq!(entities.len(), lasting.len());
}
