//! State that a process hands to the one that replaces it.

use crate::retained::Retained;
use std::io::{self, Write};

/// A part of that state.
pub struct Handover {
    /// Its name, with the version of its format: what a process does not know, it leaves out.
    pub name: &'static str,
    /// Writes it.
    pub export: fn(&Retained, &mut dyn Write) -> io::Result<()>,
    /// Adds what was written. What cannot be read is left out.
    pub import: fn(&Retained, &[u8]),
}
