//! JSON in bodies of requests, as Kong and APISIX read it: texts may have line ends and other control characters as they are.

use weir_model::schema::Json;

/// Reads a body.
pub(crate) fn read(bytes: &[u8]) -> serde_json::Result<Json> {
    // The error is of the text that the client has sent.
    serde_json::from_slice(bytes).or_else(|error| serde_json::from_slice(&escaped(bytes)).map_err(|_| error))
}

/// The same with control characters in texts as escapes.
fn escaped(bytes: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(bytes.len() + bytes.len() / 8);
    let (mut in_text, mut is_escaped) = (false, false);
    for &byte in bytes {
        if in_text && byte < b' ' {
            escaped.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
        } else {
            escaped.push(byte);
        }
        in_text ^= byte == b'"' && !is_escaped;
        is_escaped = in_text && byte == b'\\' && !is_escaped;
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_may_have_control_characters() {
        let read = |text: &str| read(text.as_bytes()).map_err(|error| error.to_string());
        assert_eq!(read("{\n\t\"a\": \"1\n\t2\"\n}"), Ok(json!({ "a": "1\n\t2" })));
        assert_eq!(read("[\"a\\\"\n\", \"\\\\\", \"\r\"]"), Ok(json!(["a\"\n", "\\", "\r"])));
        assert_eq!(
            read("{\"a\": \"\n\""),
            Err("control character (\\u0000-\\u001F) found while parsing a string at line 2 column 0"
                .to_owned())
        );
        assert!(read("{\"a\": 1,}").is_err());
    }
}
