//! The objects and plugins that can be expressed here, as JSON Schemas.
use super::schema::{
    Consumer, Credential, Node, PluginSet, Proto, Route, Secrets, Service, Ssl, StreamRoute, Upstream, read,
};
use super::{Invalid, Json, Kind, upstream};
use serde_json::json;
use weir_model::schema::{Direction, Record, RecordSchema};

/// The schema of a kind of objects.
pub(crate) fn schema_of(kind: Kind) -> Json {
    match kind {
        Kind::Upstreams => described::<Upstream>(),
        Kind::Services => described::<Service>(),
        Kind::Routes => described::<Route>(),
        Kind::Consumers => described::<Consumer>(),
        Kind::Credentials => described::<Credential>(),
        Kind::Ssls => described::<Ssl>(),
        Kind::Protos => described::<Proto>(),
        Kind::Secrets => described::<Secrets>(),
        Kind::StreamRoutes => described::<StreamRoute>(),
        Kind::PluginConfigs | Kind::ConsumerGroups | Kind::GlobalRules => described::<PluginSet>(),
        Kind::PluginMetadata | Kind::Configs => json!({ "type": "object" }),
    }
}

/// The schema of a record.
fn described<T: Record>() -> Json {
    of_record(T::SCHEMA)
}

/// The same, of the record's declaration.
pub(super) fn of_record(record: &RecordSchema) -> Json {
    let mut schema = record.to_json_schema(Direction::Request);
    tell_apart(&mut schema);
    schema
}

/// The schema of fields that may be of several types.
fn tell_apart(schema: &mut Json) {
    let Some(properties) = schema["properties"].as_object_mut() else { return };
    for (name, property) in properties {
        if name == "id" || name.ends_with("_id") {
            *property = json!({ "anyOf": [{ "type": "string", "minLength": 1, "maxLength": 64 }, { "type": "integer", "minimum": 1 }] });
        } else if name == "nodes" {
            let weights =
                json!({ "type": "object", "additionalProperties": { "type": "integer", "minimum": 0 } });
            *property = json!({ "anyOf": [weights, { "type": "array", "items": described::<Node>() }] });
        } else {
            tell_apart(property);
        }
    }
}

/// Checks an object by itself, without its references and plugins.
pub(crate) fn validate(kind: Kind, value: &Json) -> Result<(), Invalid> {
    match kind {
        Kind::Upstreams => upstream::nodes(&read(value)?).map(drop),
        Kind::Services => own_nodes(read::<Service>(value)?.upstream),
        Kind::Routes => own_nodes(read::<Route>(value)?.upstream),
        Kind::Consumers => read::<Consumer>(value).map(drop),
        Kind::Credentials => read::<Credential>(value).map(drop),
        Kind::Ssls => read::<Ssl>(value).map(drop),
        Kind::Protos => read::<Proto>(value).map(drop),
        Kind::Secrets => read::<Secrets>(value).map(drop),
        Kind::StreamRoutes => own_nodes(read::<StreamRoute>(value)?.upstream),
        Kind::PluginConfigs | Kind::ConsumerGroups | Kind::GlobalRules => read::<PluginSet>(value).map(drop),
        Kind::PluginMetadata | Kind::Configs => Ok(()),
    }
}

fn own_nodes(own: Option<Upstream>) -> Result<(), Invalid> {
    own.map_or(Ok(()), |own| upstream::nodes(&own).map(drop))
}

/// A plugin as the API describes it to APISIX's clients.
pub(crate) struct Described {
    pub(crate) name: &'static str,
    /// APISIX's: which of two plugins runs first.
    pub(crate) priority: i32,
    pub(crate) schema: Json,
    /// The schema of a consumer's credential.
    pub(crate) consumer_schema: Option<Json>,
}

impl Described {
    pub(crate) fn to_json(&self) -> Json {
        let mut described = json!({ "priority": self.priority, "schema": self.schema });
        if let Some(schema) = &self.consumer_schema {
            described["consumer_schema"] = schema.clone();
            described["type"] = "auth".into();
        }
        described
    }
}
