//! A session: which cells there are, in which order their blocks come, and carrying them out.
//!
//! ```text
//! plan (cases × targets, rounds) ─► for each block: stand ─► parity (first time) ─► load + observe ─► result
//! ```
mod action;
mod block;
mod certificate;
pub mod contenders;
mod exchange;
mod failures;
pub mod guard;
mod order;
mod parity;
mod probe;
mod profile;
mod progress;
mod run;
mod setup;
mod slices;
mod target_runner;
mod upstreams;
mod working_folder;

pub use order::{Place, order};
pub use profile::Profile;
pub use run::{Assignment, Entry, Session, SessionError};
pub use target_runner::Contender;
