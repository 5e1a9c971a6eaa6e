//! Plugins of APISIX as plugins of ours: for some, fields have other names; the others are the same.
mod adapted;
mod ai;
mod azure_functions;
mod default_list;
mod grpc_transcode;
mod known;
mod list;
mod traffic_split;

pub(super) use ai::provider;

use super::json_schema::{self, Described};
use super::schema::{Plugins, invalid};
use super::{Entities, Invalid, Json, Key, Kind, Objects, consumer, fill_in, mistakes, references};
use crate::apisix::object::TRANSCODE;
use known::{META, retain_known, unknown_members};
use list::{Configuration, Row, find, rows};
use serde_json::json;
use weir_model::entity::EntityKind;
use weir_model::node::{Entry, Value};
use weir_model::schema::{ConfigWarning, FieldError, Record, RecordSchema, did_you_mean, quoted};
use weir_model::{ConfigError, PluginSchema, Streams, Uuid};

/// Options that every plugin has.
#[derive(Clone, Record)]
struct Meta {
    #[field(default = false)]
    disable: bool,
    /// The condition under which the plugin runs.
    filter: Option<Json>,
}

/// The supported plugins, in the order in which APISIX runs them.
pub(crate) fn described(schemas: &[PluginSchema]) -> Vec<Described> {
    let described = |row: &Row| {
        let schema = row.schema(row.plugin(schemas)?);
        let consumer_schema = row.credential.map(|credential| json_schema::of_record(credential.schema));
        Some(Described { name: row.name, priority: row.priority, schema, consumer_schema })
    };
    rows().iter().filter_map(described).collect()
}

/// Checks the plugins of an object, and fills their defaults in.
pub(super) fn check(into: &Entities<'_>, set: &Plugins, value: &mut Json) -> Result<(), Invalid> {
    for (name, written) in set {
        let plugin = Configured::read(into, name, written)?;
        fill_in(&mut value["plugins"][name], &plugin.configuration.theirs);
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
        let mut entity = Configured::read(into, name, written)?.entity(into, part)?;
        for (field, id) in scope {
            entity[*field] = json!({ "id": id });
        }
        into.add(EntityKind::Plugins, &format!("{part}plugins/{name}"), entity)?;
    }
    Ok(())
}

/// Adds the plugins of a stream route.
pub(super) fn translate_stream(into: &mut Entities<'_>, set: &Plugins, route: Uuid) -> Result<(), Invalid> {
    for (name, written) in set {
        let plugin = Configured::read(into, name, written)?;
        let streams = plugin.row.plugin(into.plugins).map_or(Streams::Never, |plugin| plugin.streams);
        if !matches!(streams, Streams::IfNamed | Streams::ByDefault) {
            return Err(Invalid(format!("plugin [{name}] does not run for stream routes")));
        }
        let mut entity = plugin.entity(into, "")?;
        entity["protocols"] = json!(["tcp", "tls", "udp"]);
        entity["route"] = json!({ "id": route });
        into.add(EntityKind::Plugins, &format!("plugins/{name}"), entity)?;
    }
    Ok(())
}

/// One plugin of an object.
struct Configured {
    row: &'static Row,
    configuration: Configuration,
    enabled: bool,
    filter: Option<Json>,
}

impl Configured {
    fn read(into: &Entities<'_>, name: &str, written: &Json) -> Result<Configured, Invalid> {
        let row = find(name).ok_or_else(|| unknown(name))?;
        let plugin = row.plugin(into.plugins).ok_or_else(|| unknown(name))?;
        let mut written = written.clone();
        let meta = written.as_object_mut().and_then(|members| members.remove(META));
        // Unlike members of the plugin, these change how it runs: one that has no effect here is refused.
        let strictly = |meta: &Json| Meta::from_value(meta).map_err(|found| refused(name, &found));
        let meta = meta.as_ref().map(strictly).transpose()?;
        let metadata = metadata(into.objects, name);
        let written = references::translated(&written)?;
        let configuration = row.read(plugin, &written, metadata.unwrap_or(&Json::Null))?;
        references::resolved_by(&configuration.ours, plugin.config)?;
        let enabled = !meta.as_ref().is_some_and(|meta| meta.disable);
        Ok(Configured { row, configuration, enabled, filter: meta.and_then(|meta| meta.filter) })
    }

    /// The entity, without its scope.
    fn entity(self, into: &mut Entities<'_>, part: &str) -> Result<Json, Invalid> {
        let Configured { row, configuration: Configuration { theirs, mut ours }, enabled, filter } = self;
        if row.name == "traffic-split" {
            traffic_split::resolve(into, part, &theirs, &mut ours)?;
        }
        if row.name == TRANSCODE {
            grpc_transcode::resolve(into, &theirs, &mut ours)?;
        }
        if row.ours == "ai-proxy-multi" {
            // The service has it.
            ours["ssl_verify"] = Json::Null;
        }
        if row.name == "limit-count" && ours["group"].is_null() {
            ours["group"] = into.key.tag().into();
        }
        if let Some(filter) = filter {
            ours[META] = json!({ "filter": filter });
        }
        Ok(json!({ "name": row.ours, "config": ours, "enabled": enabled }))
    }
}

/// What is configured for all uses of a plugin.
fn metadata<'o>(objects: &'o dyn Objects, name: &str) -> Option<&'o Json> {
    objects.value(&Key::new(Kind::PluginMetadata, name).ok()?)
}

/// Whether metadata of a plugin of this name may be written. APISIX accepts it of every plugin that is enabled there.
pub(super) fn may_have_metadata(name: &str, schemas: &[PluginSchema]) -> bool {
    default_list::contains(name) || is_available(name, schemas)
}

/// Whether a plugin here serves this one of APISIX.
pub(super) fn is_served(name: &str) -> bool {
    find(name).is_some()
}

/// Whether a file may use this plugin of APISIX.
pub(crate) fn is_available(name: &str, schemas: &[PluginSchema]) -> bool {
    find(name).is_some_and(|row| row.plugin(schemas).is_some())
}

/// The fields of a plugin of APISIX, if it is served here by this one of Weir's.
pub(crate) fn configured_fields(
    name: &str,
    ours: &str,
    schemas: &[PluginSchema],
) -> Option<&'static RecordSchema> {
    let row = find(name).filter(|row| row.ours == ours)?;
    Some(row.fields(row.plugin(schemas)?))
}

fn names() -> impl Iterator<Item = &'static str> {
    rows().iter().map(|row| row.name)
}

fn unknown(name: &str) -> Invalid {
    Invalid(format!("unknown plugin [{name}]; there are {}", names().collect::<Vec<_>>().join(", ")))
}

/// All errors of one plugin of an object in a file. With `is_consumer`, some plugins are credentials.
pub(super) fn mistakes_of(
    entry: &Entry<'_>,
    is_consumer: bool,
    schemas: &[PluginSchema],
) -> Vec<ConfigError> {
    let (name, mut config) = (entry.key.as_ref(), entry.node.clone());
    let path = format!("plugins.{}", quoted(name));
    let row = find(name).and_then(|row| Some((row, row.plugin(schemas)?)));
    let Some((row, plugin)) = row else {
        let hint = did_you_mean(name, names());
        let message = format!("no such plugin{hint}; available: {}", names().collect::<Vec<_>>().join(", "));
        return vec![ConfigError { at: entry.at, path, message }];
    };
    let meta = match &mut config.value {
        Value::Map(members) => members.extract_if(.., |member| member.key == META).next(),
        _ => None,
    };
    let found = match row.credential.filter(|_| is_consumer) {
        Some(credential) => {
            retain_known(&mut config, credential.schema);
            (credential.mistakes)(&config)
        }
        None => {
            retain_known(&mut config, row.fields(plugin));
            row.mistakes(plugin, &config)
        }
    };
    let of_meta = meta.map(|meta| mistakes::fields::<Meta>(&meta.node)).unwrap_or_default();
    mistakes::below(&path, found).chain(mistakes::below(&format!("{path}.{META}"), of_meta)).collect()
}

/// Warns of members of one plugin's configuration in a file that have no effect. With `is_consumer`, some plugins are
/// credentials.
pub(super) fn unknown_members_of(
    entry: &Entry<'_>,
    is_consumer: bool,
    schemas: &[PluginSchema],
) -> Vec<ConfigWarning> {
    let mut found = Vec::new();
    let row = find(&entry.key).and_then(|row| Some((row, row.plugin(schemas)?)));
    if let Some((row, plugin)) = row {
        let credential = row.credential.filter(|_| is_consumer);
        let record = credential.map_or_else(|| row.fields(plugin), |credential| credential.schema);
        unknown_members(&entry.node, record, &format!("plugins.{}", quoted(&entry.key)), &mut found);
    }
    found
}

/// Reads a record of a plugin. As in APISIX, members that it does not know have no effect.
pub(super) fn read<T: Record>(name: &str, written: &Json) -> Result<T, Invalid> {
    T::from_value(&known::known_members(written, T::SCHEMA)).map_err(|found| refused(name, &found))
}

fn refused(name: &str, found: &[FieldError]) -> Invalid {
    let reason = invalid(found);
    Invalid(format!("failed to check the configuration of plugin {name} err: {}", reason.reason()))
}
