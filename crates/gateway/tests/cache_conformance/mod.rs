//! What a shared cache does with each response: `cases.toml`, run against the gateway with `cache_control`. Prints how many
//! cases of each class are met; `CASE=id` runs one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Gateway, document, service};
use crate::plugin_cases::case::Step;
use crate::plugin_cases::run::Servers;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::{env, fs};

const CACHED: &str = "plugins: [{name: proxy-cache, config: {strategy: memory, cache_control: true, response_code: \
                      [200, 201, 202, 203, 204, 206, 299, 301, 302, 303, 304, 307, 308, 400, 403, 404, 405, 410, 414, \
                      499, 500, 501, 502, 503, 504, 599], content_type: ['text/plain', 'text/plain;charset=utf-8', '*/*']}}]";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    case: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    id: String,
    /// `required` or `optimal`.
    class: String,
    /// It is known that the cache does otherwise.
    #[serde(default)]
    unmet: bool,
    step: Vec<Step>,
}

#[test]
fn the_cache_does_what_rfc_9111_has_of_a_shared_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cache_conformance/cases.toml");
    let file: File = toml::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let servers = Servers::start();
    let services = [service("/", servers.upstream.address(), "retries: 0", CACHED)];
    let gateway = Gateway::start(&document(&services, ""));
    let only = env::var("CASE").ok();
    let mut counts = BTreeMap::<&str, (usize, usize)>::new();
    let mut faults = Vec::new();
    for case in file.case.iter().filter(|case| only.as_ref().is_none_or(|only| *only == case.id)) {
        let fault = run(case, &servers, &gateway);
        let (met, all) = counts.entry(&case.class).or_default();
        (*met, *all) = (*met + usize::from(fault.is_none()), *all + 1);
        match fault {
            Some(fault) if !case.unmet => faults.push(format!("{}: {fault}", case.id)),
            None if case.unmet => faults.push(format!("{}: is met: remove `unmet`", case.id)),
            _ => {}
        }
    }
    for (class, (met, all)) in &counts {
        println!("{class}: {met} of {all}");
    }
    assert!(faults.is_empty() && !counts.is_empty(), "\n{}\n", faults.join("\n"));
}

/// What is not as it should be.
fn run(case: &Case, servers: &Servers, gateway: &Gateway) -> Option<String> {
    case.step.iter().enumerate().find_map(|(at, step)| {
        step.check(&case.id);
        let fault = servers.run(gateway, 1, &case.id, &complete(step))?;
        Some(format!("step {}: {fault}", at + 1))
    })
}

/// The step with what goes without saying: `GET /`, and text.
fn complete(step: &Step) -> Step {
    let answer = step.answer.as_deref().unwrap_or("200\n\nanew");
    let (status, rest) = answer.split_once('\n').unwrap_or((answer, ""));
    let has_type = answer.contains("Content-Type:") || answer == "close";
    let kind = if has_type { "" } else { "\nContent-Type: text/plain" };
    let mut complete = step.clone();
    complete.request.get_or_insert_with(|| "GET /".to_owned());
    complete.answer = Some(format!("{status}{kind}\n{rest}").trim_end_matches('\n').to_owned());
    complete
}
