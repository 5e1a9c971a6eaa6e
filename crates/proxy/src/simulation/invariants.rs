//! What must hold whatever happens: a function for each invariant.

use super::history::{Attempt, History};
use super::panics;
use super::plan::{Mode, Outliers, name};
use super::retries::{failures_are_retried, no_more_than_allowed, no_more_than_the_budget_allows};
use super::world::World;
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use tokio::time::sleep;
use weir_upstream::health::{TargetStates, ejections};
use weir_upstream::limit::UpstreamLimits;

/// How long after its time something may happen, because timers count milliseconds.
pub(super) const ROUNDING: u64 = 2;

/// How often what can be seen at any moment is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// What is checked when a request is sent to a target.
const BEFORE_ATTEMPT: [fn(&History, &Attempt, &[Attempt]); 7] = [
    once_unless_idempotent,
    none_after_a_response,
    no_more_than_allowed,
    no_more_than_the_budget_allows,
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
pub(super) fn earlier<'a>(
    attempt: &'a Attempt,
    attempts: &'a [Attempt],
) -> impl Iterator<Item = &'a Attempt> {
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
    loop {
        sleep(LOOK).await;
        ejected.check(&world);
        pools_are_no_larger_than_they_may_be(&world);
        nothing_panics(&world);
    }
}

/// Of the connections to a target that have no request, no more are kept than `upstream_keepalive_pool_size`.
fn pools_are_no_larger_than_they_may_be(World { history, .. }: &World) {
    let links = history.links.borrow();
    for target in 0..history.plan.targets {
        let idle = links.iter().filter(|link| link.target == target && link.is_idle()).count();
        if idle > history.plan.pool_size {
            history.breaks(
                "no more idle connections are kept than the pool holds",
                format_args!("{idle} to target {target} of {}", history.plan.pool_size),
            );
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

/// What is checked when all is calm again.
const AT_THE_END: [fn(&World); 11] = [
    nothing_panics,
    every_request_has_ended,
    silence_ends_in_time,
    versions_are_those_of_their_time,
    targets_are_back,
    nothing_is_in_flight,
    old_versions_are_freed,
    idle_connections_are_closed,
    without_checks_there_is_always_a_target,
    failures_are_retried,
    healthy_targets_answer,
];

/// Checks what must hold when all is calm again.
pub(super) fn at_the_end(world: &World) {
    AT_THE_END.iter().for_each(|invariant| invariant(world));
}

/// Neither within a request, whose client the gateway then answers all the same, nor in a task, whose end nothing else would show.
fn nothing_panics(World { history, .. }: &World) {
    panics::take().iter().for_each(|panic| history.breaks("nothing panics", format_args!("{panic}")));
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

/// A server that says nothing is given up after `read_timeout`, and no later.
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
    let http2 = history.http2_connections.get();
    if open + http2 > 0 {
        history.breaks(
            "connections that are idle for too long are closed",
            format_args!("{open} of HTTP/1.1 and {http2} of HTTP/2 are open"),
        );
    }
}

/// Ejection and slow start alone never leave a request without a target.
fn without_checks_there_is_always_a_target(World { history, .. }: &World) {
    let (checks, limits) = (&history.plan.checks, &history.plan.limits);
    if checks.is_active || checks.is_passive || limits.are_any() {
        return;
    }
    let refused = |request: &super::history::Request| request.status == Some(503) && request.is_by_gateway;
    if let Some(id) = history.requests.borrow().iter().position(refused) {
        history
            .breaks("without health checks there is always a target", format_args!("request {id} had none"));
    }
}

/// Where all targets are healthy, one of them answers each request that has no body. Not where passive checks look: they may find a target
/// unhealthy that is slow to take a body.
fn healthy_targets_answer(World { history, .. }: &World) {
    let plan = &history.plan;
    let is_healthy = plan.faults.iter().all(|fault| fault.mode == Mode::Healthy);
    if plan.is_grpc || plan.limits.are_any() || plan.checks.is_passive || !is_healthy {
        return;
    }
    for (id, request) in history.requests.borrow().iter().enumerate() {
        let is_answered = request.status == Some(200) && !request.is_by_gateway && request.is_whole;
        let is_due = request.is_bodiless && !request.has_left && !met_a_closing_connection(history, id);
        if is_due && !is_answered {
            let (status, is_whole) = (request.status, request.is_whole);
            history.breaks(
                "healthy targets answer every request",
                format_args!("request {id} got {status:?}, whole: {is_whole}"),
            );
        }
    }
}

/// Whether a request was sent on an idle connection that its target no longer listened to, and closed only after `read_timeout`.
fn met_a_closing_connection(history: &History, id: usize) -> bool {
    let timeout = history.plan.service.read_timeout;
    let took = |attempt: &Attempt| attempt.ended.map_or(0, |ended| ended - attempt.begun);
    let is_silent = |attempt: &Attempt| attempt.is_reused && attempt.read == 0 && took(attempt) >= timeout;
    history.attempts.borrow().iter().any(|attempt| attempt.request == id && is_silent(attempt))
}
