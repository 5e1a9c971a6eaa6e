//! The data plane: connections, routing, plugins, upstreams. Knows compiled [`Snapshot`]s; never where a configuration
//! comes from.

pub mod costs;
pub mod listen;

mod downstream;
mod exchange;
#[cfg(test)]
mod hooks_tests;
mod observe;
mod pipeline;
mod runtime;
mod snapshot;
mod stream;
#[cfg(test)]
mod testing;
mod tunnel;

pub use downstream::proxy_protocol;
pub(crate) use downstream::{http2, http3};
pub(crate) use observe::request_debug;
pub use observe::{access_log, explain};
pub use runtime::in_memory;
pub(crate) use runtime::{options, own, proxy};

pub use http2::Http2Options;
pub use http3::{AltSvc, Http3Options};
pub use listen::{Address, Listen, Traffic};
pub use options::{AddedHeaders, Network, Options, RealIp};
pub use own::{Origin, Own, OwnPaths, OwnRequest};
pub use proxy::{AccessLogs, Listening, Proxy, StartError, Totals};
pub use request_debug::RequestDebug;
pub use snapshot::{CompileError, Compiler, Snapshot};
pub use stream::MOST_PIPES;
pub use weir_http1::Limits;
pub use weir_plugin::{Answer, HeldBodies, NodeId, NodeLog, NodeMessage, Retained};
pub use weir_upstream::http2::Http2UpstreamOptions;
pub use weir_upstream::pool::KeepAlive;
