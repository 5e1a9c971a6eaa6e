//! The model as the other crates use it: one module for each subject.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "a test fails by panicking"
)]
mod cases;
mod custom;
mod entities;
mod mistakes;
mod properties;
mod sample;
mod schemas;
