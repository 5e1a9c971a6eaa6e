//! `lfs`: what LuaFileSystem reads of files and folders.

use std::fs::{self, FileType, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use mlua::{Lua, MultiValue, Table, Value};

/// `lfs`.
pub(super) fn lfs(lua: &Lua) -> mlua::Result<Value> {
    let table = lua.create_table()?;
    table.raw_set("_VERSION", "LuaFileSystem 1.8.0")?;
    type Arguments = (String, Value);
    let of_file = lua
        .create_function(|lua, (path, want): Arguments| read(lua, &path, want, |path| fs::metadata(path)))?;
    table.raw_set("attributes", of_file)?;
    let of_link = lua.create_function(|lua, (path, want): Arguments| {
        read(lua, &path, want, |path| fs::symlink_metadata(path))
    })?;
    table.raw_set("symlinkattributes", of_link)?;
    let folder =
        lua.create_function(|_, ()| Ok(std::env::current_dir().ok().map(|path| path.display().to_string())))?;
    table.raw_set("currentdir", folder)?;
    table.raw_set("dir", lua.create_function(|lua, path: String| names(lua, &path))?)?;
    Ok(Value::Table(table))
}

/// Attributes of a file: all, or the one that is wanted. `nil`, the reason and its number if there are none.
fn read(
    lua: &Lua,
    path: &str,
    want: Value,
    metadata: fn(&str) -> std::io::Result<Metadata>,
) -> mlua::Result<(Value, Option<String>, Option<i32>)> {
    let attributes = match metadata(path) {
        Ok(metadata) => attributes(lua, &metadata)?,
        Err(error) => {
            let reason = format!("cannot obtain information from file '{path}': {error}");
            return Ok((Value::Nil, Some(reason), error.raw_os_error()));
        }
    };
    let value = match want {
        Value::String(name) => match attributes.raw_get(&name)? {
            Value::Nil => {
                return Err(mlua::Error::runtime(format!("invalid attribute name '{}'", name.display())));
            }
            value => value,
        },
        _ => Value::Table(attributes),
    };
    Ok((value, None, None))
}

fn attributes(lua: &Lua, metadata: &Metadata) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("mode", mode(metadata.file_type()))?;
    for (name, number) in [
        ("dev", metadata.dev()),
        ("ino", metadata.ino()),
        ("nlink", metadata.nlink()),
        ("uid", metadata.uid().into()),
        ("gid", metadata.gid().into()),
        ("size", metadata.size()),
        ("blocks", metadata.blocks()),
        ("blksize", metadata.blksize()),
    ] {
        table.raw_set(name, number)?;
    }
    table.raw_set("access", metadata.atime())?;
    table.raw_set("modification", metadata.mtime())?;
    table.raw_set("change", metadata.ctime())?;
    table.raw_set("permissions", permissions(metadata.mode()))?;
    Ok(table)
}

fn mode(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_dir() => "directory",
        kind if kind.is_file() => "file",
        kind if kind.is_symlink() => "link",
        kind if kind.is_socket() => "socket",
        kind if kind.is_fifo() => "named pipe",
        kind if kind.is_char_device() => "char device",
        kind if kind.is_block_device() => "block device",
        _ => "other",
    }
}

/// `rwxr-xr-x`
fn permissions(mode: u32) -> String {
    (0..9).map(|bit| if mode & (0o400 >> bit) == 0 { '-' } else { ['r', 'w', 'x'][bit % 3] }).collect()
}

/// An iterator over the names in a folder.
fn names(lua: &Lua, path: &str) -> mlua::Result<MultiValue> {
    let entries =
        fs::read_dir(path).map_err(|error| mlua::Error::runtime(format!("cannot open {path}: {error}")))?;
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
    let mut names = [".".to_owned(), "..".to_owned()].into_iter().chain(names);
    let next = lua.create_function_mut(move |_, _: MultiValue| Ok(names.next()))?;
    Ok(MultiValue::from_vec(vec![Value::Function(next)]))
}
