//! A measurement as a script: what Kong's performance framework offers to its test files, as a library.
//!
//! A script sets a laboratory up for one version of a gateway, starts an upstream and the gateway, puts load on it as often
//! as it likes, and keeps what came of it. `weirlab run` remains the way to compare gateways with intervals, because it
//! interleaves them; a script is for what no scenario says, such as steps between two loads.
//!
//! ```no_run
//! use std::time::Duration;
//! use weirlab::script::{Configuration, Gateway, Load, ScriptError, Upstream, combine_results, setup};
//!
//! fn main() -> Result<(), ScriptError> {
//!     let lab = setup("git:main")?;
//!     let upstream = lab.start_upstream(Upstream::new().status(200))?;
//!
//!     let mut configuration = Configuration::new();
//!     let service = configuration.insert("services", serde_json::json!({ "url": upstream.url("/test") }));
//!     configuration.insert("routes", serde_json::json!({ "paths": ["/s1-r1"], "service": service }));
//!     let mut gateway = lab.start_gateway(Gateway::new(configuration))?;
//!
//!     let mut results = Vec::new();
//!     for run in 1..=3 {
//!         let load = Load::new("/s1-r1").connections(100).threads(5).duration(Duration::from_secs(10));
//!         let result = lab.start_load(&gateway, load)?.wait_result()?;
//!         println!("### Result for {} (run {run}):\n{result}", lab.version());
//!         results.push(result);
//!     }
//!     println!("### Combined result for {}:\n{}", lab.version(), combine_results(&results)?);
//!     gateway.stop()?;
//!     gateway.save_log("output/single_route.log")
//! }
//! ```
//!
//! Everything ends when its value is dropped. Ctrl-C and SIGTERM make [`RunningLoad::wait_result`] return
//! [`ScriptError::Interrupted`], so that a script that passes errors on ends what it started; a second one ends the process
//! at once. What a script that was killed leaves running is ended by the next laboratory on the machine.
//!
//! This module uses the others of this crate; none of them uses it.
mod charts;
mod combine;
mod configuration;
mod error;
mod flame;
mod gateway;
mod lab;
mod load;
mod output;
mod upstream;

pub use charts::Charts;
pub use combine::{CombinedResult, combine_results};
pub use configuration::Configuration;
pub use error::ScriptError;
pub use flame::FlameGraph;
pub use gateway::{Gateway, RunningGateway};
pub use lab::{Lab, Setup, setup};
pub use load::{Load, LoadResult, RunningLoad};
pub use output::print_and_save;
pub use upstream::{RunningUpstream, Upstream};

pub use crate::generator::Kind as Generator;
pub use crate::load::{Distribution, Values, Variable};
pub use crate::upstream::Delay;
