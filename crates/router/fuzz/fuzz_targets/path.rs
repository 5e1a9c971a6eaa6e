//! A path has one normal form, and what the upstream gets of it is a target that means the same to it as to the routes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_http1::{Limits, RequestHead};
use weir_router::{normalize_path, upstream_path, upstream_path_v1};

const BASES: [Option<&str>; 5] = [None, Some("/"), Some("/base"), Some("/base/"), Some("/a%20b/")];

/// The head of a GET of this target, if there is such a request.
fn head(target: &[u8]) -> Option<RequestHead> {
    let text = [b"GET ", target, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
    let mut head = RequestHead::default();
    let read = head.parse(&text, &Limits::default());
    read.is_ok_and(|length| length == Some(text.len())).then_some(head)
}

/// A segment that an upstream takes for a step up or for none, however often it decodes.
fn is_dots(segment: &str) -> bool {
    matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
}

fn check(sent: &[u8]) -> String {
    let head = head(sent).unwrap_or_else(|| panic!("{:?} is no target", String::from_utf8_lossy(sent)));
    assert_eq!(head.path().as_bytes(), sent);
    assert!(!head.path().split('/').any(is_dots), "{}", head.path());
    head.path().to_owned()
}

fuzz_target!(|target: &[u8]| {
    let Some(head) = head(target) else { return };
    let normal = normalize_path(head.path());
    assert_eq!(normalize_path(&normal), normal);
    if !normal.starts_with('/') {
        return;
    }
    let mut sent = Vec::new();
    upstream_path(&mut sent, None, &normal, 0, false);
    assert_eq!(normalize_path(&check(&sent)), normal);
    for base in BASES {
        for (matched, _) in normal.char_indices() {
            for strip in [false, true] {
                for write in [upstream_path, upstream_path_v1] {
                    sent.clear();
                    write(&mut sent, base, &normal, matched, strip);
                    if !sent.is_empty() {
                        check(&sent);
                    }
                }
            }
        }
    }
});
