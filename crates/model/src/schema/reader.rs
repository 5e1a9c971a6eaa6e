//! Reading records from nodes: every problem is collected, each where it stands.
use super::{
    Choice, FieldError, FieldSchema, FieldType, Kind, Literal, Record, RecordSchema, did_you_mean, old_names,
    printable, quoted, readable, type_hints, unknown_field::unknown_field,
};
use crate::node::{Entry, Node, Origin, Position, Value};
use crate::secret_reference::{NOT_RESOLVED, is_reference};
use std::fmt;
use uuid::Uuid;

/// An error in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigError {
    /// Where, in the file.
    pub at: Position,
    /// The path of the value, as in `services[0].retries`.
    pub path: String,
    /// What was expected, and how to fix it.
    pub message: String,
}

/// A warning about a configuration. It has the form of an error.
pub type ConfigWarning = ConfigError;

impl fmt::Display for ConfigError {
    /// `line:column: path: message`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.at.line, self.at.column)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", printable(&self.path))?;
        }
        f.write_str(&printable(&self.message))
    }
}

/// Finds the entities that others name.
pub trait References {
    /// The id of the entity of this kind that has this id, or this name.
    fn resolve(&self, kind: &str, name: &str) -> Option<Uuid>;
    /// Names of entities of this kind.
    fn names(&self, kind: &str) -> Vec<&str>;
}

/// There is nothing to refer to: any id will do.
impl References for () {
    fn resolve(&self, _: &str, name: &str) -> Option<Uuid> {
        crate::rule::id(name)
    }
    fn names(&self, _: &str) -> Vec<&str> {
        Vec::new()
    }
}

/// A step on the way to a value.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Field(&'static str),
    Key(String),
    Index(usize),
}

/// Where reading stands, and what it has found so far.
pub struct Reader<'r> {
    references: &'r dyn References,
    path: Vec<Step>,
    problems: Vec<ConfigError>,
    /// How many problems there were before the entity being read.
    before: usize,
    /// The records around the one being read, and the step from each to the next.
    around: Vec<(&'static RecordSchema, usize)>,
    /// Whether secrets stand in the place of references to them.
    is_resolved: bool,
}

/// More errors of one entity are not looked for, because so many have one cause.
const MAX_ERRORS_PER_ENTITY: usize = 100;

impl<'r> Reader<'r> {
    /// A reader at the root of a configuration.
    pub fn new(references: &'r dyn References) -> Self {
        let (path, problems, around) = (Vec::new(), Vec::new(), Vec::new());
        Reader { references, path, problems, before: 0, around, is_resolved: false }
    }

    /// The same, where secrets stand in the place of references to them.
    pub(super) fn of_resolved(self) -> Self {
        Reader { is_resolved: true, ..self }
    }

    /// Whether the rules of a field hold for this text: a reference is none that they are for, and what a vault has for it
    /// is used as it is.
    pub(super) fn checks(&self, text: &str, field: &FieldSchema) -> bool {
        !field.takes_references() || !self.is_resolved && !is_reference(text)
    }

    /// Reports a mistake at this position, in the value being read.
    pub fn report(&mut self, at: Position, message: impl Into<String>) {
        self.report_below("", at, message);
    }

    /// Reports a mistake below the value being read.
    fn report_below(&mut self, below: &str, at: Position, message: impl Into<String>) {
        if self.is_full() {
            return;
        }
        let message = readable(message.into());
        self.problems.push(ConfigError { at, path: self.path_of(below), message });
    }

    /// Reports a message in words that others compare, below the value being read.
    pub fn report_exactly(&mut self, below: &str, at: Position, message: &str) {
        self.report_below(below, at, message);
    }

    /// Reports a mistake of the record around the value being read.
    pub fn report_around(&mut self, at: Position, message: &str) {
        let last = self.path.pop();
        self.report(at, message);
        self.path.extend(last);
    }

    /// Everything reported.
    pub fn into_errors(self) -> Vec<ConfigError> {
        self.problems
    }

    /// The value, if nothing was reported while it was read.
    pub(crate) fn finish<T>(self, value: Option<T>) -> Result<T, Vec<FieldError>> {
        match value {
            Some(value) if self.problems.is_empty() => Ok(value),
            _ => Err(self
                .problems
                .into_iter()
                .map(|p| FieldError { path: p.path, message: p.message })
                .collect()),
        }
    }

    pub(super) fn references(&self) -> &'r dyn References {
        self.references
    }

    /// Whether few problems have been found so far, so that it may take time to say how to fix the next.
    pub(crate) fn is_early(&self) -> bool {
        self.problems.len() < 20
    }

    /// Whether so much is wrong with the entity being read that the rest need not be read.
    pub(super) fn is_full(&self) -> bool {
        self.problems.len() - self.before >= MAX_ERRORS_PER_ENTITY
    }

    /// Reads what is one step further down.
    pub(crate) fn within<T>(&mut self, step: Step, read: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(step);
        let result = read(self);
        self.path.pop();
        result
    }

    /// Reads what is in a record.
    pub(crate) fn inside<T>(
        &mut self,
        record: &'static RecordSchema,
        read: impl FnOnce(&mut Self) -> T,
    ) -> T {
        self.around.push((record, self.path.len()));
        let result = read(self);
        self.around.pop();
        result
    }

    /// The records around the one being read, the nearest first, and the field of each that leads here.
    pub(super) fn around(&self) -> impl Iterator<Item = (&'static RecordSchema, &'static str)> + '_ {
        self.around.iter().rev().filter_map(|(record, depth)| match self.path.get(*depth)? {
            Step::Field(name) => Some((*record, *name)),
            _ => None,
        })
    }

    /// Starts at this path, with another entity.
    pub(crate) fn start_at(&mut self, path: Vec<Step>) {
        self.path = path;
        self.before = self.problems.len();
    }

    /// The path of something below the value being read.
    pub(crate) fn path_of(&self, below: &str) -> String {
        path_text(&self.path, below)
    }
}

/// Steps, and a path below them, as one path: `services[0].retries`.
pub(crate) fn path_text(steps: &[Step], below: &str) -> String {
    let mut path = String::new();
    for step in steps {
        match step {
            Step::Index(index) => path.push_str(&format!("[{index}]")),
            Step::Field(name) => push_name(&mut path, name),
            Step::Key(name) => push_name(&mut path, &quoted(name)),
        }
    }
    if !below.is_empty() {
        push_name(&mut path, below);
    }
    path
}

fn push_name(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

/// Finds what to write in place of a name that is no field.
pub type Hint<'s> = &'s dyn Fn(&str) -> Option<String>;

/// What is known about a record from where it stands.
pub struct RecordContext<'s> {
    /// Fields whose value follows from the place: the entity's id, its parent.
    pub given: &'s [(&'static str, Uuid)],
    /// Names that may stand among the fields and are read by others.
    pub others: &'s [&'static str],
    /// What `config` is made of: its fields are sometimes written beside it.
    pub config: Option<&'static RecordSchema>,
    /// What to write in place of a name that is no field, as far as others than the record know that.
    pub hint: Option<Hint<'s>>,
}

impl RecordContext<'static> {
    /// Nothing.
    pub const NONE: Self = RecordContext { given: &[], others: &[], config: None, hint: None };
}

/// The fields of one record, as written.
pub struct Fields<'n, 'a> {
    pub(super) schema: &'static RecordSchema,
    pub(super) written: Vec<Option<&'n Entry<'a>>>,
    pub(super) given: &'n [(&'static str, Uuid)],
    pub(super) at: Position,
}

impl<'n, 'a> Fields<'n, 'a> {
    /// Sorts what is written by field, reporting names that are none.
    pub(super) fn of(
        schema: &'static RecordSchema,
        node: &'n Node<'a>,
        around: &RecordContext<'n>,
        reader: &mut Reader<'_>,
    ) -> Self {
        let mut written = vec![None; schema.fields.len()];
        for entry in node.entries() {
            if reader.is_full() {
                break;
            }
            match schema.fields.iter().position(|field| field.name == entry.key) {
                Some(index) => written[index] = Some(entry),
                None if around.others.contains(&entry.key.as_ref()) => {}
                None => reader.report(entry.at, unknown_field(schema, around, &entry.key, reader)),
            }
        }
        Fields { schema, written, given: around.given, at: node.at }
    }

    /// Reads the field at this place in the schema.
    pub fn read<T: FieldType>(&self, index: usize, reader: &mut Reader<'_>) -> Option<T> {
        let field = &self.schema.fields[index];
        reader.within(Step::Field(field.name), |reader| self.value(index, field, reader))
    }

    /// Reads the record whose fields stand among these, from this place in the schema on.
    pub fn flattened<T: Record>(&self, first: usize, reader: &mut Reader<'_>) -> Option<T> {
        let schema = T::SCHEMA;
        let written = self.written[first..first + schema.fields.len()].to_vec();
        T::read_fields(&Fields { schema, written, ..*self }, reader)
    }

    fn value<T: FieldType>(&self, index: usize, field: &FieldSchema, reader: &mut Reader<'_>) -> Option<T> {
        let written = self.written[index].map(|entry| &entry.node);
        if let Some((_, id)) = self.given.iter().find(|(name, _)| *name == field.name) {
            return self.given_value(*id, written, field, reader);
        }
        match written {
            Some(node) if node.value != Value::Null => T::read(node, field, reader),
            Some(_) if T::OPTIONAL => T::unset(),
            Some(node) if field.required && field.default.is_some() => {
                let name = field.name;
                reader.report(node.at, format!("required: set `{name}`, or leave it out for the default"));
                None
            }
            _ => self.unwritten(field, reader),
        }
    }

    fn unwritten<T: FieldType>(&self, field: &FieldSchema, reader: &mut Reader<'_>) -> Option<T> {
        if let Some(default) = &field.default {
            return T::read(&literal_node(default, self.at), field, reader);
        }
        if matches!(T::KIND, Kind::Record(_)) && !T::OPTIONAL {
            return T::read(&Node::new(Value::Map(Vec::new()), self.at), field, reader);
        }
        let value = if field.auto { T::generate() } else { None }.or_else(T::unset);
        if value.is_none() {
            let message = match field.name {
                "_format_version" => {
                    "required: write `_format_version: \"3.0\"` as the first line".to_owned()
                }
                name => format!("required: set `{name}`"),
            };
            reader.report(self.at, message);
        }
        value
    }

    /// A value that follows from the place; what is written must agree with it.
    pub(super) fn given_value<T: FieldType>(
        &self,
        id: Uuid,
        written: Option<&Node<'_>>,
        field: &FieldSchema,
        reader: &mut Reader<'_>,
    ) -> Option<T> {
        let value = T::read(&Node::new(Value::Id(id), self.at), field, reader);
        if let Some(node) = written.filter(|node| node.value != Value::Null) {
            let named: Option<Uuid> = FieldType::read(node, field, reader);
            if named.is_some_and(|named| named != id) {
                let message =
                    format!("names another than the one this is nested in; leave out `{}`", field.name);
                reader.report(node.at, message);
                return None;
            }
            named?;
        }
        value
    }
}

/// Reads a record and runs its checks. A record that breaks a rule is returned all the same, so that rules across
/// records can be checked too: whether there were problems, the reader knows.
pub fn read_record<T: Record>(
    node: &Node<'_>,
    around: &RecordContext<'_>,
    reader: &mut Reader<'_>,
) -> Option<T> {
    if !matches!(node.value, Value::Map(_)) {
        let (got, hint) = (node.kind(), type_hints::record(node, T::SCHEMA, around));
        reader.report(node.at, format!("expected a mapping of fields, got {got}{hint}"));
        return None;
    }
    let renamed = old_names::replaced(T::SCHEMA, node, |old, path| {
        let name = &old.key;
        let message = format!("was the name of `{path}`, which says something else; leave out `{name}`");
        reader.report_below(name, old.at, message);
    });
    let node = renamed.as_ref().unwrap_or(node);
    let before = reader.problems.len();
    let fields = Fields::of(T::SCHEMA, node, around, reader);
    let all_known = reader.problems.len() == before;
    let record = reader.inside(T::SCHEMA, |reader| T::read_fields(&fields, reader))?;
    // With an unknown field, what a check misses is probably what that field was meant to be.
    if all_known {
        report_violations(record.check(), node, reader);
    }
    Some(record)
}

/// Reports what the checks of a record have found.
pub(super) fn report_violations(found: Vec<FieldError>, node: &Node<'_>, reader: &mut Reader<'_>) {
    for violation in found {
        if reader.is_full() {
            break;
        }
        let at = node.position_of(&violation.path);
        reader.report_below(&violation.path, at, violation.message);
    }
}

/// Reads a variant by its name.
pub fn read_choice<T: Choice>(node: &Node<'_>, field: &FieldSchema, reader: &mut Reader<'_>) -> Option<T> {
    let found = node.as_str().and_then(T::from_name);
    if found.is_none() {
        let quote =
            if matches!(node.value, Value::Float(_) | Value::Int(_)) { "; put it in quotes" } else { "" };
        reader.report(
            node.at,
            expected_one_of(T::NAMES.iter().copied(), node, field, reader.is_early()) + quote,
        );
    }
    found
}

/// `expected one of …, got …; did you mean …?`
pub(super) fn expected_one_of<'c>(
    names: impl Iterator<Item = &'c str> + Clone,
    node: &Node<'_>,
    field: &FieldSchema,
    is_early: bool,
) -> String {
    let list: Vec<_> = names.clone().collect();
    if let [only] = list[..] {
        return format!("expected {only}, the only one there is, got {}", shown(node, field));
    }
    let written = node.as_str().filter(|_| is_early);
    let hint = written.map(|written| match is_reference(written) {
        true => format!("; {NOT_RESOLVED}"),
        false => did_you_mean(written, names),
    });
    let hint = hint.unwrap_or_default();
    format!("expected one of {}, got {}{hint}", list.join(", "), shown(node, field))
}

/// The value for a message, unless it may be secret.
pub(super) fn shown(node: &Node<'_>, field: &FieldSchema) -> String {
    match &node.value {
        Value::Str(_, Origin::Interpolated) => "a string from the environment".to_owned(),
        _ if field.is_confidential() => node.kind().to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Str(text, _) if text.chars().count() <= 60 => format!("{text:?}"),
        _ => node.kind().to_owned(),
    }
}

pub(super) fn literal_node(literal: &Literal, at: Position) -> Node<'static> {
    let value = match *literal {
        Literal::Bool(value) => Value::Bool(value),
        Literal::Int(value) => Value::Int(value),
        Literal::Float(value) => Value::Float(value),
        Literal::Str(text) => Value::Str(text.into(), Origin::Quoted),
        Literal::List(items) => Value::List(items.iter().map(|item| literal_node(item, at)).collect()),
        Literal::Map(members) => {
            let entry = |(name, value): &(&'static str, Literal)| Entry {
                key: (*name).into(),
                at,
                node: literal_node(value, at),
            };
            Value::Map(members.iter().map(entry).collect())
        }
    };
    Node::new(value, at)
}
