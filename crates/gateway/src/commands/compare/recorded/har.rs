//! HAR files, which browsers and proxies write (HTTP Archive 1.2).
use super::{Recorded, Request};
use serde::Deserialize;

#[derive(Deserialize)]
struct Har {
    log: Log,
}

#[derive(Deserialize)]
struct Log {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    request: Sent,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sent {
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<Header>,
    post_data: Option<PostData>,
}

#[derive(Deserialize)]
struct Header {
    name: String,
    value: String,
}

#[derive(Deserialize)]
struct PostData {
    #[serde(default)]
    text: String,
}

/// Whether a text is a HAR file: an object with a member `log` that holds entries.
pub(super) fn is_har(text: &str) -> bool {
    let start = text.trim_start();
    let name = start.strip_prefix('{').map(str::trim_start).unwrap_or_default();
    name.starts_with("\"log\"")
}

pub(super) fn parse(text: &str) -> Result<Recorded, String> {
    let har: Har = serde_json::from_str(text).map_err(|error| format!("not a HAR file: {error}"))?;
    let mut recorded = Recorded::default();
    for Entry { request: sent } in har.log.entries {
        let Some(mut request) = Request::new(&sent.method, &sent.url) else {
            recorded.skip("its URL is not one of http or https");
            continue;
        };
        for Header { name, value } in &sent.headers {
            request.add(name, value);
        }
        request.body = sent.post_data.map(|data| data.text.into_bytes()).unwrap_or_default();
        recorded.requests.push(request);
    }
    Ok(recorded)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_request_keeps_its_headers_and_its_body() {
        let text = r#"{"log": {"version": "1.2", "entries": [
            {"request": {"method": "POST", "url": "https://a.test:8443/x?y=1", "headers": [
                {"name": ":method", "value": "POST"}, {"name": "Content-Type", "value": "text/plain"},
                {"name": "Content-Length", "value": "4"}], "postData": {"mimeType": "text/plain", "text": "body"}}},
            {"request": {"method": "GET", "url": "data:text/plain,x"}}]}}"#;
        assert!(super::is_har(text));
        let recorded = super::parse(text).expect("a HAR file");
        let [request] = recorded.requests.as_slice() else { panic!("{recorded:?}") };
        assert_eq!((request.target.as_str(), request.host.as_deref()), ("/x?y=1", Some("a.test:8443")));
        assert_eq!(request.headers, [("Content-Type".to_owned(), "text/plain".to_owned())]);
        assert_eq!(request.body, b"body");
        assert_eq!(recorded.skipped.values().sum::<usize>(), 1);
    }

    #[test]
    fn an_error_says_where_it_is() {
        let error = super::parse("{\"log\": {\"entries\": [{}]}}").expect_err("no request");
        assert!(error.contains("line 1 column"), "{error}");
    }
}
