//! Whether an answer has what a case expects of it.
use serde_json::Value;

/// What differs; expected members are looked at alone, lists as a whole. `<uuid>`, `<integer>`, `<number>`, `<text>`
/// and `<less than 5>` stand for any such value.
pub(crate) fn difference(expected: &Value, found: &Value, path: &str) -> Option<String> {
    match (expected, found) {
        (Value::Object(expected), Value::Object(members)) => expected.iter().find_map(|(name, value)| {
            let path = format!("{path}/{name}");
            match members.get(name) {
                Some(found) => difference(value, found, &path),
                None => Some(format!("{path} is missing")),
            }
        }),
        (Value::Array(expected), Value::Array(items)) if expected.len() == items.len() => {
            let pairs = expected.iter().zip(items).enumerate();
            pairs
                .into_iter()
                .find_map(|(i, (expected, found))| difference(expected, found, &format!("{path}/{i}")))
        }
        (Value::String(pattern), found) if is_pattern(pattern, found) => None,
        (expected, found) if expected == found => None,
        (expected, found) => Some(format!("{path} is {found}, expected {expected}")),
    }
}

fn is_pattern(pattern: &str, found: &Value) -> bool {
    match pattern {
        "<uuid>" => found.as_str().is_some_and(|text| text.len() == 36 && text.matches('-').count() == 4),
        "<integer>" => found.is_i64() || found.is_u64(),
        "<number>" => found.is_number(),
        "<text>" => found.as_str().is_some_and(|text| !text.is_empty()),
        _ => pattern
            .strip_prefix("<less than ")
            .and_then(|most| most.strip_suffix('>')?.parse::<i64>().ok())
            .is_some_and(|most| found.as_i64().is_some_and(|number| number < most)),
    }
}
