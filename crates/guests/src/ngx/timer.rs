//! What runs later: `ngx.timer`, and `ngx.sleep`.

use crate::beside::{Beside, MAX_TASKS};
use crate::host::{Host, Origin};
use crate::namespace::{Namespace, refused};
use crate::operation::returned;
use crate::phase::Phases;
use mlua::{Function, IntoLuaMulti, Lua, MultiValue, RegistryKey, Table, Value};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// The longest delay, in seconds: some decades.
const MAX_DELAY: f64 = 1e9;

/// Adds `ngx.timer` and `ngx.sleep`.
pub(super) fn table(make: &Namespace<'_>) -> mlua::Result<Table> {
    let (timer, pending) = (make.table()?, Rc::<Cell<usize>>::default());
    let bound: Function = make.prelude.get("bound")?;
    for (name, repeats) in [("at", false), ("every", true)] {
        let (bound, pending) = (bound.clone(), pending.clone());
        let begin = move |lua: &Lua, host: &Host, (delay, args): (Value, MultiValue)| {
            let kind = Kind { name, delay: seconds(lua, name, delay)?, repeats };
            if repeats && kind.delay.is_zero() {
                return refused("delay cannot be zero");
            }
            begin(lua, host, (&bound, args), (kind, &pending))
        };
        timer.set(name, make.host(Phases::ANY, begin)?)?;
    }
    let running = |lua: &Lua, _: &Host, ()| Ok(Beside::of(lua)?.running());
    timer.set("running_count", make.host(Phases::ANY, running)?)?;
    timer.set("pending_count", make.host(Phases::ANY, move |_, _: &Host, ()| Ok(pending.get()))?)?;
    Ok(timer)
}

/// Makes `ngx.sleep`.
pub(super) fn sleeper(make: &Namespace<'_>) -> mlua::Result<Function> {
    make.waiting(make.host(Phases::ANY, sleep)?)
}

fn sleep(lua: &Lua, host: &Host, delay: Value) -> mlua::Result<bool> {
    let delay = seconds(lua, "sleep", delay)?;
    host.wait_for(async move {
        match delay.is_zero() {
            true => tokio::task::yield_now().await,
            false => tokio::time::sleep(delay).await,
        }
        returned(())
    })
}

fn seconds(lua: &Lua, function: &str, delay: Value) -> mlua::Result<Duration> {
    let kind = delay.type_name();
    match lua.coerce_number(delay)? {
        Some(number) if number >= 0.0 => Ok(Duration::from_secs_f64(number.min(MAX_DELAY))),
        Some(number) => refused(format!("bad argument #1 to '{function}' (invalid delay \"{number}\")")),
        None => refused(format!("bad argument #1 to '{function}' (number expected, got {kind})")),
    }
}

/// When a timer's function runs.
struct Kind {
    name: &'static str,
    delay: Duration,
    /// Again and again, each time so long after it has ended.
    repeats: bool,
}

fn begin(
    lua: &Lua,
    host: &Host,
    (bound, args): (&Function, MultiValue),
    (kind, pending): (Kind, &Rc<Cell<usize>>),
) -> mlua::Result<MultiValue> {
    if !args.front().is_some_and(Value::is_function) {
        return refused(format!("bad argument #2 to '{}' (Lua function expected)", kind.name));
    }
    let beside = Beside::of(lua)?;
    if !beside.serves() {
        return refused("API disabled in the context of init_by_lua*: start timers in init_worker");
    }
    if beside.node().is_ending() && !kind.delay.is_zero() {
        return (Value::Nil, "process exiting").into_lua_multi(lua);
    }
    if beside.is_full() || pending.get() >= MAX_TASKS {
        return (Value::Nil, "too many pending timers").into_lua_multi(lua);
    }
    let function = lua.create_registry_value(bound.call::<Function>(args)?)?;
    let timer =
        Timer { beside: beside.clone(), origin: host.origin(), function, kind, pending: pending.clone() };
    let first = Pending::new(pending);
    beside.spawn(timer.run(first));
    1.into_lua_multi(lua)
}

/// A function that runs later.
struct Timer {
    beside: Rc<Beside>,
    origin: Rc<Origin>,
    function: RegistryKey,
    kind: Kind,
    pending: Rc<Cell<usize>>,
}

impl Timer {
    async fn run(self, mut pending: Pending) {
        loop {
            let is_premature = self.wait().await;
            drop(pending);
            // A timer that waits is small.
            Box::pin(self.beside.run(&self.origin, &self.function, is_premature)).await;
            if !self.kind.repeats || is_premature {
                return;
            }
            pending = Pending::new(&self.pending);
        }
    }

    /// Whether the wait was cut short, because the node is about to exit.
    async fn wait(&self) -> bool {
        if self.kind.delay.is_zero() {
            return false;
        }
        tokio::select! {
            () = tokio::time::sleep(self.kind.delay) => false,
            () = self.beside.node().ending() => true,
        }
    }
}

/// A timer that waits, until this is dropped.
struct Pending(Rc<Cell<usize>>);

impl Pending {
    fn new(count: &Rc<Cell<usize>>) -> Self {
        count.set(count.get() + 1);
        Self(count.clone())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
