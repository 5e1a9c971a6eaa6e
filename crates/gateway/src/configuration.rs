//! The declarative configuration: reads a file or a setting into a valid document, or returns all its errors.
use crate::apisix::standalone;
use crate::plugins::Definitions;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fmt::{self, Display};
use std::hash::Hasher;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use weir_guests::LuaSettings;
use weir_model::declarative::parse;
use weir_model::entity::EntityKind;
use weir_model::node::{Node, Position};
use weir_model::rule::expires;
use weir_model::schema::printable;
use weir_model::{
    ConfigError, Document, EntityLocation, EntityLocations, Format, InvalidDocument, PluginSchema, Uuid,
};
use weir_proxy::CompileError;
use weir_router::expressions::{ExpressionError, warnings};

/// The hash of an empty configuration, as in Kong.
pub(crate) const UNCONFIGURED: &str = "00000000000000000000000000000000";

/// Looks up what `${NAME}` stands for.
pub(crate) type Environment = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Where the configuration comes from, and the plugins that it may use.
pub(crate) struct Source {
    /// The location of its text.
    pub(crate) origin: Origin,
    /// The environment for `${NAME}` in it.
    pub(crate) environment: Environment,
    /// The plugins of this program.
    pub(crate) definitions: Definitions,
    /// The schemas of the plugins, switched off where the settings do not allow them.
    pub(crate) plugins: Vec<PluginSchema>,
    /// What plugins in Lua run with.
    pub(crate) lua: LuaSettings,
}

/// The location of a declarative configuration. Messages about the configuration start with it.
pub(crate) enum Origin {
    /// In a file.
    File(PathBuf),
    /// In the setting `declarative_config_string`.
    Setting(String),
    /// Behind the Admin API of a running gateway, as JSON.
    AdminApi { url: String, text: String },
    /// Nowhere: nothing is declared.
    Nowhere,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File(path) => path.display().fmt(f),
            Origin::Setting(_) => f.write_str("declarative_config_string"),
            Origin::AdminApi { url, .. } => f.write_str(url),
            Origin::Nowhere => f.write_str("configuration"),
        }
    }
}

impl Origin {
    fn text(&self) -> Result<Cow<'_, str>, String> {
        match self {
            Origin::Setting(text) | Origin::AdminApi { text, .. } => Ok(Cow::Borrowed(text)),
            Origin::Nowhere => Ok(Cow::Borrowed("_format_version: '3.0'")),
            Origin::File(path) => read_text(path).map(Cow::Owned).map_err(|error| unreadable(path, &error)),
        }
    }

    /// Reads the text again, to find locations in it; standard input can be read only once.
    pub(crate) fn text_again(&self) -> Option<Cow<'_, str>> {
        if self.path() == Some(Path::new("-")) { None } else { self.text().ok() }
    }

    /// Whether lines and columns of the text mean something to its reader.
    pub(crate) fn has_places(&self) -> bool {
        !matches!(self, Origin::AdminApi { .. })
    }

    /// The file, if it is one.
    pub(crate) fn path(&self) -> Option<&Path> {
        if let Origin::File(path) = self { Some(path) } else { None }
    }

    pub(crate) fn format(&self) -> Format {
        let is_json = match self {
            Origin::File(path) => path.extension().is_some_and(|name| name.eq_ignore_ascii_case("json")),
            Origin::Setting(text) => return Format::of(text),
            Origin::AdminApi { .. } => true,
            Origin::Nowhere => false,
        };
        if is_json { Format::Json } else { Format::Yaml }
    }
}

/// A valid declarative configuration.
pub(crate) struct Configuration {
    /// Its content.
    pub(crate) document: Document,
    /// Identifies its text, as Kong's `configuration_hash`: 32 hexadecimal digits.
    pub(crate) hash: String,
    /// Lints, each as `file:line:column: message`.
    pub(crate) warnings: Vec<String>,
    /// Fields that are accepted but have no effect.
    pub(crate) ignored_fields: Vec<ConfigError>,
    /// The locations of the entities, for errors of the compiler.
    places: EntityLocations,
}

/// The location of each entity.
type ByEntity<'p> = HashMap<(EntityKind, Uuid), &'p EntityLocation>;

/// Looks names up in the environment of this process.
pub(crate) fn process_environment() -> Environment {
    Box::new(|name| std::env::var(name).ok())
}

/// A declarative configuration with errors.
#[derive(Debug)]
pub(crate) struct InvalidConfiguration {
    /// Every error in it, each as `file:line:column: message`.
    pub(crate) errors: Vec<String>,
    /// Lints, and the fields that have no effect, in what could be read.
    pub(crate) warnings: Vec<String>,
}

impl From<Vec<String>> for InvalidConfiguration {
    fn from(errors: Vec<String>) -> Self {
        InvalidConfiguration { errors, warnings: Vec::new() }
    }
}

/// Reads a declarative configuration; fails with every error in it.
pub(crate) fn read(source: &Source) -> Result<Configuration, InvalidConfiguration> {
    let origin = &source.origin;
    let text = origin.text().map_err(|error| vec![error])?;
    let is_apisixs = standalone::is_apisixs(origin.path(), &text);
    let read = match is_apisixs {
        true => standalone::read(&text, origin.format(), &source.plugins),
        false => Document::read_what_is_valid(&text, origin.format(), &source.plugins, &source.environment),
    };
    let (read, errors) = match read {
        Ok(read) => {
            let expired = expired_authorities(&read.document, &read.places);
            (read, expired)
        }
        Err(InvalidDocument { errors, rest }) => {
            let unmarked = standalone::unmarked(&text, origin.format()).filter(|_| !is_apisixs);
            if let Some(hint) = unmarked {
                return Err(located(origin, &[hint]).into());
            }
            (*rest, errors)
        }
    };
    let mut warnings = read.warnings;
    warnings.extend(expression_warnings(&read.document, &read.places, &text, origin.format()));
    let configuration = Configuration {
        document: read.document,
        hash: match origin {
            Origin::Nowhere => UNCONFIGURED.to_owned(),
            _ => hash(&text),
        },
        warnings: located(origin, &warnings),
        ignored_fields: read.ignored_fields,
        places: read.places,
    };
    match errors.is_empty() {
        true => Ok(configuration),
        false => Err(configuration.invalid(origin, located(origin, &errors))),
    }
}

/// Reads what was posted to `/config`, as that did: it has no access to the environment.
pub(crate) fn posted(text: &str, plugins: &[PluginSchema]) -> Result<Configuration, Vec<String>> {
    let read = Document::read(text, Format::of(text), plugins, &|_| None);
    let read = read.map_err(|problems| {
        problems.iter().map(|problem| format!("/config: {problem}")).collect::<Vec<_>>()
    })?;
    Ok(Configuration {
        document: read.document,
        hash: hash(text),
        // They were in the response to who has posted it.
        warnings: Vec::new(),
        ignored_fields: Vec::new(),
        places: read.places,
    })
}

/// What is probably a mistake in the expressions of routes.
pub(crate) fn expression_warnings(
    document: &Document,
    places: &EntityLocations,
    text: &str,
    format: Format,
) -> Vec<ConfigError> {
    let mut found = Vec::new();
    for route in &document.routes {
        found.extend(warnings(route).into_iter().map(|warning| (route.id, warning)));
    }
    let Some(root) = (!found.is_empty()).then(|| parse(text, format).ok()).flatten() else {
        return Vec::new();
    };
    let places: ByEntity<'_> = places.iter().map(|(of, place)| (*of, place)).collect();
    let located = |(id, warning): (Uuid, ExpressionError)| {
        let path = format!("{}.expression", places.get(&(EntityKind::Routes, id))?.path);
        Some(ConfigError { at: root.position_of(&path), path, message: warning.to_string() })
    };
    found.into_iter().filter_map(located).collect()
}

/// An error for each authority that has expired: Kong does not start with one.
fn expired_authorities(document: &Document, places: &EntityLocations) -> Vec<ConfigError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed();
    let expired = document.ca_certificates.iter();
    let expired = expired.filter(|authority| expires(&authority.cert).is_some_and(|expires| expires < now));
    let error = |id: Uuid| {
        let place = places.iter().find(|(of, _)| *of == (EntityKind::CaCertificates, id));
        let (at, path) = place.map_or_else(Default::default, |(_, place)| (place.at, place.path.clone()));
        let message = "certificate expired, \"Not After\" time is in the past; leave it out, or renew it";
        ConfigError { at, path, message: message.to_owned() }
    };
    expired.map(|authority| error(authority.id)).collect()
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
    /// The same with errors that were found in it.
    pub(crate) fn invalid(mut self, origin: &Origin, errors: Vec<String>) -> InvalidConfiguration {
        self.warnings.extend(located(origin, &self.ignored_fields));
        InvalidConfiguration { errors, warnings: self.warnings }
    }

    /// The compiler's errors as messages, in the order of the file.
    pub(crate) fn compile_errors(&self, origin: &Origin, errors: &[CompileError]) -> Vec<String> {
        let places = self.places.iter().map(|(of, place)| (*of, place)).collect();
        let text = origin.text_again();
        let root = text.as_deref().and_then(|text| parse(text, origin.format()).ok());
        let mut compile_errors: Vec<_> =
            errors.iter().map(|error| self.compile_error(origin, error, &places, root.as_ref())).collect();
        compile_errors.sort_by_key(|(at, _)| *at);
        compile_errors.into_iter().map(|(_, message)| printable(&message).into_owned()).collect()
    }

    /// An error of the compiler as a message, with its location if that is known.
    fn compile_error(
        &self,
        origin: &Origin,
        error: &CompileError,
        places: &ByEntity<'_>,
        root: Option<&Node<'_>>,
    ) -> (Position, String) {
        let Some(place) = error.of.and_then(|of| places.get(&of)) else {
            return (Position::default(), format!("{origin}: {error}"));
        };
        let (_, message) = error.field();
        let path = place.path_of(error.location());
        let at = root.map(|root| root.position_of(&path)).filter(|_| path != place.path).unwrap_or(place.at);
        (at, format!("{origin}:{}:{}: {path}: {message}", at.line, at.column))
    }

    /// The fields without effect that are not among those `known`, at most [`MAX_LISTED_FIELDS`] of them.
    pub(crate) fn new_ignored_fields(&self, known: &BTreeSet<String>, origin: &Origin) -> Vec<String> {
        let new: Vec<_> =
            self.ignored_fields.iter().filter(|it| !known.contains(&without_location(it))).collect();
        let mut lines = located(origin, &new[..new.len().min(MAX_LISTED_FIELDS)]);
        let file = match origin.path() {
            Some(path) if path != Path::new("-") => path.display().to_string(),
            _ => "FILE".to_owned(),
        };
        lines.extend(and_more(new.len() - lines.len(), &format!("`weir check {file}` lists all")));
        lines
    }

    /// Identifies the fields without effect, wherever in the file they are.
    pub(crate) fn ignored_field_names(&self) -> BTreeSet<String> {
        self.ignored_fields.iter().map(without_location).collect()
    }
}

/// How many fields without effect are listed in the log.
pub(crate) const MAX_LISTED_FIELDS: usize = 20;

/// The line that follows a list if there are more fields.
pub(crate) fn and_more(more: usize, advice: &str) -> Option<String> {
    (more > 0).then(|| format!("and {more} more fields without effect in this version: {advice}"))
}

/// A problem without list indices, which is the same when entities before it change.
fn without_location(problem: &ConfigError) -> String {
    format!("{}: {}", without_indices(&problem.path), problem.message)
}

/// Messages, each after the location of the configuration.
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
