//! A session: its cells, the order of their blocks, and how they are measured.
//!
//! ```text
//! plan (cases × targets, rounds) ─► for each block: start ─► parity (first time) ─► load + observe ─► result
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

pub use order::{BlockPosition, order};
pub use profile::Profile;
pub use run::{Assignment, Entry, Session, SessionError};
pub use target_runner::Contender;
