//! Calls of a plugin's Lua functions for an exchange.
//!
//! In the phases that may wait, a call is a coroutine. What it waits for, it yields to the host, which parks it; the exchange
//! is lent to the VM only while the coroutine runs.

use crate::host::{Host, Operation, Origin, Outcome};
use crate::pending::Printed;
use crate::phase::Phase;
use crate::settings::LuaSettings;
use crate::source;
use crate::spent::Spent;
use crate::steps::OutOfSteps;
use crate::vm::{Node, Script, Vm};
use mlua::{Error, MultiValue, Thread};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use weir_plugin::{BuildContext, Exchange, Flow, LocalResponse, Resume};

/// What Kong answers when a plugin fails.
const UNEXPECTED: &str = "An unexpected error occurred";

/// What loads the functions of a plugin entity into a VM.
pub(crate) type Load = dyn Fn(&Guest, &Vm) -> mlua::Result<Script> + Send + Sync;

/// A plugin entity whose hooks are functions of Lua.
pub(crate) struct Guest {
    number: u64,
    plugin: &'static str,
    id: Box<str>,
    settings: Arc<LuaSettings>,
    node: Node,
    load: Box<Load>,
    alive: Arc<()>,
}

impl Guest {
    /// Of this plugin and entity; VMs load its functions when they first run.
    pub(crate) fn new(
        plugin: &'static str,
        build: &BuildContext<'_>,
        load: impl Fn(&Guest, &Vm) -> mlua::Result<Script> + Send + Sync + 'static,
    ) -> Self {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Self {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            plugin,
            id: build.entity.id.to_string().into(),
            settings: build.retained.get(),
            node: Node { id: build.node_id().to_string().into(), hostname: build.hostname().into() },
            load: Box::new(load),
            alive: Arc::default(),
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn plugin(&self) -> &'static str {
        self.plugin
    }

    pub(crate) fn alive(&self) -> Weak<()> {
        Arc::downgrade(&self.alive)
    }

    pub(crate) fn origin(&self) -> Origin {
        Origin { plugin: self.plugin.into(), id: self.id.clone() }
    }

    pub(crate) fn load(&self, vm: &Vm) -> mlua::Result<Script> {
        (self.load)(self, vm)
    }

    fn script(&self) -> mlua::Result<(Rc<Vm>, Rc<Script>)> {
        let vm = Vm::of_thread(&self.settings, &self.node)?;
        let script = vm.script(self)?;
        Ok((vm, script))
    }

    /// Runs the function of a phase that may wait and answer.
    pub(crate) fn run_waiting(&self, exchange: &mut Exchange, phase: Phase) -> Flow {
        if Spent::has_ended(exchange, self.number) {
            return Flow::Continue;
        }
        let begun = self.script().and_then(|(vm, script)| {
            let Some(function) = script.function(phase) else { return Ok(None) };
            let thread = vm.thread(function)?;
            Ok(Some(Call { vm, thread, phase, script }))
        });
        match begun {
            Ok(Some(call)) => call.resume(exchange, |_| Ok(MultiValue::new())),
            Ok(None) => Flow::Continue,
            Err(error) => {
                log_failure(&self.origin(), phase, &error);
                failed()
            }
        }
    }

    /// Runs the function of another phase. One that fails is logged, and the request goes on.
    pub(crate) fn run(&self, exchange: &mut Exchange, phase: Phase) {
        if Spent::has_ended(exchange, self.number) {
            return;
        }
        let ran = self.script().and_then(|(vm, script)| {
            let Some(function) = script.function(phase) else { return Ok(()) };
            let ran = vm.host.lend(exchange, (phase, &script.origin), || function.call::<()>(()));
            vm.host.answer.take();
            ended(&vm, ran, (exchange, script.guest_number))
        });
        if let Err(error) = ran {
            log_failure(&self.origin(), phase, &error);
        }
    }

    /// The VM of the thread, for what a body filter leaves in it.
    pub(crate) fn host(&self) -> Option<Rc<Host>> {
        Vm::of_thread(&self.settings, &self.node).ok().map(|vm| vm.host.clone())
    }
}

/// A coroutine that runs, or waits.
struct Call {
    vm: Rc<Vm>,
    thread: Thread,
    phase: Phase,
    script: Rc<Script>,
}

impl Call {
    fn resume(
        self,
        exchange: &mut Exchange,
        args: impl FnOnce(&mlua::Lua) -> mlua::Result<MultiValue>,
    ) -> Flow {
        let host = &self.vm.host;
        let ran = host.lend(exchange, (self.phase, &self.script.origin), || {
            let mut values = args(&self.vm.lua)?;
            loop {
                self.thread.resume::<()>(values)?;
                // A yield that asks for nothing goes on at once, within the same budget.
                if !self.thread.is_resumable() || host.is_asked() {
                    return Ok(());
                }
                values = MultiValue::new();
            }
        });
        if let Some(answer) = host.answer.take().filter(|_| ran.is_ok() || host.unwinds.get()) {
            return Flow::Respond(answer);
        }
        if host.leaves.get() {
            return Flow::Continue;
        }
        if let Err(error) = ended(&self.vm, ran, (exchange, self.script.guest_number)) {
            log_failure(&self.script.origin, self.phase, &error);
            return failed();
        }
        let operation = host.operation.take();
        match operation {
            Some(operation) => Flow::Wait(Box::pin(self.wait(operation))),
            None => {
                self.vm.put_back(self.thread);
                // What code has written is the response.
                Printed::take(exchange).map_or(Flow::Continue, printed)
            }
        }
    }

    async fn wait(self, operation: Operation) -> Resume {
        let outcome: Outcome = operation.await;
        Box::new(move |exchange| self.resume(exchange, outcome))
    }
}

/// How a call ended: with the error of a budget, if that was used up.
fn ended(vm: &Vm, ran: mlua::Result<()>, (exchange, guest): (&mut Exchange, u64)) -> mlua::Result<()> {
    let Err(error) = ran else { return Ok(()) };
    vm.host.operation.take();
    if is_of_memory(&error) {
        vm.out_of_memory();
    }
    if error.downcast_ref::<OutOfSteps>().is_some() {
        vm.host.budget.exceed();
    }
    if vm.host.budget.is_exceeded() {
        Spent::end(exchange, guest);
        let place = source::message(&error);
        let budget = source::message(&vm.host.budget.error());
        return Err(Error::runtime(if place.contains(&budget) { place } else { budget }));
    }
    Err(error)
}

fn is_of_memory(error: &Error) -> bool {
    match error {
        Error::MemoryError(_) => true,
        Error::CallbackError { cause, .. } => is_of_memory(cause),
        _ => false,
    }
}

fn log_failure(origin: &Origin, phase: Phase, error: &Error) {
    let message = source::cut(source::message(error));
    tracing::error!(
        plugin = &*origin.plugin,
        id = &*origin.id,
        phase = phase.name(),
        "Lua failed: {message}"
    );
}

fn printed(text: Vec<u8>) -> Flow {
    Flow::Respond(LocalResponse::raw(200, Some("text/plain; charset=UTF-8"), text))
}

fn failed() -> Flow {
    let mut answer = LocalResponse::error(500, UNEXPECTED);
    answer.failed = true;
    Flow::Respond(answer)
}
