//! A plan's requests as a list: what programs that generate load by themselves are given to send.
use super::request::Requests;
use super::{Expect, LoadError, Plan};

/// How many requests are drawn where they differ.
const DRAWN: usize = 4096;

/// One request of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedRequest {
    /// Such as `GET`.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Names and values, without `Host` and `Content-Length` unless the plan says them.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
    /// What its answers must be.
    pub expect: Expect,
}

/// Draws requests: a single one where all are alike, else enough for the distributions to show.
///
/// # Errors
/// When the plan makes no sense.
pub fn list(plan: &Plan) -> Result<Vec<ListedRequest>, LoadError> {
    let requests = Requests::new(plan)?;
    let mut stream = requests.stream(plan.seed, 0, 1);
    let count = if plan.requests.templates.len() > 1 || requests.vary() { DRAWN } else { 1 };
    let drawn = (0..count).map(|_| {
        let drawn = stream.next();
        let template = &plan.requests.templates[drawn.template];
        let head = String::from_utf8_lossy(drawn.head());
        let (line, fields) = head.split_once("\r\n").unwrap_or((&head, ""));
        let added = |name: &str| {
            let given = template.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
            !given && ["host", "content-length"].contains(&name.to_ascii_lowercase().as_str())
        };
        let headers =
            fields.lines().filter_map(|field| field.split_once(": ")).filter(|(name, _)| !added(name));
        ListedRequest {
            method: template.method.clone(),
            path: line.split(' ').nth(1).unwrap_or("/").to_owned(),
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            body: String::from_utf8_lossy(drawn.body()).into_owned(),
            expect: template.expect.clone(),
        }
    });
    let mut drawn: Vec<ListedRequest> = drawn.collect();
    // Variables may have one value alone.
    if drawn.iter().all(|request| *request == drawn[0]) {
        drawn.truncate(1);
    }
    Ok(drawn)
}
