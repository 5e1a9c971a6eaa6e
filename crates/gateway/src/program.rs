//! The file of this program, for other processes that are to run it.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// Its path. If it was called by a link, that is it: the link may lead to another version one day.
pub(crate) fn own() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let called = std::env::args_os().next().and_then(|called| called_path(Path::new(&called), &own));
    Ok(called.unwrap_or(own))
}

/// The first argument of a process that runs a program by a name: its path, so that the process knows by which link it was called.
pub(crate) fn argument<'a>(program: &'a Path, name: &'a str) -> &'a OsStr {
    let is_named = program.file_name().is_some_and(|file| file == name);
    if is_named { program.as_os_str() } else { OsStr::new(name) }
}

/// The path by which a program was called, if that leads to it.
fn called_path(called: &Path, own: &Path) -> Option<PathBuf> {
    let is_own = |path: &PathBuf| path.canonicalize().is_ok_and(|path| path == own);
    let is_path = called.components().count() > 1;
    let absolute = |path: &Path| std::path::absolute(path).ok();
    if is_path {
        return absolute(called).filter(is_own);
    }
    let folders = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&folders).map(|folder| folder.join(called)).find(is_own)?;
    absolute(&found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_the_program_is_its_path() {
        let (folder, own) = (tempfile::tempdir().unwrap(), std::env::current_exe().unwrap());
        let link = folder.path().join("weir");
        std::os::unix::fs::symlink(&own, &link).unwrap();
        assert_eq!(called_path(&link, &own), Some(link.clone()));
        assert_eq!(argument(&link, "weir"), link.as_os_str());
        assert_eq!(argument(&link, "kong"), "kong");
        assert_eq!(called_path(&folder.path().join("other"), &own), None);
    }
}
