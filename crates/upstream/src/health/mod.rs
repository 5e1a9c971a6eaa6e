//! How the targets of upstreams fare on this node: Kong's health checks, passive and active, and what operators say.
//!
//! A target's state outlives snapshots; how it is judged is compiled with each. The balancer reads one flag of it, and
//! a response that says nothing new writes nothing.

mod checks;
pub mod monitor;
mod probe;
mod tally;
mod under_way;
mod vitals;

pub use checks::Outcome;
pub use checks::are_used;
pub use monitor::Watched;
pub use vitals::{AllVitals, TargetVitals, mark, standing};
pub use vitals::{Vitals, Watch, Watches};
