//! The data plane: connections, routing, plugins, upstreams. Knows compiled [`Snapshot`]s; never where a configuration
//! comes from.

pub mod access_log;
pub mod costs;
pub mod explain;
pub mod in_memory;
pub mod listen;
pub mod plugin;
pub mod plugins;
pub mod proxy_protocol;
pub mod upstream;

mod answer;
mod chain;
mod client;
mod client_ip;
mod connection;
mod exchange;
mod forward;
mod grpc;
mod head;
#[cfg(test)]
mod hooks_tests;
mod http2;
mod http3;
mod multiplex;
mod options;
mod own;
mod proxy;
mod relay;
mod request_body;
mod request_debug;
mod respond;
mod response_body;
mod serve;
mod snapshot;
mod stream;
mod telemetry;
#[cfg(test)]
mod testing;
mod tunnel;
mod worker;

pub use http2::Http2Options;
pub use http3::{AltSvc, Http3Options};
pub use listen::{Address, Listen, Traffic};
pub use options::{AddedHeaders, Network, Options, RealIp};
pub use own::{Origin, Own, OwnPaths, OwnRequest};
pub use plugin::{Answer, HeldBodies, NodeId, NodeLog, NodeMessage, Retained};
pub use proxy::{AccessLogs, Listening, Proxy, StartError, Totals};
pub use request_debug::RequestDebug;
pub use snapshot::{CompileError, Compiler, Snapshot};
pub use stream::MOST_PIPES;
pub use upstream::http2::SharedConnections;
pub use upstream::pool::KeepAlive;
pub use weir_http1::Limits;
