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

/// How many empty elements may still be put before others, so that many numbers cannot take much memory either.
pub(super) struct Padding(pub(super) usize);

/// There is no padding left.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooFar;

/// Puts a value at a path below another. Where something is already, both stay, as a list.
pub(super) fn place(
    at: &mut Json,
    steps: &[Step<'_>],
    value: Json,
    padding: &mut Padding,
) -> Result<(), TooFar> {
    match steps.split_first() {
        Some((Step::Name(name), rest)) => place(member(at, name), rest, value, padding)?,
        Some((Step::Element(index), rest)) => place(element(at, *index, padding)?, rest, value, padding)?,
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
) -> Result<&'j mut Json, TooFar> {
    let length = match at {
        Json::Array(items) => items.len(),
        Json::Null => 0,
        _ => 1,
    };
    let index = index.filter(|index| *index < FURTHEST_ELEMENT).unwrap_or(length);
    padding.0 = padding.0.checked_sub(index.saturating_sub(length)).ok_or(TooFar)?;
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
            place(&mut tree, steps, value.into(), &mut padding).unwrap();
        }
        let too_far = place(&mut tree, &[Step::Name("a"), Step::Element(Some(4))], 5.into(), &mut padding);
        assert_eq!(too_far, Err(TooFar));
        assert_eq!(tree, json!({ "a": [1, null, 2], "b": [3, 4] }));
    }

    #[test]
    fn a_number_alone_takes_no_memory() {
        let mut tree = Json::Null;
        place(&mut tree, &[Step::Element(Some(usize::MAX))], json!(1), &mut Padding(0)).unwrap();
        assert_eq!(tree, json!([1]));
    }
}
