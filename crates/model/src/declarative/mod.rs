//! Kong's declarative configuration, formats 1.1, 2.1 and 3.0, in YAML or JSON.
mod collect;
mod ids;
mod ignored_fields;
mod interpolate;
mod json;
mod reader;
mod shorthand;
mod tree;
mod yaml;

pub use interpolate::Environment;

use crate::document::Document;
use crate::entity::EntityKind;
use crate::node::{Node, Position};
use crate::plugin_schema::{EntityKinds, PluginSchema};
use crate::schema::{ConfigError, ConfigWarning, Json, Reader, RecordSchema};
use collect::Items;
use interpolate::Interpolation;
use reader::{DocumentReader, FormatVersion, Outcome};
use std::collections::HashSet;
use uuid::Uuid;

/// How a text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// YAML 1.2.
    Yaml,
    /// JSON.
    Json,
}

impl Format {
    /// What a text is written in. JSON begins with `{`; YAML may too, and then allows what JSON does not, such as a comma
    /// behind the last member.
    pub fn of(text: &str) -> Format {
        let is_yaml = !text.trim_start().starts_with('{')
            || parse(text, Format::Json).is_err() && parse(text, Format::Yaml).is_ok();
        if is_yaml { Format::Yaml } else { Format::Json }
    }
}

/// A configuration that breaks no rule.
#[derive(Debug, Default)]
pub struct ParsedDocument {
    /// The configuration.
    pub document: Document,
    /// What is probably a mistake all the same.
    pub warnings: Vec<ConfigWarning>,
    /// Fields that are accepted but have no effect.
    pub ignored_fields: Vec<ConfigWarning>,
    /// Where the entities stand of which only those who use them find out whether they can be used.
    pub places: EntityLocations,
}

/// A configuration with errors.
#[derive(Debug)]
pub struct InvalidDocument {
    /// The errors, in the order of the file.
    pub errors: Vec<ConfigError>,
    /// What could be read, and what there is to say about it. Whether entities fit together is not among the warnings if some
    /// could not be read, because these may be what the others lack.
    pub rest: Box<ParsedDocument>,
}

impl From<Vec<ConfigError>> for InvalidDocument {
    fn from(errors: Vec<ConfigError>) -> Self {
        InvalidDocument { errors, rest: Box::default() }
    }
}

/// Where entities stand.
pub type EntityLocations = Vec<((EntityKind, Uuid), EntityLocation)>;

/// Where an entity stands in the file.
#[derive(Debug, Clone)]
pub struct EntityLocation {
    /// Its position.
    pub at: Position,
    /// Its path, as in `certificates[0]`.
    pub path: String,
    /// Of a plugin of which the file has the configuration alone: the fields that it has there.
    pub config: Option<&'static RecordSchema>,
}

impl EntityLocation {
    /// Where an entity stands all of whose fields are in the file.
    pub fn new(at: Position, path: String) -> Self {
        EntityLocation { at, path, config: None }
    }

    /// The path of a field of the entity. One that the file does not have is that of the entity.
    pub fn path_of(&self, field: &str) -> String {
        let field = match self.config {
            None => field,
            Some(schema) => {
                let of_config = field.strip_prefix("config.").unwrap_or_default();
                let name = of_config.split(['.', '[']).next().unwrap_or_default();
                if schema.field(name).is_some() { of_config } else { "" }
            }
        };
        if field.is_empty() { self.path.clone() } else { format!("{}.{field}", self.path) }
    }
}

/// What a text says, whatever it means.
///
/// # Errors
/// Where it is not well-formed.
pub fn parse(text: &str, format: Format) -> Result<Node<'_>, Vec<ConfigError>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match format {
        Format::Yaml => yaml::parse(text),
        Format::Json => json::parse(text),
    }
}

impl Document {
    /// Reads a declarative configuration and checks it whole: the document, or everything that is wrong with
    /// it, in the order of the file.
    pub fn read(
        text: &str,
        format: Format,
        plugins: &[PluginSchema],
        environment: Environment<'_>,
    ) -> Result<ParsedDocument, Vec<ConfigError>> {
        Self::read_what_is_valid(text, format, plugins, environment).map_err(|invalid| invalid.errors)
    }

    /// The same. The errors come with what there is to say of the rest.
    pub fn read_what_is_valid(
        text: &str,
        format: Format,
        plugins: &[PluginSchema],
        environment: Environment<'_>,
    ) -> Result<ParsedDocument, InvalidDocument> {
        let mut root = parse(text, format)?;
        if let Some(problem) = reader::check_root(&root) {
            return Err(vec![problem].into());
        }
        let mut interpolation = Interpolation::new(environment);
        interpolation.replace(&mut root);
        read(&mut root, plugins, interpolation)
    }

    /// The same, of a tree that another gateway made: `${NAME}` in it stands for itself. What is written in a short form
    /// is put in its full form.
    pub fn read_tree(
        root: &mut Node<'_>,
        plugins: &[PluginSchema],
    ) -> Result<ParsedDocument, Vec<ConfigError>> {
        match reader::check_root(root) {
            Some(problem) => Err(vec![problem]),
            None => read(root, plugins, Interpolation::new(&|_| None)).map_err(|invalid| invalid.errors),
        }
    }
}

/// What a text says, be it a configuration or not.
///
/// # Errors
/// Where it is not of this format.
pub fn to_json(text: &str, format: Format) -> Result<Json, Vec<ConfigError>> {
    parse(text, format).map(|root| root.to_json())
}

fn read(
    root: &mut Node<'_>,
    plugins: &[PluginSchema],
    interpolation: Interpolation<'_>,
) -> Result<ParsedDocument, InvalidDocument> {
    let Interpolation { problems, variables, .. } = interpolation;
    let mut reader = Reader::new(&());
    let kinds = EntityKinds::of(plugins);
    let header = reader::read_header(root, &kinds, plugins, &mut reader);
    let version = header.as_ref().map_or(FormatVersion::V3_0, |header| header._format_version);
    let mut shorthands = shorthand::Found { problems, ..Default::default() };
    shorthand::rewrite(root, version != FormatVersion::V3_0, &mut shorthands);
    let shorthand::Found { mut problems, warnings } = shorthands;
    let items = Items::collect(root, &kinds, &mut reader);
    problems.extend(reader.into_errors());
    let transform = header.is_none_or(|header| header._transform);
    let mut outcome = DocumentReader::new(&items, &kinds, plugins, transform).read(problems.is_empty());
    // A value that could not be made out has been reported; what else is wrong with it follows from that.
    let reported: HashSet<Position> = problems.iter().map(|problem| problem.at).collect();
    problems.extend(outcome.problems.into_iter().filter(|problem| !reported.contains(&problem.at)).map(
        |mut problem| {
            if let Some(variables) = variables.get(&problem.at) {
                problem.message.push_str(&format!(" (given by `{variables}`)"));
            }
            problem
        },
    ));
    outcome.warnings.extend(warnings);
    ignored_fields::vault_references(root, &mut String::new(), &mut outcome.ignored_fields);
    ignored_fields::name_entities(root, &kinds, &mut outcome.ignored_fields);
    let Outcome { document, warnings, ignored_fields, places, .. } = outcome;
    let (warnings, ignored_fields) = (sorted(warnings), sorted(ignored_fields));
    let parsed = ParsedDocument { document, warnings, ignored_fields, places };
    match problems.is_empty() {
        true => Ok(parsed),
        false => Err(InvalidDocument { errors: sorted(problems), rest: Box::new(parsed) }),
    }
}

/// In the order of the file, each once.
fn sorted(mut problems: Vec<ConfigError>) -> Vec<ConfigError> {
    problems.sort();
    problems.dedup();
    problems
}
