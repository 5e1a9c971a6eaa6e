//! `${NAME}` and `${NAME:-default}` in string values, once the text has been parsed. `$${` is a literal `${`.
use super::tree::syntax;
use crate::node::{Node, Origin, Value};
use crate::schema::Problem;
use std::borrow::Cow;

/// Looks a variable up in the environment.
pub type Environment<'e> = &'e dyn Fn(&str) -> Option<String>;

/// Replaces every reference below this node.
pub(super) fn interpolate(node: &mut Node<'_>, environment: Environment<'_>, problems: &mut Vec<Problem>) {
    match &mut node.value {
        Value::Str(text, origin) if text.contains("${") => match expand(text, environment) {
            Ok((expanded, referred)) => {
                *text = Cow::Owned(expanded);
                if referred {
                    *origin = Origin::Interpolated;
                }
            }
            Err(message) => problems.push(syntax(node.at, message)),
        },
        Value::List(elements) => elements.iter_mut().for_each(|e| interpolate(e, environment, problems)),
        Value::Map(entries) => entries
            .iter_mut()
            .filter(|entry| !matches!(entry.key.as_ref(), "_comment" | "_ignore" | "_info"))
            .for_each(|entry| interpolate(&mut entry.node, environment, problems)),
        _ => {}
    }
}

/// The text with its references replaced, and whether there were any.
fn expand(text: &str, environment: Environment<'_>) -> Result<(String, bool), String> {
    let (mut expanded, mut referred) = (String::with_capacity(text.len()), false);
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        if let Some(before) = before.strip_suffix('$') {
            expanded.push_str(before);
            expanded.push_str("${");
            rest = after;
            continue;
        }
        let Some((reference, after)) = after.split_once('}') else {
            return Err("`${` has no `}`; write `$${` for the characters themselves".to_owned());
        };
        expanded.push_str(before);
        expanded.push_str(&look_up(reference, environment)?);
        (rest, referred) = (after, true);
    }
    expanded.push_str(rest);
    Ok((expanded, referred))
}

fn look_up(reference: &str, environment: Environment<'_>) -> Result<String, String> {
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    if name.is_empty() || !name.bytes().all(letter) || name.as_bytes()[0].is_ascii_digit() {
        return Err(format!(
            "`${{{name}}}` names no environment variable; write `$${{` for the characters themselves"
        ));
    }
    match (environment(name), default) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(format!(
            "the environment variable `{name}` is not set; set it, or write ${{{name}:-default}}"
        )),
    }
}
