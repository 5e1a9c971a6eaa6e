//! The health of targets on this node: Kong's active and passive health checks, and what operators set by hand.
//!
//! A target's state outlives snapshots; its checks are compiled with each. The balancer reads one flag of the state,
//! and a response that does not change it writes nothing.

mod bounded_tasks;
mod change;
mod checks;
mod counters;
mod handover;
pub mod monitor;
mod outlier;
mod probe;
mod state;

pub use change::{HealthChange, HealthSource};
pub use checks::Outcome;
pub use checks::are_used;
pub use handover::TargetNumbers;
pub use monitor::MonitoredUpstream;
pub use outlier::OutlierPolicy;
pub use state::{AddressStatus, TargetStates, TargetStatus, ejections, mark, standing};
pub use state::{TargetMonitor, TargetMonitors, TargetState};
