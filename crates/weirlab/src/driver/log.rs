//! What gateways say.
use crate::target::Launch;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// What a gateway says on its standard output and error goes here, in its folder.
pub(super) const OUTPUT: &str = "output.log";
/// The end of a log that is read: a target that logs every request must not fill our memory.
const BYTES: u64 = 1 << 20;

/// The error logs of a launch.
pub(super) fn errors(launch: &Launch) -> String {
    launch.error_logs.iter().map(|path| end_of(&launch.folder.join(path))).collect()
}

/// The end of a file; nothing if it is not there.
pub(super) fn end_of(path: &Path) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let skipped = file.metadata()?.len().saturating_sub(BYTES);
        file.seek(SeekFrom::Start(skipped))?;
        let mut bytes = Vec::new();
        file.take(BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// The last lines of a log, to end an error's text with.
pub(crate) fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    match lines.get(lines.len().saturating_sub(12)..) {
        None | Some([]) => "; it said nothing".to_owned(),
        Some(last) => format!("; it said last:\n  {}", last.join("\n  ")),
    }
}
