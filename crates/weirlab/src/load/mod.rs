//! The load generator: HTTP/1.1 requests, plain or over TLS, from a few threads over many connections.
//!
//! Each thread has its share of the connections and of the rate, an epoll loop of its own, and counts by itself; the
//! calling thread decides when the measured window begins and ends. `docs/laboratory/load.md` states every rule.
mod answer;
pub(crate) mod arguments;
mod arrivals;
mod counters;
mod distribution;
pub(crate) mod document;
mod error;
mod grpc;
mod http2;
mod idle;
mod listed;
mod live;
mod message;
pub mod plan;
mod request;
mod run;
mod shared;
mod single;
mod slot;
mod steady;
pub mod text;
pub(crate) mod validity;
mod wire;
mod worker;
pub use error::LoadError;
pub use idle::Idle;
pub use listed::{ListedRequest, list};
pub use live::{BOUNDS, Durations, LiveCounters, LiveSnapshot};
pub use plan::*;
pub use run::{allow_gateway_files, reach, run};
pub use single::{Response, send_one};
