//! Limits per second, minute, hour, day, month and year, and where what counts against them is kept: on this node, or in
//! a store that several nodes share.
//!
//! A plugin asks a `Limiter`. What it gets at once comes from memory; for what is exact over nodes it has to wait.

mod breaker;
pub(crate) mod counter;
mod driver;
mod entry;
mod in_use;
mod ledger;
mod periods;
mod policy;
mod quota;
mod redis;
mod sliding;
mod store;
pub(crate) mod window;

pub(super) use counter::{Limit, Usage, written};
pub(super) use periods::Periods;
pub(super) use policy::{Asked, Identifier, Limiter, Policy, Reserved};
pub(super) use quota::{Quota, QuotaUsage, Quotas};
pub(super) use redis::{ClusterNode, Redis};
pub use sliding::Slide;
pub use store::{Add, Bound, ClusterStore, CounterStore, Pending, Take, Taken, Unavailable, Whose, Window};
pub use window::Period;
