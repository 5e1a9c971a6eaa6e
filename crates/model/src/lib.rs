//! What can be configured: entities, their rules and defaults. No IO, no async, no clock, and no plugin by name.
//!
//! An [`entity`] is a struct with a derived [`schema`], from which its reader, defaults, JSON and documentation come. Plugins
//! bring their own: a [`PluginSchema`] has the schema of a plugin's configuration and the entities that it declares, such as
//! credentials.
//!
//! A declarative file goes [`Document::read`] → tree ([`node`]) → entities → rules across them ([`check`]) → [`Document`], or
//! every [`ConfigError`] in it, each with its position. The Admin API and the stores read one entity at a time
//! ([`entity::Entity::read`]) and keep them in [`Entities`], which holds the rules across entities at each [`Change`] and gives
//! the [`Document`] that the data plane compiles.

// The derived code names this crate as others do.
extern crate self as weir_model;

pub mod check;
pub mod declarative;
mod deprecated_fields;
pub mod document;
pub mod entities;
pub mod entity;
pub mod entity_error;
mod entity_reader;
pub mod kong_schema;
mod label;
mod limits_of_services;
pub mod node;
mod other_plugins;
mod pem;
mod plugin_schema;
mod regex;
pub mod rule;
pub mod schema;
mod secret_reference;
mod service_url;
pub mod tags;
mod unknown_vaults;
mod without_targets;

pub use declarative::{
    EntityLocation, EntityLocations, Environment, Format, InvalidDocument, ParsedDocument,
};
pub use document::Document;
pub use entities::{ConstraintError, Entities};
pub use entity::Change;
pub use entity_error::{EntityError, EntityWarning};
pub use entity_reader::ReadOptions;
pub use label::on_path as label_on_path;
pub use plugin_schema::{
    CheckPlugin, EntityKinds, PluginSchema, ReadConfig, Streams, config_schema, find_kind, find_plugin,
};
pub use schema::ConfigError;
pub use secret_reference::{SecretReference, is_reference};
pub use unknown_vaults::unknown_vaults;
pub use uuid::Uuid;
