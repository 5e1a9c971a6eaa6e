//! Files of the catalogue, read strictly: what is not known is refused, at its place.
use super::{CatalogueError, nearest};
use crate::duration;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use std::path::Path;
use std::time::Duration;

/// A file's text.
pub(crate) fn read_text(file: &Path) -> Result<String, CatalogueError> {
    std::fs::read_to_string(file).map_err(|error| CatalogueError::Unreadable(file.to_owned(), error))
}

/// A TOML file as data.
pub(crate) fn read_toml<T: DeserializeOwned>(file: &Path) -> Result<T, CatalogueError> {
    parse_toml(file, &read_text(file)?)
}

/// The text of a TOML file as data.
pub(crate) fn parse_toml<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, CatalogueError> {
    toml::from_str(text).map_err(|error| {
        let (line, column) = position(text, error.span().map_or(0, |span| span.start));
        CatalogueError::Invalid {
            file: file.to_owned(),
            line,
            column,
            message: with_nearest(&in_words(error.message())),
        }
    })
}

/// The line and the column, from 1 on, at an offset of a text.
pub(crate) fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// serde names types as Rust does.
fn in_words(message: &str) -> String {
    let types = [
        ("expected u16", "expected a whole number from 0 to 65535"),
        ("expected u32", "expected a whole number from 0 on"),
        ("expected u64", "expected a whole number from 0 on"),
        ("expected usize", "expected a whole number from 0 on"),
    ];
    let found = types.iter().find(|(name, _)| message.ends_with(name));
    found.map_or_else(|| message.to_owned(), |(name, words)| message.replace(name, words))
}

/// serde lists every known key when one is unknown; the nearest of them is what was meant.
fn with_nearest(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    match (message.starts_with("unknown "), quoted.next()) {
        (true, Some(unknown)) => match nearest(unknown, quoted).first() {
            Some(known) => format!("{message}; did you mean `{known}`?"),
            None => message.to_owned(),
        },
        _ => message.to_owned(),
    }
}

/// A duration as people write it: `250ms`, `3s`, `2m`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span(pub(crate) Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        duration::parse(&text).map(Span).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_said_in_words() {
        let text = in_words("invalid value: integer `70000`, expected u16");
        assert!(text.ends_with("expected a whole number from 0 to 65535"), "{text}");
    }

    #[test]
    fn the_nearest_known_key_is_offered() {
        let text = with_nearest("unknown field `titel`, expected one of `title`, `source`");
        assert!(text.ends_with("did you mean `title`?"), "{text}");
    }
}
