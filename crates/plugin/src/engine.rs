//! What the engine does with the contract, and no plugin may: a test refuses plugins that name this module.

mod workers;

pub use super::body_memory::{BodyMemory, BodyReservation, WorkerBodyMemory};
pub use super::build::Shared;
pub use super::durations::Durations;
pub use super::exchange::body_filter::{BodyChanges, BodyFilters, RefuseTooLong, ReplaceLater};
pub use super::exchange::connection::{CERTIFICATE, Connection, IDENTITY, Tls};
pub use super::exchange::fallback::{falls_back, may_fall_back};
pub use super::exchange::grpc_status;
pub use super::exchange::local_response::final_status;
pub use super::exchange::secrets::{write_secret_headers, write_secret_query};
pub use super::exchange::state::{
    ExchangeState, Heads, NormalPath, are_trailers_taken, begin, is_said_by_head, show_trailers,
    upstream_answers, write_target,
};
pub use super::exchange::upstream_replacement::{ask_the_same, replacement, take_background};
pub use super::session::SessionState;
pub use super::vaults::{ResolvedDocument, has_references};
pub use super::views::{Configuration, Entities, GroupIndex, TrustedIps};
pub use workers::{PluginInstances, WorkerPlugins};
