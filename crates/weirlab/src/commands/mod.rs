//! The commands of `weirlab`, one file each: what each reads from the command line, and what it does with it.
pub mod capacity;
pub mod compare;
pub mod flame;
pub mod fleet;
pub mod floor;
pub mod front;
pub mod gate;
pub mod list;
pub mod load;
pub mod measuring;
pub mod power;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod upstream;
pub mod waterfall;
