//! What every store must do.
use super::super::migrations::Task;
use super::super::{postgres, sqlite};
use super::*;
use weir_model::EntityKinds;

macro_rules! in_both {
    ($($test:ident),* $(,)?) => {
        mod in_sqlite { $(
            #[tokio::test]
            async fn $test() {
                super::$test(super::Place::in_sqlite().bootstrapped().await).await;
            }
        )* }

        mod in_postgres { $(
            #[tokio::test]
            async fn $test() {
                super::$test(super::Place::in_postgres().bootstrapped().await).await;
            }
        )* }
    };
}

in_both![
    nothing_was_written_at_first,
    an_entity_of_every_kind_is_kept_as_it_is,
    who_comes_second_is_outdated,
    changes_are_told_from_any_revision,
    the_last_change_of_a_batch_counts,
    a_thousand_entities_are_one_batch,
    writers_at_once_all_get_through,
    what_no_longer_reads_is_named,
    what_is_nested_too_deep_is_named_and_can_be_removed,
    what_is_deleted_may_be_of_a_kind_that_is_not_known,
    another_history_is_lost,
    tables_that_are_there_are_left_alone,
    the_deleted_are_forgotten_after_a_while,
];

async fn nothing_was_written_at_first(place: Place) {
    let store = place.open().await;
    assert_eq!(kept(&*store).await, (Revision(0), Vec::new()));
    assert_eq!(changes(&*store, Revision(0)).await, Some((Revision(0), Vec::new())));
}

async fn an_entity_of_every_kind_is_kept_as_it_is(place: Place) {
    let (store, entities) = (place.open().await, everything());
    let mut kinds: Vec<_> = entities.iter().map(Entity::kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds.len(), EntityKinds::of(&all_plugins()).iter().count(), "a kind is missing");
    let revision = commit(&*store, Revision(0), &puts(&entities)).await;
    let entities = sorted(entities);
    assert_eq!(kept(&*store).await, (revision, entities.clone()));
    drop(store);
    assert_eq!(kept(&*place.open().await).await, (Revision(1), entities));
}

async fn who_comes_second_is_outdated(place: Place) {
    let store = place.open().await;
    let (first, second) = (service(1, "first"), service(1, "second"));
    let revision = commit(&*store, Revision(0), &put(&first)).await;
    let late = store.commit(Revision(0), &put(&second)).await.unwrap();
    assert_eq!(late, Committed::Outdated);
    assert_eq!(kept(&*store).await, (revision, vec![first]));
    commit(&*store, revision, &put(&second)).await;
    assert_eq!(kept(&*store).await, (Revision(2), vec![second]));
}

async fn changes_are_told_from_any_revision(place: Place) {
    let store = place.open().await;
    let [a, b, c] = [1, 2, 3].map(|number| service(number, "host"));
    let first = commit(&*store, Revision(0), &puts(&[a.clone(), b.clone()])).await;
    let second = commit(&*store, first, &delete(&a)).await;
    let third = commit(&*store, second, &put(&c)).await;
    let expected = |parts: &[Vec<Change>]| Some((third, parts.concat()));
    assert_eq!(changes(&*store, Revision(0)).await, expected(&[put(&b), delete(&a), put(&c)]));
    assert_eq!(changes(&*store, first).await, expected(&[delete(&a), put(&c)]));
    assert_eq!(changes(&*store, second).await, expected(&[put(&c)]));
    assert_eq!(changes(&*store, third).await, expected(&[]));
    // One who was deleted can come back.
    let fourth = commit(&*store, third, &put(&a)).await;
    assert_eq!(changes(&*store, third).await, Some((fourth, put(&a))));
    assert_eq!(kept(&*store).await, (fourth, vec![a, b, c]));
}

async fn the_last_change_of_a_batch_counts(place: Place) {
    let store = place.open().await;
    let (early, late, gone) = (service(1, "early"), service(1, "late"), service(2, "gone"));
    let batch = [put(&early), put(&gone), put(&late), delete(&gone)].concat();
    let revision = commit(&*store, Revision(0), &batch).await;
    assert_eq!(kept(&*store).await, (revision, vec![late]));
    let unchanged = commit(&*store, revision, &[]).await;
    assert_eq!(changes(&*store, revision).await, Some((unchanged, Vec::new())));
}

async fn a_thousand_entities_are_one_batch(place: Place) {
    let store = place.open().await;
    let entities: Vec<_> =
        (1..=1000).map(|number| service(number, &format!("host-{number}.example"))).collect();
    let revision = commit(&*store, Revision(0), &puts(&entities)).await;
    assert_eq!(kept(&*store).await, (revision, entities.clone()));
    let gone: Vec<_> = entities.iter().flat_map(delete).collect();
    let revision = commit(&*store, revision, &gone).await;
    assert_eq!(kept(&*store).await, (revision, Vec::new()));
    assert_eq!(changes(&*store, Revision(1)).await.map(|(_, changes)| changes.len()), Some(1000));
}

async fn writers_at_once_all_get_through(place: Place) {
    let store = place.open().await;
    let writers: Vec<_> = (1..=8)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut base = Revision(0);
                while store.commit(base, &put(&service(number, "host"))).await.unwrap() == Committed::Outdated
                {
                    base = store.load().await.unwrap().revision;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let (revision, entities) = kept(&*store).await;
    assert_eq!((revision, entities.len()), (Revision(8), 8), "each batch has a revision of its own");
}

async fn what_no_longer_reads_is_named(place: Place) {
    let store = place.open().await;
    commit(&*store, Revision(0), &puts(&everything())).await;
    drop(store);
    let switched_off = plugins::bundled().iter().map(|plugin| plugin.switched_off()).collect();
    let store = open_database(&place.settings, switched_off).await.unwrap().unwrap();
    let error = store.load().await.unwrap_err();
    assert!(matches!(error, StoreError::Broken(_)), "{error:?}");
    let said = error.to_string();
    let id = everything()
        .into_iter()
        .filter(|entity| entity.kind() == EntityKind::Plugins)
        .map(|entity| entity.id());
    assert!(id.map(|id| format!("plugins {id} cannot be used")).any(|start| said.contains(&start)), "{said}");
    assert!(said.contains("the setting `plugins`"), "how to fix it: {said}");
}

async fn what_is_nested_too_deep_is_named_and_can_be_removed(place: Place) {
    let (store, good) = (place.open().await, service(1, "host"));
    let revision = commit(&*store, Revision(0), &puts(&[good.clone(), service(2, "host")])).await;
    let deep = format!("{{\"host\": {}{}}}", "[".repeat(200), "]".repeat(200));
    let statement = format!("UPDATE weir_entities SET body = '{deep}' WHERE id LIKE '%2'");
    place.execute(&statement).await;
    let error = store.load().await.unwrap_err();
    let said = error.to_string();
    assert!(matches!(error, StoreError::Broken(_)) && said.contains("nested deeper"), "{said}");
    let id = Uuid::from_u128(2);
    assert!(said.contains(&format!("services {id} cannot be used")), "{said}");
    let remove = said.find("DELETE FROM").map(|at| said[at..].to_owned()).expect("how to fix it");
    place.execute(&remove).await;
    assert_eq!(kept(&*store).await, (revision, vec![good]));
}

/// A node of a newer version has created it, and taken it back.
async fn what_is_deleted_may_be_of_a_kind_that_is_not_known(place: Place) {
    let (store, later) = (place.open().await, service(1, "host"));
    let revision = commit(&*store, Revision(0), &put(&service(2, "host"))).await;
    let id = Uuid::from_u128(3);
    let unknown = |body: &str| {
        format!(
            "DELETE FROM weir_entities WHERE kind = 'later'; UPDATE weir_meta SET revision = 2; \
             INSERT INTO weir_entities (kind, id, revision, body) VALUES ('later', '{id}', 2, {body});"
        )
    };
    place.execute(&unknown("'{}'")).await;
    let error = store.since(revision).await.unwrap_err().to_string();
    assert!(
        error.contains(&format!("later {id} cannot be used: this version knows no such kind")),
        "{error}"
    );
    place.execute(&unknown("NULL")).await;
    let newest = commit(&*store, Revision(2), &put(&later)).await;
    assert_eq!(changes(&*store, revision).await, Some((newest, put(&later))));
    assert_eq!(kept(&*store).await, (newest, vec![later, service(2, "host")]));
}

async fn another_history_is_lost(place: Place) {
    let store = place.open().await;
    commit(&*store, Revision(0), &put(&service(1, "host"))).await;
    assert_eq!(changes(&*store, Revision(7)).await, None);
}

async fn tables_that_are_there_are_left_alone(place: Place) {
    let store = place.open().await;
    let revision = commit(&*store, Revision(0), &put(&service(1, "host"))).await;
    for (task, said) in
        [(Task::Bootstrap, "nothing to do"), (Task::Up, "nothing to do"), (Task::Status, "up to date")]
    {
        let (message, good) = place.perform(task).await.unwrap();
        assert!(good && message.contains(said), "{task:?}: {message}");
    }
    assert_eq!(kept(&*store).await.0, revision);
}

async fn the_deleted_are_forgotten_after_a_while(place: Place) {
    let store = remembering(&place, 3).await;
    let entities: Vec<_> = (1..=9).map(|number| service(number, "host")).collect();
    let mut revision = commit(&*store, Revision(0), &puts(&entities)).await;
    for entity in &entities[..5] {
        revision = commit(&*store, revision, &delete(entity)).await;
    }
    // Revision 6 has forgotten those deleted by revision 3 and before.
    assert_eq!(revision, Revision(6));
    assert_eq!(changes(&*store, Revision(2)).await, None);
    let changed = changes(&*store, Revision(3)).await.unwrap();
    assert_eq!(changed, (revision, entities[2..5].iter().flat_map(delete).collect()));
    assert_eq!(kept(&*store).await, (revision, entities[5..].to_vec()));
}

#[tokio::test]
async fn a_file_of_sqlite_is_opened_while_another_process_of_the_node_writes() {
    let place = Place::in_sqlite();
    let path = sqlite_path(&place.settings).unwrap();
    let open = async |is_shared| sqlite::Sqlite::open(&path, all_plugins(), is_shared).await;
    let old = open(false).await.unwrap();
    assert!(old.share(true));
    let mut writer = sqlite::connect(&path, "").await.unwrap();
    let writing = sqlx::Connection::begin_with(&mut writer, "BEGIN IMMEDIATE").await.unwrap();
    let new = open(true).await.unwrap();
    drop(writing);
    assert!(!new.share(false), "the old process has it too");
    drop(old);
    // What failed has not given the file up meanwhile.
    assert!(open(false).await.is_err());
    assert!(new.share(false));
}

/// Its last connections may go on for hours after the node was stopped.
#[tokio::test]
async fn a_file_of_sqlite_that_was_left_to_another_process_is_free_once_that_has_ended() {
    let place = Place::in_sqlite();
    let path = sqlite_path(&place.settings).unwrap();
    let open = async |is_shared| sqlite::Sqlite::open(&path, all_plugins(), is_shared).await;
    let old = open(false).await.unwrap();
    assert!(old.share(true));
    let new = open(true).await.unwrap();
    old.leave();
    assert!(open(false).await.is_err());
    assert!(new.share(false), "the old process does not hold it any more");
    drop(new);
    open(false).await.unwrap();
}

/// A store that remembers the deleted for so many revisions.
async fn remembering(place: &Place, tombstone_revisions: u64) -> Arc<dyn Store> {
    if database(&place.settings) == Database::Sqlite {
        let path = sqlite_path(&place.settings).unwrap();
        let mut store = sqlite::Sqlite::open(&path, all_plugins(), false).await.unwrap();
        store.tombstone_revisions = tombstone_revisions;
        return Arc::new(store);
    }
    let server = postgres::Server::of(&place.settings).unwrap();
    let mut store = postgres::Postgres::open(server, all_plugins()).await.unwrap();
    store.tombstone_revisions = tombstone_revisions;
    Arc::new(store)
}
