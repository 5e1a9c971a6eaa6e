//! `weirlab`: measures gateways side by side. A scenario is put before every target in interleaved blocks; what each
//! block cost and how long its requests took becomes paired ratios with confidence intervals, and a report.
//!
//! ```text
//! scenario + targets ─► session: per block start, check parity, load, observe ─► result ─► analysis ─► report
//! ```
//!
//! The program `weirlab` is `commands`. [`script`] is the same for programs of one's own: the documented API of this
//! library. Neither uses the other, and both see everything below; each of the others only what stands to its right:
//!
//! ```text
//! commands
//! script   ─► session ─► host ─► driver ─► target ─► scenario ─► load ─► result
//!          ─► site ─► report ─► analysis ─► stats; report ─► chart      upstream, floor, front ─► event_loop
//! faults   ─► driver ─► target
//! ```
pub mod analysis;
pub mod capacity;
pub mod catalogue;
pub mod chart;
pub mod commands;
pub mod compare;
pub mod driver;
pub mod duration;
pub mod event_loop;
pub mod faults;
pub mod flame;
pub mod fleet;
pub mod floor;
pub mod front;
pub mod gate;
pub mod generator;
pub mod host;
mod interrupt;
pub mod join;
pub mod load;
pub mod manifest;
pub mod observe;
pub mod power;
pub mod report;
pub mod result;
pub mod scenario;
pub mod script;
pub mod session;
pub mod site;
pub mod stats;
mod subprocess;
pub mod target;
pub mod telemetry;
pub mod upstream;
pub mod version;
pub mod waterfall;
mod websocket;
