//! Form arguments, such as `config.minute=5` and `paths[]=/a`, as JSON. Forms have no types, so these come from the
//! declarations of the fields.
use super::tree::{Padding, Step, insert_at};
use weir_model::entity::EntityKind;
use weir_model::schema::{FieldSchema, Json, JsonMap, Kind, RecordSchema};

/// Forms and queries with more arguments are refused, and so are forms with more steps in one.
pub(super) const MAX_ARGUMENTS: usize = 1000;
const MAX_STEPS: usize = 16;
/// So are forms that leave out more elements before others.
const MAX_PADDING: usize = 1000;

/// Builds the object that the names of the arguments describe.
pub(super) fn tree(arguments: impl Iterator<Item = (String, Json)>) -> Result<JsonMap, String> {
    let (mut tree, mut padding) = (Json::Object(JsonMap::new()), Padding(MAX_PADDING));
    for (count, (name, value)) in arguments.enumerate() {
        if count == MAX_ARGUMENTS {
            return Err("Too many arguments".to_owned());
        }
        let steps = steps(&name);
        if steps.len() > MAX_STEPS {
            return Err(format!("an argument's name may have {MAX_STEPS} parts at most; send JSON"));
        }
        if !steps.is_empty() {
            let too_much_padding =
                |_| format!("a form may leave out {MAX_PADDING} elements of lists at most; send JSON");
            insert_at(&mut tree, &steps, value, &mut padding).map_err(too_much_padding)?;
        }
    }
    match tree {
        Json::Object(members) => Ok(members),
        _ => Ok(JsonMap::new()),
    }
}

/// `a.b[]` and `a.b[2]` as steps; elements are counted from 1.
fn steps(name: &str) -> Vec<Step<'_>> {
    let mut steps = Vec::new();
    for mut part in name.split('.').filter(|part| !part.is_empty()) {
        let mut elements = Vec::new();
        while let Some((before, index)) = element(part) {
            elements.push(Step::Element(index));
            part = before;
        }
        steps.push(Step::Name(part));
        steps.extend(elements.into_iter().rev());
    }
    steps
}

fn element(part: &str) -> Option<(&str, Option<usize>)> {
    let (before, index) = part.strip_suffix(']')?.rsplit_once('[')?;
    if before.is_empty() || !index.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((before, index.parse::<usize>().ok().and_then(|index| index.checked_sub(1))))
}

/// Converts the members of an entity to the types of their fields; `config_schema` declares its `config`, where the name of
/// a plugin or a vault decides on that.
pub(super) fn typed(kind: EntityKind, members: &mut JsonMap, config_schema: Option<&RecordSchema>) {
    type_members(kind.schema(), members);
    if let (Some(config_schema), Some(Json::Object(config))) = (config_schema, members.get_mut("config")) {
        type_members(config_schema, config);
    }
}

fn type_members(schema: &RecordSchema, members: &mut JsonMap) {
    for (name, value) in members {
        if let Some(field) = field(schema, name) {
            *value = typed_value(&field.kind, value.take());
        }
    }
}

/// The field of a name, which may be an old name.
fn field(schema: &RecordSchema, name: &str) -> Option<&'static FieldSchema> {
    let old = schema.old_names.iter().find(|(old, _)| *old == name);
    old.map_or_else(|| schema.field(name), |(_, path)| schema.field_at(path))
}

fn typed_value(kind: &Kind, value: Json) -> Json {
    match (kind, value) {
        (_, Json::String(text)) if text.is_empty() => Json::Null,
        (Kind::Boolean, Json::String(text)) => match text.as_str() {
            "true" => true.into(),
            "false" => false.into(),
            _ => text.into(),
        },
        (Kind::Integer(..) | Kind::Number, Json::String(text)) => number(text),
        (Kind::Array(element), Json::Array(items)) => {
            let items = items.into_iter().map(|item| typed_value(element, item));
            items.filter(|item| !item.is_null()).collect()
        }
        (Kind::Array(element), single) if !single.is_null() => vec![typed_value(element, single)].into(),
        (Kind::Map(inner), Json::Object(members)) => {
            members.into_iter().map(|(name, value)| (name, typed_value(inner, value))).collect()
        }
        (Kind::Record(schema), Json::Object(mut members)) => {
            type_members(schema, &mut members);
            members.into()
        }
        (_, value) => value,
    }
}

fn number(text: String) -> Json {
    if let Ok(whole) = text.parse::<i64>() {
        return whole.into();
    }
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => number.into(),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn form(text: &str) -> JsonMap {
        let arguments = form_urlencoded::parse(text.as_bytes());
        tree(arguments.map(|(name, value)| (name.into_owned(), value.into_owned().into()))).unwrap()
    }

    #[test]
    fn names_say_where_values_go() {
        for (text, expected) in [
            ("a=1", json!({ "a": "1" })),
            ("a.b.c=1&a.d=2", json!({ "a": { "b": { "c": "1" }, "d": "2" } })),
            ("a[]=1&a[]=2", json!({ "a": ["1", "2"] })),
            ("a[1]=1&a[2]=2", json!({ "a": ["1", "2"] })),
            ("a=1&a=2", json!({ "a": ["1", "2"] })),
            ("a[1].b=1&a[1].c=2", json!({ "a": [{ "b": "1", "c": "2" }] })),
            ("a%5B%5D=x+y", json!({ "a": ["x y"] })),
            ("a[x]=1&[1]=2&.=3", json!({ "a[x]": "1", "[1]": "2" })),
        ] {
            assert_eq!(Json::Object(form(text)), expected, "{text}");
        }
    }

    #[test]
    fn values_get_the_types_of_their_fields() {
        let mut members =
            form("port=80&enabled=false&tags=a&path=&retries=x&host=1&ca_certificates[2]=b&unknown=1");
        typed(EntityKind::Services, &mut members, None);
        let expected = json!({
            "port": 80, "enabled": false, "tags": ["a"], "path": null, "retries": "x", "host": "1",
            "ca_certificates": ["b"], "unknown": "1",
        });
        assert_eq!(Json::Object(members), expected);
        let mut members = form("headers.x=1&sources[1].port=2");
        typed(EntityKind::Routes, &mut members, None);
        assert_eq!(Json::Object(members), json!({ "headers": { "x": ["1"] }, "sources": [{ "port": 2 }] }));
    }

    #[test]
    fn what_would_take_too_much_is_refused() {
        let many = (0..=MAX_ARGUMENTS).map(|_| ("a[]".to_owned(), json!("1")));
        assert!(tree(many).is_err());
        let far = (0..300).map(|number| (format!("q{number}{}", "[1000]".repeat(14)), json!("x")));
        assert!(tree(far).is_err());
        assert!(tree([("a[1000]".to_owned(), json!("x"))].into_iter()).is_ok());
        assert!(tree([("a.".repeat(MAX_STEPS + 1), json!("1"))].into_iter()).is_err());
    }
}
