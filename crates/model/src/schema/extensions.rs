//! Fields that Kong 3.9 does not have. Its tools see them only where they are used.
use super::{FieldSchema, Json, JsonMap, Kind, Literal, RecordSchema};

/// Removes the fields that Kong lacks and that have their default.
pub fn hide(schema: &RecordSchema, members: &mut JsonMap) {
    for field in schema.fields.iter().filter(|field| field.extension) {
        if members.get(field.name).is_some_and(|value| is_default(field, value)) {
            members.remove(field.name);
        }
    }
}

fn is_default(field: &FieldSchema, value: &Json) -> bool {
    field.default.map_or(Json::Null, |default| default.to_json()) == *value
}

/// Removes what Kong lacks, and adds the path of each field and value whose removal changes something. `path` leads to the
/// record.
pub fn take(schema: &RecordSchema, members: &mut JsonMap, path: &str, taken: &mut Vec<String>) {
    for field in schema.fields {
        let Some(value) = members.get_mut(field.name) else { continue };
        let is_without_effect = value.is_null() || is_default(field, value);
        if field.extension && is_without_effect {
            members.remove(field.name);
            continue;
        }
        let path = || if path.is_empty() { field.name.to_owned() } else { format!("{path}.{}", field.name) };
        if field.extension {
            members.remove(field.name);
            taken.push(path());
        } else if is_foreign_value(field, value) {
            taken.push(format!("{}: {value}", path()));
            match value_of_kong(field).filter(|_| field.default.is_none()) {
                Some(required) => *value = required,
                None => drop(members.remove(field.name)),
            }
        } else if !value.is_null() {
            below(field, value, &path(), taken);
        }
    }
}

/// The first value that Kong has too.
fn value_of_kong(field: &FieldSchema) -> Option<Json> {
    field.one_of.iter().map(Literal::to_json).find(|value| !is_foreign_value(field, value))
}

fn is_foreign_value(field: &FieldSchema, value: &Json) -> bool {
    value.as_str().is_some_and(|text| field.extension_values.contains(&text))
}

fn below(field: &FieldSchema, value: &mut Json, path: &str, taken: &mut Vec<String>) {
    match (field.kind, value) {
        (Kind::Record(schema), Json::Object(members)) => take(schema, members, path, taken),
        (Kind::Array(Kind::Record(schema)), Json::Array(items)) => {
            for (index, item) in items.iter_mut().enumerate() {
                if let Json::Object(members) = item {
                    take(schema, members, &format!("{path}[{index}]"), taken);
                }
            }
        }
        (Kind::Array(_), Json::Array(items)) => items.retain(|item| {
            let is_foreign = is_foreign_value(field, item);
            taken.extend(is_foreign.then(|| format!("{path}: {item}")));
            !is_foreign
        }),
        _ => {}
    }
}
