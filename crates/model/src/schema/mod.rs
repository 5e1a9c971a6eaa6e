//! One declaration per entity: what a record's fields are, as data, and how records are read by it.
//!
//! `#[derive(Record)]` turns a Rust struct into a [`RecordSchema`], a reader that reports every violation at
//! once, and JSON with each field present.
//!
//! ```
//! use weir_model::schema::{Record, FieldError};
//!
//! /// How many requests are let through.
//! #[derive(Debug, Clone, Record)]
//! #[record(check = one_limit)]
//! pub struct Config {
//!     /// Requests per second.
//!     #[field(gt = 0)]
//!     pub second: Option<f64>,
//!     #[field(default = "consumer", one_of = ["consumer", "ip"])]
//!     pub limit_by: String,
//! }
//!
//! fn one_limit(config: &Config) -> Vec<FieldError> {
//!     match config.second {
//!         Some(_) => Vec::new(),
//!         None => vec![FieldError::new("second", "set a limit")],
//!     }
//! }
//!
//! let config = Config::from_value(&serde_json::json!({ "second": 5 })).unwrap();
//! assert_eq!(config.limit_by, "consumer");
//! assert_eq!(config.to_value(), serde_json::json!({ "second": 5, "limit_by": "consumer" }));
//! ```
mod declared;
mod extensions;
pub(crate) mod json;
mod json_schema;
pub mod markdown;
mod old_names;
mod reader;
mod suggestions;
mod type_hints;
mod types;
mod unknown_field;

pub use declared::RecordCheck;
pub(crate) use declared::read_declared;
pub use extensions::{hide as hide_extensions, take as take_extensions};
pub use json_schema::Direction;
pub use old_names::add as add_old_names;
pub use reader::{
    ConfigError, ConfigWarning, Fields, Hint, Reader, RecordContext, References, read_choice, read_record,
};
pub(crate) use reader::{Step, path_text};
pub(crate) use suggestions::readable;
pub use suggestions::{closest, did_you_mean, printable, quoted};
pub use types::Secret;
pub use weir_model_derive::{Choice, Record};

use crate::node::Node;
use uuid::Uuid;

/// A JSON value.
pub type Json = serde_json::Value;
/// The members of a JSON object.
pub type JsonMap = serde_json::Map<String, Json>;

/// What a record is made of.
#[derive(Debug)]
pub struct RecordSchema {
    /// What the record is for.
    pub doc: &'static str,
    /// Its fields, in declared order.
    pub fields: &'static [FieldSchema],
    /// Names that fields had once, and their paths now: `("redis_host", "redis.host")`.
    pub old_names: &'static [(&'static str, &'static str)],
    /// Names that are written here and are no fields, and what to write instead.
    pub hints: &'static [(&'static [&'static str], &'static str)],
}

impl RecordSchema {
    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<&'static FieldSchema> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The field at a path such as `redis.host`.
    pub fn field_at(&self, path: &str) -> Option<&'static FieldSchema> {
        let mut names = path.split('.');
        let first = self.field(names.next()?)?;
        names.try_fold(first, |field, name| match field.kind {
            Kind::Record(inner) => inner.field(name),
            _ => None,
        })
    }
}

/// What a field may hold. Rules on values hold for the elements of a list and the values of a map.
#[derive(Debug, Clone, Copy)]
pub struct FieldSchema {
    /// The name, as written in configurations.
    pub name: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// The type of its value.
    pub kind: Kind,
    /// Whether null is refused. Left out, it has its default; without one, it must be given.
    pub required: bool,
    /// The value when none is given.
    pub default: Option<Literal>,
    /// A list whose order means nothing.
    pub set: bool,
    /// The values allowed; empty for any.
    pub one_of: &'static [Literal],
    /// Numbers must be greater than this.
    pub gt: Option<f64>,
    /// Numbers must lie between these, both included.
    pub between: Option<(f64, f64)>,
    /// The least length of a string (1 unless said otherwise), or of a list.
    pub len_min: Option<usize>,
    /// The greatest length of a string or a list.
    pub len_max: Option<usize>,
    /// How strings must start.
    pub starts_with: Option<&'static str>,
    /// A rule for strings: what is wrong and how to fix it.
    pub check: Option<Rule>,
    /// The name of that rule.
    pub rule: Option<&'static str>,
    /// A rule for the keys of a map.
    pub key_check: Option<Rule>,
    /// What to write instead of a text where a number is expected.
    pub hint: Option<fn(&str) -> Option<String>>,
    /// Never shown in messages; a rule for it must not quote it either.
    pub secret: bool,
    /// Kong's schemas say that it is encrypted where it is stored, as secrets are.
    pub encrypted: bool,
    /// A reference to a secret that a vault keeps may stand in its place, as in that of a secret. Ask
    /// [`takes_references`](Self::takes_references).
    pub referenceable: bool,
    /// A reference to a secret is taken as it is written, although the value is secret.
    pub literal: bool,
    /// Filled in when not given.
    pub auto: bool,
    /// A string that must be a UUID.
    pub uuid: bool,
    /// No two entities of a kind may have the same value.
    pub unique: bool,
    /// A value that was set cannot be changed.
    pub immutable: bool,
    /// The kind of entity that the value names.
    pub foreign: Option<&'static str>,
    /// The field whose value decides whether this one may have a value.
    pub depends_on: Option<&'static str>,
    /// Kong 3.9 does not have the field.
    pub extension: bool,
    /// Those of `one_of` that Kong 3.9 does not have.
    pub extension_values: &'static [&'static str],
}

/// A rule for strings: the error says what is wrong and how to fix it.
pub type Rule = fn(&str) -> Result<(), String>;

impl FieldSchema {
    /// A field of type `T` with no rules of its own.
    pub const fn new<T: FieldType>(name: &'static str, doc: &'static str) -> Self {
        FieldSchema {
            name,
            doc,
            kind: T::KIND,
            required: !T::OPTIONAL,
            default: None,
            set: false,
            one_of: &[],
            gt: None,
            between: None,
            len_min: None,
            len_max: None,
            starts_with: None,
            check: None,
            rule: None,
            key_check: None,
            hint: None,
            secret: false,
            encrypted: false,
            referenceable: false,
            literal: false,
            auto: false,
            uuid: false,
            unique: false,
            immutable: false,
            foreign: None,
            depends_on: None,
            extension: false,
            extension_values: &[],
        }
    }

    /// Whether no message may quote its value: it is a secret, or a text that is made up where none is given, as keys are.
    pub fn is_confidential(&self) -> bool {
        self.secret || self.auto && matches!(self.kind, Kind::String)
    }

    /// Whether a reference to a secret that a vault keeps may stand in its place.
    pub fn takes_references(&self) -> bool {
        self.referenceable || self.secret && !self.literal
    }

    /// The rules as they hold for the elements of this list, or the values of this map.
    pub(crate) fn element(&self) -> Self {
        FieldSchema { len_min: None, len_max: None, ..*self }
    }
}

/// The fields of several records as those of one; `N` is how many there are.
pub const fn joined<const N: usize>(mut parts: &[&[FieldSchema]]) -> [FieldSchema; N] {
    let (mut all, mut next) = ([FieldSchema::new::<bool>("", ""); N], 0);
    while let [first, rest @ ..] = parts {
        let mut part = *first;
        while let [field, rest @ ..] = part {
            all[next] = *field;
            (next, part) = (next + 1, rest);
        }
        parts = rest;
    }
    all
}

/// The type of a field's value.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// True or false.
    Boolean,
    /// A whole number within these bounds.
    Integer(i64, i64),
    /// Any number.
    Number,
    /// Text.
    String,
    /// One of these names.
    Choice(&'static [&'static str]),
    /// The id of an entity.
    Uuid,
    /// A list of such values.
    Array(&'static Kind),
    /// A mapping from names to such values.
    Map(&'static Kind),
    /// A record of its own.
    Record(&'static RecordSchema),
    /// Anything.
    Any,
}

/// A value known when Weir is compiled: a default, or an allowed value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Literal {
    /// A boolean.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text.
    Str(&'static str),
    /// A list.
    List(&'static [Literal]),
    /// A mapping.
    Map(&'static [(&'static str, Literal)]),
}

/// A field that breaks a rule: where, inside of what was checked, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    /// The field, as in `redis.port` or `paths[0]`; empty for the whole record.
    pub path: String,
    /// What is wrong and how to fix it.
    pub message: String,
}

impl FieldError {
    /// An error at this path.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        FieldError { path: path.into(), message: message.into() }
    }
}

/// A field that is accepted and probably a mistake, or without effect. It has the form of an error.
pub type FieldWarning = FieldError;

/// A struct with fields that are declared for configuration. Derived.
pub trait Record: FieldType {
    /// The declaration, as data.
    const SCHEMA: &'static RecordSchema;

    /// Reads every field; `None` when any has been reported.
    fn read_fields(fields: &Fields<'_, '_>, reader: &mut Reader<'_>) -> Option<Self>;

    /// What the record's own checks, named by `#[record(check = …)]`, find.
    fn check(&self) -> Vec<FieldError>;

    /// The value of a field, without a copy.
    fn field_value(&self, name: &str) -> FieldValue<'_>;

    /// As JSON, every field present, null when unset.
    fn to_value(&self) -> Json;

    /// The declaration, as data.
    fn schema() -> &'static RecordSchema {
        Self::SCHEMA
    }

    /// Reads and checks JSON, filling in defaults.
    fn from_value(value: &Json) -> Result<Self, Vec<FieldError>> {
        Self::read_value(value, Reader::new(&()))
    }

    /// The same, where secrets stand in the place of references to them: no rule holds for their texts.
    fn from_resolved(value: &Json) -> Result<Self, Vec<FieldError>> {
        Self::read_value(value, Reader::new(&()).of_resolved())
    }

    #[doc(hidden)]
    fn read_value(value: &Json, mut reader: Reader<'_>) -> Result<Self, Vec<FieldError>> {
        let record = read_record(&Node::from(value), &RecordContext::NONE, &mut reader);
        reader.finish(record)
    }
}

/// An enum with variants that are written as names. Derived.
pub trait Choice: Sized + Copy + 'static {
    /// The names.
    const NAMES: &'static [&'static str];
    /// The variants, in the order of their names.
    const ALL: &'static [Self];

    /// The name of this variant.
    fn as_str(&self) -> &'static str;

    /// The variant of this name.
    fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().position(|n| *n == name).and_then(|index| Self::ALL.get(index)).copied()
    }
}

/// A field's value, borrowed: what code reads that knows a record by its declaration alone.
#[derive(Clone, Copy, PartialEq)]
pub enum FieldValue<'f> {
    /// The field has no value.
    Unset,
    /// An id, or a reference to an entity.
    Uuid(Uuid),
    /// Text.
    Text(&'f str),
    /// A whole number.
    Integer(i64),
    /// A list of texts.
    Texts(&'f [String]),
    /// Any other type, or no such field.
    Other,
}

/// A Rust type that a field may have.
pub trait FieldType: Sized {
    /// Its type in configurations.
    const KIND: Kind;
    /// Whether it may be left out without a default.
    const OPTIONAL: bool = false;

    /// Reads and checks one value; problems go to the reader.
    fn read(node: &Node<'_>, field: &FieldSchema, reader: &mut Reader<'_>) -> Option<Self>;

    /// The value when neither a value nor a default is given.
    fn unset() -> Option<Self> {
        None
    }

    /// A new, unpredictable value, for fields that are filled in when not given.
    fn generate() -> Option<Self> {
        None
    }

    /// As JSON.
    fn to_json(&self) -> Json;

    /// Without a copy.
    fn value(&self) -> FieldValue<'_> {
        FieldValue::Other
    }

    /// A list of such values, without a copy.
    fn list_value(_list: &[Self]) -> FieldValue<'_> {
        FieldValue::Other
    }
}
