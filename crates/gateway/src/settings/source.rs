//! The sources of values, and their precedence: flags, then `WEIR_*`, then `KONG_*`, then the file.
use super::declaration::Declaration;
use super::directives::{Advice, advice, directive, in_block};
use super::included;
use super::kong_conf;
use super::service_links::is_service_link;
use super::table::TABLE;
use super::value::{SECRET, Value};
use serde_json::Value as Json;
use std::borrow::Cow;
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
    values: BTreeMap<&'static str, GivenValue>,
    /// The settings whose values came from vaults, which no message repeats.
    resolved: BTreeSet<&'static str>,
    /// Whether references count as absent.
    without_references: bool,
    /// What is given by the names of nginx directives.
    directives: BTreeMap<String, (String, Origin)>,
}

/// A value as it was given.
#[derive(Debug, Clone)]
struct GivenValue {
    text: String,
    origin: Origin,
    /// The block of nginx, if it was given by the name of a directive.
    block: Option<&'static str>,
}

/// A setting as an environment variable gives it.
struct Variable<'e> {
    /// The variable's name.
    variable: &'e str,
    /// The setting's name.
    name: String,
    /// The value, or that of the file that the variable names.
    text: Cow<'e, str>,
}

impl Given {
    /// Sets a value by any name of a setting; it replaces that of a weaker source. False if there is no such setting.
    pub(super) fn give(&mut self, name: &str, text: &str, origin: Origin) -> bool {
        let block = in_block(name).map(|(block, _)| block);
        if block.is_some() {
            self.directives.insert(name.to_owned(), (text.to_owned(), origin.clone()));
        }
        let Some(declaration) = declaration(name) else { return directive(name) == Some("ssl_protocols") };
        let before = self.values.get(declaration.name).and_then(|before| before.block);
        // What an inner block says counts.
        if !(before.is_some_and(is_inner) && block.is_some_and(|block| !is_inner(block))) {
            self.values.insert(declaration.name, GivenValue { text: text.to_owned(), origin, block });
        }
        true
    }

    /// Sets a value that counts if none is given.
    pub(super) fn assume(&mut self, name: &'static str, text: &str) {
        let assumed = GivenValue { text: text.to_owned(), origin: Origin::Default, block: None };
        self.values.entry(name).or_insert(assumed);
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

    /// Adds a kong.conf; returns one warning for each line that is ignored.
    pub(super) fn kong_conf(
        &mut self,
        path: PathBuf,
        text: &str,
        problems: &mut Vec<Problem>,
    ) -> Vec<String> {
        let mut warnings = Vec::new();
        for line in kong_conf::lines(text) {
            let origin = Origin::File(path.clone(), line.number);
            let Some((name, text)) = line.setting else {
                let message = "a line is `name = value`; a `#` begins a comment".to_owned();
                problems.push(Problem { origin, message });
                continue;
            };
            if text.is_empty() || is_left_out(&name, &text) || self.give(&name, &text, origin.clone()) {
                continue;
            }
            if directive(&name) == Some("include") {
                included::add(self, &name, &text, &origin, problems, &mut warnings);
                continue;
            }
            match ignored(&name, &text) {
                Ok(reason) => {
                    warnings.push(format!("{origin}: {name} {reason}{}", guess(&name, |name| name)))
                }
                Err(message) => problems.push(Problem { origin, message }),
            }
        }
        warnings
    }

    /// Adds `KONG_*` variables; returns one warning for each that is ignored.
    pub(super) fn kong_environment(
        &mut self,
        environment: &BTreeMap<String, String>,
        problems: &mut Vec<Problem>,
    ) -> Vec<String> {
        let mut warnings = Vec::new();
        for Variable { variable, name, text } in with_prefix(environment, "KONG_", problems) {
            let origin = Origin::Environment(variable.to_owned());
            if is_left_out(&name, &text) || self.give(&name, &text, origin.clone()) {
                continue;
            }
            if directive(&name) == Some("include") {
                included::add(self, &name, &text, &origin, problems, &mut warnings);
                continue;
            }
            match ignored(&name, &text) {
                Ok(reason) => {
                    let guess = guess(&name, |name| format!("KONG_{}", name.to_uppercase()));
                    warnings.push(format!("{origin} {reason}{guess}"));
                }
                Err(message) => problems.push(Problem { origin, message }),
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
        for Variable { variable, name, text } in with_prefix(environment, "WEIR_", problems) {
            let origin = Origin::Environment(variable.to_owned());
            if !self.give(&name, &text, origin.clone()) {
                problems.push(Problem { origin, message: unknown(&name) });
            }
        }
    }

    /// Adds a flag: the way it was written, the setting and the value. Returns a warning if it is ignored.
    pub(super) fn flag(
        &mut self,
        written: &str,
        name: &str,
        text: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<String> {
        let origin = Origin::Flag(written.to_owned());
        if self.give(name, text, origin.clone()) {
            return None;
        }
        if let Some(reason) = ignored_of_fleet(name) {
            return Some(format!("{origin} {reason}"));
        }
        problems.push(Problem { origin, message: unknown(name) });
        None
    }

    /// Leaves out the values that have problems.
    pub(super) fn leave_out(&mut self, problems: &[Problem]) {
        self.values.retain(|_, given| problems.iter().all(|problem| problem.origin != given.origin));
    }

    /// The values as they are written, by the names of the settings.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.values.iter().map(|(name, given)| (*name, given.text.as_str()))
    }

    /// Those of these settings alone.
    pub(super) fn only(&self, is_wanted: impl Fn(&str, &str) -> bool) -> Given {
        let wanted = self.values.iter().filter(|(name, given)| is_wanted(name, &given.text));
        let values = wanted.map(|(name, value)| (*name, value.clone())).collect();
        Given { values, ..Given::default() }
    }

    /// Puts secrets in the place of references to them; one that leads to none adds a problem.
    pub(super) fn resolve(
        &mut self,
        is_wanted: impl Fn(&str) -> bool,
        secret_of: impl Fn(&str) -> Result<String, String>,
        problems: &mut Vec<Problem>,
    ) {
        for (name, GivenValue { text, origin, .. }) in &mut self.values {
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

    /// Whether the value of a setting is a reference.
    pub(super) fn refers(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|given| is_reference(&given.text))
    }

    /// From now on, settings whose values are references have their defaults.
    pub(super) fn leave_out_references(&mut self) {
        self.without_references = true;
    }

    /// Reads the value of a setting; one that cannot be read adds a problem.
    pub(super) fn value<T: Value>(
        &self,
        name: &str,
        default: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<T> {
        let given = self.values.get(name).filter(|_| !(self.without_references && self.refers(name)));
        let text = given.map_or(default, |given| &given.text);
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
        let text = self.values.get(declaration.name).map_or(declaration.default, |given| &given.text);
        let shown = (declaration.shown)(text);
        if is_reference(text) && shown != SECRET { text.into() } else { shown }
    }

    /// Where the value of a setting was given.
    pub(super) fn origin(&self, name: &str) -> Origin {
        self.values.get(name).map_or(Origin::Default, |given| given.origin.clone())
    }

    /// Problems with listeners that are to speak TLS 1.3 alone, while all with TLS speak 1.2 too. `speaks_tls` says of a
    /// block of nginx whether its listeners speak TLS.
    pub(super) fn too_many_protocols(&self, speaks_tls: impl Fn(&str) -> bool) -> Vec<Problem> {
        let is_narrower = |(name, (text, _)): &(&String, &(String, Origin))| {
            let block = in_block(name).map(|(block, _)| block);
            !text.split_whitespace().any(|version| version == "TLSv1.2") && block.is_some_and(&speaks_tls)
        };
        let of_others =
            |name: &String| directive(name) == Some("ssl_protocols") && declaration(name).is_none();
        let narrower = self.directives.iter().filter(|(name, _)| of_others(name)).filter(is_narrower);
        let problem = |(name, (_, origin)): (&String, &(String, Origin))| Problem {
            origin: origin.clone(),
            message: format!(
                "{name}: TLS 1.2 is offered too: write ssl_protocols, which holds for all listeners"
            ),
        };
        narrower.map(problem).collect()
    }

    /// Whether the value of a setting was given by the name of an nginx directive.
    pub(super) fn is_directive(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|given| given.block.is_some())
    }

    /// Problems with directives that stand for one setting, but say something else for requests than for streams.
    pub(super) fn contradictions(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (name, (text, origin)) in self.directives.iter().filter(|(name, _)| is_of_streams(name)) {
            let Some(setting) = declaration(name).map(|it| it.name).filter(|name| self.is_directive(name))
            else {
                continue;
            };
            let differs = |(other, (value, _)): &(&String, &(String, Origin))| {
                !is_of_streams(other)
                    && declaration(other).is_some_and(|it| it.name == setting)
                    && value != text
            };
            if let Some((other, _)) = self.directives.iter().find(differs) {
                let message = format!(
                    "{name}: {other} has another value, but {setting} holds for requests and streams: write the same"
                );
                problems.push(Problem { origin: origin.clone(), message });
            }
        }
        problems
    }

    /// Whether a setting was given a value.
    pub(super) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The settings that were given a value.
    pub(super) fn names(&self) -> Vec<&'static str> {
        self.values.keys().copied().collect()
    }
}

fn is_inner(block: &str) -> bool {
    matches!(block, "proxy" | "sproxy")
}

fn is_of_streams(directive: &str) -> bool {
    in_block(directive).is_some_and(|(block, _)| matches!(block, "stream" | "sproxy"))
}

/// Whether a directive is left out, as Kong has it with this value.
pub(super) fn is_left_out(name: &str, text: &str) -> bool {
    directive(name).is_some() && text.trim() == "NONE"
}

/// Why a setting of Kong's is ignored; an error if the node must not start without it.
pub(super) fn ignored(name: &str, text: &str) -> Result<Cow<'static, str>, String> {
    match advice(name, text) {
        Some(Advice::Ignored(reason)) => return Ok(reason.into()),
        Some(Advice::Protects(instead)) => {
            return Err(format!(
                "{name}: this directive protects something and has no equivalent: {instead}"
            ));
        }
        None => {}
    }
    if let Some(reason) = ignored_of_fleet(name) {
        return Ok(reason.into());
    }
    Ok(match (name, text.trim()) {
        ("proxy_stream_error_log" | "admin_error_log" | "status_error_log", _) => {
            "is ignored: all of the node's messages are in proxy_error_log"
        }
        _ => "has no meaning here and is ignored",
    }
    .into())
}

/// Why a setting of Kong's hybrid mode is ignored; none if it is no such setting.
fn ignored_of_fleet(name: &str) -> Option<&'static str> {
    match name {
        "cluster_cjson" | "dedicated_config_processing" | "lmdb_environment_path" | "lmdb_map_size" => {
            Some("is ignored: it is about how Kong stores and reads what a control plane sends")
        }
        "cluster_telemetry_listen" | "cluster_telemetry_server_name" | "cluster_telemetry_endpoint" => {
            Some("is ignored: data planes send no telemetry")
        }
        _ => None,
    }
}

/// The setting that was probably meant, as the end of a warning.
fn guess<T: fmt::Display>(name: &str, written: impl Fn(&'static str) -> T) -> String {
    misspelt(name).map(|name| format!(": did you mean {}?", written(name))).unwrap_or_default()
}

/// Why a setting of Kong's has no effect; none if it has one. A name may end in `_file`.
pub(crate) fn why_ignored(name: &str, text: &str) -> Option<String> {
    let plain = name.strip_suffix("_file").unwrap_or(name);
    let has_effect = declaration(name).is_some() || declaration(plain).is_some();
    let refused = |error: String| {
        let reason = error.strip_prefix(name).and_then(|rest| rest.strip_prefix(": "));
        format!("is refused: {}", reason.unwrap_or(&error))
    };
    (!has_effect).then(|| ignored(name, text).map_or_else(refused, Cow::into_owned))
}

/// The setting of a name or an alias.
pub(super) fn declaration(name: &str) -> Option<&'static Declaration> {
    TABLE.iter().find(|declaration| declaration.name == name || declaration.aliases.contains(&name))
}

/// Variables that start with a prefix, without those of Kubernetes' Services. An empty one, as Compose files pass for a variable
/// that is not set, counts as absent. A variable `NAME_FILE` names the file that holds the value, as secrets of containers are passed.
fn with_prefix<'e>(
    environment: &'e BTreeMap<String, String>,
    prefix: &str,
    problems: &mut Vec<Problem>,
) -> Vec<Variable<'e>> {
    let given = environment.iter().filter(|(_, value)| !value.trim().is_empty());
    let mut variables = Vec::new();
    for (variable, value) in given {
        let Some(name) = variable.strip_prefix(prefix).map(str::to_lowercase) else { continue };
        if is_service_link(&name, value) {
            continue;
        }
        let of_file = name.strip_suffix("_file").filter(|of| declaration(of).is_some());
        // A setting may have such a name itself.
        let of_file = of_file.filter(|_| declaration(&name).is_none());
        let read = match of_file {
            None => Ok((name.clone(), Cow::Borrowed(value.as_str()))),
            Some(of) => value_of_file(environment, variable, value).map(|text| (of.to_owned(), text.into())),
        };
        match read {
            Ok((name, text)) => variables.push(Variable { variable, name, text }),
            Err(message) => problems.push(Problem { origin: Origin::Environment(variable.clone()), message }),
        }
    }
    variables
}

/// The content of the file that a variable names, without the line's end.
fn value_of_file(
    environment: &BTreeMap<String, String>,
    variable: &str,
    path: &str,
) -> Result<String, String> {
    let plain = variable.strip_suffix("_FILE").unwrap_or(variable);
    if environment.get(plain).is_some_and(|value| !value.trim().is_empty()) {
        return Err(format!("both {plain} and {variable} are set, but are exclusive: leave one out"));
    }
    let text = std::fs::read_to_string(path.trim()).map_err(|error| format!("{path}: {error}"))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
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
