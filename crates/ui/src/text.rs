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

pub(crate) const ANALYTICS_OFF: &str = "This node measures no requests: analytics are off. With analytics on, this page shows them from the start.";
pub(crate) const NO_REQUESTS: &str = "No requests yet in this frame. Send one:";
pub(crate) const NOTHING_MEASURED: &str = "Nothing was measured in this frame.";
pub(crate) const NO_ERRORS: &str = "No errors in this frame.";
pub(crate) const NO_CHANGES: &str =
    "No changes in this frame. Each change of the configuration appears here and as a mark on the charts.";

/// Why only what the node itself remembers is shown.
pub(crate) fn own_history(why: &str) -> String {
    format!("This is what the node itself remembers. {why}.")
}

/// What is said where requests were not measured.
pub(crate) fn missing_requests(dropped: u64) -> String {
    format!("{dropped} requests of this frame are missing, because more arrived than could be counted.")
}

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

/// What is said of a frame of time without a moment in it.
pub(crate) fn empty_frame(from: &str, to: &str) -> String {
    let short = |text: &str| text.chars().take(80).collect::<String>();
    format!("From “{}” to “{}” is no frame of time; the default is shown.", short(from), short(to))
}

/// What is said where a list ends before its end.
pub(crate) fn first_of_many(shown: usize) -> String {
    format!("These are the first {shown}; search for others by their names.")
}
