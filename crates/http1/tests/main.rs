//! The syntax and framing of HTTP/1.1 as the other crates use them: one module for each subject.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
mod conformance;
mod headers;
mod properties;
