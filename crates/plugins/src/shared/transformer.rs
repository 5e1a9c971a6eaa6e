//! Shared by the transformers: entries of their configurations, and changes of headers.

use weir_plugin::rule::header_name;
use weir_plugin::{FieldWarning, Headers, Json, Known};

/// The name and the value of an entry.
pub(crate) fn split(entry: &str) -> (&str, &str) {
    let (name, value) = entry.split_once(':').unwrap_or((entry, ""));
    (name, value.trim_start_matches(':'))
}

/// The name of a header to remove.
pub(crate) fn named_header(entry: &str) -> Result<(), String> {
    header_name(split(entry).0)
}

/// `old:new`.
pub(crate) fn renamed_header(entry: &str) -> Result<(), String> {
    let (old, new) = split(entry);
    header_name(old)?;
    header_name(new).map_err(|_| format!("expected the names of two headers, old:new, got {entry:?}"))
}

/// `name:value`, which may be empty.
pub(crate) fn valued_header(entry: &str) -> Result<(), String> {
    let (name, _) = split(entry);
    if !entry.contains(':') {
        return Err(format!("key '{name}' has no value; write name:value"));
    }
    header_name(name)
}

/// `name:value`.
pub(crate) fn valued(entry: &str) -> Result<(), String> {
    let (name, value) = split(entry);
    if value.is_empty() || name.is_empty() {
        return Err(format!("key '{name}' has no value; write name:value"));
    }
    Ok(())
}

/// Whether plugins may set a header: not one that frames the message or concerns the connection.
pub(crate) fn is_settable(name: &str) -> bool {
    let known = Known::of(name.as_bytes());
    known != Known::ContentLength && !known.is_hop_by_hop()
}

/// Entries for headers that the gateway sets itself.
pub(crate) fn ignored_fields(config: &Json) -> Vec<FieldWarning> {
    let listed = |operation: &'static str| {
        let entries = config[operation]["headers"].as_array().into_iter().flatten().enumerate();
        entries.filter_map(move |(at, entry)| {
            let (name, value) = split(entry.as_str()?);
            let name = if operation == "rename" { value } else { name };
            let path = format!("{operation}.headers[{at}]");
            (!is_settable(name)).then(|| FieldWarning::new(path, format!("{name} is the connection's own")))
        })
    };
    ["rename", "replace", "add", "append"].into_iter().flat_map(listed).collect()
}

/// Gives the values of a header another name; they replace those that have the new name.
pub(crate) fn rename(headers: &mut Headers, old: &str, new: &str, values: &[Vec<u8>]) {
    if !values.is_empty() {
        headers.remove(old);
        headers.remove(new);
        values.iter().for_each(|value| headers.append(new, value));
    }
}

/// All values of a header.
pub(crate) fn values(headers: &Headers, name: &str) -> Vec<Vec<u8>> {
    headers.get_all(name).map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::ignored_fields;
    use serde_json::json;

    #[test]
    fn headers_of_the_connection_are_named() {
        let config = json!({
            "remove": { "headers": ["connection"] },
            "rename": { "headers": ["te:x", "x:TE"] },
            "add": { "headers": ["x:1", "Transfer-Encoding:chunked"] },
        });
        let paths: Vec<String> =
            ignored_fields(&config).into_iter().map(|violation| violation.path).collect();
        assert_eq!(paths, ["rename.headers[1]", "add.headers[1]"]);
    }
}
