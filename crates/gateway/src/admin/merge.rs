//! Merges a change into an entity: records member by member, everything else as a whole.
use weir_model::schema::{Json, JsonMap, Kind, RecordSchema};

/// Merges a change into an entity; `config_schema` declares its `config`, where the name of a plugin or a vault decides on
/// that.
pub(super) fn merge(
    entity: &mut JsonMap,
    mut change: JsonMap,
    schema: &RecordSchema,
    config_schema: Option<&RecordSchema>,
) {
    if let Some(config_schema) = config_schema
        && let Some(Json::Object(config)) = entity.get_mut("config")
        && let Some(Json::Object(_)) = change.get("config")
        && let Some(Json::Object(changed)) = change.remove("config")
    {
        merge_record(config, changed, config_schema);
    }
    merge_record(entity, change, schema);
}

fn merge_record(record: &mut JsonMap, change: JsonMap, schema: &RecordSchema) {
    let is_old = |name: &String| schema.old_names.iter().any(|(old, _)| old == name);
    // Fields by old names repeat those by new names, and would restore what the change removes.
    record.retain(|name, _| !is_old(name));
    let (old, new): (Vec<_>, Vec<_>) = change.into_iter().partition(|(name, _)| is_old(name));
    let old = old.into_iter().map(|(name, value)| by_its_new_name(schema, name, value));
    for (name, value) in old.chain(new) {
        let kind = schema.field(&name).map(|field| field.kind);
        match (kind, record.get_mut(&name), value) {
            (Some(Kind::Record(inner)), Some(Json::Object(record)), Json::Object(change)) => {
                merge_record(record, change, inner);
            }
            (_, _, value) => {
                record.insert(name, value);
            }
        }
    }
}

/// `redis_host: x` as `redis: {host: x}`, so that it replaces what is there.
fn by_its_new_name(schema: &RecordSchema, name: String, value: Json) -> (String, Json) {
    let Some((_, path)) = schema.old_names.iter().find(|(old, _)| *old == name) else {
        return (name, value);
    };
    let (first, below) = path.split_once('.').unwrap_or((path, ""));
    let nested = below.rsplit('.').filter(|step| !step.is_empty());
    (first.to_owned(), nested.fold(value, |value, step| serde_json::json!({ step: value })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_model::PluginSchema;
    use weir_model::entity::EntityKind;
    use weir_model::schema::Record;

    fn merged(kind: EntityKind, entity: Json, change: Json) -> Json {
        let (Json::Object(mut entity), Json::Object(change)) = (entity, change) else {
            panic!("not objects")
        };
        merge(&mut entity, change, kind.schema(), None);
        Json::Object(entity)
    }

    #[test]
    fn records_are_merged_and_all_else_is_replaced() {
        let entity =
            json!({ "healthchecks": { "threshold": 1.0, "active": { "timeout": 2 } }, "tags": ["a"] });
        let change =
            json!({ "healthchecks": { "active": { "concurrency": 3 } }, "tags": ["b"], "slots": null });
        let expected = json!({
            "healthchecks": { "threshold": 1.0, "active": { "timeout": 2, "concurrency": 3 } },
            "tags": ["b"],
            "slots": null,
        });
        assert_eq!(merged(EntityKind::Upstreams, entity, change), expected);
        let entity = json!({ "headers": { "a": ["1"] }, "service": "x" });
        let change = json!({ "headers": { "b": ["2"] }, "service": { "id": "y" } });
        assert_eq!(merged(EntityKind::Routes, entity, change.clone()), change, "a map is no record");
    }

    #[derive(Debug, Clone, Record)]
    struct Redis {
        host: Option<String>,
        port: Option<u16>,
    }

    #[derive(Debug, Clone, Record)]
    #[record(old_name("redis_host", "redis.host"))]
    struct Config {
        redis: Redis,
    }

    #[test]
    fn configurations_are_merged_by_their_own_schema() {
        let plugin = PluginSchema::of::<Config>("sample");
        for (change, expected) in [
            (json!({ "redis_host": "b" }), json!({ "redis": { "host": "b", "port": 1 } })),
            (
                json!({ "redis_host": "b", "redis": { "host": "c" } }),
                json!({ "redis": { "host": "c", "port": 1 } }),
            ),
            (json!({ "redis_host": null }), json!({ "redis": { "host": null, "port": 1 } })),
            (json!({ "redis": { "host": null } }), json!({ "redis": { "host": null, "port": 1 } })),
            (json!({ "redis": null }), json!({ "redis": null })),
        ] {
            let entity_json = json!({ "config": { "redis": { "host": "a", "port": 1 }, "redis_host": "a" } });
            let Json::Object(mut entity) = entity_json else { panic!() };
            let Json::Object(change) = json!({ "config": change }) else { panic!() };
            merge(&mut entity, change, EntityKind::Plugins.schema(), Some(plugin.config));
            assert_eq!(Json::Object(entity), json!({ "config": expected }));
        }
    }
}
