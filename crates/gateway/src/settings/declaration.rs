//! How a setting is declared.

use serde_json::Value as Json;

/// What is known of a setting before any value is given.
#[derive(Debug)]
pub(crate) struct Declaration {
    /// The key in `weir.toml`.
    pub(crate) name: &'static str,
    /// The kind of value.
    pub(crate) kind: &'static str,
    /// The text that stands for the value when none is given.
    pub(crate) default: &'static str,
    /// Lines of documentation.
    pub(crate) doc: &'static [&'static str],
    /// Other names, as kong.conf's `nginx_*` directives.
    pub(crate) aliases: &'static [&'static str],
    /// A value as `GET /` of the Admin API shows it.
    pub(super) shown: fn(&str) -> Json,
}
