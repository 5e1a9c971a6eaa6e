//! The fields of an entity, as `/schemas/…` of the Admin API describes them.
use serde_json::Value;

/// A field.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    /// Its name with those of the records around it, such as `config.redis.host`.
    pub(crate) path: String,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) description: Option<String>,
    pub(crate) default: Option<Value>,
    pub(crate) is_required: bool,
    /// Its value is not shown.
    pub(crate) is_secret: bool,
    /// The gateway sets it.
    pub(crate) is_auto: bool,
}

/// What a field holds.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Text,
    Number,
    Boolean,
    /// One of these.
    Choice(Vec<Value>),
    /// Any of these.
    Choices(Vec<Value>),
    /// A list of texts or numbers.
    List {
        of_numbers: bool,
    },
    /// Another entity of this collection.
    Reference(String),
    Record(Vec<Field>),
    /// Anything deeper, which is edited as JSON.
    Json,
}

/// Names of fields that hold secrets where the schema does not say so.
const SECRET_NAMES: [&str; 8] =
    ["password", "secret", "private_key", "client_secret", "secret_key", "access_token", "api_key", "token"];

/// The fields of a schema.
pub(crate) fn fields(schema: &Value) -> Vec<Field> {
    below("", schema)
}

fn below(parent: &str, schema: &Value) -> Vec<Field> {
    let each = schema["fields"].as_array().into_iter().flatten().filter_map(Value::as_object);
    each.flat_map(|member| member.iter()).map(|(name, described)| field(parent, name, described)).collect()
}

fn field(parent: &str, name: &str, described: &Value) -> Field {
    let path = if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") };
    let is = |what: &str| described[what].as_bool() == Some(true);
    let is_text = described["type"] == "string";
    let is_secret = is("encrypted")
        || described["values"]["referenceable"] == true
        || is_text && SECRET_NAMES.iter().any(|secret| name.ends_with(secret));
    Field {
        kind: kind(&path, described),
        name: name.to_owned(),
        description: described["description"].as_str().map(str::to_owned),
        default: described.get("default").cloned(),
        is_required: is("required"),
        is_secret,
        // Other texts are generated only where you leave them out, such as the id of a client.
        is_auto: is("auto") && (!is_text || is("uuid")),
        path,
    }
}

fn kind(path: &str, described: &Value) -> Kind {
    if let Some(choices) = described["one_of"].as_array() {
        return Kind::Choice(choices.clone());
    }
    let elements = &described["elements"];
    match (described["type"].as_str(), elements["type"].as_str()) {
        (Some("string"), _) => Kind::Text,
        (Some("integer" | "number"), _) => Kind::Number,
        (Some("boolean"), _) => Kind::Boolean,
        (Some("foreign"), _) => {
            Kind::Reference(described["reference"].as_str().unwrap_or_default().to_owned())
        }
        (Some("record"), _) => Kind::Record(below(path, described)),
        (Some("array" | "set"), Some("string")) => match elements["one_of"].as_array() {
            Some(choices) => Kind::Choices(choices.clone()),
            None => Kind::List { of_numbers: false },
        },
        (Some("array" | "set"), Some("integer" | "number")) => Kind::List { of_numbers: true },
        _ => Kind::Json,
    }
}

/// Every field that is no record, at any depth.
pub(crate) fn leaves(fields: &[Field]) -> Vec<&Field> {
    fn of(field: &Field) -> Vec<&Field> {
        match field {
            Field { kind: Kind::Record(inner), .. } => leaves(inner),
            leaf => vec![leaf],
        }
    }
    fields.iter().flat_map(of).collect()
}

/// The value of a field in an entity.
pub(crate) fn value_at<'v>(entity: &'v Value, path: &str) -> &'v Value {
    path.split('.').fold(entity, |value, name| &value[name])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_read_at_any_depth() {
        let schema = json!({ "fields": [
            { "id": { "type": "string", "uuid": true, "auto": true } },
            { "key": { "type": "string", "auto": true, "encrypted": true } },
            { "config": { "type": "record", "fields": [
                { "redis": { "type": "record", "fields": [{ "password": { "type": "string" } }] } },
                { "methods": { "type": "set", "elements": { "type": "string", "one_of": ["GET"] } } },
                { "rules": { "type": "array", "elements": { "type": "record" } } },
            ] } },
        ] });
        let fields = fields(&schema);
        let all = leaves(&fields);
        let paths: Vec<_> = all.iter().map(|field| field.path.as_str()).collect();
        assert_eq!(paths, ["id", "key", "config.redis.password", "config.methods", "config.rules"]);
        assert!(all[0].is_auto && !all[1].is_auto && all[1].is_secret && all[2].is_secret);
        assert!(matches!(all[3].kind, Kind::Choices(_)) && matches!(all[4].kind, Kind::Json));
    }
}
