//! The files of a SQLite database. They hold credentials, so only their owner can read them, whatever the umask, and
//! symbolic links are not followed.
use super::StoreError;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The files that SQLite creates next to the database, with its mode. It does not change the mode of existing ones.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

const OWNERS_ALONE: u32 = 0o600;

/// Opens the file, or creates it, before SQLite does. Keep what is returned until SQLite has closed the file, because a
/// process that closes a file releases all its locks on it, those of SQLite too.
pub(super) fn open(path: &Path) -> Result<File, StoreError> {
    let file = take(path, true).map_err(|error| refused(path, &error))?;
    for suffix in BESIDE {
        let mut beside = path.as_os_str().to_owned();
        beside.push(suffix);
        let beside = PathBuf::from(beside);
        match take(&beside, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            taken => drop(taken.map_err(|error| refused(&beside, &error))?),
        }
    }
    Ok(file)
}

fn take(path: &Path, create: bool) -> io::Result<File> {
    // A path that is no file, such as a pipe, must not block the node.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(create).mode(OWNERS_ALONE);
    let file = options.custom_flags(flags.bits().cast_signed()).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if metadata.permissions().mode() & 0o777 != OWNERS_ALONE {
        file.set_permissions(Permissions::from_mode(OWNERS_ALONE))?;
    }
    Ok(file)
}

fn refused(path: &Path, error: &io::Error) -> StoreError {
    let path = path.display();
    let why = match error.kind() {
        _ if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            "is a symbolic link, and links are not followed: name the file itself with `sqlite_path`"
                .to_owned()
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory => {
            "is no regular file: name another with `sqlite_path`".to_owned()
        }
        io::ErrorKind::PermissionDenied => format!(
            "{error}: credentials are in it, so it must be this user's alone: `chown` it to the user that runs weir, \
             with its folder, or name another with `sqlite_path`"
        ),
        _ => format!("{error}: make its folder writable, or name another with `sqlite_path`"),
    };
    StoreError::Unavailable(format!("SQLite file {path}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_are_their_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let [path, log] = ["kept", "kept-wal"].map(|name| folder.path().join(name));
        open(&path).unwrap();
        assert_eq!(mode(&path), OWNERS_ALONE);
        fs::write(&log, "").unwrap();
        for path in [&path, &log] {
            fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
        }
        open(&path).unwrap();
        assert_eq!((mode(&path), mode(&log)), (OWNERS_ALONE, OWNERS_ALONE));
    }

    #[test]
    fn what_is_no_file_of_its_own_is_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let [path, log, other] = ["kept", "kept-wal", "other"].map(|name| folder.path().join(name));
        fs::write(&other, "precious").unwrap();
        fs::set_permissions(&other, Permissions::from_mode(0o644)).unwrap();
        for link in [&path, &log] {
            symlink(&other, link).unwrap();
            let said = open(&path).unwrap_err().to_string();
            assert!(said.contains(&format!("{}: is a symbolic link", link.display())), "{said}");
            fs::remove_file(link).unwrap();
            let _ = fs::remove_file(&path);
        }
        assert_eq!((fs::read_to_string(&other).unwrap(), mode(&other)), ("precious".to_owned(), 0o644));
        symlink(folder.path().join("nothing"), &path).unwrap();
        assert!(open(&path).unwrap_err().to_string().contains("is a symbolic link"));
        assert!(!folder.path().join("nothing").exists(), "a link that leads nowhere creates nothing");
        assert!(open(folder.path()).unwrap_err().to_string().contains("is no regular file"));
    }
}
