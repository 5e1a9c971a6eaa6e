//! The response to the client, of what Lambda answers.

use super::Config;
use crate::shared::function_call::{header_values, is_passed_back};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, Response};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value as Json, json};
use weir_plugin::{Bytes, LocalResponse};

/// The response for a function's result.
pub(super) fn answer(config: &Config, result: Response<Bytes>, request_id: &str) -> LocalResponse {
    let (head, body) = result.into_parts();
    if config.is_proxy_integration {
        return match integrated(&body) {
            Ok(integrated) => integrated.answer(&head.headers),
            Err(why) => bad_gateway(&why, request_id),
        };
    }
    let is_unhandled = head.headers.get("x-amz-function-error").is_some_and(|error| error == "Unhandled");
    let status = config.unhandled_status.filter(|_| is_unhandled).unwrap_or(head.status.as_u16());
    let is_json = head.headers.get("content-type").is_some_and(|value| is_json(value.as_bytes()));
    let is_legacy = is_json && config.empty_arrays_mode == "legacy";
    let body = if is_legacy { without_empty_arrays(body) } else { body };
    with_headers(LocalResponse::raw(status, None, body), &head.headers, |_| false)
}

/// The headers of Lambda's response, but for those of the connection and those that are to be left out.
fn with_headers(
    answer: LocalResponse,
    headers: &HeaderMap,
    is_replaced: impl Fn(&str) -> bool,
) -> LocalResponse {
    let passed =
        headers.iter().filter(|(name, _)| is_passed_back(name.as_str()) && !is_replaced(name.as_str()));
    passed.fold(answer, |answer, (name, value)| answer.header(name.as_str().to_owned(), value))
}

fn bad_gateway(why: &str, request_id: &str) -> LocalResponse {
    tracing::error!(
        request_id,
        "aws-lambda: the function's result is not that of a proxy integration: {why}"
    );
    let error = format!("could not JSON decode Lambda function response: {why}");
    let body = json!({ "message": "Bad Gateway", "error": error });
    LocalResponse::raw(502, Some("application/json; charset=utf-8"), body.to_string())
}

/// A response as a function describes it.
#[derive(Debug, PartialEq)]
struct Integrated {
    status: u16,
    /// Names, and the values of each.
    headers: Vec<(String, Vec<String>)>,
    body: Bytes,
}

/// The members that a function may set.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Described {
    #[serde(default)]
    status_code: Json,
    #[serde(default)]
    headers: Json,
    #[serde(default)]
    multi_value_headers: Json,
    #[serde(default)]
    body: Json,
    #[serde(default)]
    is_base64_encoded: Json,
}

/// Reads the result of a function that describes a response.
fn integrated(result: &[u8]) -> Result<Integrated, String> {
    let described: Described = match serde_json::from_slice(result) {
        Ok(described) => described,
        Err(error) if error.is_data() => return Err("statusCode validation failed".to_owned()),
        Err(error) => return Err(error.to_string()),
    };
    let status = status(&described.status_code).ok_or("statusCode validation failed")?;
    let mut headers = match described.headers {
        Json::Null => Map::new(),
        Json::Object(headers) => headers,
        _ => return Err("headers must be a table".to_owned()),
    };
    let body = match described.body {
        Json::Null => String::new(),
        Json::String(body) => body,
        _ => return Err("body must be a string".to_owned()),
    };
    let body = match described.is_base64_encoded {
        Json::Null | Json::Bool(false) => body.into(),
        Json::Bool(true) => STANDARD.decode(&body).map_err(|_| "body must be base64")?.into(),
        _ => return Err("isBase64Encoded must be a boolean".to_owned()),
    };
    if let Json::Object(many) = described.multi_value_headers {
        headers.extend(many);
    }
    let headers = headers.into_iter().map(|(name, values)| (name, header_values(values)));
    Ok(Integrated { status, headers: headers.collect(), body })
}

/// A status as a number or a text.
fn status(value: &Json) -> Option<u16> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    (100.0..600.0).contains(&number).then_some(number as u16)
}

impl Integrated {
    /// The response. Its headers replace Lambda's own of the same names.
    fn answer(self, of_lambda: &HeaderMap) -> LocalResponse {
        let is_own = |name: &str| self.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
        let answer =
            with_headers(LocalResponse::raw(self.status, None, self.body.clone()), of_lambda, is_own);
        let own = self.headers.iter().filter(|(name, _)| is_sendable(name) && is_passed_back(name));
        own.fold(answer, |answer, (name, values)| {
            values.iter().fold(answer, |answer, value| answer.header(name.clone(), value))
        })
    }
}

fn is_sendable(name: &str) -> bool {
    weir_plugin::rule::header_name(name).is_ok()
}

/// Whether a media type is JSON, as `application/vnd.api+json` is.
fn is_json(content_type: &[u8]) -> bool {
    let lower = content_type.to_ascii_lowercase();
    let lower = String::from_utf8_lossy(&lower);
    lower.split_once("application/").is_some_and(|(_, rest)| rest.contains("json"))
}

/// The same JSON with `{}` for each `[]`, as Kong sends it unless `empty_arrays_mode` is `correct`.
fn without_empty_arrays(json: Bytes) -> Bytes {
    let is_candidate = json.windows(1).any(|byte| byte == b"[");
    if !is_candidate || serde_json::from_slice::<IgnoredAny>(&json).is_err() {
        return json;
    }
    let mut changed = Vec::with_capacity(json.len());
    let mut rest = &json[..];
    while let Some((first, behind)) = rest.split_first() {
        let length = match first {
            b'"' => string_len(rest),
            b'[' if behind.trim_ascii_start().starts_with(b"]") => {
                changed.extend(b"{}");
                rest = &behind.trim_ascii_start()[1..];
                continue;
            }
            _ => 1,
        };
        changed.extend(&rest[..length]);
        rest = &rest[length..];
    }
    changed.into()
}

/// How long the text in quotes is that begins here.
fn string_len(json: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_arrays_become_objects_and_nothing_else_changes() {
        let changed = |json: &str| {
            String::from_utf8(without_empty_arrays(Bytes::from(json.to_owned())).to_vec()).unwrap()
        };
        assert_eq!(
            changed(r#"{"a":[],"b":[[ ],1],"c":"[]\"[]","d":{}}"#),
            r#"{"a":{},"b":[{},1],"c":"[]\"[]","d":{}}"#
        );
        assert_eq!((changed("[\n]"), changed(r#"{"a":1}"#)), ("{}".to_owned(), r#"{"a":1}"#.to_owned()));
        assert_eq!((changed("[]x"), changed(r#"["\"#)), ("[]x".to_owned(), r#"["\"#.to_owned()));
    }

    #[test]
    fn descriptions_of_responses() {
        let read = |json: Json| integrated(json.to_string().as_bytes());
        let full = read(json!({
            "statusCode": "201", "body": "aGk=", "isBase64Encoded": true,
            "headers": { "A": "1", "B": 2, "C": "x" }, "multiValueHeaders": { "C": ["y", true], "D": [] },
        }));
        let texts = |values: &[&str]| values.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let expected =
            [("A", texts(&["1"])), ("B", texts(&["2"])), ("C", texts(&["y", "true"])), ("D", vec![])];
        let headers = expected.map(|(name, values)| (name.to_owned(), values)).to_vec();
        assert_eq!(full, Ok(Integrated { status: 201, headers, body: "hi".into() }));
        let plain = read(json!({ "statusCode": 204 }));
        assert_eq!(plain, Ok(Integrated { status: 204, headers: vec![], body: Bytes::new() }));
        for (wrong, why) in [
            (json!({ "statusCode": 99 }), "statusCode validation failed"),
            (json!({ "statusCode": 600 }), "statusCode validation failed"),
            (json!({ "errorMessage": "x" }), "statusCode validation failed"),
            (json!("text"), "statusCode validation failed"),
            (json!({ "statusCode": 200, "headers": [] }), "headers must be a table"),
            (json!({ "statusCode": 200, "body": {} }), "body must be a string"),
            (json!({ "statusCode": 200, "isBase64Encoded": "yes" }), "isBase64Encoded must be a boolean"),
        ] {
            assert_eq!(read(wrong).err().as_deref(), Some(why));
        }
        assert!(integrated(b"{").is_err());
    }
}
