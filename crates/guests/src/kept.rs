//! What code hands to the gateway: the memory limit of the VM does not count it.

use mlua::{Error, LuaString};
use weir_plugin::{Exchange, Json};

/// How many bytes a request may have from code: of headers, of printed text, and of fields of its record. A body or a query
/// that is made of many strings may be as long, too.
pub(crate) const MAX: usize = 16 << 20;

/// How many of these bytes a request has.
#[derive(Default)]
struct Kept(usize);

/// Counts bytes that the request keeps.
pub(crate) fn keep(exchange: &mut Exchange, bytes: usize) -> mlua::Result<()> {
    if exchange.extensions.get::<Kept>().is_none() {
        exchange.extensions.insert(Kept::default());
    }
    let Some(Kept(kept)) = exchange.extensions.get_mut() else { return Ok(()) };
    *kept = kept.saturating_add(bytes);
    within(*kept)
}

/// Whether a request may have so many bytes from code.
pub(crate) fn within(bytes: usize) -> mlua::Result<()> {
    if bytes <= MAX {
        return Ok(());
    }
    Err(Error::runtime(format!("the request has more than {MAX} bytes from Lua: set less")))
}

/// Strings as one.
pub(crate) fn joined(pieces: impl Iterator<Item = mlua::Result<LuaString>>) -> mlua::Result<Vec<u8>> {
    let mut text = Vec::new();
    for piece in pieces {
        let piece = piece?;
        within(text.len() + piece.as_bytes().len())?;
        text.extend_from_slice(&piece.as_bytes());
    }
    Ok(text)
}

/// About how many bytes a value takes.
pub(crate) fn size(json: &Json) -> usize {
    let own = size_of::<Json>();
    match json {
        Json::String(text) => own + text.len(),
        Json::Array(items) => items.iter().map(size).sum::<usize>() + own,
        Json::Object(members) => {
            members.iter().map(|(name, value)| name.len() + size(value)).sum::<usize>() + own
        }
        _ => own,
    }
}
