//! What code hands to the gateway: the memory limit of the VM does not count it.

use crate::steps::Steps;
use mlua::{Error, LuaString};
use weir_plugin::{Exchange, Json};

/// How many bytes a request may have from code: of headers, of printed text, and of fields of its record. A body or a query
/// that is made of many strings may be as long, too.
pub(crate) const MAX: usize = 16 << 20;

/// How often code may set or add a value of a header, or remove a header, for a request: each is compared with all others.
const MAX_VALUES: usize = 4096;

/// What a request has from code.
#[derive(Default)]
struct Kept {
    bytes: usize,
    /// Values of headers.
    values: usize,
}

/// Counts bytes that the request keeps.
pub(crate) fn keep(exchange: &mut Exchange, bytes: usize) -> mlua::Result<()> {
    keep_header(exchange, bytes, 0)
}

/// Counts a header of so many bytes and values.
pub(crate) fn keep_header(exchange: &mut Exchange, bytes: usize, values: usize) -> mlua::Result<()> {
    if exchange.extensions.get::<Kept>().is_none() {
        exchange.extensions.insert(Kept::default());
    }
    let Some(kept) = exchange.extensions.get_mut::<Kept>() else { return Ok(()) };
    kept.bytes = kept.bytes.saturating_add(bytes);
    kept.values = kept.values.saturating_add(values);
    are_few(kept.values)?;
    within(kept.bytes)
}

/// Whether a request may have so many values of headers from code.
pub(crate) fn are_few(values: usize) -> mlua::Result<()> {
    if values <= MAX_VALUES {
        return Ok(());
    }
    Err(Error::runtime(format!("Lua has set more than {MAX_VALUES} headers of the request: set fewer")))
}

/// Whether a request may have so many bytes from code.
pub(crate) fn within(bytes: usize) -> mlua::Result<()> {
    if bytes <= MAX {
        return Ok(());
    }
    Err(Error::runtime(format!("the request has more than {MAX} bytes from Lua: set less")))
}

/// What a piece costs.
const STEPS_PER_PIECE: usize = 16;

/// Strings as one.
pub(crate) fn joined(
    steps: &Steps,
    pieces: impl Iterator<Item = mlua::Result<LuaString>>,
) -> mlua::Result<Vec<u8>> {
    let mut text = Vec::new();
    for piece in pieces {
        let piece = piece?;
        steps.take_many(STEPS_PER_PIECE)?;
        steps.take_bytes(piece.as_bytes().len())?;
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
