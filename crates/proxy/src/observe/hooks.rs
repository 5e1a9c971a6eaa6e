//! Wraps each hook: attributes panics to its plugin and, for a sampled request, measures how long it takes.

use crate::costs::{Key, Phase, PluginCost};
use crate::exchange::{Call, Exchange, Waited, WorkerSnapshot};
use crate::snapshot::chain::Instance;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use weir_analytics::cause::Cause;
use weir_model::Uuid;
use weir_plugin::{self as plugin, Flow, Hooks, LocalResponse, Resume};

/// Runs a hook.
#[inline]
pub(crate) fn hook<T>(
    instance: &Instance,
    phase: Phase,
    exchange: &mut Exchange,
    run: impl FnOnce(&dyn Hooks, &mut plugin::Exchange) -> T,
) -> T {
    if exchange.watch.on {
        let call = Call::of(instance, phase);
        return measured(call, instance, exchange, run, |call, exchange, outcome| {
            call.end(exchange);
            outcome
        });
    }
    blamed(instance, exchange, run)
}

/// Runs a hook that may wait.
#[inline]
pub(crate) fn hook_that_waits(
    instance: &Instance,
    phase: Phase,
    exchange: &mut Exchange,
    run: impl FnOnce(&dyn Hooks, &mut plugin::Exchange) -> Flow,
) -> Flow {
    if exchange.watch.on {
        return measured(Call::of(instance, phase), instance, exchange, run, Call::follow);
    }
    blamed(instance, exchange, run)
}

#[cold]
#[inline(never)]
fn measured<T>(
    mut call: Call,
    instance: &Instance,
    exchange: &mut Exchange,
    run: impl FnOnce(&dyn Hooks, &mut plugin::Exchange) -> T,
    then: impl FnOnce(Call, &mut Exchange, T) -> T,
) -> T {
    exchange.engine.absent.set(false);
    let start = Instant::now();
    let outcome = blamed(instance, exchange, run);
    call.spent = start.elapsed();
    if exchange.engine.absent.get() { outcome } else { then(call, exchange, outcome) }
}

#[inline]
fn blamed<T>(
    instance: &Instance,
    exchange: &mut Exchange,
    run: impl FnOnce(&dyn Hooks, &mut plugin::Exchange) -> T,
) -> T {
    let route = exchange.engine.route.map(|at| exchange.snapshot.routes[at as usize].entity.id);
    exchange.snapshot.ledger.activity.begin_hook(instance.id, route);
    let running = Running { instance, exchange };
    let outcome = run(&*instance.hooks, &mut running.exchange.public);
    running.exchange.snapshot.ledger.activity.end_hook();
    // Only a panic drops it.
    std::mem::forget(running);
    outcome
}

/// A hook that runs.
struct Running<'e> {
    instance: &'e Instance,
    exchange: &'e mut Exchange,
}

impl Drop for Running<'_> {
    #[cold]
    fn drop(&mut self) {
        self.exchange.snapshot.ledger.activity.end_hook();
        write(self.exchange, Some(self.instance.id), |account| account.errors.add(1));
    }
}

/// An exchange waits for a plugin, which is to blame if its future panics.
pub(crate) struct Waiter(Option<(Rc<WorkerSnapshot>, Key)>);

impl Waiter {
    pub(crate) fn new(exchange: &Exchange, plugin: Option<&Instance>) -> Self {
        Self(plugin.map(|plugin| (exchange.snapshot.clone(), key(exchange, Some(plugin.id)))))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some((held, key)) = self.0.take().filter(|_| std::thread::panicking()) {
            held.ledger.with(key, |account| account.errors.add(1));
        }
    }
}

/// A plugin has answered in the place of the upstream.
pub(crate) fn answered(exchange: &mut Exchange, plugin: Option<&Instance>, answer: &LocalResponse) {
    if let Some(plugin) = plugin {
        let number = exchange.snapshot.numbers.plugin(plugin.name);
        exchange.decision.is_by(Cause::Plugin(number));
    }
    write(exchange, plugin.map(|plugin| plugin.id), |account| {
        account.answers.add(1);
        account.errors.add(u64::from(answer.status >= 500));
    });
}

/// Records that the last byte is sent, before the log hooks. Skips tunnels, because how long they stay open is not a
/// cost.
#[inline]
pub(crate) fn finished(exchange: &Exchange) {
    if exchange.watch.stands_for > 0 && exchange.response.status != 101 {
        requests(exchange);
    }
}

#[cold]
fn requests(exchange: &Exchange) {
    let timing = exchange.timing;
    let total = timing.end.map_or(Duration::ZERO, |end| end.saturating_duration_since(timing.start));
    let asked = timing.upstream_start.zip(timing.upstream_head);
    let upstream = asked.map(|(asked, head)| head.saturating_duration_since(asked));
    let rest = total.saturating_sub(upstream.unwrap_or_default() + exchange.watch.hooks);
    let weight = u64::from(exchange.watch.stands_for);
    write(exchange, None, |account| {
        account.durations(Phase::Total).observe(total, weight);
        account.durations(Phase::Rest).observe(rest, weight);
        if let Some(upstream) = upstream {
            account.durations(Phase::Upstream).observe(upstream, weight);
        }
    });
}

fn write(exchange: &Exchange, plugin: Option<Uuid>, write: impl FnOnce(&PluginCost)) {
    let ledger = &exchange.snapshot.ledger;
    if ledger.is_kept() {
        ledger.with(key(exchange, plugin), write);
    }
}

fn key(exchange: &Exchange, plugin: Option<Uuid>) -> Key {
    Key { plugin, route: exchange.route().map(|route| route.entity.id) }
}

/// Runs the rest of a hook that has waited.
pub(crate) fn resume(exchange: &mut Exchange, resume: Resume) -> Flow {
    let Some(mut call) = exchange.take_waiting() else { return resume(&mut exchange.public) };
    let Waited { ran, waited } = call.waiting.take().map(|waited| waited.get()).unwrap_or_default();
    let start = Instant::now();
    let flow = resume(&mut exchange.public);
    call.spent += ran + start.elapsed();
    call.waited = Some(call.waited.unwrap_or_default() + waited);
    call.follow(exchange, flow)
}

impl Call {
    /// Ends where the hook does, which may have to wait.
    fn follow(mut self, exchange: &mut Exchange, flow: Flow) -> Flow {
        match flow {
            Flow::Wait(future) => {
                let waited = Rc::<Cell<Waited>>::default();
                self.waiting = Some(waited.clone());
                exchange.set_waiting(self);
                Flow::Wait(Box::pin(Waiting { future, since: Instant::now(), waited }))
            }
            flow => {
                self.end(exchange);
                flow
            }
        }
    }

    /// The name of its span, if `tracing_instrumentations` has its phase.
    fn span_name(&self, exchange: &Exchange) -> Option<String> {
        let on = exchange.engine.instrumentations()?;
        let (is_on, phase) = match self.phase {
            Phase::Rewrite => (on.plugin_rewrite, "rewrite"),
            Phase::Access => (on.plugin_access, "access"),
            Phase::Response => (on.plugin_header_filter, "header_filter"),
            _ => return None,
        };
        is_on.then(|| format!("kong.{phase}.plugin.{}", self.name))
    }

    fn end(self, exchange: &mut Exchange) {
        let spent = self.spent.saturating_sub(exchange.snapshot.ledger.overhead());
        exchange.watch.hooks += spent + self.waited.unwrap_or_default();
        let watch = exchange.watch;
        if watch.stands_for > 0 {
            let weight = u64::from(watch.stands_for);
            write(exchange, Some(self.plugin), |account| {
                account.durations(self.phase).observe(spent, weight);
                if let Some(waited) = self.waited {
                    account.waits.add(weight);
                    account.waited.add((waited.as_nanos() as u64).saturating_mul(weight));
                }
            });
        }
        if let Some(times) = exchange.times() {
            times.hook(self.phase, (self.name, self.plugin), spent + self.waited.unwrap_or_default());
        }
        if let Some(name) = self.span_name(exchange) {
            let end = Instant::now();
            let took = spent + self.waited.unwrap_or_default();
            exchange.engine.step_done(name, end.checked_sub(took).unwrap_or(end), end);
        }
        if watch.kept {
            exchange.took(self.name, spent, self.waited);
        }
    }
}

/// The future of a suspended hook. Separates the time that it runs from the time that it waits.
struct Waiting {
    future: Pin<Box<dyn Future<Output = Resume>>>,
    since: Instant,
    waited: Rc<Cell<Waited>>,
}

impl Future for Waiting {
    type Output = Resume;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Resume> {
        let start = Instant::now();
        let polled = self.future.as_mut().poll(cx);
        let ran = self.waited.get().ran + start.elapsed();
        self.waited.set(Waited { ran, waited: self.since.elapsed().saturating_sub(ran) });
        polled
    }
}
