//! The fault laboratory: scenarios put a load on a gateway, break something meanwhile, and count what came of every request.
//!
//! ```text
//! fault.toml ─► world: upstream servers, name server, gateway ─► clients + steps ─► records + journal ─► outcome ─► table
//! ```
//!
//! Each request has a body of its own in both directions, so that a response which belongs to another request, a truncated
//! one that looks whole, and a request that was sent twice are found at whichever end sees them.
mod act;
mod behaviour;
mod certificates;
mod channel;
mod client;
mod descriptors;
mod dns;
mod error;
mod exchange;
mod excuses;
mod facilities;
mod gateway;
mod journal;
mod message;
mod outcome;
mod read_only;
mod relay;
mod run;
mod scenario;
mod server;
mod server_process;
mod store;
mod stores;
mod table;
mod world;
mod writes;

pub use act::{Act, ProcessAct, StoreAct};
pub use behaviour::Behaviour;
pub use error::FaultError;
pub use gateway::Gateway;
pub use outcome::{Outcome, Writes};
pub use run::{Options, run};
pub use scenario::{AllowedLosses, During, Scenario, Step, When, find};
pub use server::{Plan, serve};
pub use table::{markdown, table};
