//! A session: its cells, the order of their blocks, and how they are measured.
//!
//! ```text
//! plan (cases × targets, rounds) ─► for each block: start ─► parity (first time) ─► load + observe ─► result
//! ```
mod action;
mod assignment;
mod attempt;
mod block;
mod certificate;
pub mod contenders;
mod control_plane;
mod failures;
mod kept;
mod order;
mod parity;
mod parts;
mod probe;
mod profile;
mod progress;
mod run;
mod seconds;
mod setup;
mod slices;
mod target_runner;
mod telemetry;
mod watched;

pub(crate) use certificate::make as make_certificate;

pub use assignment::{Assignment, Entry, SessionError};
pub use kept::CONFIGURATIONS;
pub use order::{BlockPosition, order};
pub use profile::Profile;
pub use run::Session;
pub use target_runner::Contender;
pub use watched::Watching;
