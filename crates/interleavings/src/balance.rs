//! What judging targets needs of the balancer.

#[path = "../../upstream/src/balance/latency.rs"]
pub mod latency;
