//! Every order of what threads do to what they share, tried with `loom`: for tests alone.
//!
//! The modules are files of the product, built with the atomics, locks and reference counts of `loom` in the place of the standard
//! library's: they use those of `crate::sync`. [`models`] has a function for each invariant, which `tests/orders.rs` runs.
// The unit tests of those files are not for `loom`.
#![cfg(not(test))]
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

mod balance;
#[path = "../../upstream/src/health/checks.rs"]
mod checks;
#[path = "../../plugins/src/limits/counter.rs"]
mod counter;
#[path = "../../upstream/src/health/counters.rs"]
mod counters;
#[path = "../../upstream/src/limit/mod.rs"]
mod limit;
pub mod models;
#[path = "../../upstream/src/health/outlier.rs"]
mod outlier;
mod record;
#[path = "../../upstream/src/retry_budget.rs"]
mod retry_budget;
#[path = "../../analytics/src/ring.rs"]
mod ring;
mod sync;
#[path = "../../proxy/src/runtime/versions.rs"]
mod versions;
#[path = "../../plugins/src/limits/window.rs"]
mod window;
