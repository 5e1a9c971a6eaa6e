//! The sources of values, and their precedence: flags, then `WEIR_*`, then `KONG_*`, then the file.
use super::table::{Declaration, TABLE};
use super::value::{SECRET, Value};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem;
use std::ops::Range;
use std::path::PathBuf;
use weir_model::is_reference;

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A line of the settings file.
    File(PathBuf, usize),
    /// An environment variable.
    Environment(String),
    /// A flag of the command line.
    Flag(String),
    /// None: the default.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File(path, 0) => write!(f, "{}", path.display()),
            Origin::File(path, line) => write!(f, "{}:{line}", path.display()),
            Origin::Environment(name) => write!(f, "environment variable {name}"),
            Origin::Flag(flag) => write!(f, "{flag}"),
            Origin::Default => f.write_str("settings"),
        }
    }
}

/// An error in the settings; the node does not start with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// The source of the value.
    pub(crate) origin: Origin,
    /// What is wrong, and how to fix it.
    pub(crate) message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.unnamed())
    }
}

impl Problem {
    /// The message, without the setting's name if the flag before it has that already.
    fn unnamed(&self) -> &str {
        let Origin::Flag(flag) = &self.origin else { return &self.message };
        let name = flag.strip_prefix("--set ").unwrap_or(flag);
        let rest = self.message.strip_prefix(name).and_then(|rest| rest.strip_prefix(": "));
        rest.unwrap_or(&self.message)
    }
}

/// The given values: for each setting, the one of the strongest source.
#[derive(Debug, Default)]
pub(crate) struct Given {
    values: BTreeMap<&'static str, (String, Origin)>,
    /// The settings whose values came from vaults, which no message repeats.
    resolved: BTreeSet<&'static str>,
}

impl Given {
    /// Sets a value by any name of a setting; it replaces that of a weaker source. False if there is no such setting.
    fn give(&mut self, name: &str, text: &str, origin: Origin) -> bool {
        let Some(declaration) = declaration(name) else { return false };
        self.values.insert(declaration.name, (text.to_owned(), origin));
        true
    }

    /// Adds a settings file.
    pub(super) fn file(&mut self, path: PathBuf, text: &str, problems: &mut Vec<Problem>) {
        let at =
            |span: Range<usize>| Origin::File(path.clone(), text[..span.start].matches('\n').count() + 1);
        let table = match toml::de::DeTable::parse(text) {
            Ok(table) => table,
            Err(error) => {
                let origin = at(error.span().unwrap_or(0..0));
                return problems.push(Problem { origin, message: error.message().to_owned() });
            }
        };
        for (key, value) in table.get_ref() {
            let origin = at(key.span());
            let name = key.get_ref().as_ref();
            match toml_text(value.get_ref()) {
                None => {
                    let message =
                        format!("`{name}` must be a string, a number, a boolean or an array of these");
                    problems.push(Problem { origin, message });
                }
                Some(value) if self.give(name, &value, origin.clone()) => {}
                Some(_) => problems.push(Problem { origin, message: unknown(name) }),
            }
        }
    }

    /// Adds `KONG_*` variables; returns one warning for each that is ignored.
    pub(super) fn kong_environment(&mut self, environment: &BTreeMap<String, String>) -> Vec<String> {
        let mut warnings = Vec::new();
        for (variable, name, text) in with_prefix(environment, "KONG_") {
            if !self.give(&name, text, Origin::Environment(variable.clone())) {
                let guess = misspelt(&name)
                    .map(|name| format!(": did you mean KONG_{}?", name.to_uppercase()))
                    .unwrap_or_default();
                warnings.push(format!("environment variable {variable} {}{guess}", ignored(&name, text)));
            }
        }
        warnings
    }

    /// Adds `WEIR_*` variables.
    pub(super) fn weir_environment(
        &mut self,
        environment: &BTreeMap<String, String>,
        problems: &mut Vec<Problem>,
    ) {
        for (variable, name, text) in with_prefix(environment, "WEIR_") {
            let origin = Origin::Environment(variable.clone());
            if !self.give(&name, text, origin.clone()) {
                problems.push(Problem { origin, message: unknown(&name) });
            }
        }
    }

    /// Adds a flag: the way it was written, the setting and the value.
    pub(super) fn flag(&mut self, written: &str, name: &str, text: &str, problems: &mut Vec<Problem>) {
        let origin = Origin::Flag(written.to_owned());
        if !self.give(name, text, origin.clone()) {
            problems.push(Problem { origin, message: unknown(name) });
        }
    }

    /// The values as they are written, by the names of the settings.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.values.iter().map(|(name, (text, _))| (*name, text.as_str()))
    }

    /// Those of these settings alone.
    pub(super) fn only(&self, is_wanted: impl Fn(&str, &str) -> bool) -> Given {
        let wanted = self.values.iter().filter(|(name, (text, _))| is_wanted(name, text));
        let values = wanted.map(|(name, value)| (*name, value.clone())).collect();
        Given { values, resolved: BTreeSet::new() }
    }

    /// Puts secrets in the place of references to them; one that leads to none adds a problem.
    pub(super) fn resolve(
        &mut self,
        is_wanted: impl Fn(&str) -> bool,
        secret_of: impl Fn(&str) -> Result<String, String>,
        problems: &mut Vec<Problem>,
    ) {
        for (name, (text, origin)) in &mut self.values {
            // A secret that looks like a reference is none.
            if !is_wanted(name) || !is_reference(text) || self.resolved.contains(name) {
                continue;
            }
            self.resolved.insert(name);
            match secret_of(text) {
                Ok(secret) => *text = secret,
                Err(reason) => {
                    let reference = mem::take(text);
                    let message = format!("{name}: failed to dereference '{reference}': {reason}");
                    problems.push(Problem { origin: origin.clone(), message });
                }
            }
        }
    }

    /// Reads the value of a setting; one that cannot be read adds a problem.
    pub(super) fn value<T: Value>(
        &self,
        name: &str,
        default: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<T> {
        let text = self.values.get(name).map_or(default, |(text, _)| text);
        match T::read(text) {
            Ok(value) => Some(value),
            Err(error) => {
                let error = match self.resolved.contains(name) {
                    true => "what the vault has for it is not valid here",
                    false => &error,
                };
                problems.push(Problem { origin: self.origin(name), message: format!("{name}: {error}") });
                None
            }
        }
    }

    /// The value of a setting as the Admin API shows it: the reference, where it is one.
    pub(super) fn shown(&self, declaration: &Declaration) -> Json {
        let text = self.values.get(declaration.name).map_or(declaration.default, |(text, _)| text);
        let shown = (declaration.shown)(text);
        if is_reference(text) && shown != SECRET { text.into() } else { shown }
    }

    /// Where the value of a setting was given.
    pub(super) fn origin(&self, name: &str) -> Origin {
        self.values.get(name).map_or(Origin::Default, |(_, origin)| origin.clone())
    }

    /// The settings that were given a value.
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.values.keys().copied().collect()
    }
}

/// Why a variable of Kong's is ignored.
fn ignored(name: &str, text: &str) -> &'static str {
    match (name, text.trim()) {
        ("role", "data_plane" | "control_plane") => {
            "is ignored: hybrid mode is not supported yet; every node reads its own declarative file"
        }
        ("proxy_stream_error_log", _) => "is ignored: messages of streams are in proxy_error_log",
        ("nginx_sproxy_proxy_protocol", "on") => {
            "is ignored: write `proxy_protocol: v1` with each service that is to get a header"
        }
        _ => "has no meaning here and is ignored",
    }
}

/// The setting of a name or an alias.
fn declaration(name: &str) -> Option<&'static Declaration> {
    TABLE.iter().find(|declaration| declaration.name == name || declaration.aliases.contains(&name))
}

/// Variables that start with a prefix: each with its setting's name. An empty one, as Compose files pass for a
/// variable that is not set, counts as absent.
fn with_prefix<'a>(
    environment: &'a BTreeMap<String, String>,
    prefix: &'a str,
) -> impl Iterator<Item = (&'a String, String, &'a str)> {
    environment.iter().filter(|(_, value)| !value.trim().is_empty()).filter_map(move |(variable, value)| {
        Some((variable, variable.strip_prefix(prefix)?.to_lowercase(), value.as_str()))
    })
}

/// A TOML value as the text that kong.conf would hold.
fn toml_text(value: &toml::de::DeValue<'_>) -> Option<String> {
    use toml::de::DeValue;
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Float(number) => Some(number.to_string()),
        DeValue::Boolean(switch) => Some(if *switch { "on" } else { "off" }.to_owned()),
        DeValue::Array(items) => {
            let items: Option<Vec<_>> = items.iter().map(|item| toml_text(item.get_ref())).collect();
            Some(items?.join(","))
        }
        DeValue::Datetime(_) | DeValue::Table(_) => None,
    }
}

/// The name of a setting that is most similar to another text.
fn nearest(name: &str) -> Option<&'static str> {
    let names = TABLE.iter().flat_map(|declaration| declaration.aliases.iter().chain([&declaration.name]));
    names
        .map(|candidate| (strsim::jaro_winkler(name, candidate), *candidate))
        .filter(|(similarity, _)| *similarity > 0.85)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// The setting that a misspelt name probably means; at most two letters away, because Kong has settings with similar
/// names.
fn misspelt(name: &str) -> Option<&'static str> {
    nearest(name).filter(|candidate| strsim::damerau_levenshtein(name, candidate) <= 2)
}

/// The message for a name that no setting has, with the nearest one that exists.
fn unknown(name: &str) -> String {
    match nearest(name) {
        Some(candidate) => format!("there is no setting `{name}`: did you mean `{candidate}`?"),
        None => {
            format!("there is no setting `{name}`: remove it, or see `weir settings` for those that exist")
        }
    }
}
