//! Removes headers of requests that only a plugin may set.

use weir_plugin::{Headers, is_same_header};

/// Whether a header is one of these.
pub(crate) fn are(names: &[impl AsRef<str>], name: &[u8]) -> bool {
    names.iter().any(|own| is_same_header(own.as_ref().as_bytes(), name))
}

/// Removes headers of these names, also with `_` for `-`, because applications may take them for the same.
pub(crate) fn remove(headers: &mut Headers, names: &[impl AsRef<str>]) {
    for name in names {
        headers.remove(name.as_ref());
    }
    let with_underscores =
        headers.iter().filter(|field| field.name.contains(&b'_') && are(names, field.name));
    let forged: Vec<_> =
        with_underscores.map(|field| String::from_utf8_lossy(field.name).into_owned()).collect();
    forged.iter().for_each(|name| {
        headers.remove(name);
    });
}
