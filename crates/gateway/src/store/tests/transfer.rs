//! Declarative files in and out.
use super::super::transfer::{Unset, export, import};
use super::*;

const NOW: Duration = Duration::from_millis(1_800_000_000_250);

async fn imported(yaml: &str) -> (Place, Arc<dyn Store>) {
    let place = Place::in_sqlite();
    let store = place.open().await;
    import(&*store, document(yaml), &all_plugins(), NOW).await.unwrap();
    (place, store)
}

#[tokio::test]
async fn what_is_exported_imports_as_the_same() {
    let (_place, store) = imported(EVERYTHING).await;
    let (_, entities) = kept(&*store).await;
    assert_eq!(entities.len(), everything().len());
    let text = export(&entities, &all_plugins(), Unset::LeftOut);
    assert_eq!(sorted(document(&text).into_entities()), entities, "{text}");
    assert!(text.starts_with("_format_version: \"3.0\"\n_transform: false\n"), "{text}");
    assert!(!text.contains("null"), "what is unset is left out: {text}");
}

#[tokio::test]
async fn entities_are_dated() {
    let (_place, store) = imported(EVERYTHING).await;
    let times = |entity: &Entity| {
        let value = entity.to_value();
        (value["created_at"].as_f64(), value.get("updated_at").map(|at| at.as_f64()))
    };
    for entity in kept(&*store).await.1 {
        let (created, updated) = times(&entity);
        assert!(created == Some(1_700_000_000.0) || created >= Some(1_700_000_000.123), "{entity:?}");
        assert!(updated.is_none_or(|updated| updated >= Some(1_800_000_000.0)), "{entity:?}");
    }
    // Again and later: nothing is created anew.
    let later = NOW + Duration::from_secs(100);
    let before = kept(&*store).await.1;
    import(&*store, document(EVERYTHING), &all_plugins(), later).await.unwrap();
    let after = kept(&*store).await.1;
    let created = |entities: &[Entity]| entities.iter().map(|entity| times(entity).0).collect::<Vec<_>>();
    let without_ids = document(EVERYTHING)
        .into_entities()
        .iter()
        .filter(|e| !before.iter().any(|b| b.id() == e.id()))
        .count();
    assert_eq!(without_ids, 0, "ids follow from names");
    assert_eq!(created(&after), created(&before));
}

#[tokio::test]
async fn what_does_not_go_together_is_refused_whole() {
    let (_place, store) = imported("_format_version: \"3.0\"\nservices: [{name: a, host: h}]").await;
    let before = kept(&*store).await;
    let other = "_format_version: \"3.0\"\nservices:\n- {name: b, host: h}\n\
                 - {id: 7c2b7b1e-3bb2-4c1d-8f0a-0242ac120002, name: a, host: h}";
    let error = import(&*store, document(other), &all_plugins(), NOW).await.unwrap_err().to_string();
    assert!(
        error.contains("services 7c2b7b1e-3bb2-4c1d-8f0a-0242ac120002") && error.contains("`name`"),
        "{error}"
    );
    assert_eq!(kept(&*store).await, before);
}

#[tokio::test]
async fn what_has_expired_is_in_nobodys_way() {
    let consumer = "_format_version: \"3.0\"\nconsumers:\n- username: a\n  keyauth_credentials:\n";
    let expired = "  - {id: 7c2b7b1e-3bb2-4c1d-8f0a-0242ac120002, key: k, ttl: 1, created_at: 1700000000}";
    let (_place, store) = imported(&format!("{consumer}{expired}")).await;
    let same_key = format!("{consumer}  - {{id: 7c2b7b1e-3bb2-4c1d-8f0a-0242ac120003, key: k}}");
    let count = import(&*store, document(&same_key), &all_plugins(), NOW).await.unwrap();
    assert_eq!(count, 2);
    let kept = kept(&*store).await.1;
    let keys: Vec<_> = kept.iter().filter(|entity| entity.kind().as_str() == "keyauth_credentials").collect();
    assert!(keys.len() == 1 && keys[0].id().to_string().ends_with("0003"), "{keys:?}");
}

#[tokio::test]
async fn what_is_nested_too_deep_is_named_and_nothing_is_kept() {
    let (_place, store) = imported("_format_version: \"3.0\"\nservices: [{name: a, host: h}]").await;
    let before = kept(&*store).await;
    let mut deep = document("_format_version: \"3.0\"\nservices: [{name: b, host: h}]");
    let value = (0..100).fold(serde_json::json!([]), |inner, _| serde_json::json!([inner]));
    let written = serde_json::json!({
        "key": "routes/1", "value": { "a": value }, "created_index": 1, "modified_index": 1
    });
    let (reading, id) =
        (ReadOptions { plugins: &[], references: &(), hash_passwords: false }, Uuid::from_u128(1));
    deep.push(Entity::read(EntityKind::ApisixObjects, &written, &[("id", id)], reading).unwrap());
    let error = import(&*store, deep, &all_plugins(), NOW).await.unwrap_err().to_string();
    assert!(error.contains(&format!("apisix_objects {id}: it is nested deeper than 62")), "{error}");
    assert_eq!(kept(&*store).await, before);
}
