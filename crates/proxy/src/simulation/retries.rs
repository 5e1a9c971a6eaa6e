//! Invariants of retries: those that are too many, and those that are left out.

use super::history::{Attempt, History};
use super::invariants::{ROUNDING, earlier};
use super::plan::{Fault, Mode};
use super::world::World;
use weir_upstream::retry_budget::RetryBudgets;

/// What the window of a retry budget spans at least, in milliseconds: it is ten seconds, the last of which may have just begun.
const WINDOW: u64 = 9_000 - ROUNDING;

/// How old a request may be, in milliseconds, that counts for a retry within the last [`WINDOW`]: as long as two windows are.
const COUNTED: u64 = 20_000;

/// `retries`, and one for each idle connection that was lost before a byte of a response came.
pub(super) fn no_more_than_allowed(history: &History, attempt: &Attempt, attempts: &[Attempt]) {
    let (mut made, mut free) = (0, 0);
    for earlier in earlier(attempt, attempts) {
        made += 1;
        free += usize::from(earlier.is_reused && earlier.read == 0 && !earlier.is_refused);
    }
    let retries = history.plan.service.retries;
    if made > retries + free {
        history.breaks(
            "a request is sent again at most `retries` times, and where an idle connection was lost before a byte came",
            format_args!("request {} after {made}, of which {free} free", attempt.request),
        );
    }
}

/// Between two attempts of a request, the second is paid for, unless the first was lost with an idle connection before a byte came.
/// Counted from what targets got, because the budget's own counters agree with it whatever it allows. A connection that could not be
/// opened is no attempt here, as it is free there.
pub(super) fn no_more_than_the_budget_allows(history: &History, attempt: &Attempt, attempts: &[Attempt]) {
    if earlier(attempt, attempts).next().is_none() {
        return;
    }
    let now = attempt.begun;
    let is_paid_for = |(at, failed): &(usize, &Attempt)| {
        let is_free = failed.is_reused && failed.read == 0 && !failed.is_refused;
        let mut later = attempts[at + 1..].iter().chain([attempt]);
        !is_free && failed.begun + WINDOW >= now && later.any(|later| later.request == failed.request)
    };
    let made = attempts.iter().enumerate().filter(is_paid_for).count() as u64;
    let requests = history.requests.borrow();
    let counted = requests.iter().filter(|request| request.sent + COUNTED >= now).count() as u64;
    let allowed = match history.plan.retry_budget.unwrap_or(20) {
        0 => 0,
        percentage => (counted * percentage / 100).max(10),
    };
    if made > allowed {
        history.breaks(
            "no more requests are retried than the budget allows",
            format_args!("{made} in nine seconds, of {allowed} for {counted} requests"),
        );
    }
}

/// An idempotent request that servers say nothing to is sent again for as long as it may be. Only where all targets can be connected to and
/// none is taken out of use, so that nothing else takes retries.
pub(super) fn failures_are_retried(world: &World) {
    let history = &world.history;
    let plan = &history.plan;
    let is_reachable = |fault: &Fault| !matches!(fault.mode, Mode::Refusing | Mode::Silent);
    let is_limited = plan.limits.are_any();
    let (is_checked, is_plain) = (plan.checks.is_active || plan.checks.is_passive, !plan.is_grpc);
    let has_budget = plan.retry_budget != Some(0) && retries_of(world) < 10;
    if is_checked || is_limited || !is_plain || !has_budget || !plan.faults.iter().all(is_reachable) {
        return;
    }
    let attempts = history.attempts.borrow();
    for (id, request) in history.requests.borrow().iter().enumerate() {
        let made: Vec<_> = attempts.iter().filter(|attempt| attempt.request == id).collect();
        let is_silent = made.last().is_some_and(|attempt| attempt.read == 0);
        let has_failed = request.is_by_gateway && matches!(request.status, Some(502 | 504));
        if has_failed && request.is_bodiless && is_silent && made.len() <= plan.service.retries {
            history.breaks(
                "an idempotent request that fails is sent again",
                format_args!("request {id} after {} of {} retries", made.len() - 1, plan.service.retries),
            );
        }
    }
}

/// The retries so far that count against the budget.
fn retries_of(world: &World) -> u64 {
    let counts = world.retained.get::<RetryBudgets>().counts();
    let counted = counts.iter().flat_map(|counts| &counts.retries);
    counted
        .filter(|(reason, _)| matches!(*reason, "reset" | "timeout" | "refused"))
        .map(|(_, count)| count)
        .sum()
}
