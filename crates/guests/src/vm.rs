//! The VM of a worker: made when the first Lua runs there, and anew when its memory is used up.

mod debug;
mod files;
mod library;
mod require;
mod safety;

use crate::beside::Beside;
use crate::budget::Budget;
use crate::call::Guest;
use crate::dicts::Dicts;
use crate::disk::{self, Generation};
use crate::failures::Failures;
use crate::host::{Host, Origin};
use crate::pdk::events::WorkerEvents;
use crate::phase::Phase;
use crate::settings::{LuaSettings, NodeConfiguration};
use crate::socket::{Network, Sockets};
use crate::steps::OutOfSteps;
use crate::{modules, ngx, patterns, pdk, sandbox, source};
use foldhash::HashMap;
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, Table, Thread, Value};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use weir_plugin::{
    Background, BuildContext, EntityDatabase, NodeId, NodeStatistics, RequestRecord, Retained, Vaults,
};

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
    /// The files that its modules come from.
    pub(crate) files: Arc<Generation>,
    /// Whether it is that of a worker.
    pub(crate) serves: bool,
    pub(crate) sequence: Function,
    /// Makes a function that calls a method of a handler.
    pub(crate) method: Function,
    pub(crate) sandbox: sandbox::Sandbox,
    /// What runs beside requests.
    pub(crate) beside: Rc<Beside>,
    pub(crate) sockets: Rc<Sockets>,
    pub(crate) failures: Failures,
    threads: RefCell<Vec<Thread>>,
    /// Coroutines that code has handles of, once there are any.
    handed_out: HandedOut,
    scripts: RefCell<HashMap<u64, Rc<Script>>>,
}

/// Coroutines that code has handles of.
struct HandedOut {
    any: Rc<Cell<bool>>,
    threads: Table,
}

impl HandedOut {
    fn has(&self, thread: &Thread) -> bool {
        self.any.get() && self.threads.raw_get(thread).unwrap_or(true)
    }
}

/// What code learns of the node.
#[derive(Clone)]
pub(crate) struct Node {
    /// Its id.
    pub(crate) id: Arc<str>,
    /// The name of its machine.
    pub(crate) hostname: Arc<str>,
    /// Where its entities are.
    pub(crate) database: Arc<EntityDatabase>,
    /// What says that it is about to exit.
    pub(crate) background: Arc<Background>,
    /// What opens connections to other servers.
    pub(crate) network: Network,
    /// Its folder.
    pub(crate) prefix: Arc<str>,
    /// What counts calls that ended early.
    pub(crate) failures: Failures,
    /// Its settings.
    pub(crate) configuration: Arc<NodeConfiguration>,
    /// What writes the record of a request.
    pub(crate) record: Arc<RequestRecord>,
    /// Where secrets are kept.
    pub(crate) vaults: Arc<Vaults>,
    /// What its workers post to each other.
    pub(crate) events: Arc<WorkerEvents>,
    /// What its workers share.
    pub(crate) dicts: Arc<Dicts>,
    /// What it has served.
    pub(crate) statistics: Arc<NodeStatistics>,
    /// Whether it serves requests.
    pub(crate) serves: bool,
}

impl Node {
    /// The node whose state this is, on this machine.
    pub(crate) fn of(retained: &Retained) -> Self {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            id: retained.get::<NodeId>().0.to_string().into(),
            hostname: name.trim().into(),
            prefix: retained.get::<LuaSettings>().prefix.as_str().into(),
            database: retained.get(),
            background: retained.get(),
            network: Network::of(retained),
            failures: Failures::of(retained),
            configuration: retained.get(),
            record: retained.get(),
            vaults: retained.get(),
            events: retained.get(),
            dicts: Dicts::of(retained),
            statistics: retained.get(),
            serves: true,
        }
    }

    /// The node that a plugin is built for.
    pub(crate) fn of_build(build: &BuildContext<'_>) -> Self {
        Network::prepare(build);
        Self::of(build.retained)
    }

    /// A node that serves nothing: what it runs reads plugins.
    pub(crate) fn reading() -> Self {
        Self { serves: false, ..Self::of(&Retained::default()) }
    }
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
    /// The VM of this thread, made if there is none for these settings and their files.
    pub(crate) fn of_thread(settings: &Arc<LuaSettings>, node: &Node) -> mlua::Result<Rc<Self>> {
        if let Some(vm) = Self::known(settings) {
            return Ok(vm);
        }
        let vm = Rc::new(Self::new((settings.clone(), settings.files.current()), node)?);
        vm.lua.set_app_data(Rc::downgrade(&vm));
        Self::replace(Some(vm.clone()));
        disk::begin(&vm);
        Ok(vm)
    }

    /// The same, made for a node that serves nothing if there is none.
    pub(crate) fn reading(settings: &Arc<LuaSettings>) -> mlua::Result<Rc<Self>> {
        match Self::known(settings) {
            Some(vm) => Ok(vm),
            None => Self::of_thread(settings, &Node::reading()),
        }
    }

    fn known(settings: &Arc<LuaSettings>) -> Option<Rc<Self>> {
        let is_current =
            |vm: &&Rc<Self>| Arc::ptr_eq(&vm.settings, settings) && settings.files.is_current(&vm.files);
        VM.with_borrow(|vm| vm.as_ref().filter(is_current).cloned())
    }

    /// Puts a VM into the place of the thread's, whose calls beside requests end.
    fn replace(vm: Option<Rc<Self>>) {
        if let Some(former) = VM.replace(vm) {
            former.beside.end();
        }
    }

    /// The VM whose code calls a function.
    pub(crate) fn of(lua: &Lua) -> mlua::Result<Rc<Self>> {
        let vm = lua.app_data_ref::<std::rc::Weak<Self>>().and_then(|vm| vm.upgrade());
        vm.ok_or_else(|| mlua::Error::runtime("the VM is not ready"))
    }

    fn new((settings, files): (Arc<LuaSettings>, Arc<Generation>), node: &Node) -> mlua::Result<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let lua = safety::safe_lua()?;
        patterns::install(&lua)?;
        library::install(&lua)?;
        let budget = Budget::new(&lua, settings.timeout, settings.memory);
        let host = Host::new(budget.clone());
        let any_handed_out = Rc::default();
        let prelude = prelude(&lua, &host, &any_handed_out)?;
        lua.set_app_data(node.dicts.clone());
        require::install(&lua, &files)?;
        let kong = pdk::table(&lua, &host, &prelude, (node, number))?;
        let ngx = ngx::table(&lua, &host, &prelude, (node, number))?;
        lua.globals().set("kong", &kong)?;
        lua.globals().set("ngx", &ngx)?;
        let sandbox = sandbox::Sandbox::new(&settings);
        lua.set_memory_limit(settings.memory)?;
        budget.watch(&lua)?;
        let (sequence, method) = (prelude.get("sequence")?, prelude.get("method")?);
        let handed_out = HandedOut { any: any_handed_out, threads: prelude.get("handed_out")? };
        let beside = Beside::new(node.background.clone());
        let sockets = Sockets::new(node.network.clone());
        let (threads, scripts) = Default::default();
        let serves = node.serves;
        let failures = node.failures.clone();
        Ok(Self {
            lua,
            host,
            settings,
            files,
            serves,
            sequence,
            method,
            sandbox,
            beside,
            sockets,
            failures,
            threads,
            handed_out,
            scripts,
        })
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

    /// Does what loads files, which has a budget of its own.
    pub(crate) fn load_files<T>(&self, load: impl FnOnce() -> T) -> T {
        self.host.budget.restart(Duration::ZERO);
        load()
    }

    /// A coroutine that runs the function.
    pub(crate) fn thread(&self, function: &Function) -> mlua::Result<Thread> {
        let idle = self.threads.borrow_mut().pop();
        match idle {
            Some(thread) => thread.reset(function.clone()).map(|()| thread),
            None => self.lua.create_thread(function.clone()),
        }
    }

    /// Takes a coroutine back that has ended, unless code could resume it when it runs other code.
    pub(crate) fn put_back(&self, thread: Thread) {
        if self.handed_out.has(&thread) {
            return;
        }
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
            Self::replace(None);
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

fn prelude(lua: &Lua, host: &Rc<Host>, any_handed_out: &Rc<Cell<bool>>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let any = any_handed_out.clone();
    let hands_out = move |_: &Lua, ()| {
        any.set(true);
        Ok(())
    };
    table.set("hands_out", lua.create_function(hands_out)?)?;
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
    let of_waiting = host.clone();
    table.set("check_waiting", lua.create_function(move |_, ()| of_waiting.check_waiting())?)?;
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
