//! Limits per second, minute, hour, day, month and year, and where their counts are kept: on this node, or in a store
//! that several nodes share.
//!
//! A plugin uses a `Limiter`. Some policies answer at once from memory; those that are exact across nodes have to wait
//! for the store.

mod breaker;
pub(crate) mod counter;
mod counter_table;
mod counts_of_apisix;
mod driver;
mod entry;
mod in_use;
mod periods;
mod policy;
mod quota;
mod redis;
mod scripts;
mod shared_counters;
mod sliding;
mod store;
pub(crate) mod window;

pub(super) use counter::{Limit, Usage, written};
pub(super) use counts_of_apisix::{Counts, counted_by, scope};
pub(super) use in_use::InUse;
pub(super) use periods::Periods;
pub(super) use policy::{HANDOVERS, Identifier, Limiter, Policy, Reserved, SentQuery};
pub(super) use quota::{Quota, QuotaUsage, Quotas};
pub(super) use redis::{Redis, RedisStore, glob};
pub(super) use scripts::{Reply, Scripts, Undo};
pub use sliding::Slide;
pub use store::{
    Add, Bound, ClusterStore, CounterKey, CounterStore, Pending, Take, Taken, Unavailable, Window,
};
pub use window::Period;
