//! The file that lines go to.

use super::Target;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use weir_plugin::append;

/// An open file, and whether it ends within a line.
pub(super) struct Output {
    file: File,
    name: String,
    torn: bool,
}

/// Lines that could not be written.
pub(super) struct Failed {
    /// How many.
    pub(super) lines: u64,
    /// Why.
    pub(super) error: io::Error,
}

impl Output {
    pub(super) fn open(target: &Target) -> io::Result<Self> {
        // Duplicates, because the handles of the standard library keep what they could not write.
        let (descriptor, name) = match target {
            Target::Stdout => (io::stdout().as_fd().try_clone_to_owned()?, "/dev/stdout"),
            Target::Stderr => (io::stderr().as_fd().try_clone_to_owned()?, "/dev/stderr"),
            Target::File(path) => return Self::append_to(path),
        };
        Ok(Self { file: descriptor.into(), name: name.to_owned(), torn: false })
    }

    /// Opens or creates a file to append to.
    pub(super) fn append_to(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { torn: ends_within_a_line(&file, path), file, name: path.display().to_string() })
    }

    #[cfg(test)]
    pub(super) fn of(file: File, name: &str) -> Self {
        Self { file, name: name.to_owned(), torn: false }
    }

    /// The file's path.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Appends whole lines. Of those that fail, the first may have its beginning in the file: that line is lost, and
    /// ends there before the next one is written.
    pub(super) fn write(&mut self, lines: &[u8]) -> Result<(), Failed> {
        // The file may have been emptied to make room.
        self.torn = self.torn && !self.is_empty();
        let mut left = lines;
        append(&mut self.file, &mut left, &mut self.torn)
            .map_err(|error| Failed { lines: memchr::memchr_iter(b'\n', left).count() as u64, error })
    }

    fn is_empty(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0)
    }
}

/// Whether the last line of a file has no end, as when the disk was full or the machine lost power. What is no regular
/// file, or cannot be read, counts as whole.
fn ends_within_a_line(file: &File, path: &Path) -> bool {
    let Ok(metadata) = file.metadata() else { return false };
    if !metadata.is_file() || metadata.len() == 0 {
        return false;
    }
    let mut last = [b'\n'];
    let read = File::open(path).and_then(|file| file.read_at(&mut last, metadata.len() - 1));
    read.is_ok() && last != [b'\n']
}
