//! The nesting depth of JSON. Parsers have a limit, and code that walks a value needs stack for each level, so stored
//! values stay well below both.
use weir_model::entity::Entity;
use weir_model::schema::Json;

/// How deep an entity may be nested. The parser of stored JSON stops at 128 levels, and that of declarative files, such
/// as exported ones, at 64, of which the file itself needs two.
pub(crate) const MAX_DEPTH: usize = 62;

/// Whether an entity is nested too deep to be stored.
pub(crate) fn is_too_deep(entity: &Entity) -> bool {
    is_deeper(&entity.to_value(), MAX_DEPTH)
}

/// Whether lists and objects are nested deeper than this. Recurses no deeper than the limit.
pub(crate) fn is_deeper(value: &Json, limit: usize) -> bool {
    let below = |element: &Json| is_deeper(element, limit.saturating_sub(1));
    match value {
        Json::Array(elements) => limit == 0 || elements.iter().any(below),
        Json::Object(members) => limit == 0 || members.values().any(below),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn levels_are_counted() {
        for (value, depth) in [(json!(1), 0), (json!([]), 1), (json!({ "a": [1, { "b": 2 }] }), 3)] {
            assert!(!is_deeper(&value, depth), "{value}");
            assert!(depth == 0 || is_deeper(&value, depth - 1), "{value}");
        }
    }
}
