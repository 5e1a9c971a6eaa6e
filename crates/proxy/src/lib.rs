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

mod answer;
mod background;
mod body_memory;
mod chain;
mod client;
mod client_ip;
mod connection;
mod count;
mod exchange;
mod fingerprint;
mod forward;
mod grpc;
mod grpc_client;
mod head;
mod http2;
mod http3;
mod http_client;
mod json_text;
mod multiplex;
mod node_log;
mod options;
mod own;
mod proxy;
mod relay;
mod request_body;
mod request_debug;
mod respond;
mod response_body;
mod retained;
mod serve;
mod snapshot;
mod stream;
mod telemetry;
#[cfg(test)]
mod testing;
mod tunnel;
mod whole_lines;
mod worker;

pub use answer::Answer;
pub use body_memory::HeldBodies;
pub use exchange::{ConsumerIndex, Credential, Exchange, Source, Timing};
pub use http2::Http2Options;
pub use http3::{AltSvc, Http3Options};
pub use listen::{Address, Listen, Traffic};
pub use node_log::{NodeLog, NodeMessage};
pub use options::{AddedHeaders, Network, Options, RealIp};
pub use own::{Origin, Own, OwnPaths, OwnRequest};
pub use proxy::{AccessLogs, Listening, Proxy, StartError, Totals};
pub use request_debug::RequestDebug;
pub use retained::{NodeId, Retained};
pub use snapshot::{CompileError, CompiledRoute, CompiledService, Compiler, Consumer, Snapshot};
pub use stream::{MOST_PIPES, Session};
pub use weir_http1::Limits;
pub use weir_upstream::http2::Http2UpstreamOptions;
pub use weir_upstream::pool::KeepAlive;
