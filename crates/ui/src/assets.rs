//! The files that pages refer to. Their address holds the digest of all of them, so that browsers may keep them for
//! ever, and get new ones after an upgrade.
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use std::io::Write;
use std::sync::LazyLock;

const FILES: [(&str, &str, &[u8]); 5] = [
    ("style.css", "text/css; charset=utf-8", include_bytes!("assets/style.css")),
    ("app.js", "text/javascript; charset=utf-8", include_bytes!("assets/app.js")),
    ("analytics.js", "text/javascript; charset=utf-8", include_bytes!("assets/analytics.js")),
    ("tail.js", "text/javascript; charset=utf-8", include_bytes!("assets/tail.js")),
    ("icon.svg", "image/svg+xml", include_bytes!("assets/icon.svg")),
];

static ASSETS: LazyLock<Assets> = LazyLock::new(Assets::new);

struct Assets {
    version: String,
    compressed: Vec<Vec<u8>>,
}

impl Assets {
    fn new() -> Assets {
        let mut digest = Sha256::new();
        FILES.iter().for_each(|(_, _, bytes)| digest.update(bytes));
        let version = digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Assets { version, compressed: FILES.iter().map(|(_, _, bytes)| gzip(bytes)).collect() }
    }
}

/// The address of a file, below the root of the UI.
pub(crate) fn address(name: &str) -> String {
    format!("assets/{}/{name}", ASSETS.version)
}

/// The response with a file.
pub(crate) fn serve(version: &str, name: &str, asked: &HeaderMap) -> Response {
    let found = FILES.iter().position(|(file, _, _)| *file == name);
    let Some(index) = found.filter(|_| version == ASSETS.version) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let (_, media_type, plain) = FILES[index];
    let etag = format!("\"{}\"", ASSETS.version);
    let known = asked.get(header::IF_NONE_MATCH).is_some_and(|known| known == etag.as_str());
    let is_compressed = takes_gzip(asked);
    let mut response = match (known, is_compressed) {
        (true, _) => StatusCode::NOT_MODIFIED.into_response(),
        (false, true) => ASSETS.compressed[index].clone().into_response(),
        (false, false) => plain.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    let for_ever = HeaderValue::from_static("public, max-age=31536000, immutable");
    headers.insert(header::CACHE_CONTROL, for_ever);
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(header::ETAG, etag);
    }
    if is_compressed && !known {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// Whether a browser understands gzip.
pub(crate) fn takes_gzip(asked: &HeaderMap) -> bool {
    let encodings = asked.get(header::ACCEPT_ENCODING).and_then(|encodings| encodings.to_str().ok());
    encodings.unwrap_or_default().split(',').any(|encoding| encoding.trim().eq_ignore_ascii_case("gzip"))
}

/// The bytes, compressed; empty if that fails, which it cannot in memory.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}
