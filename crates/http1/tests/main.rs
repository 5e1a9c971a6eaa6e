//! The syntax and framing of HTTP/1.1 as the other crates use them: one module for each subject.
mod conformance;
mod headers;
mod properties;
