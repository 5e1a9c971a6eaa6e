//! The registry over a store in memory, with a data plane that compiles and serves no traffic.
use super::*;
use crate::store::transfer::Unset;
use crate::store::{Committed, Loaded, Pending, Since, StoreError};
use serde_json::json;
use std::collections::BTreeMap;
use std::slice;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use weir_model::ReadOptions;
use weir_model::entity::{CustomEntity, CustomEntitySchema, CustomKind};
use weir_model::schema::{Json, Record};
use weir_net::tls::default_certificate;
use weir_proxy::{Compiler, Retained};

/// Keeps entities until the test ends, and what was committed in which order.
#[derive(Default)]
struct Memory {
    commits: Mutex<Vec<Vec<Change>>>,
    /// How the next commits fail.
    faults: Mutex<Vec<Fault>>,
    /// So many revisions are forgotten.
    forgotten: Mutex<u64>,
    changed: Notify,
}

#[derive(Clone, Copy)]
enum Fault {
    /// The store is away.
    Away,
    /// It goes away before it can say that it has committed.
    AnswerLost,
    /// It has a defect.
    Panic,
}

fn away() -> StoreError {
    StoreError::Unavailable("the store is away".to_owned())
}

impl Memory {
    fn commits(&self) -> MutexGuard<'_, Vec<Vec<Change>>> {
        self.commits.lock().unwrap()
    }

    /// Another node commits; this one is not notified.
    fn commit_elsewhere(&self, changes: Vec<Change>) {
        self.commits().push(changes);
    }

    fn revision(&self) -> Revision {
        Revision(self.commits().len() as u64)
    }
}

impl Store for Memory {
    fn load(&self) -> Pending<'_, Loaded> {
        let mut entities = BTreeMap::new();
        for change in self.commits().iter().flatten() {
            entities.insert((change.kind, change.id), change.entity.clone());
        }
        let entities = entities.into_values().flatten().collect();
        let loaded = Loaded { revision: self.revision(), entities };
        Box::pin(async { Ok(loaded) })
    }

    fn commit<'a>(&'a self, base: Revision, changes: &'a [Change]) -> Pending<'a, Committed> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            if base != self.revision() {
                return Ok(Committed::Outdated);
            }
            let fault = self.faults.lock().unwrap().pop();
            match fault {
                Some(Fault::Away) => return Err(away()),
                Some(Fault::Panic) => panic!("as the test wants"),
                Some(Fault::AnswerLost) | None => {}
            }
            self.commits().push(changes.to_vec());
            if fault.is_some() { Err(away()) } else { Ok(Committed::At(self.revision())) }
        })
    }

    fn since(&self, revision: Revision) -> Pending<'_, Since> {
        Box::pin(async move {
            if revision.0 < *self.forgotten.lock().unwrap() {
                return Ok(Since::Lost);
            }
            let changes = self.commits().iter().skip(revision.0 as usize).flatten().cloned().collect();
            Ok(Since::Changes { revision: self.revision(), changes })
        })
    }

    fn changed(&self) -> Pending<'_, ()> {
        Box::pin(async {
            self.changed.notified().await;
            Ok(())
        })
    }
}

/// Compiles, and notes how many routes it was given. Where there is a gate, waits until it is opened.
struct Plane {
    compiler: Compiler,
    gate: Mutex<Option<std::sync::mpsc::Receiver<()>>>,
    asked: Notify,
    published: Mutex<Vec<usize>>,
}

impl DataPlane for Plane {
    fn check(&self, entity: &Entity, others: &Entities) -> Result<(), CompileError> {
        self.compiler.check(entity, others)
    }

    fn publish(&self, document: &Document) -> Result<(), Vec<CompileError>> {
        self.asked.notify_one();
        if let Some(gate) = self.gate.lock().unwrap().take() {
            let _ = gate.recv();
        }
        self.compiler.compile(document)?;
        self.published.lock().unwrap().push(document.routes.len());
        Ok(())
    }
}

fn plane() -> Arc<Plane> {
    let compiler = Compiler {
        workers: 1,
        default_certificate: default_certificate(None).unwrap(),
        client_certificate: None,
        trusted_certificates: Vec::new(),
        upstream_verification: Default::default(),
        log_tls_verify: true,
        router_flavor: weir_router::Flavor::default(),
        plugins: weir_plugins::PLUGINS,
        retained: Arc::new(Retained::default()),
    };
    let (gate, asked, published) = (Mutex::default(), Notify::new(), Mutex::default());
    Arc::new(Plane { compiler, gate, asked, published })
}

fn registry() -> (Arc<Memory>, Arc<Plane>, Registry) {
    let (store, plane) = (Arc::new(Memory::default()), plane());
    let registry =
        Registry::stored(plane.clone(), store.clone(), Revision::default(), Entities::default(), &[])
            .unwrap();
    (store, plane, registry)
}

fn entity(kind: EntityKind, number: u128, written: Json) -> Entity {
    let reading = ReadOptions { plugins: &[], references: &(), hash_passwords: false };
    Entity::read(kind, &written, &[("id", Uuid::from_u128(number))], reading).unwrap()
}

fn service(number: u128) -> Entity {
    entity(EntityKind::Services, number, json!({ "name": format!("service-{number}"), "host": "a.test" }))
}

/// A good regex that no node would compile.
const TOO_LARGE: &str = "~/(a{1000}){1000}";

fn route(number: u128, path: &str) -> Entity {
    entity(EntityKind::Routes, number, json!({ "name": format!("route-{number}"), "paths": [path] }))
}

fn route_of(number: u128, service: u128) -> Entity {
    let service = json!({ "id": Uuid::from_u128(service) });
    entity(EntityKind::Routes, number, json!({ "paths": ["/"], "service": service }))
}

/// Decides to put these, whatever there is.
fn put<const N: usize>(
    entities: [Entity; N],
) -> impl FnMut(&Entities) -> Result<Vec<Op>, String> + Send + 'static {
    move |_| Ok(entities.iter().cloned().map(Op::Put).collect())
}

fn all(registry: &Registry) -> Vec<Entity> {
    registry.entities().iter().cloned().collect()
}

#[tokio::test]
async fn writes_that_wait_are_decided_one_after_the_other_and_committed_together() {
    let (store, _, registry) = registry();
    let (one, two, taken, none) = tokio::join!(
        registry.write(put([service(1)])),
        registry.write(|entities: &Entities| {
            let named = entities.find(EntityKind::Services, "service-1").map(Entity::id);
            let id = named.ok_or("the service is not there yet")?;
            Ok::<_, &str>(vec![Op::Put(route_of(2, id.as_u128()))])
        }),
        registry.write(put([entity(
            EntityKind::Services,
            3,
            json!({ "name": "service-1", "host": "b.test" })
        )])),
        registry.write(|_: &Entities| Err::<Vec<Op>, _>("not today")),
    );
    assert_eq!(one.unwrap().revision, Revision(1));
    assert_eq!(
        two.unwrap(),
        CommittedWrite { revision: Revision(1), changes: vec![Change::put(route_of(2, 1))] }
    );
    assert!(
        matches!(taken, Err(WriteError::Refused(ConstraintError::NotUnique { by, .. })) if by == Uuid::from_u128(1))
    );
    assert_eq!(none, Err(WriteError::Rejected("not today")));
    assert_eq!(*store.commits(), [[Change::put(service(1)), Change::put(route_of(2, 1))]]);
    assert_eq!(all(&registry), [service(1), route_of(2, 1)]);
}

#[tokio::test]
async fn a_write_of_which_a_part_cannot_be_done_changes_nothing() {
    let (store, _, registry) = registry();
    registry.write(put([service(1), route_of(2, 1)])).await.unwrap();
    let before = all(&registry);
    let refused = registry.write(|_: &Entities| {
        let delete = |kind, number| Op::Delete(kind, Uuid::from_u128(number));
        Ok::<_, ()>(vec![Op::Put(service(3)), Op::Put(service(1)), delete(EntityKind::Services, 1)])
    });
    assert_eq!(refused.await, Err(WriteError::Refused(ConstraintError::StillReferenced(EntityKind::Routes))));
    let uncompilable = registry.write(put([service(4), route(5, TOO_LARGE)])).await;
    assert!(matches!(uncompilable, Err(WriteError::Uncompilable(error)) if error.entity == "route route-5"));
    assert_eq!(all(&registry), before);
    assert_eq!(store.commits().len(), 1);
    // What is left of either would be in the way now.
    registry.write(put([service(3), service(4), route(5, "/")])).await.unwrap();
}

#[tokio::test]
async fn what_goes_along_with_what_is_deleted_is_told() {
    let (_, _, registry) = registry();
    let consumer = entity(EntityKind::Consumers, 1, json!({ "username": "alice" }));
    let owner = json!({ "id": Uuid::from_u128(1) });
    let key = entity(KEYS, 2, json!({ "key": "secret", "consumer": owner }));
    registry.write(put([consumer, key])).await.unwrap();
    let delete = |_: &Entities| Ok::<_, ()>(vec![Op::Delete(EntityKind::Consumers, Uuid::from_u128(1))]);
    let written = registry.write(delete).await.unwrap();
    let gone = [(KEYS, 2), (EntityKind::Consumers, 1)];
    assert_eq!(written.changes, gone.map(|(kind, number)| Change::delete(kind, Uuid::from_u128(number))));
    assert_eq!(
        registry.write(delete).await.unwrap(),
        CommittedWrite { revision: Revision(2), changes: Vec::new() }
    );
}

#[tokio::test]
async fn what_was_decided_before_another_node_committed_is_decided_anew() {
    let (store, _, registry) = registry();
    store.commit_elsewhere(vec![Change::put(service(1))]);
    let mut times = 0;
    let written = registry.write(move |entities: &Entities| {
        times += 1;
        Ok::<_, ()>(vec![Op::Put(route(times, &format!("/{}", entities.len())))])
    });
    assert_eq!(written.await.unwrap().changes, [Change::put(route(2, "/1"))]);
    assert_eq!((registry.revision(), all(&registry)), (Revision(2), vec![service(1), route(2, "/1")]));
    // So is what was decided rejection.
    store.commit_elsewhere(vec![Change::put(service(3))]);
    registry.write(put([route_of(4, 3)])).await.unwrap();
}

/// To compile a large batch may take longer than other nodes may commit first.
#[tokio::test]
async fn what_takes_long_to_decide_is_decided_anew_a_few_times() {
    let (store, plane) = (Arc::new(Memory::default()), plane());
    let active = ActiveConfiguration {
        revision: Revision(0),
        hash: state::hash(Revision(0)),
        document: Document::default(),
    };
    let state = Arc::new(state::RegistryState::new(Entities::default(), active));
    let draft = Draft::of(Entities::default(), [].into());
    let mut writer = Writer::new(state, plane, store.clone(), draft).unwrap();
    writer.max_contention = Duration::ZERO;
    let (writes, queue) = mpsc::channel(1);
    tokio::spawn(writer.run(queue));
    // Another node commits first so many times.
    for (mut left, is_written) in [(2, true), (3, false)] {
        let elsewhere = store.clone();
        let (write, answer) = QueuedWrite::new(move |_: &Entities| {
            if left > 0 {
                elsewhere.commit_elsewhere(vec![Change::put(service(left))]);
                left -= 1;
            }
            Ok::<_, ()>(vec![Op::Put(service(9))])
        });
        writes.send(Box::new(write)).await.unwrap();
        let outcome = answer.await.unwrap();
        assert_eq!(outcome.is_ok(), is_written, "{outcome:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_committed_never_was() {
    let (store, _, registry) = registry();
    registry.write(put([service(1)])).await.unwrap();
    store.faults.lock().unwrap().push(Fault::Away);
    let refused = registry.write(put([service(2), route_of(3, 1)])).await;
    assert_eq!(refused, Err(WriteError::Unavailable("the store is away".to_owned())));
    assert_eq!((all(&registry), registry.is_reachable()), (vec![service(1)], false));
    registry.write(put([service(4)])).await.unwrap();
    assert_eq!((all(&registry), registry.is_reachable()), (vec![service(1), service(4)], true));
}

#[tokio::test]
async fn a_writer_that_panicked_is_seen_as_a_store_that_cannot_be_reached() {
    let (store, plane, registry) = registry();
    registry.write(put([route(1, "/")])).await.unwrap();
    store.faults.lock().unwrap().push(Fault::Panic);
    assert!(registry.write(put([route(2, "/")])).await.is_err());
    let noticed = async {
        while registry.is_reachable() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), noticed).await.unwrap();
    assert!(registry.write(put([route(2, "/")])).await.is_err());
    assert_eq!(registry.catch_up().await, None);
    registry.wait_active(Revision(1)).await.unwrap();
    assert_eq!((all(&registry), plane.published.lock().unwrap().last()), (vec![route(1, "/")], Some(&1)));
}

#[tokio::test]
async fn what_was_committed_although_the_answer_was_lost_is_found_later() {
    let (store, _, registry) = registry();
    store.faults.lock().unwrap().push(Fault::AnswerLost);
    assert!(registry.write(put([service(1)])).await.is_err());
    registry.wait_active(Revision(1)).await.unwrap();
    assert_eq!(all(&registry), [service(1)]);
}

#[tokio::test]
async fn what_other_nodes_commit_is_followed() {
    let (store, plane, registry) = registry();
    store.commit_elsewhere(vec![Change::put(service(1)), Change::put(route_of(2, 1))]);
    store.changed.notify_one();
    registry.wait_active(Revision(1)).await.unwrap();
    assert_eq!(all(&registry), [service(1), route_of(2, 1)]);
    // Too long ago for a list of changes.
    store.commit_elsewhere(vec![Change::delete(EntityKind::Routes, Uuid::from_u128(2))]);
    *store.forgotten.lock().unwrap() = 2;
    store.changed.notify_one();
    registry.wait_active(Revision(2)).await.unwrap();
    assert_eq!(all(&registry), [service(1)]);
    assert_eq!(*plane.published.lock().unwrap(), [1, 0]);
    // The writer has not lost count.
    registry.write(put([route_of(2, 1)])).await.unwrap();
    assert_eq!(store.commits().len(), 3);
}

#[tokio::test]
async fn a_store_that_was_put_back_from_a_copy_counts_as_it_is() {
    let (store, plane, registry) = registry();
    registry.write(put([service(1)])).await.unwrap();
    let copy = store.commits().clone();
    registry.write(put([route_of(2, 1)])).await.unwrap();
    registry.wait_active(Revision(2)).await.unwrap();
    *store.commits() = copy;
    registry.write(put([service(3)])).await.unwrap();
    assert_eq!(all(&registry), [service(1), service(3)]);
    while plane.published.lock().unwrap().len() < 3 {
        tokio::task::yield_now().await;
    }
    assert_eq!(plane.published.lock().unwrap().last(), Some(&0));
}

#[tokio::test]
async fn what_is_committed_while_another_configuration_is_compiled_comes_with_the_next() {
    let (_, plane, registry) = registry();
    let (open, gate) = std::sync::mpsc::channel();
    *plane.gate.lock().unwrap() = Some(gate);
    registry.write(put([route(1, "/")])).await.unwrap();
    plane.asked.notified().await;
    for number in 2..=9 {
        registry.write(put([route(number, "/")])).await.unwrap();
    }
    assert_eq!((registry.revision(), registry.active()), (Revision(9), Revision(0)));
    open.send(()).unwrap();
    registry.wait_active(Revision(9)).await.unwrap();
    assert_eq!(*plane.published.lock().unwrap(), [1, 9]);
    let configuration = registry.configuration();
    assert_eq!((configuration.revision, configuration.document.routes.len()), (Revision(9), 9));
    assert_eq!(configuration.hash, format!("{:032x}", 9));
}

#[tokio::test]
async fn a_configuration_that_does_not_compile_leaves_the_last_good_one_active() {
    let (store, plane, registry) = registry();
    registry.write(put([route(1, "/")])).await.unwrap();
    registry.wait_active(Revision(1)).await.unwrap();
    store.commit_elsewhere(vec![Change::put(route(2, TOO_LARGE))]);
    store.changed.notify_one();
    let apply_error = registry.wait_active(Revision(2)).await.unwrap_err();
    assert!(apply_error.revision == Revision(2) && apply_error.reason.contains("route-2"), "{apply_error:?}");
    assert_eq!(registry.apply_error(), Some(apply_error));
    assert_eq!((registry.revision(), registry.active()), (Revision(2), Revision(1)));
    assert_eq!(registry.wait_active(Revision(1)).await, Ok(()), "an older revision is active");
    // Another write does not help.
    let more = registry.write(put([route(3, "/")])).await.unwrap();
    assert!(registry.wait_active(more.revision).await.is_err());
    let fixed = registry.write(put([route(2, "/fixed")])).await.unwrap();
    registry.wait_active(fixed.revision).await.unwrap();
    assert_eq!(registry.apply_error(), None);
    assert_eq!(*plane.published.lock().unwrap(), [1, 3]);
}

#[tokio::test]
async fn a_panic_is_the_end_of_one_write() {
    let (_, _, registry) = registry();
    registry.write(put([service(1)])).await.unwrap();
    let outcome = registry.write(|_: &Entities| -> Result<Vec<Op>, ()> { panic!("a defect") }).await;
    assert!(matches!(outcome, Err(WriteError::Unavailable(_))), "{outcome:?}");
    registry.write(put([service(3)])).await.unwrap();
    assert_eq!(all(&registry), [service(1), service(3)]);
}

#[tokio::test]
async fn a_declared_configuration_is_replaced_as_a_whole() {
    let plane = plane();
    let document = |entities: &[Entity]| {
        let mut document = Document::default();
        entities.iter().cloned().for_each(|entity| document.push(entity));
        document
    };
    let registry = Registry::declared(plane, document(&[service(1)]), "first".to_owned());
    assert_eq!(registry.write(put([service(2)])).await, Err(WriteError::ReadOnly));
    let second = document(&[service(2), route_of(3, 2)]);
    let revision = registry.declare(second.clone(), "second".to_owned()).await.unwrap();
    assert_eq!((registry.revision(), registry.active()), (revision, revision));
    assert_eq!(all(&registry), [service(2), route_of(3, 2)]);
    let bad = document(&[route(4, TOO_LARGE), route(5, TOO_LARGE)]);
    let refused = registry.declare(bad, "bad".to_owned()).await.unwrap_err();
    assert_eq!(
        refused.iter().map(|error| &*error.entity).collect::<Vec<_>>(),
        ["route route-4", "route route-5"]
    );
    let configuration = registry.configuration();
    assert_eq!((configuration.hash.as_str(), &configuration.document), ("second", &second));
}

#[tokio::test]
async fn a_data_plane_serves_everything_and_indexes_what_its_status_shows() {
    let upstream = entity(EntityKind::Upstreams, 2, json!({ "name": "orders" }));
    let mut document = Document::default();
    [service(1), upstream.clone()].into_iter().for_each(|entity| document.push(entity));
    let registry = Registry::received(plane(), document.clone(), "first".to_owned()).unwrap();
    assert_eq!(all(&registry), std::slice::from_ref(&upstream));
    let changes = vec![weir_model::Change::put(route_of(3, 1))];
    registry.push(Update::Changes(changes), "second".to_owned()).await.unwrap();
    document.push(route_of(3, 1));
    assert_eq!((&registry.configuration().document, all(&registry)), (&document, vec![upstream]));
}

/// An entity that lasts for a time.
#[derive(Clone, PartialEq, Record)]
struct Key {
    #[field(auto)]
    id: Uuid,
    #[field(foreign = "consumers")]
    consumer: Uuid,
    #[field(unique)]
    key: String,
    ttl: Option<i64>,
    created_at: Option<i64>,
}

impl CustomEntity for Key {
    const ENTITY: &'static CustomEntitySchema =
        &CustomEntitySchema::of::<Self>("keys_for_a_time").with_ttl("ttl");
}

const KEYS: EntityKind = EntityKind::Custom(CustomKind::of::<Key>());

fn key(number: u128, ttl: Option<i64>) -> Entity {
    let owner = json!({ "id": Uuid::from_u128(1) });
    let written = json!({ "key": "key", "consumer": owner, "ttl": ttl, "created_at": 1_700_000_000 });
    entity(KEYS, number, written)
}

/// A registry which has removed from its store what had expired when it began, and does so again in a minute.
async fn cleaned(consumer: &Entity, expired: &Entity) -> (Arc<Memory>, Registry) {
    let store = Arc::new(Memory::default());
    store.commit_elsewhere(vec![Change::put(consumer.clone()), Change::put(expired.clone())]);
    let entities = Entities::from_iter([consumer.clone(), expired.clone()]);
    let registry = Registry::stored(plane(), store.clone(), Revision(1), entities, &[]).unwrap();
    assert_eq!(all(&registry), slice::from_ref(consumer));
    while store.commits().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.commits()[1], [Change::delete(expired.kind(), expired.id())]);
    (store, registry)
}

#[tokio::test]
async fn what_expires_before_a_panic_is_removed_from_the_store_after_it() {
    let (consumer, expired) =
        (entity(EntityKind::Consumers, 1, json!({ "username": "alice" })), key(2, Some(60)));
    let (store, registry) = cleaned(&consumer, &expired).await;
    store.commit_elsewhere(vec![Change::put(expired.clone())]);
    store.changed.notify_one();
    registry.wait_active(Revision(3)).await.unwrap();
    // Readers do not find it any more.
    assert_eq!(all(&registry), slice::from_ref(&consumer));
    let panics = || registry.write(|_: &Entities| -> Result<Vec<Op>, ()> { panic!("a defect") });
    panics().await.unwrap_err();
    registry.write(put([service(3)])).await.unwrap();
    let removed = Change::delete(expired.kind(), expired.id());
    assert_eq!(store.commits()[3], [removed, Change::put(service(3))]);
}

#[tokio::test]
async fn what_has_expired_is_gone_and_is_removed_from_the_store() {
    let (consumer, expired) =
        (entity(EntityKind::Consumers, 1, json!({ "username": "alice" })), key(2, Some(60)));
    let (store, registry) = cleaned(&consumer, &expired).await;
    // One that another node knows expires with the next write, for which its key is free.
    let removed = Change::delete(expired.kind(), expired.id());
    store.commit_elsewhere(vec![Change::put(expired)]);
    registry.write(put([key(3, None)])).await.unwrap();
    assert_eq!(store.commits()[3], [removed, Change::put(key(3, None))]);
    assert_eq!(all(&registry), [consumer, key(3, None)]);
}

#[tokio::test]
async fn declared_keys_that_last_for_a_time_last_from_now() {
    let consumer = entity(EntityKind::Consumers, 1, json!({ "username": "alice" }));
    let key = |number: u128, created: Option<i64>| {
        let written = json!({ "key": format!("key-{number}"), "consumer": { "id": Uuid::from_u128(1) },
                              "ttl": 10_000, "created_at": created });
        entity(KEYS, number, written)
    };
    let mut document = Document::default();
    [consumer, key(2, None), key(3, Some(1_700_000_000))]
        .into_iter()
        .for_each(|entity| document.push(entity));
    let registry = Registry::declared(plane(), document.clone(), "first".to_owned());
    let shown = |registry: &Registry| {
        let keys = all(registry).split_off(1);
        assert!(keys.len() == 1 && keys[0].id() == Uuid::from_u128(2), "{keys:?}");
        keys[0].expires()
    };
    assert!(shown(&registry) > Some(1_700_010_000));
    registry.declare(document, "second".to_owned()).await.unwrap();
    assert!(shown(&registry) > Some(1_700_010_000));
}

#[tokio::test]
async fn what_could_not_be_loaded_is_not_stored() {
    let (store, _, registry) = registry();
    let object = |depth: usize| {
        let value = (0..depth).fold(json!([]), |inner, _| json!([inner]));
        let written = json!({
            "key": "routes/1", "value": { "a": value }, "created_index": 1, "modified_index": 1
        });
        entity(EntityKind::ApisixObjects, 1, written)
    };
    let refused = registry.write(put([object(61)])).await;
    assert!(matches!(refused, Err(WriteError::Uncompilable(error)) if error.message.contains("nested")));
    assert_eq!(store.commits().len(), 0);
    registry.write(put([object(59)])).await.unwrap();
    // Neither is what could not be imported once it is exported.
    let exported = crate::store::transfer::export(&all(&registry), &[], Unset::LeftOut);
    let read = Document::read(&exported, weir_model::Format::Yaml, &[], &|_| None).unwrap();
    assert_eq!(read.document.into_entities(), all(&registry));
}
