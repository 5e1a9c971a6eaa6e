//! How the targets of upstreams fare on this node: Kong's health checks, passive and active, and what operators say.
//!
//! A target's state outlives snapshots; how it is judged is compiled with each. The balancer reads one flag of it, and
//! a response that says nothing new writes nothing.

mod bounded_tasks;
mod checks;
mod counters;
pub mod monitor;
mod probe;
mod state;

pub use checks::Outcome;
pub use checks::are_used;
pub use monitor::MonitoredUpstream;
pub use state::{TargetMonitor, TargetMonitors, TargetState};
pub use state::{TargetStates, TargetStatus, mark, standing};
