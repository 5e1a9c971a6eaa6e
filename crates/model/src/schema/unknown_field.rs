//! What is said of a field that there is not: where it belongs, or what it is called.
use super::{Kind, Reader, RecordContext, RecordSchema, did_you_mean, quoted};

/// What Kong has, and Weir does not.
const NOT_SUPPORTED: &[&str] = &[
    "consumer_group_plugins",
    "mtls_auth_credentials",
    "workspaces",
    "filter_chains",
    "licenses",
    "partials",
    "_plugin_configs",
    "condition",
];

/// More places than this are no help.
const MAX_SUGGESTED_PATHS: usize = 6;

/// The message for a field that a record has not.
pub(super) fn unknown_field(
    schema: &'static RecordSchema,
    around: &RecordContext<'_>,
    written: &str,
    reader: &Reader<'_>,
) -> String {
    let declared = || declared_hint(schema, written).or_else(|| declared_hint(around.config?, written));
    let hint = around.hint.and_then(|hint| hint(written)).or_else(|| declared().map(str::to_owned));
    if hint.is_none() && NOT_SUPPORTED.contains(&written) {
        return format!("`{written}` is not supported yet; leave it out");
    }
    let shown = quoted(written);
    if !reader.is_early() {
        return format!("unknown field `{shown}`");
    }
    let hint = hint.map(|hint| format!("; {hint}"));
    let hint = hint.or_else(|| below(schema, around, written)).or_else(|| beside(written, reader));
    let hint = hint.unwrap_or_else(|| among(schema, around, written));
    format!("unknown field `{shown}`{hint}")
}

/// What the record's declaration says of the name.
fn declared_hint(schema: &RecordSchema, written: &str) -> Option<&'static str> {
    schema.hints.iter().find(|(names, _)| names.contains(&written)).map(|(_, hint)| *hint)
}

/// The records below that have such a field.
fn below(schema: &'static RecordSchema, around: &RecordContext<'_>, written: &str) -> Option<String> {
    if let Some((first, rest)) = written.split_once('.').filter(|(first, _)| schema.field(first).is_some()) {
        return Some(format!("; write `{}` below `{first}`, indented by two spaces", quoted(rest)));
    }
    let mut places = Vec::new();
    if let Some(config) = around.config {
        collect(config, "config", written, &mut places);
    }
    for field in schema.fields {
        collect_field(&field.kind, field.name, written, &mut places);
    }
    let places: Vec<_> = places.iter().map(|place| format!("`{place}`")).collect();
    match places.as_slice() {
        [] => None,
        [one] => Some(format!("; write it below {one}")),
        [most @ .., last] if places.len() <= MAX_SUGGESTED_PATHS => {
            Some(format!("; write it below {} or {last}", most.join(", ")))
        }
        _ => None,
    }
}

fn collect(record: &RecordSchema, path: &str, written: &str, places: &mut Vec<String>) {
    if record.field(written).is_some() || record.old_names.iter().any(|(old, _)| *old == written) {
        places.push(path.to_owned());
    }
    for field in record.fields {
        collect_field(&field.kind, &format!("{path}.{}", field.name), written, places);
    }
}

fn collect_field(kind: &Kind, path: &str, written: &str, places: &mut Vec<String>) {
    match kind {
        Kind::Record(record) => collect(record, path, written, places),
        Kind::Map(Kind::Record(record)) => collect(record, &format!("{path}.NAME"), written, places),
        _ => {}
    }
}

/// Where around the record there is such a field.
fn beside(written: &str, reader: &Reader<'_>) -> Option<String> {
    let mut around = reader.around();
    let (_, own_name) = reader.around().next()?;
    if written == own_name {
        return Some(format!("; `{written}` is written twice: move what is in it one level up"));
    }
    let (_, name) = around.find(|(record, name)| record.field(written).is_some() && written != *name)?;
    Some(format!("; write it beside `{name}`, not below it"))
}

/// The field of the record that may be meant, or all of them.
fn among(schema: &RecordSchema, around: &RecordContext<'_>, written: &str) -> String {
    let own = schema.fields.iter().map(|field| field.name);
    let names = own.chain(around.others.iter().copied());
    match did_you_mean(written, names.clone()) {
        hint if hint.is_empty() => {
            let names: Vec<_> = names.filter(|name| !name.starts_with('_')).collect();
            format!("; there are: {}", names.join(", "))
        }
        hint => hint,
    }
}
