//! Files that hold what a test expects.
use std::io;
use std::path::Path;

/// Compares a committed file, named from the crate's folder, with what it should be; rewrites it where `UPDATE` is set.
pub fn agrees(name: &str, expected: &str) -> io::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, expected)?;
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == expected,
        "{name} is out of date; where the change is meant, test again with UPDATE=1"
    );
    Ok(())
}
