//! The engine: serves clients by compiled [`Snapshot`]s; knows nothing of where a configuration comes from.
//!
//! ```text
//! runtime ─► listen
//!    ├─────► downstream ─► pipeline ─► tunnel
//!    └─────► stream ─► listen                      all of them ─► worker ─► observe ─► exchange ─► snapshot, costs ─► recording, activity
//! ```
//! [`Proxy`] starts the threads and publishes snapshots. A connection arrives in `listen`; `downstream` reads its
//! requests, over each version of HTTP; `pipeline` serves one request from its head to its end, and hands what changes its
//! protocol to `tunnel`; `stream` passes connections on as they are. `worker` is what all of them find on their thread.
//! `observe` reports what happened, [`costs`] keeps what plugins took, [`explain`] says what would happen. No module uses
//! one to its left.

pub mod costs;
pub mod explain;
pub mod listen;

mod activity;
mod client;
#[cfg(test)]
mod contract_tests;
mod downstream;
mod error;
mod exchange;
#[cfg(test)]
mod hooks_tests;
mod limits;
mod observe;
mod pipeline;
mod recording;
mod runtime;
#[cfg(test)]
mod simulation;
mod snapshot;
mod stream;
mod sync;
#[cfg(test)]
mod testing;
mod tunnel;
mod worker;

pub use activity::RunningHook;
pub use downstream::http3::{QuicIdentity, QuicInheritance};
pub use downstream::proxy_protocol;
pub use limits::MemoryLimit;
pub use listen::{Address, Listen, Network, Traffic};
pub use observe::access_log;
pub use observe::request_debug::RequestDebug;
pub use observe::server_timing::{ServerTiming, ServerTimingMode};
pub use recording::Recording;
pub use runtime::in_memory;
pub use runtime::proxy::{AccessLogs, DrainTimeouts, Inheritance, Listening, Proxy, StartError, Totals};
pub use runtime::watchdog::{Finding, Watchdog};
pub use snapshot::{CompileError, Compiler, Snapshot, UpstreamVerification};
pub use weir_http1::Limits;
pub use weir_plugin::{
    BodyMemoryUsage, ErrorTemplates, ErrorType, LocalResponse, NodeId, NodeLog, NodeMessage, Retained,
};
pub use weir_router::Flavor;
pub use weir_upstream::http2::Http2UpstreamOptions;
pub use weir_upstream::pool::KeepAlive;
pub use worker::{
    AddedHeaders, AltSvc, Http2Options, Http3Options, InternalEndpoints, InternalHandler, InternalRequest,
    MAX_PIPES, Options, PortMaps, RealIp, RequestOrigin,
};
