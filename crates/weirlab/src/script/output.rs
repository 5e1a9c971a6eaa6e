//! What a script prints and writes.
use super::ScriptError;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Prints a text and a line's end, and appends both to a file, whose folder is made.
///
/// # Errors
/// When it cannot be printed or written.
pub fn print_and_save(text: &str, path: impl AsRef<Path>) -> Result<(), ScriptError> {
    let append = |path: &Path| {
        writeln!(io::stdout(), "{text}")?;
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        writeln!(File::options().create(true).append(true).open(path)?, "{text}")
    };
    append(path.as_ref()).map_err(|error| ScriptError::File(path.as_ref().to_owned(), error))
}

/// Writes a file and makes its folder.
pub(super) fn save(path: &Path, content: &[u8]) -> Result<(), ScriptError> {
    let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, content));
    written.map_err(|error| ScriptError::File(path.to_owned(), error))
}
