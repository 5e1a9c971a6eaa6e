//! The texts of the pages. Each language is a file beside this one, with the same sections and keys.
//!
//! A text may have places such as `{count}` for values, which another language may put in another order.
use maud::{Markup, html};
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::LazyLock;
use toml::{Table, Value};

static ENGLISH: LazyLock<Texts> = LazyLock::new(|| Texts::read(include_str!("en.toml")));

/// The section that the pages' script gets.
const SCRIPT: &str = "script";
/// The longest part of an input that a text repeats, in characters.
const MAX_REPEATED: usize = 80;

/// The texts of one language.
struct Texts {
    /// By section and key, such as `now.charts`.
    by_key: HashMap<String, String>,
    /// What the script gets, as JSON.
    script: String,
}

impl Texts {
    /// Reads a file of `texts/`; tests see to it that each can be read.
    fn read(file: &str) -> Texts {
        let table: Table = file.parse().unwrap_or_default();
        let script = serde_json::to_string(&table.get(SCRIPT)).unwrap_or_default().replace('<', "\\u003c");
        let mut by_key = HashMap::new();
        collect("", &table, &mut by_key);
        Texts { by_key, script }
    }
}

fn collect(section: &str, table: &Table, by_key: &mut HashMap<String, String>) {
    for (name, value) in table {
        let key = if section.is_empty() { name.clone() } else { format!("{section}.{name}") };
        match value {
            Value::Table(inner) => collect(&key, inner, by_key),
            Value::String(text) => drop(by_key.insert(key, text.clone())),
            _ => {}
        }
    }
}

/// The text with a key.
pub(crate) fn of(key: &str) -> &'static str {
    ENGLISH.by_key.get(key).map_or("", String::as_str)
}

/// The texts of the script, as JSON.
pub(crate) fn of_script() -> &'static str {
    &ENGLISH.script
}

/// The text with a key, with values at its places.
pub(crate) fn filled(key: &str, values: &[(&str, &dyn Display)]) -> String {
    let value = |place| values.iter().find(|(name, _)| *name == place).map(|(_, value)| value.to_string());
    let part = |part| match part {
        Part::Words(words) => words.to_owned(),
        Part::Place(place) => value(place).unwrap_or_default(),
    };
    parts(of(key)).map(part).collect()
}

/// The text with a key, with markup at its places.
pub(crate) fn marked_up(key: &str, values: &[(&str, Markup)]) -> Markup {
    html! {
        @for part in parts(of(key)) {
            @match part {
                Part::Words(words) => (words),
                Part::Place(place) => @for (_, markup) in values.iter().filter(|(name, _)| *name == place) { (markup) },
            }
        }
    }
}

/// A text of others in which code stands between backticks.
pub(crate) fn with_code(text: &str) -> Markup {
    let is_paired = text.matches('`').count().is_multiple_of(2);
    html! {
        @if is_paired {
            @for (index, part) in text.split('`').enumerate() {
                @if index % 2 == 0 { (part) } @else { code { (part) } }
            }
        } @else { (text) }
    }
}

/// A part of a text.
enum Part<'t> {
    Words(&'t str),
    /// The name of a value.
    Place(&'t str),
}

fn parts(text: &str) -> impl Iterator<Item = Part<'_>> {
    let parts = text.split(['{', '}']).enumerate();
    parts.map(|(index, part)| if index % 2 == 0 { Part::Words(part) } else { Part::Place(part) })
}

/// What is said where requests were not measured.
pub(crate) fn missing_requests(dropped: u64) -> String {
    filled("messages.missing_requests", &[("count", &dropped)])
}

/// Why only what the node itself remembers is shown.
pub(crate) fn own_history(why: &str) -> String {
    filled("messages.own_history", &[("why", &why)])
}

/// An input that is not one of the choices.
pub(crate) fn not_a_choice(input: &str) -> String {
    filled("messages.not_a_choice", &[("input", &input)])
}

/// An input that is no number.
pub(crate) fn not_a_number(input: &str) -> String {
    filled("messages.not_a_number", &[("input", &input)])
}

/// An input that is not JSON.
pub(crate) fn not_json(error: &dyn Display) -> String {
    filled("messages.not_json", &[("error", error)])
}

/// What is said where a collection is empty.
pub(crate) fn none_yet(one: &str) -> String {
    filled("messages.none_yet", &[("one", &one)])
}

/// What is said of a parameter that is overlooked.
pub(crate) fn overlooked(name: &str, value: &str) -> String {
    filled("messages.overlooked", &[("name", &name), ("value", &short(value))])
}

/// What is said of a frame of time without a moment in it.
pub(crate) fn empty_frame(from: &str, to: &str) -> String {
    filled("messages.empty_frame", &[("from", &short(from)), ("to", &short(to))])
}

/// What is said where a list ends before its end.
pub(crate) fn first_of_many(shown: usize) -> String {
    filled("messages.first_of_many", &[("count", &shown)])
}

fn short(input: &str) -> String {
    input.chars().take(MAX_REPEATED).collect()
}

#[cfg(test)]
mod tests;
