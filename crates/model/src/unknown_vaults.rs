//! References to vaults that do not exist, and what is no reference and looks like one.
use crate::document::Document;
use crate::entity::EntityKind::*;
use crate::entity::VAULTS;
use crate::entity_error::{EntityError, EntityWarning};
use crate::plugin_schema::{PluginSchema, find_plugin};
use crate::schema::{FieldSchema, Json, Kind, RecordSchema, did_you_mean, quoted};
use crate::secret_reference::{SecretReference, is_reference, misspelling};

/// Warnings about references that name neither a kind of vault nor one of these prefixes of vault entities. Those of vault
/// entities themselves name kinds alone. Warnings about misspelt references too.
pub fn unknown_vaults(
    document: &Document,
    prefixes: &[&str],
    plugins: &[PluginSchema],
) -> Vec<EntityWarning> {
    let kinds: Vec<&str> = VAULTS.iter().map(|vault| vault.name).collect();
    let known = [&kinds[..], prefixes].concat();
    let mut found = Vec::new();
    for (index, certificate) in document.certificates.iter().enumerate() {
        let alt = [("cert_alt", certificate.cert_alt.as_ref()), ("key_alt", certificate.key_alt.as_ref())];
        let own = [("cert", Some(&certificate.cert)), ("key", Some(&certificate.key))];
        for (field, text) in own.into_iter().chain(alt) {
            let doubt = text.and_then(|text| doubt(text, &known));
            found.extend(doubt.map(|message| EntityError::new((Certificates, index), field, message)));
        }
    }
    for (index, key) in document.keys.iter().enumerate() {
        let of_pem = key.pem.iter().flat_map(|pem| [&pem.private_key, &pem.public_key]).flatten();
        let texts = key.jwk.iter().map(|text| ("jwk", text)).chain(of_pem.map(|text| ("pem", text)));
        for (field, text) in texts {
            let doubt = doubt(text, &known);
            found.extend(doubt.map(|message| EntityError::new((Keys, index), field, message)));
        }
    }
    for (index, plugin) in document.plugins.iter().enumerate() {
        let Some(schema) = find_plugin(plugins, &plugin.name) else { continue };
        in_record(&plugin.config, schema.config, "config", &mut |path, text| {
            let doubt = doubt(text, &known);
            found.extend(doubt.map(|message| EntityError::new((Plugins, index), path, message)));
        });
    }
    for (index, vault) in document.vaults.iter().enumerate() {
        for (name, value) in vault.config.as_object().into_iter().flatten() {
            let doubt = value.as_str().and_then(|text| doubt(text, &kinds));
            let path = format!("config.{name}");
            found.extend(doubt.map(|message| EntityError::new((Vaults, index), path, message)));
        }
    }
    found
}

fn doubt(text: &str, known: &[&str]) -> Option<String> {
    if let Some(message) = misspelling(text) {
        return Some(message);
    }
    let vault = SecretReference::parse(text).ok().filter(|_| is_reference(text))?.vault;
    let meant = || did_you_mean(&vault, known.iter().copied());
    (!known.contains(&vault.as_str()))
        .then(|| format!("no vault `{}`; there are: {}{}", quoted(&vault), known.join(", "), meant()))
}

/// Calls `found` with the path and the text of each field that takes references.
fn in_record(record: &Json, schema: &RecordSchema, path: &str, found: &mut dyn FnMut(&str, &str)) {
    for (name, value) in record.as_object().into_iter().flatten() {
        if let Some(field) = schema.field(name) {
            in_value(value, (&field.kind, field), &format!("{path}.{name}"), found);
        }
    }
}

fn in_value(
    value: &Json,
    (kind, field): (&Kind, &FieldSchema),
    path: &str,
    found: &mut dyn FnMut(&str, &str),
) {
    match (kind, value) {
        (Kind::Record(schema), value) => in_record(value, schema, path, found),
        (Kind::Array(kind), Json::Array(values)) => {
            values.iter().for_each(|value| in_value(value, (kind, field), path, found));
        }
        (Kind::Map(kind), Json::Object(members)) => {
            members.values().for_each(|value| in_value(value, (kind, field), path, found));
        }
        (_, Json::String(text)) if field.takes_references() => found(path, text),
        _ => {}
    }
}
