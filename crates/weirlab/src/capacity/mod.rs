//! The highest rate that holds a service level, and latency below it.
pub mod command;
mod judge;
pub mod search;
