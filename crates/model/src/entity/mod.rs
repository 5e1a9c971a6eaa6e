//! The entities, one file each.
#![allow(missing_docs)]
mod any;
mod apisix_object;
mod certificate;
mod change;
mod consumer;
mod consumer_group;
mod custom;
mod healthcheck;
mod key;
mod kind;
mod plugin;
mod route;
mod service;
mod upstream;
mod vault;

pub(crate) use any::entity_kinds;
use any::reference_value;
pub use any::{Entity, OnDelete, Reference, Unique};
pub use apisix_object::*;
pub use certificate::*;
pub use change::Change;
pub use consumer::*;
pub use consumer_group::*;
pub use custom::{CustomEntities, CustomEntity, CustomEntitySchema, CustomKind, CustomRecord, DerivedId};
pub use healthcheck::*;
pub use key::*;
pub use kind::EntityKind;
pub use plugin::*;
pub use route::*;
pub use service::*;
pub use upstream::*;
pub(crate) use vault::no_such_vault;
pub use vault::*;
