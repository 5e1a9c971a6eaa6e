//! The texts of the pages, in English.
use std::fmt::Display;

pub(crate) const REQUIRED: &str = "required";
pub(crate) const DEFAULT: &str = "Default:";
pub(crate) const NOT_SET: &str = "(not set)";
pub(crate) const UNCHANGED_SECRET: &str = "unchanged unless you write a new one";
pub(crate) const HIDDEN: &str = "(hidden)";
pub(crate) const SKIP: &str = "Skip to the content";
pub(crate) const READ_ONLY: &str =
    "The configuration is a declarative file, so these pages only show it. Change the file and reload.";
pub(crate) const FORM_EXPIRED: &str =
    "This form is not of your session, or it has expired. Load the page again and repeat.";
pub(crate) const WRONG_TOKEN: &str = "This is no token of the Admin API. `weir admin token` makes one.";
pub(crate) const TOO_MANY_TRIES: &str = "Too many wrong tokens at once. Wait a few seconds and try again.";
pub(crate) const CHANGED_MEANWHILE: &str = "Somebody has changed this since you loaded it. Your input is below; the page shows what it would change now.";
pub(crate) const WRITE_AGAIN: &str = "Write it again: secrets are not sent back to the page.";
pub(crate) const NOTHING_CHANGES: &str = "Nothing differs from what is stored.";

/// An input that is not one of the choices.
pub(crate) fn not_a_choice(text: &str) -> String {
    format!("“{text}” is not one of the choices")
}

/// An input that is no number.
pub(crate) fn not_a_number(text: &str) -> String {
    format!("“{text}” is not a number")
}

/// An input that is not JSON.
pub(crate) fn not_json(error: &dyn Display) -> String {
    format!("this is not JSON: {error}")
}

/// What is said where a collection is empty.
pub(crate) fn none_yet(one: &str) -> String {
    format!("There is no {one} yet.")
}

/// What is said of a parameter that is overlooked.
pub(crate) fn overlooked(name: &str, value: &str) -> String {
    let short: String = value.chars().take(80).collect();
    format!("{name}=“{short}” is not understood; the default is shown.")
}

/// What is said where a list ends before its end.
pub(crate) fn first_of_many(shown: usize) -> String {
    format!("These are the first {shown}; search for others by their names.")
}
