//! What runs beside requests: functions of Lua on the worker, each in a coroutine of its own, with no request.
//!
//! Their phase is `timer`. Each resume of the coroutine has a budget of its own. They take turns: after one has worked for
//! long, requests have as much time before the next goes on.

use crate::host::Origin;
use crate::machine::Machine;
use crate::operation::Outcome;
use crate::phase::Phase;
use crate::spent::Spent;
use crate::strands::{Next, Strands};
use mlua::{Function, IntoLuaMulti, Lua, MultiValue, RegistryKey};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use weir_plugin::{Background, Exchange};

/// How many may run at a time. Others wait.
const MAX_RUNNING: usize = 4096;

/// How many tasks a worker has beside its requests.
pub(crate) const MAX_TASKS: usize = 16_384;

/// Shorter pauses are saved up.
const MIN_PAUSE: Duration = Duration::from_millis(2);

/// How long they may go on after the node has begun to exit.
const GRACE: Duration = Duration::from_secs(10);

/// What runs beside the requests of a VM.
pub(crate) struct Beside {
    machine: Rc<Machine>,
    node: Arc<Background>,
    tasks: RefCell<JoinSet<()>>,
    count: Cell<usize>,
    running: Semaphore,
    turns: Semaphore,
    /// The CPU time that requests have not had in return yet.
    debt: Cell<Duration>,
}

impl Beside {
    /// Nothing yet.
    pub(crate) fn new(machine: &Rc<Machine>, node: Arc<Background>) -> Rc<Self> {
        let (running, turns) = (Semaphore::new(MAX_RUNNING), Semaphore::new(1));
        let (tasks, count, debt) = Default::default();
        let machine = machine.clone();
        let beside = Rc::new(Self { machine, node, tasks, count, running, turns, debt });
        beside.machine.lua.set_app_data(Rc::downgrade(&beside));
        beside
    }

    /// That of the VM whose code calls a function.
    pub(crate) fn of(lua: &Lua) -> mlua::Result<Rc<Self>> {
        let beside = lua.app_data_ref::<Weak<Self>>().and_then(|beside| beside.upgrade());
        beside.ok_or_else(|| mlua::Error::runtime("the VM is not ready"))
    }

    /// Whether the VM is that of a worker.
    pub(crate) fn serves(&self) -> bool {
        self.machine.serves
    }

    /// The node, which may be about to exit.
    pub(crate) fn node(&self) -> &Arc<Background> {
        &self.node
    }

    /// How many functions run, or wait for something.
    pub(crate) fn running(&self) -> usize {
        MAX_RUNNING - self.running.available_permits()
    }

    /// Whether there may be no further task.
    pub(crate) fn is_full(&self) -> bool {
        self.count.get() >= MAX_TASKS
    }

    /// Runs a task on the worker. It ends with the VM. The node waits for it some time before it exits.
    pub(crate) fn spawn(self: &Rc<Self>, task: impl Future<Output = ()> + 'static) {
        let task = Counted::new(self).around(task);
        let mut tasks = self.tasks.borrow_mut();
        while tasks.try_join_next().is_some() {}
        tasks.spawn_local(task);
    }

    /// Runs a function beside requests, for the plugin entity whose code asked for it, and returns what it returns.
    ///
    /// Await this in a task that [`Beside::spawn`] has begun. The function may wait for operations as one that runs for a
    /// request.
    pub(crate) async fn call(
        &self,
        origin: &Rc<Origin>,
        function: &RegistryKey,
        args: impl IntoLuaMulti + 'static,
    ) -> mlua::Result<MultiValue> {
        // It is never closed.
        let _permit = self.running.acquire().await;
        let machine = &self.machine;
        let function: Function = machine.lua.registry_value(function)?;
        let thread = machine.lua.create_registry_value(machine.thread(&function)?)?;
        drop(function);
        let strands = Strands::new(machine.clone());
        let call = Call { beside: self, strands, origin, exchange: Exchange::vacant() };
        call.run(thread, Box::new(|lua| args.into_lua_multi(lua))).await
    }

    /// The same for a function whose failure is logged.
    pub(crate) async fn run(
        &self,
        origin: &Rc<Origin>,
        function: &RegistryKey,
        args: impl IntoLuaMulti + 'static,
    ) {
        if let Err(error) = self.call(origin, function, args).await {
            origin.log_failure(Phase::Timer, &error);
        }
    }

    /// How long requests go first, after a function has worked for so long.
    fn owes(&self, worked: Duration) -> Option<Duration> {
        let debt = self.debt.get() + worked;
        self.debt.set(if debt < MIN_PAUSE { debt } else { Duration::ZERO });
        (debt >= MIN_PAUSE).then_some(debt)
    }

    /// Ends all.
    pub(crate) fn end(&self) {
        self.tasks.borrow_mut().abort_all();
    }
}

/// A task that counts, until it is dropped.
struct Counted(Rc<Beside>);

impl Counted {
    fn new(beside: &Rc<Beside>) -> Self {
        beside.count.set(beside.count.get() + 1);
        beside.node.begin();
        Self(beside.clone())
    }

    async fn around(self, task: impl Future<Output = ()>) {
        let over = async {
            self.0.node.ending().await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            () = task => {}
            () = over => tracing::warn!(
                "Lua code that runs beside requests was ended after {} s, because the node exits",
                GRACE.as_secs()
            ),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
        self.0.node.end();
    }
}

/// A call that runs beside requests, or waits.
struct Call<'a> {
    beside: &'a Beside,
    strands: Strands,
    origin: &'a Rc<Origin>,
    exchange: Exchange,
}

impl Call<'_> {
    async fn run(mut self, thread: RegistryKey, args: Outcome) -> mlua::Result<MultiValue> {
        let mut next = Next::entry(self.strands.machine.lua.registry_value(&thread)?);
        let mut values = args;
        drop(thread);
        loop {
            self.take_turn(next, values).await?;
            if self.strands.have_ended() {
                return Ok(self.strands.returned);
            }
            (next, values) = self.strands.next().await?;
        }
    }

    async fn take_turn(&mut self, next: Next, values: Outcome) -> mlua::Result<()> {
        let beside = self.beside;
        let _turn = beside.turns.acquire().await;
        let resumed = self.resume(next, values);
        if let Some(pause) = beside.owes(beside.machine.host.budget.spent()) {
            tokio::time::sleep(pause).await;
        }
        resumed
    }

    fn resume(&mut self, next: Next, values: Outcome) -> mlua::Result<()> {
        let host = self.strands.machine.host.clone();
        Spent::forget(&mut self.exchange);
        let ran = host.lend(&mut self.exchange, (Phase::Timer, self.origin), || {
            self.strands.machine.goes_on();
            self.strands.resume(next, values)
        });
        ran.map_err(|error| self.strands.machine.failure(error))
    }
}
