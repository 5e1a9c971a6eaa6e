//! Calls of a plugin's Lua functions for an exchange.
//!
//! In the phases that may wait, a call is a coroutine. What it waits for, it yields to the host, which parks it; the exchange
//! is lent to the VM only while the coroutine runs.

use crate::failures::Reason;
use crate::host::{Host, Origin};
use crate::machine::Machine;
use crate::node::Node;
use crate::operation::Outcome;
use crate::pending::{PendingHeaders, Printed};
use crate::phase::Phase;
use crate::settings::LuaSettings;
use crate::spent::Spent;
use crate::strands::{Next, Strands};
use crate::vm::{Script, Vm};
use mlua::{Error, Function, MultiValue, Thread};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_plugin::{
    BuildContext, Exchange, Flow, Handshake, HandshakeFlow, HandshakeResume, LocalResponse, Resume,
};

/// What Kong answers when a plugin fails.
const UNEXPECTED: &str = "An unexpected error occurred";

/// What loads the functions of a plugin entity into a VM.
pub(crate) type Load = dyn Fn(&Guest, &Vm) -> mlua::Result<Script> + Send + Sync;

/// A plugin entity whose hooks are functions of Lua.
pub(crate) struct Guest {
    number: u64,
    plugin: Box<str>,
    id: Box<str>,
    settings: Arc<LuaSettings>,
    node: Node,
    load: Box<Load>,
    alive: Arc<()>,
}

impl Guest {
    /// Of this plugin and entity; VMs load its functions when they first run.
    pub(crate) fn new(
        plugin: &str,
        build: &BuildContext<'_>,
        load: impl Fn(&Guest, &Vm) -> mlua::Result<Script> + Send + Sync + 'static,
    ) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            plugin: plugin.into(),
            id: build.entity.id.to_string().into(),
            settings: build.retained.get(),
            node: Node::of_build(build),
            load: Box::new(load),
            alive: Arc::default(),
        }
    }

    pub(crate) fn plugin(&self) -> &str {
        &self.plugin
    }

    fn origin(&self) -> Origin {
        Origin { plugin: self.plugin.clone(), id: self.id.clone() }
    }

    /// Its functions, as loaded into a VM.
    pub(crate) fn script_of(&self, functions: Vec<(Phase, Function)>) -> Script {
        Script::new((Arc::downgrade(&self.alive), self.number), self.origin(), functions)
    }

    fn script(&self) -> mlua::Result<(Rc<Vm>, Rc<Script>)> {
        let vm = Vm::of_thread(&self.settings, &self.node)?;
        vm.host.budget.prepare(&vm.lua);
        let script = vm.script(self.number, |vm| (self.load)(self, vm));
        let script = script.inspect_err(|_| vm.failures.count(&self.plugin, Reason::Load))?;
        Ok((vm, script))
    }

    /// Runs the function of a phase that may wait and answer.
    pub(crate) fn run_waiting(&self, exchange: &mut Exchange, phase: Phase) -> Flow {
        if Spent::has_ended(exchange, self.number) {
            return Flow::Continue;
        }
        let begun = self.script().and_then(|(vm, script)| {
            let Some(function) = script.function(phase) else { return Ok(None) };
            let thread = vm.thread(function).inspect_err(|error| vm.note(error))?;
            let strands = Strands::new(vm.machine().clone());
            Ok(Some((Call { vm, strands, phase, script }, thread)))
        });
        match begun {
            Ok(Some((call, thread))) => call.begin(exchange, thread),
            Ok(None) => Flow::Continue,
            Err(error) => {
                self.origin().log_failure_in(exchange, phase, &error);
                failed()
            }
        }
    }

    /// Runs the function of another phase. One that fails is logged, and the request goes on. Returns whether it ran to its
    /// end.
    pub(crate) fn run(&self, exchange: &mut Exchange, phase: Phase) -> bool {
        if Spent::has_ended(exchange, self.number) {
            return false;
        }
        let ran = self.script().and_then(|(vm, script)| {
            let Some(function) = script.function(phase) else { return Ok(()) };
            let ran = vm.host.lend(exchange, (phase, &script.origin), || function.call::<()>(()));
            vm.host.answer.take();
            ended(&vm, ran, (exchange, script.guest_number))
        });
        let ran = ran.inspect_err(|error| self.origin().log_failure_in(exchange, phase, error));
        ran.is_ok()
    }

    /// Has `call` make something of the function of a phase that may not wait. None if that fails, which is logged.
    pub(crate) fn evaluate<R>(
        &self,
        exchange: &mut Exchange,
        phase: Phase,
        call: impl FnOnce(&Vm, &Function) -> mlua::Result<R>,
    ) -> Option<R> {
        if Spent::has_ended(exchange, self.number) {
            return None;
        }
        let made = self.script().and_then(|(vm, script)| {
            let Some(function) = script.function(phase) else { return Ok(None) };
            let made = vm.host.lend(exchange, (phase, &script.origin), || call(&vm, function));
            vm.host.answer.take();
            ended(&vm, made, (exchange, script.guest_number)).map(Some)
        });
        made.unwrap_or_else(|error| {
            self.origin().log_failure_in(exchange, phase, &error);
            None
        })
    }

    /// Logs that code has raised an error.
    pub(crate) fn log_error(&self, phase: Phase, message: String) {
        self.origin().log_failure(phase, &Error::RuntimeError(message));
    }

    /// Its functions in the VM of the thread, unless they cannot be loaded.
    pub(crate) fn loaded(&self) -> Option<Rc<Script>> {
        self.script().ok().map(|(_, script)| script)
    }

    /// Runs the function of a client's TLS handshake. Where it fails, the handshake goes on.
    pub(crate) fn run_certificate(&self, handshake: &mut Handshake) -> HandshakeFlow {
        let Some(host) = self.host() else { return HandshakeFlow::Continue };
        let mut exchange = Exchange::vacant();
        exchange.peer = handshake.peer;
        exchange.client_ip = handshake.client.ip();
        exchange.sni = handshake.sni.as_deref().map(Into::into);
        host.handshake.take();
        let flow = self.run_waiting(&mut exchange, Phase::Certificate);
        after_certificate(flow, (exchange, host), handshake)
    }

    /// The VM of the thread, for what a body filter leaves in it.
    pub(crate) fn host(&self) -> Option<Rc<Host>> {
        Vm::of_thread(&self.settings, &self.node).ok().map(|vm| vm.host.clone())
    }
}

/// A call that runs, or waits.
struct Call {
    /// Code of the call may ask for what the VM has, such as timers, also once another VM has its place.
    vm: Rc<Vm>,
    strands: Strands,
    phase: Phase,
    script: Rc<Script>,
}

impl Call {
    fn begin(self, exchange: &mut Exchange, thread: Thread) -> Flow {
        self.go_on(exchange, |strands| strands.resume(Next::entry(thread), |_| Ok(MultiValue::new())))
    }

    fn resume(self, exchange: &mut Exchange, next: mlua::Result<(Next, Outcome)>) -> Flow {
        self.go_on(exchange, |strands| {
            let (next, outcome) = next?;
            // Calls that wait are resumed often, and briefly: each counts.
            strands.machine.goes_on();
            strands.resume(next, outcome)
        })
    }

    fn go_on(mut self, exchange: &mut Exchange, run: impl FnOnce(&mut Strands) -> mlua::Result<()>) -> Flow {
        let host = self.vm.host.clone();
        let ran = host.lend(exchange, (self.phase, &self.script.origin), || run(&mut self.strands));
        if let Some(answer) = host.answer.take().filter(|_| ran.is_ok() || host.unwinds.get()) {
            // It takes the place of what was printed.
            Printed::take(exchange);
            return Flow::Respond(answer);
        }
        if host.leaves.get() {
            return printed(exchange, self.phase);
        }
        if let Err(error) = ended(&self.vm, ran, (exchange, self.script.guest_number)) {
            self.script.origin.log_failure_in(exchange, self.phase, &error);
            Printed::take(exchange);
            return failed();
        }
        if self.strands.have_ended() {
            return printed(exchange, self.phase);
        }
        Flow::Wait(Box::pin(self.wait()))
    }

    async fn wait(mut self) -> Resume {
        let next = self.strands.next().await;
        Box::new(move |exchange| self.resume(exchange, next))
    }
}

/// How a call for an exchange ended. Code of a guest whose call used the budget up does not run again for it.
fn ended<T>(
    machine: &Machine,
    ran: mlua::Result<T>,
    (exchange, guest): (&mut Exchange, u64),
) -> mlua::Result<T> {
    let ended = ran.map_err(|error| machine.failure(error));
    if ended.is_err() && machine.host.budget.is_exceeded() {
        Spent::end(exchange, guest);
    }
    ended
}

/// The handshake after its function has run, or waits. The VM has the wishes of another handshake meanwhile.
fn after_certificate(
    flow: Flow,
    (mut exchange, host): (Exchange, Rc<Host>),
    handshake: &mut Handshake,
) -> HandshakeFlow {
    let wishes = host.handshake.take();
    let Flow::Wait(waiting) = flow else {
        wishes.apply(handshake);
        return HandshakeFlow::Continue;
    };
    HandshakeFlow::Wait(Box::pin(async move {
        let resume = waiting.await;
        Box::new(move |handshake: &mut Handshake| {
            host.handshake.set(wishes);
            let flow = resume(&mut exchange);
            after_certificate(flow, (exchange, host), handshake)
        }) as HandshakeResume
    }))
}

/// What code has written is the response. In the phase `response` it comes before the body that is there already.
fn printed(exchange: &mut Exchange, phase: Phase) -> Flow {
    if phase == Phase::Response {
        return Flow::Continue;
    }
    let Some(Printed { text, .. }) = Printed::take(exchange) else { return Flow::Continue };
    let headers = PendingHeaders::take(exchange);
    let content_type = (!headers.has("content-type")).then_some("text/plain; charset=UTF-8");
    // Code may have set `ngx.status`.
    let status = if exchange.response.status == 0 { 200 } else { exchange.response.status };
    Flow::Respond(headers.onto(LocalResponse::raw(status, content_type, text)))
}

fn failed() -> Flow {
    let mut answer = LocalResponse::error(500, UNEXPECTED);
    answer.failed = true;
    Flow::Respond(answer)
}
