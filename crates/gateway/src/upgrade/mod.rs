//! The replacement of a running process by a new one, of a newer program or with other settings, without a connection being
//! lost.
//!
//! ```text
//! old                                       new
//! ──────────────────────────────────────────────────────────────────────
//! starts the program, sends its sockets ──►
//!                                           reads settings and configuration, starts, accepts nothing
//!                                       ◄── ready, or why not (the old process goes on)
//! state                                 ──►
//!                                       ◄── serving
//!                                           accepts
//! accepts nothing more, closes its files ─► opens these files
//! drains, ends
//! ```
//! Nothing can fail in the new process once it has said that it serves, and what it says too late fails in itself, so that exactly
//! one of both goes on. Both have the same sockets, so what waits to be accepted is accepted by the first of them. They talk over
//! a socket that is the new process's standard input, since that is inherited without unsafe code
//! ([why](../../../../docs/decisions/upgrades.md)).
mod attempt;
mod channel;
mod draining;
mod new;
mod old;
mod supervised;

pub(crate) use new::Predecessor;
pub(crate) use old::{Launch, Successor, UpgradeError, Upgrader};

/// Set in the environment of the new process.
const VARIABLE: &str = "_WEIR_UPGRADE_FROM_STDIN";
