//! What a run looks like as text.

use crate::sample::golden::agrees;
use crate::sample::{case, cell, without_blocks};
use weirlab::analysis::Analysis;
use weirlab::report::text;
use weirlab::result::{Run, Status};

fn small() -> Run {
    let plain = case("kong/plain-1", "http");
    let mut cells = vec![
        cell(&plain, "weir", 3, |round| 13.0 + 0.1 * f64::from(round)),
        cell(&plain, "weir (again)", 3, |round| 13.1 + 0.05 * f64::from(round)),
        cell(&plain, "nginx", 3, |round| 19.5 + 0.2 * f64::from(round)),
        without_blocks(&plain, "kong", Status::Unmeasured("it is not on this machine".to_owned())),
    ];
    cells[2].blocks[1].errors.insert("status".to_owned(), 4);
    cells[1].blocks[0].steady = Some(false);
    crate::sample::run(vec![plain], cells)
}

#[test]
fn the_text_of_a_small_run() {
    let run = small();
    agrees("tests/data/result.txt", &text::result(&run, &Analysis::of(&run))).unwrap();
}

#[test]
fn the_combined_result_counts_as_many_runs_as_there_are() {
    for rounds in [1, 2, 7] {
        let plain = case("kong/plain-1", "http");
        let run = crate::sample::run(vec![plain.clone()], vec![cell(&plain, "weir", rounds, |_| 13.0)]);
        let text = text::result(&run, &Analysis::of(&run));
        let combined = text.split("### Combined result for weir:").nth(1).unwrap();
        let p99 = combined.lines().find(|line| line.contains("P99")).unwrap();
        assert_eq!(p99.matches(',').count() + 1, rounds as usize, "{p99}");
        assert_eq!(text.matches("### Result for weir (run ").count(), rounds as usize);
    }
}

#[test]
fn a_capacity_is_reported_with_its_reservations() {
    let mut run = crate::sample::plausible();
    run.capacities[2].confirmed = false;
    let answer = text::answer(&run, &Analysis::of(&run));
    for line in [
        "kong/plain-1 http: weir holds p99=5ms up to 42000 requests/s with 1 worker.",
        "kong/plain-1 http: weir holds p99=5ms up to at least 79000 requests/s with 2 workers (limited: generator and \
         upstream had no CPU left).",
        "kong/plain-1 http: nginx holds p99=5ms up to 29000 requests/s with 1 worker (not confirmed).",
    ] {
        assert!(answer.lines().any(|printed| printed == line), "{answer}");
    }
}

#[test]
fn the_answer_opens_with_the_baseline_against_each_target() {
    let run = crate::sample::plausible();
    let answer = text::answer(&run, &Analysis::of(&run));
    let first = answer.lines().next().unwrap();
    assert!(first.starts_with("weir against nginx: 0.6"), "{first}");
    assert!(first.ends_with("less in 5."), "{first}");
    // Of Weir, too, where it is not the baseline.
    let mut other = crate::sample::plausible();
    other.baseline = "nginx".to_owned();
    other.cells.retain(|cell| !cell.control);
    let answer = text::answer(&other, &Analysis::of(&other));
    let first = answer.lines().find(|line| line.contains(" against nginx")).unwrap();
    assert!(first.starts_with("weir against nginx: 0.6") && first.ends_with("less in 5."), "{answer}");
    assert!(answer.contains("kong/plain-1 http: weir spends"), "{answer}");
    let nothing = crate::sample::run(Vec::new(), Vec::new());
    assert_eq!(
        text::answer(&nothing, &Analysis::of(&nothing)),
        "Nothing was measured that could be compared."
    );
}
