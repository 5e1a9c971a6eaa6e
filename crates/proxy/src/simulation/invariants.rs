//! What must hold whatever happens: a function for each invariant.

use super::history::{Attempt, History};
use super::plan::{Fault, Mode, Outliers, name};
use super::world::World;
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use tokio::time::sleep;
use weir_upstream::health::{TargetStates, ejections};
use weir_upstream::limit::UpstreamLimits;
use weir_upstream::retry_budget::RetryBudgets;

/// How long after its time something may happen, because timers count milliseconds.
pub(super) const ROUNDING: u64 = 2;

/// How often what can be seen at any moment is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// What is checked when a request is sent to a target.
const BEFORE_ATTEMPT: [fn(&History, &Attempt, &[Attempt]); 6] = [
    once_unless_idempotent,
    none_after_a_response,
    no_more_than_allowed,
    within_limits,
    of_one_version,
    none_to_a_target_that_is_down,
];

/// Checks what must hold when a request is sent to a target.
pub(super) fn before_attempt(history: &History, attempt: &Attempt) {
    let attempts = history.attempts.borrow();
    BEFORE_ATTEMPT.iter().for_each(|invariant| invariant(history, attempt, &attempts));
}

/// The attempts of the same request before this one.
fn earlier<'a>(attempt: &'a Attempt, attempts: &'a [Attempt]) -> impl Iterator<Item = &'a Attempt> {
    attempts.iter().filter(|earlier| earlier.request == attempt.request)
}

fn once_unless_idempotent(history: &History, attempt: &Attempt, attempts: &[Attempt]) {
    if history.requests.borrow()[attempt.request].is_idempotent {
        return;
    }
    if let Some(earlier) = earlier(attempt, attempts).find(|earlier| !earlier.is_refused) {
        history.breaks(
            "a request that is not idempotent is sent once",
            format_args!("request {} was sent to target {} before", attempt.request, earlier.target),
        );
    }
}

fn none_after_a_response(history: &History, attempt: &Attempt, attempts: &[Attempt]) {
    if earlier(attempt, attempts).any(|earlier| earlier.has_head) {
        history.breaks(
            "a request is not sent again after a response has come",
            format_args!("request {}", attempt.request),
        );
    }
}

/// `retries`, and one for each idle connection that was lost before a byte of a response came.
fn no_more_than_allowed(history: &History, attempt: &Attempt, attempts: &[Attempt]) {
    let (mut made, mut free) = (0, 0);
    for earlier in earlier(attempt, attempts) {
        made += 1;
        free += usize::from(earlier.is_reused && earlier.read == 0);
    }
    let retries = history.plan.service.retries;
    if made > retries + free {
        history.breaks(
            "a request is sent again at most `retries` times, and where an idle connection was lost before a byte came",
            format_args!("request {} after {made}, of which {free} free", attempt.request),
        );
    }
}

fn within_limits(history: &History, attempt: &Attempt, attempts: &[Attempt]) {
    let limits = &history.plan.limits;
    let active = attempts.iter().filter(|other| other.ended.is_none() && other.request != attempt.request);
    let (all, same) = active
        .fold((1, 1), |(all, same), other| (all + 1, same + usize::from(other.target == attempt.target)));
    if limits.upstream.is_some_and(|most| all > most) || limits.target.is_some_and(|most| same > most) {
        history.breaks(
            "no more requests are in flight than the limits allow",
            format_args!("{all} to the upstream, {same} to target {}: {limits:?}", attempt.target),
        );
    }
}

fn of_one_version(history: &History, attempt: &Attempt, attempts: &[Attempt]) {
    if earlier(attempt, attempts).any(|earlier| earlier.version != attempt.version) {
        history.breaks(
            "one version of the configuration serves a request",
            format_args!("request {} in attempts", attempt.request),
        );
    }
}

/// What passive checks have found unhealthy gets no request, where nothing else could find it healthy again. Looks at statuses alone,
/// and at requests that came afterwards.
fn none_to_a_target_that_is_down(history: &History, attempt: &Attempt, _: &[Attempt]) {
    let (checks, answers) = (&history.plan.checks, history.answers.borrow());
    if !checks.is_passive || checks.is_active || history.published.borrow().len() > 1 {
        return;
    }
    let sent = history.requests.borrow()[attempt.request].sent;
    let of_target = answers.iter().rev().filter(|answer| answer.target == attempt.target);
    let failures = of_target.take_while(|answer| matches!(answer.status, 500 | 503));
    let before = failures.filter(|answer| answer.read < sent).count();
    if before >= checks.failures.into() {
        history.breaks(
            "a target that passive checks have found unhealthy gets no requests",
            format_args!("request {} to target {} after {before} failures", attempt.request, attempt.target),
        );
    }
}

/// A connection attempt was given up or ended after so long.
pub(super) fn after_connecting(history: &History, took: u64) {
    let most = history.plan.service.connect_timeout.max(history.plan.checks.timeout());
    if took > most + ROUNDING {
        history.breaks("connecting ends in time", format_args!("it took {took} ms of {most}"));
    }
}

/// Looks at what can be seen at any moment.
pub(super) async fn watch(world: Rc<World>) {
    let mut ejected = Ejected::default();
    let mut retries = vec![0];
    for look in 1_u64.. {
        sleep(LOOK).await;
        ejected.check(&world);
        if look % 5 == 0 {
            retries.push(retries_of(&world));
            retries_stay_within_the_budget(&world, &retries);
        }
    }
}

/// The targets that were ejected when it was last looked, and for which version.
#[derive(Default)]
struct Ejected {
    version: usize,
    count: usize,
}

impl Ejected {
    /// No more targets are ejected than the configuration allows; those that were before it was published may stay.
    fn check(&mut self, world: &World) {
        let history = &world.history;
        let Some(Outliers { max_share, .. }) = history.plan.outliers else { return };
        let version = history.published.borrow().len() - 1;
        let targets = &history.plan.versions[version].targets;
        let states = world.retained.get::<TargetStates>();
        let is_ejected = |target: &&usize| ejections(&states, "u", &name(**target)).0;
        let count = targets.iter().filter(is_ejected).count();
        let most = (targets.len() * max_share / 100).max(1).min(targets.len() - 1);
        if version == self.version && count > most && count > self.count {
            history.breaks(
                "no larger share of the targets is ejected than may be",
                format_args!("{count} of {} with {max_share} %", targets.len()),
            );
        }
        (self.version, self.count) = (version, count);
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

/// `totals` has the retries at the end of each second. The budget is checked when a retry is made, so it is looked at only
/// where there was one.
fn retries_stay_within_the_budget(world: &World, totals: &[u64]) {
    let history = &world.history;
    let last = totals.len() - 1;
    if totals[last] == totals[last - 1] {
        return;
    }
    let made = totals[last] - totals[last.saturating_sub(9)];
    let since = (last as u64 * 1000).saturating_sub(11_000);
    let requests = history.requests.borrow().iter().filter(|request| request.sent >= since).count() as u64;
    let allowed = match history.plan.retry_budget.unwrap_or(20) {
        0 => 0,
        percentage => (requests * percentage / 100).max(10),
    };
    if made > allowed {
        history.breaks(
            "no more requests are retried than the budget allows",
            format_args!("{made} in nine seconds, of {allowed} for {requests} requests"),
        );
    }
}

/// What is checked when all is calm again.
const AT_THE_END: [fn(&World); 9] = [
    every_request_has_ended,
    silence_ends_in_time,
    versions_are_those_of_their_time,
    targets_are_back,
    nothing_is_in_flight,
    old_versions_are_freed,
    idle_connections_are_closed,
    without_checks_there_is_always_a_target,
    failures_are_retried,
];

/// Checks what must hold when all is calm again.
pub(super) fn at_the_end(world: &World) {
    AT_THE_END.iter().for_each(|invariant| invariant(world));
}

fn every_request_has_ended(World { history, .. }: &World) {
    let open = history.requests.borrow().iter().position(|request| request.ended.is_none());
    let attempt = history.attempts.borrow().iter().position(|attempt| attempt.ended.is_none());
    if open.is_some() || attempt.is_some() {
        history.breaks(
            "every request ends in time",
            format_args!("request {open:?}, attempt {attempt:?} is open"),
        );
    }
}

/// A server that says nothing is given up after `read_timeout`, neither before nor later.
fn silence_ends_in_time(World { history, .. }: &World) {
    let (attempts, requests) = (history.attempts.borrow(), history.requests.borrow());
    let timeout = history.plan.service.read_timeout;
    for attempt in
        attempts.iter().filter(|attempt| attempt.read == 0 && requests[attempt.request].is_bodiless)
    {
        let took = attempt.ended.map_or(0, |ended| ended - attempt.begun);
        if took > timeout + ROUNDING {
            history.breaks(
                "a server that says nothing is given up in time",
                format_args!("request {} after {took} ms of {timeout}", attempt.request),
            );
        }
    }
}

/// The version that answers is one that was active while the request was served.
fn versions_are_those_of_their_time(World { history, .. }: &World) {
    let published = history.published.borrow();
    for (id, request) in history.requests.borrow().iter().enumerate() {
        let (Some(version), Some(ended)) = (request.version, request.ended) else { continue };
        let replaced = published.get(version + 1).copied().unwrap_or(u64::MAX);
        if published.get(version).is_none_or(|at| *at > ended) || replaced < request.sent {
            history.breaks(
                "a request is served by the version that was active when it came",
                format_args!("request {id}, sent at {} ms, by version {version}", request.sent),
            );
        }
    }
}

/// Every target of the last version is in use again, unless only an operator could bring it back.
fn targets_are_back(world: &World) {
    let history = &world.history;
    let states = world.retained.get::<TargetStates>();
    let checks = &history.plan.checks;
    let needs_operator = checks.is_passive && !checks.is_active;
    for target in &history.plan.versions[history.published.borrow().len() - 1].targets {
        let is_down = states.of("u", &name(*target)).is_down() && !needs_operator;
        let is_ejected = ejections(&states, "u", &name(*target)).0;
        if is_down || is_ejected {
            history.breaks(
                "a target comes back once it is healthy",
                format_args!("target {target}: down {is_down}, ejected {is_ejected}"),
            );
        }
    }
    let last = history.requests.borrow().last().and_then(|request| request.status);
    if last != Some(200) && !needs_operator {
        history.breaks("a request succeeds once all targets are healthy", format_args!("it got {last:?}"));
    }
}

fn nothing_is_in_flight(world: &World) {
    let states = world.retained.get::<TargetStates>();
    let targets = 0..world.history.plan.targets;
    let of_targets: usize = targets.map(|target| states.of("u", &name(target)).in_flight.load(SeqCst)).sum();
    let limits = world.retained.get::<UpstreamLimits>().counts();
    let of_limits: usize = limits.iter().map(|counts| counts.in_flight + counts.waiting).sum();
    let of_worker = world.worker.in_flight.get();
    if of_targets + of_limits + of_worker > 0 {
        world.history.breaks(
            "counters of requests in flight are zero when nothing is in flight",
            format_args!("targets {of_targets}, limits {of_limits}, worker {of_worker}"),
        );
    }
}

/// A snapshot is freed when its last request has ended, although clients keep their connections.
fn old_versions_are_freed(world: &World) {
    let snapshots = world.snapshots.borrow();
    let (active, old) = snapshots.split_last().unwrap();
    let kept = old.iter().filter(|old| old.strong_count() > 0).count();
    if kept > 0 || active.strong_count() == 0 {
        world.history.breaks("old versions are freed", format_args!("{kept} of {} are kept", old.len()));
    }
}

fn idle_connections_are_closed(World { history, .. }: &World) {
    let open =
        history.links.borrow().iter().filter(|link| link.is_used() && link.closed.get().is_none()).count();
    if open > 0 {
        history.breaks("connections that are idle for too long are closed", format_args!("{open} are open"));
    }
}

/// Ejection and slow start alone never leave a request without a target.
fn without_checks_there_is_always_a_target(World { history, .. }: &World) {
    let (checks, limits) = (&history.plan.checks, &history.plan.limits);
    if checks.is_active || checks.is_passive || limits.upstream.is_some() || limits.target.is_some() {
        return;
    }
    let refused = |request: &super::history::Request| request.status == Some(503) && request.is_by_gateway;
    if let Some(id) = history.requests.borrow().iter().position(refused) {
        history
            .breaks("without health checks there is always a target", format_args!("request {id} had none"));
    }
}

/// An idempotent request that servers say nothing to is sent again for as long as it may be. Only where all targets can be connected to and
/// none is taken out of use, so that nothing else takes retries.
fn failures_are_retried(world: &World) {
    let history = &world.history;
    let plan = &history.plan;
    let is_reachable = |fault: &Fault| !matches!(fault.mode, Mode::Refusing | Mode::Silent);
    let is_limited = plan.limits.upstream.is_some() || plan.limits.target.is_some();
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
