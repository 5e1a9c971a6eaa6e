//! References to secrets: `$env://NAME`, as the vault `env` has them, and `$secret://vault/ID/PATH/KEY`.
use super::{Invalid, Json, secret};
use weir_model::schema::{FieldSchema, Kind, RecordSchema};

/// A value with references of Weir's in the place of APISIX's.
pub(super) fn translated(value: &Json) -> Result<Json, Invalid> {
    Ok(match value {
        Json::String(text) => match of_environment(text).or_else(|| of_manager(text)) {
            Some(reference) => reference.into(),
            None if is_reference(text) => return Err(unavailable(text)),
            None => value.clone(),
        },
        Json::Array(elements) => elements.iter().map(translated).collect::<Result<_, _>>()?,
        Json::Object(members) => {
            let member =
                |(name, value): (&String, &Json)| Ok::<_, Invalid>((name.clone(), translated(value)?));
            Json::Object(members.iter().map(member).collect::<Result<_, Invalid>>()?)
        }
        other => other.clone(),
    })
}

/// Refuses references where none is resolved: a reference taken literally would be a secret that everybody can guess.
pub(super) fn none_in(credential: &Json) -> Result<(), Invalid> {
    let mut texts = credential.as_object().into_iter().flatten().filter_map(|(_, value)| value.as_str());
    texts.find(|text| is_reference(text)).map_or(Ok(()), |text| Err(unavailable(text)))
}

/// Refuses references in fields of a plugin where none is resolved, for the same reason.
pub(super) fn resolved_by(config: &Json, record: &RecordSchema) -> Result<(), Invalid> {
    let fields = config.as_object().into_iter().flatten();
    let mut fields = fields.filter_map(|(name, value)| Some((record.field(name)?, value)));
    fields.try_for_each(|(field, value)| resolved_in(value, &field.kind, field))
}

fn resolved_in(value: &Json, kind: &Kind, field: &FieldSchema) -> Result<(), Invalid> {
    match (kind, value) {
        (Kind::Record(record), value) => resolved_by(value, record),
        (Kind::Array(kind), Json::Array(elements)) => {
            elements.iter().try_for_each(|element| resolved_in(element, kind, field))
        }
        (Kind::Map(kind), Json::Object(members)) => {
            members.values().try_for_each(|value| resolved_in(value, kind, field))
        }
        (_, Json::String(_)) if field.takes_references() => Ok(()),
        (_, value) => literal(value),
    }
}

fn literal(value: &Json) -> Result<(), Invalid> {
    match value {
        Json::String(text) if text.starts_with("{vault://env/") => Err(unavailable("$env://")),
        Json::String(text) if text.starts_with("{vault://apisix-") => Err(unavailable("$secret://")),
        Json::Array(elements) => elements.iter().try_for_each(literal),
        Json::Object(members) => members.values().try_for_each(literal),
        _ => Ok(()),
    }
}

fn is_reference(text: &str) -> bool {
    // As APISIX, which looks for them without regard to case.
    let begins =
        |prefix: &&str| text.get(..prefix.len()).is_some_and(|text| text.eq_ignore_ascii_case(prefix));
    ["$env://", "$secret://"].iter().any(begins)
}

fn unavailable(text: &str) -> Invalid {
    let scheme = text.split("://").next().unwrap_or_default();
    Invalid::configuration(format!(
        "a reference to a secret, {scheme}://…, is not available here; write the secret, or $env://NAME with a name in \
         capitals, or $secret://vault/ID/PATH/KEY, in a field of a plugin that holds secrets, or in a certificate"
    ))
}

/// The reference to a vault of the secret managers.
fn of_manager(text: &str) -> Option<String> {
    secret::reference(text.strip_prefix("$secret://")?)
}

/// `{vault://env/my-name}` for `$env://MY_NAME`, with the member of a secret that is an object behind another `/`.
fn of_environment(text: &str) -> Option<String> {
    let path = text.strip_prefix("$env://").or_else(|| text.strip_prefix("$ENV://"))?;
    let (name, member) = path.split_once('/').map_or((path, None), |(name, member)| (name, Some(member)));
    let is_plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    if name.is_empty() || !name.bytes().all(is_plain) {
        return None;
    }
    let member = member.map(|member| format!("/{member}")).unwrap_or_default();
    Some(format!("{{vault://env/{}{member}}}", name.to_ascii_lowercase().replace('_', "-")))
}
