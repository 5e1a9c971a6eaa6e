//! Requests as a script for wrk and wrk2.
use super::Job;
use crate::load::ListedRequest;
use std::fmt::Write;

/// The part of a script that makes the requests. One request needs no function, which would slow wrk down.
pub(super) fn requests(job: &Job<'_>) -> String {
    match job.requests.as_slice() {
        [only] => format!("wrk.method = {}\n{}{}", quoted(&only.method), headers(only), body(only)),
        all => {
            let calls: String = all.iter().map(call).collect();
            SEVERAL.replace("CALLS", &calls)
        }
    }
}

/// Each thread begins elsewhere in the list.
const SEVERAL: &str = "\
local threads = 0
function setup(thread)
  thread:set('offset', threads * 997)
  threads = threads + 1
end
local list = {}
local place = 0
local function add(method, path, headers, body)
  list[#list + 1] = wrk.format(method, path, headers, body)
end
function init()
CALLS  place = offset
end
function request()
  place = place % #list + 1
  return list[place]
end
";

fn call(request: &ListedRequest) -> String {
    let pairs = request.headers.iter().map(|(name, value)| format!("[{}] = {}", quoted(name), quoted(value)));
    let pairs: Vec<String> = pairs.collect();
    let body = if request.body.is_empty() { "nil".to_owned() } else { quoted(&request.body) };
    let (method, path) = (quoted(&request.method), quoted(&request.path));
    format!("  add({method}, {path}, {{{}}}, {body})\n", pairs.join(", "))
}

fn headers(request: &ListedRequest) -> String {
    let line =
        |(name, value): &(String, String)| format!("wrk.headers[{}] = {}\n", quoted(name), quoted(value));
    request.headers.iter().map(line).collect()
}

fn body(request: &ListedRequest) -> String {
    if request.body.is_empty() { String::new() } else { format!("wrk.body = {}\n", quoted(&request.body)) }
}

/// A string of Lua: bytes that are not plain are written as numbers.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', byte as char]),
            b' '..=b'~' => out.push(byte as char),
            // Writing to memory cannot fail.
            _ => drop(write!(out, "\\{byte:03}")),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_survive_lua() {
        assert_eq!(quoted("a\"b\\c\n1"), "\"a\\\"b\\\\c\\0101\"");
        assert_eq!(quoted("é"), "\"\\195\\169\"");
    }
}
