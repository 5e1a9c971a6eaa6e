//! The data plane: connections, routing, plugins, upstreams. Knows compiled [`Snapshot`]s; never where a configuration
//! comes from.

pub mod costs;
pub mod listen;
pub mod plugin;
pub mod plugins;

mod background;
mod body_memory;
mod count;
mod downstream;
mod exchange;
mod fingerprint;
mod grpc_client;
mod http_client;
mod json_text;
mod node_log;
mod observe;
mod pipeline;
mod retained;
mod runtime;
mod snapshot;
mod stream;
#[cfg(test)]
mod testing;
mod tunnel;
mod whole_lines;

pub use downstream::proxy_protocol;
pub(crate) use downstream::{client, client_ip, connection, http2, http3, multiplex};
pub use observe::{access_log, explain};
pub(crate) use observe::{request_debug, telemetry};
pub(crate) use pipeline::{
    answer, chain, forward, grpc, head, relay, request_body, respond, response_body, serve,
};
pub use runtime::in_memory;
pub(crate) use runtime::{options, own, proxy, worker};

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
