//! Describes how the responses to a load differ from what the case expects, and suggests a fix.
use crate::load::{Outcome, RequestTemplate};
use crate::result::Parity;
use std::collections::BTreeSet;

/// Lists the statuses that came, those that were expected and all other errors, with hints.
pub(super) fn describe(load: &Outcome, templates: &[RequestTemplate]) -> String {
    let came = load.statuses.iter().map(|(status, count)| format!("{status} ({count} times)"));
    let came: Vec<String> = came.collect();
    let came = if came.is_empty() { "none".to_owned() } else { came.join(", ") };
    let mut text =
        format!("the load on it failed: the answers were {came}, expected was {}", expected(templates));
    // The text names wrong statuses already.
    for (class, count) in load.errors.iter().filter(|(class, _)| *class != "status") {
        text.push_str(&format!("; {class} errors: {count}"));
    }
    let wrong = load.statuses.keys().filter(|status| !is_expected(**status, templates));
    let hints: BTreeSet<&str> = wrong.filter_map(|status| hint(*status)).collect();
    hints.iter().for_each(|hint| text.push_str(&format!("; {hint}")));
    text
}

fn is_expected(status: u16, templates: &[RequestTemplate]) -> bool {
    templates.iter().any(|template| match template.expect.status.as_slice() {
        [] => (200..400).contains(&status),
        expected => expected.contains(&status),
    })
}

fn expected(templates: &[RequestTemplate]) -> String {
    let of = |template: &RequestTemplate| match template.expect.status.as_slice() {
        [] => vec!["200 to 399".to_owned()],
        expected => expected.iter().map(u16::to_string).collect(),
    };
    let all: BTreeSet<String> = templates.iter().flat_map(of).collect();
    all.into_iter().collect::<Vec<_>>().join(" or ")
}

/// The hint for the first request of the parity check that failed; empty if there is none.
pub(super) fn parity_hint(checks: &[Parity]) -> String {
    let wrong = checks.iter().find(|check| !check.agrees);
    let status = wrong.and_then(|check| check.got.split(',').next()?.parse().ok());
    status.and_then(hint).map_or_else(String::new, |hint| format!("; {hint}"))
}

/// What usually fixes an unexpected response of this status.
fn hint(status: u16) -> Option<&'static str> {
    Some(match status {
        401 | 403 => "401 and 403: give the credential of a consumer that may pass, such as -H 'apikey: …'",
        404 => "404: no route matches; see --request, and the Host by -H",
        429 => "429: a plugin limits the rate; raise its limit for this run, or leave it out",
        500..600 => "500 and more: see what the target wrote to its log",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Expect;

    #[test]
    fn only_what_was_not_expected_is_advised_on() {
        let expects = |status: &[u16]| RequestTemplate {
            weight: 1,
            method: "GET".to_owned(),
            path: "/".to_owned(),
            headers: Vec::new(),
            body: String::new(),
            expect: Expect { status: status.to_vec(), ..Expect::default() },
        };
        assert!(is_expected(429, &[expects(&[200]), expects(&[429])]));
        assert!(is_expected(302, &[expects(&[])]) && !is_expected(404, &[expects(&[])]));
        assert_eq!(expected(&[expects(&[200, 201]), expects(&[200])]), "200 or 201");
    }
}
