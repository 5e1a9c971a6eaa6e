//! `${NAME}` and `${NAME:-default}` in string values, once the text has been parsed. `$${` is a literal `${`.
use super::tree::syntax;
use crate::node::{Node, Origin, Position, Value};
use crate::schema::ConfigError;
use std::borrow::Cow;
use std::collections::HashMap;

/// Looks a variable up in the environment.
pub type Environment<'e> = &'e dyn Fn(&str) -> Option<String>;

/// Replaces references to the environment.
pub(super) struct Interpolation<'e> {
    environment: Environment<'e>,
    /// The references that are wrong.
    pub(super) problems: Vec<ConfigError>,
    /// The variables that a value is made of, by where it stands.
    pub(super) variables: HashMap<Position, String>,
}

impl<'e> Interpolation<'e> {
    pub(super) fn new(environment: Environment<'e>) -> Self {
        Interpolation { environment, problems: Vec::new(), variables: HashMap::new() }
    }

    /// Replaces every reference below this node.
    pub(super) fn replace(&mut self, node: &mut Node<'_>) {
        match &mut node.value {
            Value::Str(text, origin) if text.contains("${") => match expand(text, self.environment) {
                Ok((expanded, variables)) => {
                    *text = Cow::Owned(expanded);
                    if !variables.is_empty() {
                        *origin = Origin::Interpolated;
                        self.variables.insert(node.at, variables.join("`, `"));
                    }
                }
                Err(message) => self.problems.push(syntax(node.at, message)),
            },
            Value::List(elements) => elements.iter_mut().for_each(|element| self.replace(element)),
            Value::Map(entries) => entries
                .iter_mut()
                .filter(|entry| !matches!(entry.key.as_ref(), "_comment" | "_ignore" | "_info"))
                .for_each(|entry| self.replace(&mut entry.node)),
            _ => {}
        }
    }
}

/// The text with its references replaced, and the variables that they name.
fn expand(text: &str, environment: Environment<'_>) -> Result<(String, Vec<String>), String> {
    let (mut expanded, mut variables) = (String::with_capacity(text.len()), Vec::new());
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
        let (name, value) = look_up(reference, environment)?;
        expanded.push_str(&value);
        variables.push(name.to_owned());
        rest = after;
    }
    expanded.push_str(rest);
    Ok((expanded, variables))
}

/// The variable's name, and its value.
fn look_up<'r>(reference: &'r str, environment: Environment<'_>) -> Result<(&'r str, String), String> {
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
        (Some(value), None) => Ok((name, value)),
        (Some(value), Some(_)) if !value.is_empty() => Ok((name, value)),
        (_, Some(default)) => Ok((name, default.to_owned())),
        (None, None) => Err(format!(
            "the environment variable `{name}` is not set; set it, or write ${{{name}:-default}}"
        )),
    }
}
