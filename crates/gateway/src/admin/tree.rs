//! Inserts values at paths of a JSON value: form arguments, and messages at their fields.
use weir_model::schema::Json;

/// One step down into a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step<'s> {
    /// To a member of an object.
    Name(&'s str),
    /// To an element of a list; to a new one where there is no number.
    Element(Option<usize>),
}

/// Elements with a larger index are appended, so that a large index cannot take much memory.
const MAX_ELEMENT_INDEX: usize = 1000;

/// How many empty elements may still be inserted before others, so that many indices cannot take much memory either.
pub(super) struct Padding(pub(super) usize);

/// There is no padding left.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PaddingUsedUp;

/// Inserts a value at a path. A value that is there already becomes a list with both.
pub(super) fn insert_at(
    at: &mut Json,
    steps: &[Step<'_>],
    value: Json,
    padding: &mut Padding,
) -> Result<(), PaddingUsedUp> {
    match steps.split_first() {
        Some((Step::Name(name), rest)) => insert_at(member(at, name), rest, value, padding)?,
        Some((Step::Element(index), rest)) => insert_at(element(at, *index, padding)?, rest, value, padding)?,
        None => match at {
            Json::Null => *at = value,
            Json::Array(items) => items.push(value),
            single => *single = Json::Array(vec![single.take(), value]),
        },
    }
    Ok(())
}

fn member<'j>(at: &'j mut Json, name: &str) -> &'j mut Json {
    if !at.is_object() {
        *at = Json::Object(serde_json::Map::new());
    }
    &mut at[name]
}

fn element<'j>(
    at: &'j mut Json,
    index: Option<usize>,
    padding: &mut Padding,
) -> Result<&'j mut Json, PaddingUsedUp> {
    let length = match at {
        Json::Array(items) => items.len(),
        Json::Null => 0,
        _ => 1,
    };
    let index = index.filter(|index| *index < MAX_ELEMENT_INDEX).unwrap_or(length);
    padding.0 = padding.0.checked_sub(index.saturating_sub(length)).ok_or(PaddingUsedUp)?;
    let mut items = match at.take() {
        Json::Array(items) => items,
        Json::Null => Vec::new(),
        single => vec![single],
    };
    if items.len() <= index {
        items.resize(index + 1, Json::Null);
    }
    *at = Json::Array(items);
    Ok(&mut at[index])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_join_what_is_there() {
        let (mut tree, mut padding) = (Json::Null, Padding(1));
        for (steps, value) in [
            (&[Step::Name("a"), Step::Element(None)][..], 1),
            (&[Step::Name("a"), Step::Element(Some(2))], 2),
            (&[Step::Name("b")], 3),
            (&[Step::Name("b")], 4),
        ] {
            insert_at(&mut tree, steps, value.into(), &mut padding).unwrap();
        }
        let too_much_padding =
            insert_at(&mut tree, &[Step::Name("a"), Step::Element(Some(4))], 5.into(), &mut padding);
        assert_eq!(too_much_padding, Err(PaddingUsedUp));
        assert_eq!(tree, json!({ "a": [1, null, 2], "b": [3, 4] }));
    }

    #[test]
    fn a_number_alone_takes_no_memory() {
        let mut tree = Json::Null;
        insert_at(&mut tree, &[Step::Element(Some(usize::MAX))], json!(1), &mut Padding(0)).unwrap();
        assert_eq!(tree, json!([1]));
    }
}
