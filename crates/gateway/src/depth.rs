//! How deep JSON is nested. Parsers give up at a depth, and whatever walks a value needs stack for each level of it: what
//! is written must stay well below both.
use weir_model::entity::Entity;
use weir_model::schema::Json;

/// How deep an entity may be nested. What reads the JSON of stores gives up at 128 levels, and what reads a declarative
/// file, such as one that was exported, at 64, of which the file itself needs two.
pub(crate) const DEEPEST: usize = 62;

/// Whether an entity is nested too deep to be kept.
pub(crate) fn is_too_deep(entity: &Entity) -> bool {
    is_deeper(&entity.to_value(), DEEPEST)
}

/// Whether lists and objects lie in one another more often than this. Looks no deeper than that itself.
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
