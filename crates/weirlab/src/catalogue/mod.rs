//! What there is to run: the folders of scenarios and targets, how they are found and read.
mod error;
mod find;
mod read;
mod template;

pub use error::CatalogueError;
pub use find::{Entry, root};
pub(crate) use find::{Kind, nearest, select};
pub(crate) use read::{Span, parse_toml, position, read_text, read_toml};
pub(crate) use template::{context, mentioned, render};
