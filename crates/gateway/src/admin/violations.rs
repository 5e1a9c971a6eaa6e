//! Violations in Kong's form: an object as deep as the entity, and one line.
use super::tree::{Padding, Step, insert_at};
use weir_model::schema::{FieldError, Json, JsonMap};

/// The errors of an entity.
pub(crate) struct Violations {
    /// Each message at its field; those on the entity as a whole are a list at `@entity`.
    pub(crate) fields: Json,
    /// All messages.
    pub(crate) message: String,
}

/// How many elements without messages are put before those with messages.
const MAX_PADDING: usize = 100_000;

/// Where messages on the whole entity are.
const ENTITY: &str = "@entity";

impl Violations {
    /// Builds Kong's form of violations.
    pub(crate) fn of(violations: &[FieldError]) -> Violations {
        let mut fields = Json::Object(JsonMap::new());
        let (mut lines, mut padding) = (Vec::new(), Padding(MAX_PADDING));
        for violation in violations.iter().map(ReportedViolation::of) {
            let mut steps = steps(&violation.path);
            if steps.is_empty() {
                steps = vec![Step::Name(ENTITY), Step::Element(None)];
                lines.push((String::new(), violation.message.clone()));
            } else {
                let message = format!("{}: {}", violation.path, violation.message);
                lines.push((violation.path.clone(), message));
            }
            // A message that has no place in the tree is still in the line.
            let _ = insert_at(&mut fields, &steps, violation.at_field.into(), &mut padding);
        }
        lines.sort();
        let count = lines.len();
        let all = lines.into_iter().map(|(_, line)| line).collect::<Vec<_>>().join("; ");
        let message = match count {
            1 => format!("schema violation ({all})"),
            _ => format!("{count} schema violations ({all})"),
        };
        Violations { fields, message }
    }
}

/// A violation in the words of the response: at fields that are missing or unknown it has Kong's exact text, because
/// programs compare it; the line for people also has the hint.
struct ReportedViolation {
    path: String,
    at_field: String,
    message: String,
}

impl ReportedViolation {
    fn of(violation: &FieldError) -> ReportedViolation {
        let FieldError { path, message } = violation;
        if message.starts_with("required: ") {
            let missing = "required field missing".to_owned();
            return ReportedViolation { path: path.clone(), at_field: missing.clone(), message: missing };
        }
        let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
        if let Some((name, hint)) = unknown {
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            let at_field = "unknown field".to_owned();
            return ReportedViolation { path, message: format!("{at_field}{hint}"), at_field };
        }
        let null = "value must be null";
        let at_field = if message.starts_with(null) { null } else { message.as_str() };
        ReportedViolation { path: path.clone(), at_field: at_field.to_owned(), message: message.clone() }
    }
}

/// `a.b[0]` as steps.
fn steps(path: &str) -> Vec<Step<'_>> {
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

    #[test]
    fn violations_are_told_in_kongs_form() {
        let found = [
            FieldError::new("port", "too large"),
            FieldError::new("", "needs more"),
            FieldError::new("host", "required: set `host`"),
            FieldError::new("paths[1]", "no slash"),
            FieldError::new("consumer_group", "value must be null: move it"),
            FieldError::new("config.redis", "unknown field `prot`; did you mean `port`?"),
        ];
        let Violations { fields, message } = Violations::of(&found);
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
            "6 schema violations (needs more; config.redis.prot: unknown field; did you mean `port`?; \
             consumer_group: value must be null: move it; \
             host: required field missing; paths[1]: no slash; port: too large)"
        );
    }

    #[test]
    fn one_violation_is_not_counted() {
        let Violations { message, .. } = Violations::of(&[FieldError::new("host", "required: set `host`")]);
        assert_eq!(message, "schema violation (host: required field missing)");
    }
}
