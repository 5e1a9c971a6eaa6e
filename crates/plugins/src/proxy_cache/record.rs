//! How a response is written to Redis: a line of JSON, then the body.

use super::directives::MAX_SECONDS;
use super::freshness::{StaleUse, Term};
use super::stored::{Stored, Subject};
use super::vary::Variant;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use weir_plugin::{Bytes, Headers};

/// Records of other versions are not read.
const VERSION: u8 = 1;

/// What is stored under a key.
pub(super) enum Found {
    Response(Arc<Stored>),
    /// The response varies by these request headers: it is stored under a key with their values.
    VariesBy(Vec<String>),
}

#[derive(Serialize, Deserialize)]
struct Line {
    version: u8,
    /// The names alone; what follows is in the record of the variant.
    varies_by: Option<Vec<String>>,
    response: Option<Meta>,
}

#[derive(Serialize, Deserialize)]
struct Meta {
    key: String,
    path: String,
    tags: Vec<String>,
    resource_name: Option<String>,
    status: u16,
    /// Each byte of a value is a character.
    headers: Vec<(String, String)>,
    timestamp: u64,
    lifetime: u64,
    overdue: u64,
    stored_for: Option<u64>,
    age_before: u64,
    stale: StaleUse,
    vary: Vec<(String, Vec<String>)>,
    is_for_all: bool,
}

/// The record of a response.
pub(super) fn write(stored: &Stored) -> Vec<u8> {
    let text = |bytes: &[u8]| bytes.iter().map(|byte| char::from(*byte)).collect::<String>();
    let term = stored.term;
    let vary = stored.vary.iter();
    let meta = Meta {
        key: stored.key.to_string(),
        path: stored.subject.path.clone(),
        tags: stored.subject.tags.clone(),
        resource_name: stored.subject.resource.name.clone(),
        status: stored.status,
        headers: stored.headers.iter().map(|field| (text(field.name), text(field.value))).collect(),
        timestamp: stored.timestamp,
        lifetime: term.lifetime.as_secs(),
        overdue: term.overdue.as_secs(),
        stored_for: term.stored_for.map(|time| time.as_secs()),
        age_before: term.age_before,
        stale: term.stale,
        vary: vary
            .map(|(name, values)| (name.clone(), values.iter().map(|value| text(value)).collect()))
            .collect(),
        is_for_all: stored.is_for_all,
    };
    let mut record = line(&Line { version: VERSION, varies_by: None, response: Some(meta) });
    record.extend_from_slice(&stored.body);
    record
}

/// The record that says where the responses are.
pub(super) fn write_names(variant: &Variant) -> Vec<u8> {
    let names = variant.iter().map(|(name, _)| name.clone()).collect();
    line(&Line { version: VERSION, varies_by: Some(names), response: None })
}

fn line(line: &Line) -> Vec<u8> {
    // Texts and numbers can always be written.
    let mut text = serde_json::to_vec(line).unwrap_or_default();
    text.push(b'\n');
    text
}

/// A time of a record, which may be anybody's: sums of such times do not overflow.
fn time(seconds: u64) -> Duration {
    Duration::from_secs(seconds.min(MAX_SECONDS))
}

/// Reads a record; none if it is another version's, or another program's.
pub(super) fn read(record: Vec<u8>, (now, timestamp): (Instant, u64)) -> Option<Found> {
    let end = memchr::memchr(b'\n', &record)?;
    let line: Line =
        serde_json::from_slice(&record[..end]).ok().filter(|line: &Line| line.version == VERSION)?;
    if let Some(names) = line.varies_by {
        return Some(Found::VariesBy(names));
    }
    let meta = line.response?;
    let bytes =
        |text: &str| text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect::<Vec<u8>>();
    let mut headers = Headers::new();
    meta.headers.iter().for_each(|(name, value)| headers.append(name, &bytes(value)));
    let elapsed = Duration::from_secs(timestamp.saturating_sub(meta.timestamp));
    let resource = super::subject::Resource { fingerprint: 0, name: meta.resource_name };
    let vary = meta.vary.into_iter();
    Some(Found::Response(Arc::new(Stored {
        key: meta.key.into(),
        subject: Arc::new(Subject { resource, path: meta.path, tags: meta.tags }),
        status: meta.status,
        headers: Arc::new(headers),
        body: Bytes::from(record).slice(end + 1..),
        since: now.checked_sub(elapsed)?,
        timestamp: meta.timestamp,
        term: Term {
            lifetime: time(meta.lifetime),
            overdue: time(meta.overdue),
            stored_for: meta.stored_for.map(time),
            age_before: meta.age_before.min(MAX_SECONDS),
            stale: meta.stale,
        },
        vary: vary.map(|(name, values)| (name, values.iter().map(|value| bytes(value)).collect())).collect(),
        is_for_all: meta.is_for_all,
        is_gone: AtomicBool::new(false),
        is_used: AtomicBool::new(true),
    })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy_cache::directives::Directives;
    use serde_json::json;

    #[test]
    fn times_of_other_programs_do_not_overflow() {
        let most = u64::MAX;
        let stale = json!({
            "always_validate": false, "must_revalidate": false, "while_revalidate": most, "if_error": most
        });
        let line = json!({ "version": VERSION, "response": {
            "key": "", "path": "", "tags": [], "resource_name": null, "status": 200, "headers": [], "timestamp": 0,
            "lifetime": most, "overdue": most, "stored_for": most, "age_before": most, "stale": stale, "vary": [],
            "is_for_all": false
        } });
        let now = Instant::now();
        let Some(Found::Response(stored)) = read(format!("{line}\n").into_bytes(), (now, 0)) else {
            panic!()
        };
        for elapsed in [0, MAX_SECONDS, 2 * MAX_SECONDS].map(Duration::from_secs) {
            let asked = Directives { max_stale: Some(most), ..Directives::default() };
            stored.term.reuse(elapsed, &asked);
            stored.term.answers_errors(elapsed, &asked);
        }
        assert!(!stored.is_over(now));
    }
}
