//! The data plane: connections, routing, plugins, upstreams. Knows compiled [`Snapshot`]s; never where a configuration
//! comes from.

pub mod access_log;
pub mod explain;
pub mod in_memory;
pub mod plugin;
pub mod plugins;
pub mod route;
pub mod tls;
pub mod upstream;

mod answer;
mod buffer;
mod chain;
mod client;
mod client_ip;
mod connection;
mod deadline;
mod exchange;
mod fingerprint;
mod forward;
mod grpc;
mod head;
mod http2;
mod io;
mod options;
mod own;
mod proxy;
mod relay;
mod request_body;
mod respond;
mod retained;
mod serve;
mod snapshot;
mod telemetry;
#[cfg(test)]
mod testing;
mod tunnel;
mod wire;
mod worker;

pub use answer::Answer;
pub use exchange::{ConsumerIndex, Credential, Exchange, Source, Timing};
pub use http2::Http2Options;
pub use options::{AddedHeaders, Listen, Network, Options};
pub use own::{Origin, Own, OwnPaths, OwnRequest};
pub use proxy::{Proxy, StartError, Totals};
pub use retained::Retained;
pub use snapshot::{CompileError, CompiledRoute, CompiledService, Compiler, Consumer, Snapshot};
pub use upstream::http2::SharedConnections;
pub use upstream::pool::KeepAlive;
