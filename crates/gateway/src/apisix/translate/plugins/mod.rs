//! Plugins of APISIX as plugins of ours: for some, fields have other names; the others are the same.
use super::json_schema::{Described, described as schema_of};
use super::schema::{Plugins, invalid};
use super::{Entities, Invalid, Json, consumer, fill_in, mistakes};
use serde_json::json;
use weir_model::entity::EntityKind;
use weir_model::find_plugin;
use weir_model::node::{Entry, Value};
use weir_model::schema::{Direction, FieldError, Record, did_you_mean, quoted};
use weir_model::{ConfigError, PluginSchema, Uuid};

/// Requires a key.
#[derive(Clone, Record)]
struct KeyAuth {
    #[field(default = "apikey", matches = header_name)]
    header: String,
    #[field(default = "apikey")]
    query: String,
    #[field(default = false)]
    hide_credentials: bool,
    anonymous_consumer: Option<String>,
    realm: Option<String>,
}

/// Requires a name and a password.
#[derive(Clone, Record)]
struct BasicAuth {
    #[field(default = false)]
    hide_credentials: bool,
    anonymous_consumer: Option<String>,
    realm: Option<String>,
}

/// Counts requests.
#[derive(Clone, Record)]
struct Prometheus {
    #[field(default = false)]
    prefer_name: bool,
}

/// Options that every plugin has.
#[derive(Clone, Record)]
struct Meta {
    #[field(default = false)]
    disable: bool,
}

/// One plugin's configuration, in APISIX's terms and in ours.
struct Adapted {
    theirs: Json,
    ours: Json,
    enabled: bool,
}

/// The supported plugins, in the order in which APISIX runs them.
pub(crate) fn described(schemas: &[PluginSchema]) -> Vec<Described> {
    let ours = |name: &'static str, priority: i32| {
        let schema = find_plugin(schemas, name)?.config.to_json_schema(Direction::Request);
        Some(Described { name, priority, schema, consumer_schema: None })
    };
    let theirs =
        |name, priority, schema, consumer_schema| Some(Described { name, priority, schema, consumer_schema });
    let all = [
        ours("request-id", 12_015),
        theirs("basic-auth", 2_520, schema_of::<BasicAuth>(), Some(schema_of::<consumer::BasicAuth>())),
        theirs("key-auth", 2_500, schema_of::<KeyAuth>(), Some(schema_of::<consumer::KeyAuth>())),
        ours("limit-count", 1_002),
        theirs("prometheus", 500, schema_of::<Prometheus>(), None),
    ];
    let available =
        |plugin: &Described| find_plugin(schemas, plugin.name).is_some_and(|schema| schema.available);
    all.into_iter().flatten().filter(available).collect()
}

/// Checks the plugins of an object, and fills their defaults in.
pub(super) fn check(set: &Plugins, value: &mut Json, schemas: &[PluginSchema]) -> Result<(), Invalid> {
    for (name, written) in set {
        let adapted = adapt(name, written, schemas)?;
        fill_in(&mut value["plugins"][name], &adapted.theirs);
    }
    Ok(())
}

/// Adds the plugins of one scope. All parts of an object share the counters of its limit-count.
pub(super) fn translate(
    into: &mut Entities<'_>,
    part: &str,
    set: &Plugins,
    scope: &[(&str, Uuid)],
) -> Result<(), Invalid> {
    for (name, written) in set {
        let Adapted { mut ours, enabled, .. } = adapt(name, written, into.plugins)?;
        if name == "limit-count" && ours["group"].is_null() {
            ours["group"] = into.key.tag().into();
        }
        let mut entity = json!({ "name": name, "config": ours, "enabled": enabled });
        for (field, id) in scope {
            entity[*field] = json!({ "id": id });
        }
        into.add(EntityKind::Plugins, &format!("{part}plugins/{name}"), entity)?;
    }
    Ok(())
}

/// The names of the supported plugins.
const NAMES: [&str; 5] = ["basic-auth", "key-auth", "limit-count", "prometheus", "request-id"];

fn unknown(name: &str) -> Invalid {
    Invalid(format!("unknown plugin [{name}]; there are {}", NAMES.join(", ")))
}

/// All errors of one plugin of an object in a file. With `is_consumer`, some plugins are credentials.
pub(super) fn mistakes_of(
    entry: &Entry<'_>,
    is_consumer: bool,
    schemas: &[PluginSchema],
) -> Vec<ConfigError> {
    let (name, mut config) = (entry.key.as_ref(), entry.node.clone());
    let path = format!("plugins.{}", quoted(name));
    let schema = find_plugin(schemas, name).filter(|schema| schema.available && NAMES.contains(&name));
    let Some(schema) = schema else {
        let hint = did_you_mean(name, NAMES);
        let message = format!("no such plugin; available: {}{hint}", NAMES.join(", "));
        return vec![ConfigError { at: entry.at, path, message }];
    };
    let meta = match &mut config.value {
        Value::Map(members) => members.extract_if(.., |member| member.key == "_meta").next(),
        _ => None,
    };
    let found = match (name, is_consumer) {
        ("key-auth", true) => mistakes::fields::<consumer::KeyAuth>(&config),
        ("basic-auth", true) => mistakes::fields::<consumer::BasicAuth>(&config),
        ("key-auth", false) => mistakes::fields::<KeyAuth>(&config),
        ("basic-auth", false) => mistakes::fields::<BasicAuth>(&config),
        ("prometheus", _) => mistakes::fields::<Prometheus>(&config),
        _ => schema.problems(&config),
    };
    let of_meta = meta.map(|meta| mistakes::fields::<Meta>(&meta.node)).unwrap_or_default();
    mistakes::below(&path, found).chain(mistakes::below(&format!("{path}._meta"), of_meta)).collect()
}

fn adapt(name: &str, written: &Json, schemas: &[PluginSchema]) -> Result<Adapted, Invalid> {
    let Some(schema) = find_plugin(schemas, name).filter(|schema| schema.available) else {
        return Err(unknown(name));
    };
    let mut written = written.clone();
    let meta = written.as_object_mut().and_then(|members| members.remove("_meta"));
    let meta = meta.as_ref().map(|meta| read::<Meta>(name, meta)).transpose()?;
    let (theirs, ours) = match name {
        "limit-count" | "request-id" => {
            let config = schema.check(&written).map_err(|found| refused(name, &found))?;
            (config.clone(), config)
        }
        "key-auth" => key_auth(&read(name, &written)?),
        "basic-auth" => basic_auth(&read(name, &written)?),
        "prometheus" => prometheus(&read(name, &written)?),
        _ => return Err(unknown(name)),
    };
    Ok(Adapted { theirs, ours, enabled: !meta.is_some_and(|meta| meta.disable) })
}

pub(super) fn read<T: Record>(name: &str, written: &Json) -> Result<T, Invalid> {
    T::from_value(written).map_err(|found| refused(name, &found))
}

fn refused(name: &str, found: &[FieldError]) -> Invalid {
    let reason = invalid(found);
    Invalid(format!("failed to check the configuration of plugin {name} err: {}", reason.reason()))
}

fn key_auth(theirs: &KeyAuth) -> (Json, Json) {
    let mut names = vec![&theirs.header];
    names.extend((theirs.query != theirs.header).then_some(&theirs.query));
    let ours = json!({
        "key_names": names,
        "hide_credentials": theirs.hide_credentials,
        "anonymous": theirs.anonymous_consumer,
        "realm": theirs.realm,
    });
    (theirs.to_value(), ours)
}

fn basic_auth(theirs: &BasicAuth) -> (Json, Json) {
    let mut ours = json!({
        "hide_credentials": theirs.hide_credentials,
        "anonymous": theirs.anonymous_consumer,
    });
    if let Some(realm) = &theirs.realm {
        ours["realm"] = realm.as_str().into();
    }
    (theirs.to_value(), ours)
}

fn prometheus(theirs: &Prometheus) -> (Json, Json) {
    let ours = json!({
        "per_consumer": true,
        "status_code_metrics": true,
        "latency_metrics": true,
        "bandwidth_metrics": true,
    });
    (theirs.to_value(), ours)
}
