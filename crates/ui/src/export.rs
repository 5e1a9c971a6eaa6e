//! An entity, or a change of it, as a command or a file.
use axum::http::Method;
use serde_json::Value;
use std::fmt::Write;

/// The command that does the same. The values of these fields are left out, because they are secret.
pub(crate) fn curl(method: &Method, path: &str, body: &Value, secrets: &[&str]) -> String {
    let mut body = body.clone();
    for secret in secrets {
        let mut place = &mut body;
        for name in secret.split('.') {
            place = &mut place[name];
        }
        *place = Value::String("…".to_owned());
    }
    let body = serde_json::to_string(&body).unwrap_or_default().replace('\'', "'\\''");
    format!("curl -X {method} $ADMIN_API{path} \\\n  -H 'Content-Type: application/json' \\\n  -d '{body}'")
}

/// A member of a declarative file, without what is not set. It is YAML, because JSON's scalars are.
pub(crate) fn yaml(collection: &str, entity: &Value) -> String {
    let mut text = format!("_format_version: \"3.0\"\n{collection}:\n");
    let mut indent = "- ";
    for (name, value) in entity.as_object().into_iter().flatten().filter(|(_, value)| is_set(value)) {
        let _ = write!(text, "{indent}{name}:");
        write_value(&mut text, value, 2);
        indent = "  ";
    }
    text
}

fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Object(members) => members.values().any(is_set),
        _ => true,
    }
}

fn write_value(text: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(members) if !members.is_empty() => {
            text.push('\n');
            for (name, value) in members.iter().filter(|(_, value)| is_set(value)) {
                let _ = write!(text, "{indent}{name}:");
                write_value(text, value, depth + 1);
            }
        }
        Value::Array(items)
            if !items.is_empty() && items.iter().all(|item| !(item.is_object() || item.is_array())) =>
        {
            text.push('\n');
            for item in items {
                let _ = writeln!(text, "{indent}- {}", scalar(item));
            }
        }
        other => {
            let _ = writeln!(text, " {}", scalar(other));
        }
    }
}

/// Plain if no reader could take it for something else; otherwise as JSON.
fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        other => other.to_string(),
    }
}

fn is_plain(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'/');
    let is_reserved = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
        .iter()
        .any(|word| text.eq_ignore_ascii_case(word));
    begins && text.bytes().all(is_word) && !is_reserved
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn commands_hold_no_secrets_and_survive_quotes() {
        let body = json!({ "name": "it's", "config": { "password": "canary" } });
        let command = curl(&Method::PATCH, "/plugins/1", &body, &["config.password"]);
        assert!(!command.contains("canary") && command.contains(r"it'\''s"), "{command}");
    }

    #[test]
    fn files_quote_what_could_be_misread() {
        let entity = json!({
            "name": "orders", "path": null, "port": 80, "host": "on", "paths": ["/a", "~/b"],
            "tags": ["1"], "config": { "minute": 5, "redis": { "host": null } },
        });
        let expected = "_format_version: \"3.0\"\nroutes:\n- config:\n    minute: 5\n  host: \"on\"\n  name: orders\n  \
                        paths:\n    - /a\n    - \"~/b\"\n  port: 80\n  tags:\n    - \"1\"\n";
        assert_eq!(yaml("routes", &entity), expected);
    }
}
