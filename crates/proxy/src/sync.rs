//! What threads share: the standard library's. `crates/interleavings` builds the files that use it with those of `loom` in their
//! place, and tries every order of what threads do.

pub(crate) use std::sync::{Arc, Mutex, PoisonError};
