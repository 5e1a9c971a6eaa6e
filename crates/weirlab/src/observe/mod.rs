//! What a load costs: CPU time, memory and context switches of a process tree, what the machine did meanwhile, how
//! connections are spread over workers, and which CPUs who may use.
mod connections;
mod cpus;
mod machine;
pub mod procfs;
mod tree;

pub use connections::connections_per_worker;
pub use cpus::{Layout, allowed_cpus, pin_current_thread};
pub(crate) use cpus::{allowed_cores, named, ranges};
pub use machine::{MachineSample, frequency_mhz};
pub use tree::{ProcessTree, Sample};
