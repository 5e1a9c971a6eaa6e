//! What the methods `init_worker` and `configure` of a handler do on each worker, before that serves.
//!
//! A VM that takes the place of another does the same before its first call.

use super::conf::Conf;
use super::handler;
use super::hooks::DiskPlugin;
use crate::failures::Reason;
use crate::host::Origin;
use crate::node::Node;
use crate::phase::Phase;
use crate::source;
use crate::vm::Vm;
use crate::worker::Worker;
use mlua::{Table, Value};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use weir_plugin::{Exchange, Hooks, WorkerContext};

/// A plugin that has begun on the worker.
#[derive(Clone)]
struct Begun {
    plugin: &'static str,
    /// What it was last configured with, if it was.
    configs: Option<Vec<Arc<Conf>>>,
}

thread_local! {
    /// In the order in which workers call plugins.
    static BEGUN: RefCell<Vec<Begun>> = const { RefCell::new(Vec::new()) };
    /// The plugin that is being configured: those behind it will be.
    static CONFIGURING: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Loads the handler, and calls its `init_worker`.
pub(super) fn init(worker: &WorkerContext) -> Result<(), String> {
    Worker::begin(worker)?;
    Vm::begin_with(begin);
    let vm = vm(worker)?;
    BEGUN.with_borrow_mut(|begun| begun.push(Begun { plugin: worker.plugin, configs: None }));
    init_in(&vm, worker.plugin)
}

/// Calls `configure` with the configurations of all instances, or nil if there are none.
pub(super) fn configure(worker: &WorkerContext, instances: &[&dyn Hooks]) -> Result<(), String> {
    CONFIGURING.set(Some(worker.plugin));
    let vm = vm(worker);
    CONFIGURING.set(None);
    let vm = vm?;
    let own = instances.iter().filter_map(|hooks| (*hooks as &dyn Any).downcast_ref::<DiskPlugin>());
    let configs: Vec<_> = own.map(|plugin| plugin.conf.clone()).collect();
    let configured = configure_in(&vm, worker.plugin, &configs);
    BEGUN.with_borrow_mut(|begun| {
        let own = begun.iter_mut().find(|it| it.plugin == worker.plugin);
        own.into_iter().for_each(|own| own.configs = Some(configs.clone()));
    });
    configured
}

/// Has a new VM of a worker do what the one before did as it began. A plugin that is configured next is not configured with
/// what was before: `configure` runs once in each VM, and again only when the configuration changes.
fn begin(vm: &Vm) {
    if !vm.serves {
        return;
    }
    let all = BEGUN.with_borrow(Clone::clone);
    for Begun { plugin, .. } in &all {
        if let Err(error) = init_in(vm, plugin) {
            tracing::error!(plugin, "init failed: {error}");
        }
    }
    let next = CONFIGURING.get();
    for Begun { plugin, configs } in all.iter().take_while(|begun| Some(begun.plugin) != next) {
        let Some(configs) = configs else { continue };
        if let Err(error) = configure_in(vm, plugin, configs) {
            tracing::error!(plugin, "configure failed: {error}");
        }
    }
}

fn vm(worker: &WorkerContext) -> Result<Rc<Vm>, String> {
    let vm = Vm::of_thread(&worker.retained.get(), &Node::of(&worker.retained));
    vm.map_err(|error| source::message(&error))
}

fn init_in(vm: &Vm, plugin: &str) -> Result<(), String> {
    call(vm, plugin, "init_worker", Value::Nil)
}

fn configure_in(vm: &Vm, plugin: &str, configs: &[Arc<Conf>]) -> Result<(), String> {
    let tables = configs.iter().map(|conf| conf.table(&vm.lua)).collect::<mlua::Result<Vec<Table>>>();
    let list = tables.and_then(|tables| match tables.is_empty() {
        true => Ok(Value::Nil),
        false => vm.lua.create_sequence_from(tables).map(Value::Table),
    });
    call(vm, plugin, "configure", list.map_err(|error| source::message(&error))?)
}

fn call(vm: &Vm, plugin: &str, method: &str, argument: Value) -> Result<(), String> {
    let handler = handler::table(vm, plugin).inspect_err(|_| vm.failures.count(plugin, Reason::Load))?;
    let Ok(Value::Function(function)) = handler.get::<Value>(method) else { return Ok(()) };
    let origin = Rc::new(Origin { plugin: plugin.into(), id: "".into() });
    let called = vm.host.lend(&mut Exchange::vacant(), (Phase::InitWorker, &origin), || {
        function.call::<()>((handler, argument))
    });
    // What it has made is looked at now: there may be no request for long.
    vm.host.budget.prepare(&vm.lua);
    called.map_err(|error| source::message(&vm.failure(error)))
}
