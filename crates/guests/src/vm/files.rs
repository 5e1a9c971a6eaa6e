//! What code may open, where it has `io`: regular files, so that no device blocks a worker or shows its memory.

use super::library;
use mlua::chunk::ChunkMode;
use mlua::{Lua, LuaString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Folders whose files are the kernel's.
const KERNEL: [&str; 3] = ["/proc", "/dev", "/sys"];

/// Guards `io`, and the methods of its files.
pub(super) fn guard(lua: &Lua) -> mlua::Result<()> {
    let refusal = lua.create_function(|_, path: LuaString| {
        Ok(refusal(Path::new(std::ffi::OsStr::from_bytes(&path.as_bytes()))))
    })?;
    let chunk = lua.load(include_str!("files.lua")).set_name("=[host]").set_mode(ChunkMode::Text);
    chunk.into_function()?.call::<()>((refusal, library::take_bytes(lua)?))
}

/// What code that opens a file is answered while a plugin is checked.
pub(crate) const CLOSED: &str = "files cannot be opened while a plugin is checked";

/// Leaves nothing of `io` that opens a file or writes.
pub(super) fn close(lua: &Lua) -> mlua::Result<()> {
    let chunk = lua.load(include_str!("files_closed.lua")).set_name("=[host]").set_mode(ChunkMode::Text);
    chunk.into_function()?.call::<()>(CLOSED)
}

/// Why a file is not opened.
fn refusal(path: &Path) -> Option<&'static str> {
    let Some(place) = place(path) else { return Some("No such file or directory") };
    if KERNEL.iter().any(|folder| place.starts_with(folder)) {
        return Some("Permission denied: files of the kernel are not opened");
    }
    match place.metadata() {
        Ok(found) if !found.is_file() => Some("Permission denied: only regular files are opened"),
        _ => None,
    }
}

/// Where a path leads, with symbolic links followed; a file that is not there yet may be made.
fn place(path: &Path) -> Option<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => {
            let folder = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
            Some(folder.canonicalize().ok()?.join(path.file_name()?))
        }
        found => found.ok(),
    }
}
