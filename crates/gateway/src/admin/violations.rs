//! Violations in Kong's form: an object as deep as the entity, and one line.
use super::tree::{Padding, Step, insert_at};
use weir_model::schema::{FieldError, Json, JsonMap};

/// Kong's words for a field without a value.
pub(super) const REQUIRED: &str = "required field missing";
/// Kong's words for a field that there is not.
const UNKNOWN: &str = "unknown field";

/// Something that is wrong with an entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The field, as in `redis.port` or `paths[0]`; the entity's place, if it is about the whole entity.
    pub(crate) path: String,
    /// What is wrong, in Kong's words if it has any: programs compare them.
    pub(crate) message: String,
    /// What we say of it, and how to fix it.
    pub(crate) hint: Option<String>,
    /// Whether it is about the whole entity.
    pub(crate) is_entity: bool,
}

impl Violation {
    /// A violation by its text alone. What follows the first semicolon is the hint.
    pub(crate) fn of(error: &FieldError) -> Violation {
        let FieldError { path, message } = error;
        let named = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let at = |path: String, message: &str, hint: &str| Violation {
            is_entity: path.is_empty(),
            path,
            message: message.to_owned(),
            hint: Some(hint.trim_start_matches("; ")).filter(|hint| !hint.is_empty()).map(str::to_owned),
        };
        if message.starts_with("required: ") {
            return at(path.clone(), REQUIRED, "");
        }
        if let Some((name, hint)) = message.strip_prefix("unknown field `").and_then(|it| it.split_once('`'))
        {
            return at(named(name), UNKNOWN, hint);
        }
        let unsupported =
            message.strip_prefix('`').and_then(|rest| rest.split_once("` is not supported yet"));
        if let Some((name, _)) = unsupported {
            return at(named(name), UNKNOWN, "not supported yet; leave it out");
        }
        if message.starts_with("value must be null") {
            return at(path.clone(), "value must be null", message);
        }
        let (what, hint) = message.split_once("; ").unwrap_or((message, ""));
        at(path.clone(), what, hint)
    }

    /// Whether the words are Kong's, whatever is declared.
    pub(super) fn is_fixed(&self) -> bool {
        [REQUIRED, UNKNOWN, "value must be null"].contains(&self.message.as_str())
    }

    /// The same violation of an entity that is at this place of something larger.
    pub(super) fn below(self, place: &str) -> Violation {
        let path = match (place, self.path.as_str()) {
            ("", own) => own.to_owned(),
            (place, "") => place.to_owned(),
            (place, own) => format!("{place}.{own}"),
        };
        Violation { path, ..self }
    }
}

/// The errors of an entity.
pub(crate) struct Violations {
    /// Each message at its field; those on the entity as a whole are a list at `@entity`.
    pub(crate) fields: Json,
    /// All messages.
    pub(crate) message: String,
    /// All hints.
    pub(crate) hint: Option<String>,
}

/// How many elements without messages are put before those with messages.
const MAX_PADDING: usize = 100_000;

/// Where messages on the whole entity are.
pub(super) const ENTITY: &str = "@entity";

impl Violations {
    /// Builds Kong's form of violations.
    pub(crate) fn of(violations: &[Violation]) -> Violations {
        let mut fields = Json::Object(JsonMap::new());
        let mut padding = Padding(MAX_PADDING);
        for violation in violations {
            let mut steps = steps(&violation.path);
            if violation.is_entity {
                steps.extend([Step::Name(ENTITY), Step::Element(None)]);
            }
            // A message that has no place in the tree is still among the hints.
            let _ = insert_at(&mut fields, &steps, violation.message.as_str().into(), &mut padding);
        }
        let lines = lines(&fields);
        let message = match lines.as_slice() {
            [line] => format!("schema violation ({line})"),
            lines => format!("{} schema violations ({})", lines.len(), lines.join("; ")),
        };
        Violations { fields, message, hint: hint(violations) }
    }
}

fn hint(violations: &[Violation]) -> Option<String> {
    let hints = violations.iter().filter_map(|violation| {
        let hint = violation.hint.as_ref().filter(|hint| **hint != violation.message)?;
        let path = &violation.path;
        Some(if path.is_empty() { hint.clone() } else { format!("{path}: {hint}") })
    });
    let hints: Vec<_> = hints.collect();
    if hints.is_empty() { None } else { Some(hints.join("; ")) }
}

/// The lines of Kong's message: first those on the entity, then those on its fields, two levels deep.
fn lines(fields: &Json) -> Vec<String> {
    let members = members(fields);
    let of_entity =
        members.iter().filter(|(name, _)| name == ENTITY).flat_map(|(_, list)| self::members(list));
    let mut lines: Vec<_> = of_entity.map(|(_, message)| lua_table(message, 0)).collect();
    for (name, errors) in members.iter().filter(|(name, _)| name != ENTITY) {
        match errors {
            Json::Object(_) | Json::Array(_) => lines.extend(
                self::members(errors)
                    .iter()
                    .map(|(below, error)| format!("{name}.{below}: {}", lua_table(error, 0))),
            ),
            message => lines.push(format!("{name}: {}", lua_table(message, 0))),
        }
    }
    lines
}

/// The members of an object or a list, in order. Lua counts elements from 1.
pub(super) fn members(value: &Json) -> Vec<(String, &Json)> {
    match value {
        Json::Object(members) => {
            let mut members: Vec<_> = members.iter().map(|(name, value)| (name.clone(), value)).collect();
            members.sort_by(|one, other| one.0.cmp(&other.0));
            members
        }
        Json::Array(items) => {
            let items = items.iter().enumerate().filter(|(_, item)| !item.is_null());
            items.map(|(index, item)| ((index + 1).to_string(), item)).collect()
        }
        _ => Vec::new(),
    }
}

/// A message; or messages below it, as Kong writes a table.
fn lua_table(value: &Json, depth: usize) -> String {
    if let Json::String(text) = value {
        return if depth == 0 { text.clone() } else { format!("{text:?}") };
    }
    let indent = "  ".repeat(depth + 1);
    let is_list = value.as_array().is_some_and(|items| items.iter().all(|item| !item.is_null()));
    let lines = members(value).into_iter().map(|(name, value)| {
        let is_plain = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        let key = match is_plain && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            true => format!("{name} = "),
            false if is_list => String::new(),
            false if is_index(&name) => format!("[{name}] = "),
            false => format!("[{name:?}] = "),
        };
        format!("{indent}{key}{}", lua_table(value, depth + 1))
    });
    let lines: Vec<_> = lines.collect();
    format!("{{\n{}\n{}}}", lines.join(",\n"), "  ".repeat(depth))
}

fn is_index(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_digit())
}

/// `a.b[0]` as steps.
pub(super) fn steps(path: &str) -> Vec<Step<'_>> {
    let parts = path.split(['.', '[']).filter(|part| !part.is_empty());
    parts
        .map(|part| match part.strip_suffix(']').and_then(|index| index.parse().ok()) {
            Some(index) => Step::Element(Some(index)),
            None => Step::Name(part),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(errors: &[(&str, &str)]) -> Violations {
        let errors = errors.iter().map(|(path, message)| Violation::of(&FieldError::new(*path, *message)));
        Violations::of(&errors.collect::<Vec<_>>())
    }

    #[test]
    fn violations_are_told_in_kongs_form() {
        let Violations { fields, message, hint } = of(&[
            ("port", "too large"),
            ("", "needs more"),
            ("host", "required: set `host`"),
            ("paths[1]", "no slash; add one"),
            ("consumer_group", "value must be null: move it"),
            ("config.redis", "unknown field `prot`; did you mean `port`?"),
        ]);
        let expected = json!({
            "@entity": ["needs more"],
            "config": { "redis": { "prot": "unknown field" } },
            "consumer_group": "value must be null",
            "host": "required field missing",
            "paths": [null, "no slash"],
            "port": "too large",
        });
        assert_eq!(fields, expected);
        assert_eq!(
            message,
            "6 schema violations (needs more; config.redis: {\n  prot = \"unknown field\"\n}; \
             consumer_group: value must be null; host: required field missing; paths.2: no slash; port: too large)"
        );
        let expected = "paths[1]: add one; consumer_group: value must be null: move it; \
                        config.redis.prot: did you mean `port`?";
        assert_eq!(hint.as_deref(), Some(expected));
    }

    #[test]
    fn one_violation_is_not_counted() {
        let one = of(&[("host", "required: set `host`")]);
        assert_eq!(
            (one.message.as_str(), one.hint),
            ("schema violation (host: required field missing)", None)
        );
        let one = of(&[("config", "unknown field `garbage`; there are: a, b")]);
        assert_eq!(one.message, "schema violation (config.garbage: unknown field)");
    }
}
