//! The files of an image that holds one binary, and those that a container shares with this machine.
use super::DriverError;
use crate::manifest;
use crate::subprocess::output_within;
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A binary and, if it is linked dynamically, its loader and libraries; by absolute paths.
pub(super) fn files(binary: &Path) -> Result<Vec<PathBuf>, DriverError> {
    let absolute = std::path::absolute(binary).ok().filter(|path| path.is_file()).ok_or_else(|| {
        DriverError::Missing(format!("the binary {} is not there: build it first", binary.display()))
    })?;
    let output = output_within(Command::new("ldd").arg(&absolute), Duration::from_secs(10))
        .map_err(|error| DriverError::System("cannot run ldd".to_owned(), error))?;
    // Of a static binary ldd only says on standard error that it is one.
    let listing = String::from_utf8_lossy(&output.stdout);
    let mut files = vec![absolute];
    for library in libraries(&listing).map_err(DriverError::Missing)? {
        files.push(library);
    }
    Ok(files)
}

/// Lines are `name => path (address)` or `path (address)`; the kernel's own library has no path.
fn libraries(listing: &str) -> Result<Vec<PathBuf>, String> {
    if let Some(line) = listing.lines().find(|line| line.contains("=> not found")) {
        return Err(format!("a library of the binary is not there: {}; install it", line.trim()));
    }
    let paths = listing.lines().filter_map(|line| {
        let last = line.rsplit_once("=> ").map_or(line, |(_, path)| path);
        last.trim().split(" (").next().filter(|path| path.starts_with('/')).map(PathBuf::from)
    });
    Ok(paths.collect())
}

/// The users and groups that servers started by root turn themselves into.
const USERS: &str = "root:x:0:0::/:\nwww-data:x:33:33::/:\nnobody:x:65534:65534::/:\n";
const GROUPS: &str = "root:x:0:\nwww-data:x:33:\nnogroup:x:65534:\nnobody:x:65534:\n";

/// The name of a binary's image: with its hash, for another build is another image.
pub(super) fn tag(binary: &Path) -> Result<String, DriverError> {
    let hash = manifest::sha256_of(binary).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            DriverError::Missing(format!("the binary {} is not there: build it first", binary.display()))
        }
        _ => DriverError::System(format!("cannot read {}", binary.display()), error),
    })?;
    let name = binary.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    Ok(format!("weirlab-{name}:{}", &hash[..16]))
}

/// Lets every user of an image read the files of a folder, and write beside them. On this machine the folder above keeps
/// others out.
pub(super) fn open_to_all(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, Permissions::from_mode(0o777))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()? {
            kind if kind.is_dir() => open_to_all(&entry.path())?,
            kind if kind.is_file() => fs::set_permissions(entry.path(), Permissions::from_mode(0o644))?,
            _ => {}
        }
    }
    Ok(())
}

/// Writes them as a tar archive, links followed, with a `/tmp` and users beside them.
pub(super) fn write(files: &[PathBuf], to: impl Write) -> io::Result<()> {
    let mut archive = tar::Builder::new(to);
    let mut folder = tar::Header::new_gnu();
    folder.set_entry_type(tar::EntryType::Directory);
    folder.set_mode(0o1777);
    folder.set_size(0);
    archive.append_data(&mut folder, "tmp/", io::empty())?;
    for (path, text) in [("etc/passwd", USERS), ("etc/group", GROUPS)] {
        let mut file = tar::Header::new_gnu();
        file.set_mode(0o644);
        file.set_size(text.len() as u64);
        archive.append_data(&mut file, path, text.as_bytes())?;
    }
    for file in files {
        archive.append_path_with_name(file, file.strip_prefix("/").unwrap_or(file))?;
    }
    archive.into_inner()?.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_loader_are_taken_from_the_listing() {
        let listing = "\tlinux-vdso.so.1 (0x00007f)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x00007f)\n\t/lib64/ld.so.2 (0x0)\n";
        assert_eq!(
            libraries(listing).unwrap(),
            [PathBuf::from("/lib/x/libc.so.6"), PathBuf::from("/lib64/ld.so.2")]
        );
        assert_eq!(libraries("\tstatically linked\n").unwrap(), Vec::<PathBuf>::new());
        let error = libraries("\tlibpcre.so.3 => not found\n").unwrap_err();
        assert_eq!(error, "a library of the binary is not there: libpcre.so.3 => not found; install it");
    }
}
