//! AWS Signature Version 4, in the headers of a request.

use super::Credentials;
use aws_lc_rs::{digest, hmac};
use http::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue, InvalidHeaderValue};
use http::{HeaderMap, Request, Uri};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::SystemTime;
use time::OffsetDateTime;
use weir_plugin::{Bytes, form};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const DATE: HeaderName = HeaderName::from_static("x-amz-date");
const TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// Headers that proxies change or add, so that they are not signed.
const UNSIGNED: [&str; 6] =
    ["authorization", "connection", "expect", "transfer-encoding", "user-agent", "x-amzn-trace-id"];

/// What a signature is valid for, beside its day.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) region: &'a str,
    pub(crate) service: &'a str,
}

/// Signs a request: adds `Authorization`, `Host`, `X-Amz-Date` and, with temporary credentials, `X-Amz-Security-Token`. All
/// other headers must be there already, and the URL must be absolute and escaped. Not for S3, which signs paths
/// in another way.
pub(crate) fn sign(
    request: &mut Request<Bytes>,
    credentials: &Credentials,
    scope: Scope<'_>,
    at: SystemTime,
) -> Result<(), InvalidHeaderValue> {
    let date = date(at);
    let token = credentials.session_token.as_ref().map(|token| sensitive(token.expose())).transpose()?;
    let host = host(request.uri()).parse()?;
    let headers = request.headers_mut();
    headers.remove(AUTHORIZATION);
    headers.remove(TOKEN);
    headers.insert(HOST, host);
    headers.insert(DATE, date.parse()?);
    headers.extend(token.map(|token| (TOKEN, token)));

    let (names, canonical) = canonical(request);
    let day = date.get(..8).unwrap_or_default();
    let scope = format!("{day}/{}/{}/aws4_request", scope.region, scope.service);
    let to_sign = format!("{ALGORITHM}\n{date}\n{scope}\n{}", sha256(canonical.as_bytes()));
    let signature = hex(hmac(signing_key(credentials, &scope).as_ref(), &to_sign).as_ref());
    let id = &credentials.access_key_id;
    let text = format!("{ALGORITHM} Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}");
    request.headers_mut().insert(AUTHORIZATION, sensitive(&text)?);
    Ok(())
}

/// The names of the headers that are signed, and the request as it is signed.
fn canonical(request: &Request<Bytes>) -> (String, String) {
    let headers = canonical_headers(request.headers());
    let names = headers.keys().copied().collect::<Vec<_>>().join(";");
    let mut text = format!("{}\n{}\n", request.method(), canonical_path(request.uri().path()));
    text.push_str(&canonical_query(request.uri().query().unwrap_or_default()));
    text.push('\n');
    for (name, value) in &headers {
        let _ = writeln!(text, "{name}:{value}");
    }
    let _ = write!(text, "\n{names}\n{}", sha256(request.body()));
    (names, text)
}

/// The headers that are signed, by name, without superfluous spaces.
fn canonical_headers(headers: &HeaderMap) -> BTreeMap<&str, String> {
    let mut canonical: BTreeMap<_, String> = BTreeMap::new();
    for (name, value) in headers.iter().filter(|(name, _)| !UNSIGNED.contains(&name.as_str())) {
        let value = String::from_utf8_lossy(value.as_bytes());
        let value = value.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        let known = canonical.entry(name.as_str());
        known.and_modify(|values| values.extend([",", &value])).or_insert(value);
    }
    canonical
}

/// The path without dots and empty segments, escaped once more.
fn canonical_path(path: &str) -> String {
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let mut canonical = String::from("/");
    for (at, segment) in segments.iter().enumerate() {
        if at > 0 {
            canonical.push('/');
        }
        form::encode(segment.as_bytes(), &mut canonical);
    }
    if path.ends_with('/') && !segments.is_empty() {
        canonical.push('/');
    }
    canonical
}

/// The pairs of a query in order, each with `=`.
fn canonical_query(query: &str) -> String {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<_> = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).collect();
    pairs.sort_unstable();
    let pairs = pairs.iter().map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join("&")
}

/// The key for a day, region and service.
fn signing_key(credentials: &Credentials, scope: &str) -> hmac::Tag {
    let secret = format!("AWS4{}", credentials.secret_access_key.expose());
    let mut parts = scope.split('/');
    let day = hmac(secret.as_bytes(), parts.next().unwrap_or_default());
    parts.fold(day, |key, part| hmac(key.as_ref(), part))
}

fn hmac(key: &[u8], text: &str) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes())
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A value that is in no log.
fn sensitive(text: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut value = HeaderValue::from_str(text)?;
    value.set_sensitive(true);
    Ok(value)
}

/// The host as the client sends it: with the port, unless that is the scheme's.
fn host(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    match uri.port_u16() {
        Some(port) if port != default => format!("{host}:{port}"),
        _ => host.to_owned(),
    }
}

/// The date as in `20150830T123600Z`.
fn date(at: SystemTime) -> String {
    let at = OffsetDateTime::from(at);
    let (year, month, day) = at.to_calendar_date();
    let (hour, minute, second) = at.to_hms();
    format!("{year:04}{:02}{day:02}T{hour:02}{minute:02}{second:02}Z", u8::from(month))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use time::{Date, Month, Time};

    /// A request and its signature: some are AWS's examples, the others are signed by botocore.
    #[derive(Deserialize)]
    struct Vector {
        name: String,
        method: String,
        url: String,
        #[serde(default)]
        headers: Vec<(String, String)>,
        #[serde(default)]
        body: String,
        region: String,
        service: String,
        date: String,
        token: Option<String>,
        authorization: String,
    }

    fn credentials(token: Option<String>) -> Credentials {
        Credentials {
            access_key_id: "AKIDEXAMPLE".to_owned(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned().into(),
            session_token: token.map(weir_plugin::Secret::from),
        }
    }

    fn at(date: &str) -> SystemTime {
        let part = |range: std::ops::Range<usize>| date[range].parse::<u16>().unwrap();
        let small = |at: usize| part(at..at + 2) as u8;
        let day = Date::from_calendar_date(part(0..4).into(), Month::try_from(small(4)).unwrap(), small(6));
        let time = Time::from_hms(small(9), small(11), small(13));
        day.unwrap().with_time(time.unwrap()).assume_utc().into()
    }

    fn request(vector: &Vector) -> Request<Bytes> {
        let mut request = Request::builder().method(&*vector.method).uri(&vector.url);
        for (name, value) in &vector.headers {
            request = request.header(name, value);
        }
        request.body(vector.body.clone().into()).unwrap()
    }

    #[test]
    fn signatures_are_those_of_aws() {
        let vectors: Vec<Vector> = serde_json::from_str(include_str!("sigv4_vectors.json")).unwrap();
        assert_eq!(vectors.len(), 10);
        for vector in vectors {
            let mut request = request(&vector);
            let scope = Scope { region: &vector.region, service: &vector.service };
            sign(&mut request, &credentials(vector.token.clone()), scope, at(&vector.date)).unwrap();
            assert_eq!(request.headers()[AUTHORIZATION], vector.authorization, "{}", vector.name);
            assert_eq!(request.headers()[DATE], vector.date);
            let token = request.headers().get(TOKEN).map(|token| token.to_str().unwrap());
            assert_eq!(token, vector.token.as_deref());
        }
    }

    #[test]
    fn signing_again_replaces_the_signature_and_debug_shows_no_secret() {
        let mut request =
            Request::post("https://lambda.eu-west-1.amazonaws.com/").body(Bytes::new()).unwrap();
        let scope = Scope { region: "eu-west-1", service: "lambda" };
        let temporary = credentials(Some("hunter2".to_owned()));
        sign(&mut request, &temporary, scope, at("20150830T123600Z")).unwrap();
        assert!(!format!("{request:?}{temporary:?}").contains("hunter2"));
        assert!(!format!("{request:?}{temporary:?}").contains("wJalr"));
        sign(&mut request, &credentials(None), scope, at("20150830T123601Z")).unwrap();
        assert_eq!(request.headers().get_all(AUTHORIZATION).iter().count(), 1);
        assert!(!request.headers().contains_key(TOKEN));
    }

    #[test]
    fn a_token_that_cannot_be_sent_is_an_error() {
        let mut request = Request::post("https://sts.amazonaws.com/").body(Bytes::new()).unwrap();
        let scope = Scope { region: "us-east-1", service: "sts" };
        assert!(sign(&mut request, &credentials(Some("a\nb".to_owned())), scope, SystemTime::now()).is_err());
    }
}
