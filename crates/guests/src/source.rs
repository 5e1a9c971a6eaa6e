//! Places in source code, and messages of errors.

use mlua::{Error, Lua, Value};

/// What an error says, without the trace of calls.
pub(crate) fn message(error: &Error) -> String {
    match error {
        Error::SyntaxError { message, .. } => message.clone(),
        Error::RuntimeError(message) | Error::MemoryError(message) => without_trace(message).to_owned(),
        Error::CallbackError { traceback, cause } => {
            let text = message(cause);
            match place(traceback)
                .filter(|_| matches!(**cause, Error::RuntimeError(_) | Error::BadArgument { .. }))
            {
                Some(place) => format!("{place}: {text}"),
                None => text,
            }
        }
        Error::WithContext { context, cause } => format!("{context}: {}", message(cause)),
        other => other.to_string(),
    }
}

/// How many bytes of a message are logged.
pub(crate) const MAX_MESSAGE: usize = 4096;

/// A message, cut to what is logged of it.
pub(crate) fn cut(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        message.push('…');
    }
    message
}

fn without_trace(message: &str) -> &str {
    message.split_once("\nstack traceback:").map_or(message, |(message, _)| message)
}

/// The first line of Lua in a trace of calls: `file:12`.
fn place(traceback: &str) -> Option<&str> {
    let line = |line: &'_ str| -> Option<usize> {
        let (at, _) = line.match_indices(": in ").next()?;
        let (_, number) = line[..at].rsplit_once(':')?;
        number.bytes().all(|byte| byte.is_ascii_digit()).then_some(at)
    };
    let is_lua = |text: &&str| !text.starts_with('=') && !is_hosts(text);
    traceback.lines().map(str::trim_start).filter(is_lua).find_map(|text| Some(&text[..line(text)?]))
}

/// The line of Lua that called a function in Rust, which failed: `file:12`.
pub(crate) fn line(error: &Error) -> Option<String> {
    match error {
        Error::CallbackError { traceback, .. } => place(traceback).map(str::to_owned),
        Error::WithContext { cause, .. } => line(cause),
        _ => None,
    }
}

/// Whether a place is in a chunk of the host, such as `[weir]:9`.
fn is_hosts(place: &str) -> bool {
    place.starts_with('[') && !place.starts_with("[string \"")
}

/// The value of an error, as code of Lua sees it: a string where Rust made it.
pub(crate) fn plain(lua: &Lua, error: Value) -> mlua::Result<Value> {
    match error {
        Value::Error(error) => Ok(Value::String(lua.create_string(message(&error))?)),
        other => Ok(other),
    }
}

/// Where the calling code is: `file:12`.
pub(crate) fn caller(lua: &Lua) -> Option<String> {
    (0..8).find_map(|level| {
        lua.inspect_stack(level, |debug| {
            let source = debug.source();
            let line = debug.current_line()?;
            let file = source.short_src.filter(|file| !is_hosts(file))?;
            Some(format!("{file}:{line}"))
        })
        .flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::{MAX_MESSAGE, cut, message};
    use mlua::Lua;

    #[test]
    fn long_messages_are_cut() {
        assert_eq!(cut("short".to_owned()), "short");
        let text = cut("ä".repeat(MAX_MESSAGE));
        assert_eq!((text.len(), text.chars().last()), (MAX_MESSAGE + '…'.len_utf8(), Some('…')));
    }

    #[test]
    fn messages_have_a_place_and_no_trace() {
        let lua = Lua::new();
        let fails =
            lua.create_function(|_, ()| -> mlua::Result<()> { Err(mlua::Error::runtime("no")) }).unwrap();
        lua.globals().set("fails", fails).unwrap();
        for (code, expected) in [
            ("\nfails()", "mine:2: no"),
            ("local x\nreturn x.y", "mine:2: attempt to index local 'x' (a nil value)"),
            ("x =", "mine:1: unexpected symbol near '<eof>'"),
            ("error({})", "mine"),
        ] {
            let error = lua.load(code).set_name("=mine").exec().unwrap_err();
            assert!(
                message(&error).starts_with(expected) || expected == "mine",
                "{code}: {}",
                message(&error)
            );
        }
    }
}
