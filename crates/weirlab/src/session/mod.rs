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
pub mod guard;
mod order;
mod outset;
mod parity;
mod probe;
mod profile;
mod progress;
mod run;
mod slices;
mod stand;
mod supply;
mod work;
mod wrong;

pub use order::{Place, order};
pub use profile::Profile;
pub use run::{Assignment, Entry, Session, SessionError};
pub use stand::Contender;
