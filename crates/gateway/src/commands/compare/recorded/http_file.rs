//! Requests as text: a request line, headers, an empty line and a body; `###` lies between requests with a body, as in the
//! HTTP files of editors. A list of paths is such a file too.
use super::{Recorded, Request};
use weir_model::check::meant_method;

/// Reads the requests of a text.
pub(super) fn parse(text: &str) -> Result<Recorded, String> {
    let mut recorded = Recorded::default();
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let line = line.trim_end();
        if line.trim().is_empty() || line.starts_with('#') || line.starts_with("//") {
            continue;
        }
        let mut request = request_line(line)
            .ok_or_else(|| format!("line {}: {line:?} is no request: write it as GET /path", number + 1))?;
        if let Some(meant) = meant_method(&request.method) {
            let method = &request.method;
            return Err(format!(
                "line {}: `{method}` is no method of HTTP; did you mean `{meant}`?",
                number + 1
            ));
        }
        while let Some((name, value)) = lines.peek().and_then(|(_, line)| header(line)) {
            request.add(name, value);
            lines.next();
        }
        if lines.next_if(|(_, line)| line.trim().is_empty()).is_some() {
            let mut body = Vec::new();
            let starts = |line: &str| line.starts_with("###") || request_line(line.trim_end()).is_some();
            while let Some((_, line)) = lines.next_if(|(_, line)| !starts(line)) {
                body.push(line);
            }
            request.body = body.join("\n").trim_end().as_bytes().to_vec();
        }
        recorded.requests.push(request);
    }
    Ok(recorded)
}

/// `METHOD target`, with a version or without, or a target alone.
fn request_line(line: &str) -> Option<Request> {
    let words: Vec<_> = line.split_whitespace().collect();
    let (method, url) = match words.as_slice() {
        [url] => ("GET", *url),
        [method, url] => (*method, *url),
        [method, url, version] if version.starts_with("HTTP/") => (*method, *url),
        _ => return None,
    };
    let is_method = method.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
    let is_url = ["/", "http://", "https://"].iter().any(|start| url.starts_with(start));
    if is_method && is_url { Request::new(method, url) } else { None }
}

fn header(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    let is_token = !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.!$%&'*+^`|~".contains(&byte));
    (is_token && !value.starts_with("//")).then(|| (name, value.trim()))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn requests_follow_one_another_with_or_without_headers_and_bodies() {
        let text = "# a comment\nGET /a\nPOST http://h.test/b HTTP/1.1\nX-A: 1\nHost: other\n\n{\"c\":\n1}\n\n###\n\
                    /d\nhttps://h.test/e?f=g\n\nDELETE /h\n";
        let recorded = parse(text).expect("an HTTP file");
        let lines: Vec<_> =
            recorded.requests.iter().map(|it| format!("{} {}", it.method, it.target)).collect();
        assert_eq!(lines, ["GET /a", "POST /b", "GET /d", "GET /e?f=g", "DELETE /h"]);
        assert_eq!(recorded.requests[1].host.as_deref(), Some("other"));
        assert_eq!(recorded.requests[1].headers, [("X-A".to_owned(), "1".to_owned())]);
        assert_eq!(recorded.requests[1].body, b"{\"c\":\n1}");
        assert_eq!(recorded.requests[3].host.as_deref(), Some("h.test"));
    }

    #[test]
    fn an_error_names_the_line() {
        let error = parse("GET /a\n\n###\nnot a request at all\n").expect_err("no request");
        assert!(error.starts_with("line 4: \"not a request at all\""), "{error}");
        let error = parse("GET /a\nGTE /x\n").expect_err("no method");
        assert_eq!(error, "line 2: `GTE` is no method of HTTP; did you mean `GET`?");
        assert!(parse("PURGE /a\nREFRESH /b\n").is_ok());
    }
}
