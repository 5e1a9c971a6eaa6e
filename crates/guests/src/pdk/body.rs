//! Bodies that code reads and writes by their content type: forms, JSON, and forms of several parts.

use super::headers;
use super::request::args;
use crate::kept;
use crate::modules;
use crate::raise::Raised;
use crate::steps::Steps;
use memchr::memmem;
use mlua::{Lua, Table, Value};
use weir_plugin::form;

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";
/// Forms of several parts.
pub(super) const MULTIPART: &str = "multipart/form-data";

/// How many parts are read of a form.
const MAX_PARTS: usize = 1000;

/// A body as a table, what is wrong with it, and its type.
pub(super) type ParsedBody = (Value, Option<String>, Option<String>);

/// Reads a body. One that there is none of is why.
pub(super) fn read(
    lua: &Lua,
    body: Result<&[u8], &str>,
    content_type: Option<String>,
    max: &Value,
) -> mlua::Result<ParsedBody> {
    let Some(content_type) = content_type else {
        return Ok((Value::Nil, Some("missing content type".to_owned()), None));
    };
    let lower = content_type.to_ascii_lowercase();
    let mime = lower.split(';').next().unwrap_or_default();
    let Some(known) = [FORM, JSON, MULTIPART].into_iter().find(|known| mime.starts_with(known)) else {
        let message = format!("unsupported content type '{content_type}'");
        return Ok((Value::Nil, Some(message), Some(mime.to_owned())));
    };
    let max = headers::limit("max_args", max)?;
    let wrong = |message: &str| Ok((Value::Nil, Some(message.to_owned()), Some(known.to_owned())));
    let body = match body {
        Ok(body) => body,
        Err(message) => return wrong(message),
    };
    Steps::of(lua).take_bytes(body.len())?;
    let parsed = match known {
        FORM => Value::Table(args(lua, form::pairs(&form::text(body)), max)?.table),
        JSON => match modules::from_json(lua, body) {
            Ok(parsed @ Value::Table(_)) => parsed,
            Ok(_) | Err(Raised::Text(_)) => return wrong("invalid json body"),
            Err(Raised::Vm(error)) => return Err(error),
        },
        _ => match boundary(&content_type) {
            Some(boundary) => Value::Table(parts(lua, body, boundary)?),
            None => return wrong("unable to decode multipart body: the content type has no boundary"),
        },
    };
    Ok((parsed, None, Some(known.to_owned())))
}

/// What stands between the parts.
pub(super) fn boundary(content_type: &str) -> Option<&str> {
    let at = content_type.to_ascii_lowercase().find("boundary=")?;
    let rest = &content_type[at + "boundary=".len()..];
    let found = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next()?,
        None => rest.split(';').next()?.trim(),
    };
    Some(found).filter(|boundary| !boundary.is_empty())
}

/// The values of the parts by their names. Of several with a name, the last.
fn parts(lua: &Lua, body: &[u8], boundary: &str) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let delimiter = format!("--{boundary}");
    let ends: Vec<_> = memmem::find_iter(body, delimiter.as_bytes()).take(MAX_PARTS + 1).collect();
    for pair in ends.windows(2) {
        let part = &body[pair[0] + delimiter.len()..pair[1]];
        let part = part.strip_prefix(b"\r\n").unwrap_or(part);
        let part = part.strip_suffix(b"\r\n").unwrap_or(part);
        let Some(end) = memmem::find(part, b"\r\n\r\n") else { continue };
        if let Some(name) = part_name(&part[..end]) {
            table.raw_set(lua.create_string(name)?, lua.create_string(&part[end + 4..])?)?;
        }
    }
    Ok(table)
}

/// The name of a part, from its headers.
fn part_name(head: &[u8]) -> Option<&[u8]> {
    let mut lines = head.split(|byte| *byte == b'\n');
    let about = b"content-disposition:";
    let line = lines.find(|line| line.get(..about.len()).is_some_and(|it| it.eq_ignore_ascii_case(about)))?;
    let mut fields = line.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let name = fields.find_map(|field| field.strip_prefix(b"name="))?;
    Some(name.strip_prefix(b"\"").and_then(|name| name.strip_suffix(b"\"")).unwrap_or(name))
}

/// Arguments as parts, in the order of their names.
pub(super) fn multipart(pairs: &[(String, Option<Vec<u8>>)], boundary: &str) -> mlua::Result<Vec<u8>> {
    let mut body = Vec::new();
    for (name, value) in pairs {
        let value = value.as_deref().unwrap_or(b"true");
        kept::within(body.len() + value.len())?;
        let name = name.replace(['"', '\r', '\n'], "_");
        let head = format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(value);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    Ok(body)
}
