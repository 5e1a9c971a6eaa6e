//! The declarative configuration: from a file or a setting to a document that breaks no rule, or to every error in it.
use crate::apisix::standalone;
use crate::plugins::Definitions;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fmt::{self, Display};
use std::hash::Hasher;
use std::io;
use std::path::{Path, PathBuf};
use weir_model::declarative::parse;
use weir_model::entity::EntityKind;
use weir_model::node::{Node, Position};
use weir_model::schema::printable;
use weir_model::{ConfigError, Document, EntityLocation, EntityLocations, Format, PluginSchema, Uuid};
use weir_proxy::CompileError;

/// The hash where nothing is declared, as Kong's.
pub(crate) const UNCONFIGURED: &str = "00000000000000000000000000000000";

/// Looks up what `${NAME}` stands for.
pub(crate) type Environment = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Where the configuration comes from, and what it may say.
pub(crate) struct Source {
    /// Where its text is.
    pub(crate) origin: Origin,
    /// What `${NAME}` stands for in it.
    pub(crate) environment: Environment,
    /// The plugins of this program.
    pub(crate) definitions: Definitions,
    /// What it may say of each of them.
    pub(crate) plugins: Vec<PluginSchema>,
}

/// Where a declarative configuration's text is. Shown as what messages about the configuration start with.
pub(crate) enum Origin {
    /// In a file.
    File(PathBuf),
    /// In the setting `declarative_config_string`.
    Setting(String),
    /// Nowhere: nothing is declared.
    Nowhere,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File(path) => path.display().fmt(f),
            Origin::Setting(_) => f.write_str("declarative_config_string"),
            Origin::Nowhere => f.write_str("configuration"),
        }
    }
}

impl Origin {
    fn text(&self) -> Result<Cow<'_, str>, String> {
        match self {
            Origin::Setting(text) => Ok(Cow::Borrowed(text)),
            Origin::Nowhere => Ok(Cow::Borrowed("_format_version: '3.0'")),
            Origin::File(path) => read_text(path).map(Cow::Owned).map_err(|error| unreadable(path, &error)),
        }
    }

    /// The same, to look for places in; the standard input is read once.
    fn text_again(&self) -> Option<Cow<'_, str>> {
        if self.path() == Some(Path::new("-")) { None } else { self.text().ok() }
    }

    fn path(&self) -> Option<&Path> {
        if let Origin::File(path) = self { Some(path) } else { None }
    }

    fn format(&self) -> Format {
        let is_json = match self {
            Origin::File(path) => path.extension().is_some_and(|name| name.eq_ignore_ascii_case("json")),
            Origin::Setting(text) => text.trim_start().starts_with('{'),
            Origin::Nowhere => false,
        };
        if is_json { Format::Json } else { Format::Yaml }
    }
}

/// A declarative configuration that breaks no rule.
pub(crate) struct Configuration {
    /// What it says.
    pub(crate) document: Document,
    /// Identifies its text, as Kong's `configuration_hash`: 32 hexadecimal digits.
    pub(crate) hash: String,
    /// What is probably a mistake all the same, each as `file:line:column: message`.
    pub(crate) warnings: Vec<String>,
    /// What is accepted but has no effect.
    pub(crate) ignored_fields: Vec<ConfigError>,
    /// Where the entities stand that the data plane may refuse.
    places: EntityLocations,
}

/// Where each entity stands.
type ByEntity<'p> = HashMap<(EntityKind, Uuid), &'p EntityLocation>;

/// Looks names up in the environment of this process.
pub(crate) fn process_environment() -> Environment {
    Box::new(|name| std::env::var(name).ok())
}

/// Reads a declarative configuration; fails with every error in it, each as `file:line:column: message`.
pub(crate) fn read(source: &Source) -> Result<Configuration, Vec<String>> {
    let origin = &source.origin;
    let text = origin.text().map_err(|error| vec![error])?;
    let read = match standalone::is_apisixs(origin.path(), &text) {
        true => standalone::read(&text, origin.format(), &source.plugins),
        false => Document::read(&text, origin.format(), &source.plugins, &source.environment),
    };
    let read = read.map_err(|problems| match standalone::unmarked(&text, origin.format()) {
        Some(hint) if !standalone::is_apisixs(origin.path(), &text) => located(origin, &[hint]),
        _ => located(origin, &problems),
    })?;
    let warnings = located(origin, &read.warnings);
    Ok(Configuration {
        document: read.document,
        hash: match origin {
            Origin::Nowhere => UNCONFIGURED.to_owned(),
            _ => hash(&text),
        },
        warnings,
        ignored_fields: read.ignored_fields,
        places: read.places,
    })
}

/// The text of a file; of the standard input for `-`.
fn read_text(path: &Path) -> io::Result<String> {
    if path == Path::new("-") { io::read_to_string(io::stdin()) } else { std::fs::read_to_string(path) }
}

fn unreadable(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::InvalidData => format!("{path}: is not UTF-8 text: save it in that encoding"),
        _ => format!("{path}: cannot be read: {error}: name a readable file"),
    }
}

impl Configuration {
    /// Everything that the data plane refuses.
    pub(crate) fn refusals(&self, origin: &Origin, errors: &[CompileError]) -> Vec<String> {
        let places = self.places.iter().map(|(of, place)| (*of, place)).collect();
        let text = origin.text_again();
        let root = text.as_deref().and_then(|text| parse(text, origin.format()).ok());
        let mut refusals: Vec<_> =
            errors.iter().map(|error| self.refusal(origin, error, &places, root.as_ref())).collect();
        refusals.sort_by_key(|(at, _)| *at);
        refusals.into_iter().map(|(_, message)| printable(&message).into_owned()).collect()
    }

    /// What the data plane refuses, behind its place where that is known.
    fn refusal(
        &self,
        origin: &Origin,
        error: &CompileError,
        places: &ByEntity<'_>,
        root: Option<&Node<'_>>,
    ) -> (Position, String) {
        let Some(EntityLocation { at, path }) = error.of.and_then(|of| places.get(&of)) else {
            return (Position::default(), format!("{origin}: {error}"));
        };
        let (field, message) = error.field();
        let path = if field.is_empty() { path.clone() } else { format!("{path}.{field}") };
        let at = root.map(|root| root.position_of(&path)).filter(|_| !field.is_empty()).unwrap_or(*at);
        (at, format!("{origin}:{}:{}: {path}: {message}", at.line, at.column))
    }

    /// The fields that have no effect and are not among those `known`, at most [`MOST_LISTED`] of them.
    pub(crate) fn ignored_fields_beside(&self, known: &BTreeSet<String>, origin: &Origin) -> Vec<String> {
        let new: Vec<_> =
            self.ignored_fields.iter().filter(|it| !known.contains(&without_place(it))).collect();
        let mut lines = located(origin, &new[..new.len().min(MOST_LISTED)]);
        let file = match origin.path() {
            Some(path) if path != Path::new("-") => path.display().to_string(),
            _ => "FILE".to_owned(),
        };
        lines.extend(further(new.len() - lines.len(), &format!("`weir check {file}` lists all")));
        lines
    }

    /// What [`ignored_fields_beside`](Self::ignored_fields_beside) knows of them again, wherever they stand.
    pub(crate) fn ignored_fields(&self) -> BTreeSet<String> {
        self.ignored_fields.iter().map(without_place).collect()
    }
}

/// So many fields without effect are listed in the log.
pub(crate) const MOST_LISTED: usize = 20;

/// The line after those that are listed, where there are more.
pub(crate) fn further(more: usize, advice: &str) -> Option<String> {
    (more > 0).then(|| format!("and {more} more fields without effect in this version: {advice}"))
}

/// A problem of the same field, whatever stands before it in the file.
fn without_place(problem: &ConfigError) -> String {
    format!("{}: {}", without_indices(&problem.path), problem.message)
}

/// Messages, each with what it is about in front of it.
pub(crate) fn located(origin: &Origin, messages: &[impl Display]) -> Vec<String> {
    messages.iter().map(|message| printable(&format!("{origin}:{message}")).into_owned()).collect()
}

/// `services[3].routes[0].snis` as `services[].routes[].snis`.
fn without_indices(path: &str) -> String {
    let mut kept = String::new();
    for part in path.split_inclusive('[') {
        kept.push_str(part.trim_start_matches(|c: char| c.is_ascii_digit()));
    }
    kept
}

/// Identifies a text.
pub(crate) fn hash(text: &str) -> String {
    let mut hasher = SipHasher13::new();
    hasher.write(text.as_bytes());
    format!("{:032x}", hasher.finish128().as_u128())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_named_once_however_often_they_are_given() {
        assert_eq!(without_indices("services[3].routes[10].snis"), "services[].routes[].snis");
        assert_eq!(without_indices("upstreams"), "upstreams");
    }

    #[test]
    fn messages_steer_no_terminal() {
        let said = located(&Origin::Nowhere, &["the key `\u{1b}[31m\u{202e}ä`\nhere"]);
        assert_eq!(said, ["configuration:the key `\\u{1b}[31m\\u{202e}ä`\\nhere"]);
    }
}
