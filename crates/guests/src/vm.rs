//! The VM of a worker: made when the first Lua runs there, and anew when its memory or its handles are used up.

mod debug;
pub(crate) mod files;
mod library;
mod require;
mod safety;

use crate::beside::Beside;
use crate::budget::Budget;
use crate::files::Generation;
use crate::host::{Host, Origin};
use crate::machine::{HandedOut, Machine};
use crate::node::Node;
use crate::phase::Phase;
use crate::settings::LuaSettings;
use crate::socket::Sockets;
use crate::steps::OutOfSteps;
use crate::{modules, ngx, patterns, pdk, sandbox, source};
use foldhash::HashMap;
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, Table, Value};
use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

thread_local! {
    static VM: RefCell<Option<Rc<Vm>>> = const { RefCell::new(None) };
    static BEGIN: Cell<fn(&Vm)> = const { Cell::new(|_| {}) };
}

/// A VM with what is loaded in it.
pub(crate) struct Vm {
    machine: Rc<Machine>,
    pub(crate) settings: Arc<LuaSettings>,
    /// The files that its modules come from.
    pub(crate) files: Arc<Generation>,
    pub(crate) sequence: Function,
    /// Makes a function that calls a method of a handler.
    pub(crate) method: Function,
    pub(crate) sandbox: sandbox::Sandbox,
    beside: Rc<Beside>,
    scripts: RefCell<HashMap<u64, Rc<Script>>>,
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
    /// Those of the guest with this number, which is there as long as `guest` can be upgraded.
    pub(crate) fn new(
        (guest, guest_number): (Weak<()>, u64),
        origin: Origin,
        functions: Vec<(Phase, Function)>,
    ) -> Self {
        Self { origin: Rc::new(origin), functions, guest, guest_number }
    }

    /// What runs in the phase.
    pub(crate) fn function(&self, phase: Phase) -> Option<&Function> {
        self.functions.iter().find(|(of, _)| *of == phase).map(|(_, function)| function)
    }
}

impl Deref for Vm {
    type Target = Machine;

    fn deref(&self) -> &Machine {
        &self.machine
    }
}

impl Vm {
    /// Has each new VM of this thread do this before its first call.
    pub(crate) fn begin_with(begin: fn(&Vm)) {
        BEGIN.set(begin);
    }

    /// The VM of this thread, made if there is none for these settings and their files.
    pub(crate) fn of_thread(settings: &Arc<LuaSettings>, node: &Node) -> mlua::Result<Rc<Self>> {
        if let Some(vm) = Self::known(settings) {
            return Ok(vm);
        }
        let vm = Rc::new(Self::new((settings.clone(), settings.files.current()), node)?);
        Self::replace(Some(vm.clone()));
        BEGIN.get()(&vm);
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
        let is_current = |vm: &&Rc<Self>| {
            let is_of_settings = Arc::ptr_eq(&vm.settings, settings) && settings.files.is_current(&vm.files);
            is_of_settings && !vm.is_spent()
        };
        VM.with_borrow(|vm| vm.as_ref().filter(is_current).cloned())
    }

    /// Puts a VM into the place of the thread's, whose calls beside requests end.
    fn replace(vm: Option<Rc<Self>>) {
        if let Some(former) = VM.replace(vm) {
            former.beside.end();
        }
    }

    fn new((settings, files): (Arc<LuaSettings>, Arc<Generation>), node: &Node) -> mlua::Result<Self> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let lua = safety::safe_lua()?;
        if !settings.opens_files {
            files::close(&lua)?;
        }
        patterns::install(&lua)?;
        library::install(&lua)?;
        let budget = Budget::new(&lua, settings.timeout, settings.memory);
        let host = Host::new(budget.clone());
        let any_handed_out = Rc::default();
        let prelude = prelude(&lua, &host, &any_handed_out)?;
        lua.set_app_data(node.dicts.clone());
        lua.set_app_data(node.cluster_events.clone());
        require::install(&lua, &files)?;
        let kong = pdk::table(&lua, &host, &prelude, (node, number))?;
        let ngx = ngx::table(&lua, &host, &prelude, (node, number))?;
        lua.globals().set("kong", &kong)?;
        lua.globals().set("ngx", &ngx)?;
        let sandbox = sandbox::Sandbox::new(&settings);
        lua.set_memory_limit(settings.memory)?;
        budget.watch(&lua)?;
        if node.serves {
            node.vm_sizes.add(budget.shown_memory());
        }
        Sockets::install(&lua, node.network.clone());
        let (sequence, method) = (prelude.get("sequence")?, prelude.get("method")?);
        let handed_out = HandedOut { any: any_handed_out, threads: prelude.get("handed_out")? };
        let machine = Machine::new((lua, settings.memory), host, handed_out, node);
        let beside = Beside::new(&machine, node.background.clone());
        Ok(Self { machine, settings, files, sequence, method, sandbox, beside, scripts: RefCell::default() })
    }

    /// Lua, and what calls share.
    pub(crate) fn machine(&self) -> &Rc<Machine> {
        &self.machine
    }

    /// What the VM has of a plugin entity, loaded if it is new here.
    pub(crate) fn script(
        &self,
        guest_number: u64,
        load: impl FnOnce(&Self) -> mlua::Result<Script>,
    ) -> mlua::Result<Rc<Script>> {
        if let Some(known) = self.scripts.borrow().get(&guest_number) {
            return Ok(known.clone());
        }
        // The call before may have used its budget up.
        self.host.budget.restart(Duration::ZERO);
        let script = Rc::new(load(self).inspect_err(|error| self.note(error))?);
        let mut scripts = self.scripts.borrow_mut();
        scripts.retain(|_, script| script.guest.strong_count() > 0);
        scripts.insert(guest_number, script.clone());
        Ok(script)
    }

    /// What `require` returns for a module.
    pub(crate) fn require(&self, module: &str) -> Result<Value, String> {
        let require: mlua::Result<Function> = self.lua.globals().get("require");
        let loaded = require.and_then(|require| self.load_files(|| require.call::<Value>(module)));
        loaded.map_err(|error| source::message(&error))
    }

    /// Does what loads files, which has a budget of its own.
    pub(crate) fn load_files<T>(&self, load: impl FnOnce() -> T) -> T {
        self.host.budget.prepare(&self.lua);
        self.host.budget.restart(Duration::ZERO);
        load()
    }
}

fn out_of_steps(error: &Value) -> Option<&mlua::Error> {
    error.as_error().filter(|error| error.downcast_ref::<OutOfSteps>().is_some())
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
            if let Some(error) = out_of_steps(&error) {
                of_plain.budget.exceed(source::line(error));
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
