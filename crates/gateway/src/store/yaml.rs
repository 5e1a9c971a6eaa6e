//! JSON → YAML, in the plain style that people write.
use serde_json::Value;

/// The words that YAML parsers of some version do not read as text.
const WORDS: [&str; 10] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan"];

/// A mapping or a list as YAML.
pub(super) fn to_yaml(value: &Value) -> String {
    let mut text = String::new();
    write_block(value, 0, &mut text);
    text
}

/// Writes the lines of a mapping or a list. The caller has written the indentation of the first line.
fn write_block(value: &Value, indent: usize, text: &mut String) {
    let mut next = "";
    let margin = format!("{:indent$}", "");
    match value {
        Value::Object(members) if !members.is_empty() => {
            for (key, member) in members {
                text.push_str(next);
                text.push_str(&scalar(key));
                text.push(':');
                write_below(member, indent, text);
                next = &margin;
            }
        }
        Value::Array(elements) if !elements.is_empty() => {
            for element in elements {
                text.push_str(next);
                text.push_str("- ");
                write_block(element, indent + 2, text);
                next = &margin;
            }
        }
        leaf => {
            text.push_str(&inline(leaf));
            text.push('\n');
        }
    }
}

/// Writes what belongs to a key: on lines of its own, or behind it.
fn write_below(value: &Value, indent: usize, text: &mut String) {
    let is_block = match value {
        Value::Object(members) => !members.is_empty(),
        Value::Array(elements) => !elements.is_empty(),
        _ => false,
    };
    if is_block {
        // The elements of a list stand right below their key.
        let indent = if value.is_array() { indent } else { indent + 2 };
        text.push('\n');
        text.extend(std::iter::repeat_n(' ', indent));
        write_block(value, indent, text);
    } else {
        text.push(' ');
        write_block(value, indent, text);
    }
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        // JSON is YAML too.
        other => other.to_string(),
    }
}

/// A text, in quotes unless it reads as text without them.
fn scalar(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '/')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte))
        && !WORDS.contains(&text.to_ascii_lowercase().as_str());
    if plain {
        return text.to_owned();
    }
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            // Control characters, and those that some parsers read as the end of a line or reject.
            '\u{0}'..='\u{1f}'
            | '\u{7f}'..='\u{a0}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'.. => {
                quoted.push_str(&escaped(c));
            }
            _ => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn escaped(c: char) -> String {
    format!("\\U{:08x}", u32::from(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nested_mappings_and_lists() {
        let value = json!({
            "name": "a",
            "empty": { "list": [], "map": {} },
            "routes": [{ "paths": ["/a", "~/b$"], "strip": true }, [1, [2.5]], null],
        });
        let expected = "empty:\n  list: []\n  map: {}\nname: a\nroutes:\n- paths:\n  - /a\n  - \"~/b$\"\n  strip: true\n\
                        - - 1\n  - - 2.5\n- null\n";
        assert_eq!(to_yaml(&value), expected);
    }

    #[test]
    fn texts_that_look_like_something_else_are_quoted() {
        for text in
            ["", "true", "No", "1", "1e3", ".5", "a: b", "a #b", "- a", "\n", "ü", "*", "&a", "!", "NaN"]
        {
            assert!(scalar(text).starts_with('"'), "{text}");
        }
        assert_eq!(scalar("a\tb\"\\\u{2028}"), "\"a\\U00000009b\\\"\\\\\\U00002028\"");
        assert_eq!(scalar("127.0.0.1"), "\"127.0.0.1\"");
        assert_eq!(scalar("/a-b/c_d.e"), "/a-b/c_d.e");
    }
}
