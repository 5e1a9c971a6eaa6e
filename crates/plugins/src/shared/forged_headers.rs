//! Removes headers of requests that only a plugin may set.

use weir_plugin::Headers;

/// Removes headers of these names, also with `_` for `-`, because applications may take them for the same.
pub(crate) fn remove(headers: &mut Headers, names: &[impl AsRef<str>]) {
    for name in names {
        headers.remove(name.as_ref());
    }
    let is_forged = |field: &[u8]| {
        let folded = field.iter().map(|byte| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() });
        let folded: Vec<u8> = folded.collect();
        names.iter().any(|name| name.as_ref().to_ascii_lowercase().replace('_', "-").as_bytes() == folded)
    };
    let with_underscores = headers.iter().filter(|field| field.name.contains(&b'_') && is_forged(field.name));
    let forged: Vec<_> =
        with_underscores.map(|field| String::from_utf8_lossy(field.name).into_owned()).collect();
    forged.iter().for_each(|name| {
        headers.remove(name);
    });
}
