//! What can be configured: entities, their rules and defaults. No IO, no async, no clock.
//!
//! A [`Document`] is a whole configuration. [`Document::read`] reads one from a declarative file, by the
//! declarations in [`entity`], the rules of [`rule`] and, across entities, of [`check`].

// The derived code names this crate as others do.
extern crate self as weir_model;

pub mod check;
pub mod declarative;
pub mod document;
pub mod entities;
pub mod entity;
pub mod entity_error;
mod entity_reader;
mod label;
pub mod node;
mod other_plugins;
mod pem;
mod plugin_schema;
mod regex;
pub mod rule;
pub mod schema;
mod service_url;

pub use declarative::{EntityLocation, EntityLocations, Environment, Format, ParsedDocument};
pub use document::Document;
pub use entities::{ConstraintError, Entities};
pub use entity::Change;
pub use entity_error::{EntityError, EntityWarning};
pub use entity_reader::ReadOptions;
pub use plugin_schema::{EntityKinds, PluginSchema, Streams, find_kind, find_plugin};
pub use schema::ConfigError;
pub use uuid::Uuid;
