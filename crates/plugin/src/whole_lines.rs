//! Appends lines to a file that may be full for a while.

use std::io::{self, Write};

/// Writes whole lines, and leaves in `left` what could not be written. A full disk may take only the beginning of a line:
/// then `torn` is set, and the next call ends that line before it writes its own.
pub fn append(file: &mut impl Write, left: &mut &[u8], torn: &mut bool) -> io::Result<()> {
    if *torn {
        file.write_all(b"\n")?;
        *torn = false;
    }
    while !left.is_empty() {
        match file.write(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                *torn = left[written - 1] != b'\n';
                *left = &left[written..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::append;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_line_that_was_torn_ends_before_the_next() {
        let (mut file, mut reader) = UnixStream::pair().unwrap();
        file.set_nonblocking(true).unwrap();
        let line = format!("{}\n", "x".repeat(1008));
        let lines = line.repeat(10_000);
        let (mut left, mut torn) = (lines.as_bytes(), false);
        append(&mut file, &mut left, &mut torn).unwrap_err();
        let written = lines.len() - left.len();
        assert!(torn && !written.is_multiple_of(line.len()), "{written} bytes are whole lines");
        std::io::copy(&mut (&reader).take(written as u64), &mut std::io::sink()).unwrap();
        append(&mut file, &mut line.as_bytes(), &mut torn).unwrap();
        drop(file);
        let mut after = String::new();
        reader.read_to_string(&mut after).unwrap();
        assert_eq!((after, torn), (format!("\n{line}"), false));
    }
}
