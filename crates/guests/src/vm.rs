//! The VM of a worker: made when the first Lua runs there, and anew when its memory is used up.

mod files;
mod library;
mod require;
mod safety;

use crate::budget::Budget;
use crate::call::Guest;
use crate::host::{Host, Origin};
use crate::phase::Phase;
use crate::settings::LuaSettings;
use crate::steps::OutOfSteps;
use crate::{modules, ngx, patterns, pdk, sandbox, source};
use foldhash::HashMap;
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, Table, Thread, Value};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How many coroutines wait for their next call.
const MAX_IDLE_THREADS: usize = 64;

/// A VM whose heap is fuller than this after a collection makes place for another, in percent of its limit.
const FULL_PERCENT: usize = 90;

thread_local! {
    static VM: RefCell<Option<Rc<Vm>>> = const { RefCell::new(None) };
}

/// A VM with what is loaded in it.
pub(crate) struct Vm {
    pub(crate) lua: Lua,
    pub(crate) host: Rc<Host>,
    pub(crate) settings: Arc<LuaSettings>,
    pub(crate) sequence: Function,
    pub(crate) sandbox: sandbox::Sandbox,
    threads: RefCell<Vec<Thread>>,
    scripts: RefCell<HashMap<u64, Rc<Script>>>,
}

/// What code learns of the node.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Its id.
    pub(crate) id: Arc<str>,
    /// The name of its machine.
    pub(crate) hostname: Arc<str>,
}

/// The functions of one plugin entity in one VM.
pub(crate) struct Script {
    pub(crate) origin: Rc<Origin>,
    functions: Vec<(Phase, Function)>,
    guest: Weak<()>,
    /// The number of the guest.
    pub(crate) guest_number: u64,
}

impl Script {
    pub(crate) fn new(guest: &Guest, functions: Vec<(Phase, Function)>) -> Self {
        Self {
            origin: Rc::new(guest.origin()),
            functions,
            guest: guest.alive(),
            guest_number: guest.number(),
        }
    }

    /// What runs in the phase.
    pub(crate) fn function(&self, phase: Phase) -> Option<&Function> {
        self.functions.iter().find(|(of, _)| *of == phase).map(|(_, function)| function)
    }
}

impl Vm {
    /// The VM of this thread, made if there is none for these settings.
    pub(crate) fn of_thread(settings: &Arc<LuaSettings>, node: &Node) -> mlua::Result<Rc<Self>> {
        let known = VM.with_borrow(|vm| vm.clone());
        if let Some(vm) = known.filter(|vm| Arc::ptr_eq(&vm.settings, settings)) {
            return Ok(vm);
        }
        let vm = Rc::new(Self::new(settings.clone(), node)?);
        VM.set(Some(vm.clone()));
        Ok(vm)
    }

    fn new(settings: Arc<LuaSettings>, node: &Node) -> mlua::Result<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let lua = safety::safe_lua()?;
        patterns::install(&lua)?;
        library::install(&lua)?;
        let budget = Budget::new(&lua, settings.timeout);
        let host = Host::new(budget.clone());
        let prelude = prelude(&lua, &host)?;
        require::install(&lua)?;
        let kong = pdk::table(&lua, &host, &prelude, (node, number))?;
        let ngx = ngx::table(&lua, &host, &prelude, number)?;
        lua.globals().set("kong", &kong)?;
        lua.globals().set("ngx", &ngx)?;
        let sandbox = sandbox::Sandbox::new(&lua, &settings)?;
        lua.set_memory_limit(settings.memory)?;
        budget.watch(&lua)?;
        let sequence = prelude.get("sequence")?;
        let (threads, scripts) = Default::default();
        Ok(Self { lua, host, settings, sequence, sandbox, threads, scripts })
    }

    /// What the VM has of a plugin entity, loaded if it is new here.
    pub(crate) fn script(&self, guest: &Guest) -> mlua::Result<Rc<Script>> {
        if let Some(known) = self.scripts.borrow().get(&guest.number()) {
            return Ok(known.clone());
        }
        // The call before may have used its budget up.
        self.host.budget.restart(Duration::ZERO);
        let script = Rc::new(guest.load(self)?);
        let mut scripts = self.scripts.borrow_mut();
        scripts.retain(|_, script| script.guest.strong_count() > 0);
        scripts.insert(guest.number(), script.clone());
        Ok(script)
    }

    /// A coroutine that runs the function.
    pub(crate) fn thread(&self, function: &Function) -> mlua::Result<Thread> {
        let idle = self.threads.borrow_mut().pop();
        match idle {
            Some(thread) => thread.reset(function.clone()).map(|()| thread),
            None => self.lua.create_thread(function.clone()),
        }
    }

    /// Takes a coroutine back that has ended.
    pub(crate) fn put_back(&self, thread: Thread) {
        let mut threads = self.threads.borrow_mut();
        if threads.len() < MAX_IDLE_THREADS {
            threads.push(thread);
        }
    }

    /// The memory of the VM was used up: frees what it can, and leaves the place to another if that is not enough.
    pub(crate) fn out_of_memory(&self) {
        // A collection that fails has freed what it could.
        let _ = self.lua.gc_collect();
        if self.lua.used_memory() > self.settings.memory / 100 * FULL_PERCENT {
            VM.set(None);
        }
    }
}

/// Source code as a function with these globals. The name is what errors say before the line.
pub(crate) fn compile(lua: &Lua, code: &str, name: &str, env: Table) -> mlua::Result<Function> {
    lua.load(code).set_name(name).set_mode(ChunkMode::Text).set_environment(env).into_function()
}

fn is_out_of_steps(error: &Value) -> bool {
    error.as_error().is_some_and(|error| error.downcast_ref::<OutOfSteps>().is_some())
}

fn prelude(lua: &Lua, host: &Rc<Host>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let of_plain = host.clone();
    table.set(
        "plain",
        lua.create_function(move |lua, error: Value| {
            if is_out_of_steps(&error) {
                of_plain.budget.exceed();
            }
            match of_plain.must_end() {
                true => Err(mlua::Error::runtime("the call ends")),
                false => source::plain(lua, error),
            }
        })?,
    )?;
    let of_unwind = host.clone();
    table.set(
        "unwind",
        lua.create_function(move |_, ()| -> mlua::Result<()> {
            of_unwind.unwinds.set(true);
            Err(mlua::Error::runtime("the call ends"))
        })?,
    )?;
    let chunk = lua.load(include_str!("vm/prelude.lua")).set_name("=[host]").set_mode(ChunkMode::Text);
    chunk.call::<()>(&table)?;
    Ok(table)
}

/// A module that is part of the host.
pub(crate) fn module(lua: &Lua, name: &str) -> mlua::Result<Option<Value>> {
    modules::load(lua, name)
}
