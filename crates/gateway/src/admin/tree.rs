//! Values put at paths: arguments of forms, and messages at the fields that they are about.
use weir_model::schema::Json;

/// One step down into a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step<'s> {
    /// To a member of an object.
    Name(&'s str),
    /// To an element of a list; to a new one where there is no number.
    Element(Option<usize>),
}

/// Beyond this, elements follow each other, so that a number alone cannot take much memory.
const FURTHEST_ELEMENT: usize = 1000;

/// Puts a value at a path below another. Where something is already, both stay, as a list.
pub(super) fn place(at: &mut Json, steps: &[Step<'_>], value: Json) {
    match steps.split_first() {
        Some((Step::Name(name), rest)) => place(member(at, name), rest, value),
        Some((Step::Element(index), rest)) => place(element(at, *index), rest, value),
        None => match at {
            Json::Null => *at = value,
            Json::Array(items) => items.push(value),
            single => *single = Json::Array(vec![single.take(), value]),
        },
    }
}

fn member<'j>(at: &'j mut Json, name: &str) -> &'j mut Json {
    if !at.is_object() {
        *at = Json::Object(serde_json::Map::new());
    }
    &mut at[name]
}

fn element(at: &mut Json, index: Option<usize>) -> &mut Json {
    let mut items = match at.take() {
        Json::Array(items) => items,
        Json::Null => Vec::new(),
        single => vec![single],
    };
    let index = index.filter(|index| *index < FURTHEST_ELEMENT).unwrap_or(items.len());
    if items.len() <= index {
        items.resize(index + 1, Json::Null);
    }
    *at = Json::Array(items);
    &mut at[index]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_join_what_is_there() {
        let mut tree = Json::Null;
        place(&mut tree, &[Step::Name("a"), Step::Element(None)], json!(1));
        place(&mut tree, &[Step::Name("a"), Step::Element(Some(2))], json!(2));
        place(&mut tree, &[Step::Name("b")], json!(3));
        place(&mut tree, &[Step::Name("b")], json!(4));
        assert_eq!(tree, json!({ "a": [1, null, 2], "b": [3, 4] }));
    }

    #[test]
    fn a_number_alone_takes_no_memory() {
        let mut tree = Json::Null;
        place(&mut tree, &[Step::Element(Some(usize::MAX))], json!(1));
        assert_eq!(tree, json!([1]));
    }
}
