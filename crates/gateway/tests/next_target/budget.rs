//! How many retries an upstream gets.

use super::{Sent, failing};
use crate::harness::{Gateway, closed_port, document, service};
use std::sync::atomic::Ordering;

/// A metric of an upstream's retries; 0 where there is none.
pub(crate) fn metric(gateway: &Gateway, name: &str) -> u64 {
    let text = gateway.status("/metrics").text().to_owned();
    let line = text.lines().find(|line| line.starts_with(&format!("weir_upstream_{name} ")));
    line.and_then(|line| line.rsplit_once(' ')?.1.parse().ok()).unwrap_or(0)
}

#[test]
fn retries_end_with_the_budget_of_the_upstream() {
    let (upstream, asked) = failing(&Sent::all()[0]);
    let services = ["/a", "/b"].map(|path| service(path, upstream.address, "retries: 5", ""));
    let document = document(&services, "");
    let gateway = Gateway::start(&document);
    let requests = |count: usize| {
        (0..count).for_each(|at| assert_eq!(gateway.get(["/a", "/b"][at % 2]).status, 502));
    };
    requests(4);
    assert_eq!(asked.load(Ordering::SeqCst), 4 + 10, "ten retries for few requests");
    let exhausted = format!("retry_budget_exhausted_total{{upstream=\"{}\"}}", upstream.address);
    let reset = format!("retries_total{{upstream=\"{}\",reason=\"reset\"}}", upstream.address);
    assert_eq!((metric(&gateway, &reset), metric(&gateway, &exhausted)), (10, 2));
    assert!(gateway.reload(&document.replace("retries: 5", "retries: 4")).status.success());
    requests(76);
    // What counts is the last ten seconds, and this may take longer on a slow machine.
    let (retries, refused) = (metric(&gateway, &reset), metric(&gateway, &exhausted));
    assert!(retries >= 16 && refused >= 10, "{retries} of 80 were retried, {refused} were not");
    assert_eq!(asked.load(Ordering::SeqCst) as u64, 80 + retries);
    let log = gateway.log();
    let warnings = log.lines().filter(|line| line.contains("the retry budget is used up"));
    let warnings: Vec<_> = warnings.collect();
    assert!((1..=3).contains(&warnings.len()), "{} warnings", warnings.len());
    assert!(warnings[0].contains(&upstream.address.to_string()), "{}", warnings[0]);
}

/// A connection that cannot be made costs the upstream nothing.
#[test]
fn connections_that_cannot_be_made_are_no_part_of_it() {
    let (good, _) = super::answering();
    let gateway = Gateway::start(&super::over(&[closed_port(), good.address], "retries: 1"));
    (0..60).for_each(|_| assert_eq!(gateway.get("/").status, 200));
    assert_eq!(metric(&gateway, "retries_total{upstream=\"some\",reason=\"connect\"}"), 30);
}
