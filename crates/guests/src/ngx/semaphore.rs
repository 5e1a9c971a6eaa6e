//! Semaphores: the module `ngx.semaphore`.

use crate::host::Host;
use crate::namespace::Namespace;
use crate::operation::returned;
use crate::phase::Phases;
use mlua::chunk::ChunkMode;
use mlua::{IntoLuaMulti, Lua, MultiValue, UserData, UserDataRef, Value};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How many permits one may have.
const MAX_PERMITS: usize = i32::MAX as usize;

/// The longest wait, in seconds.
const MAX_WAIT: f64 = 1e9;

/// A semaphore.
struct Semaphore {
    permits: Arc<tokio::sync::Semaphore>,
    waiting: Rc<Cell<usize>>,
}

impl UserData for Semaphore {}

/// One that waits, until this is dropped.
struct Waiter(Rc<Cell<usize>>);

impl Waiter {
    fn new(count: &Rc<Cell<usize>>) -> Self {
        count.set(count.get() + 1);
        Self(count.clone())
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Has `require` find the module.
pub(super) fn preload(make: &Namespace<'_>) -> mlua::Result<()> {
    make.preload("ngx.semaphore", |make| {
        let natives = make.table()?;
        let new = |_: &Lua, _: &Host, permits: f64| {
            let permits = Arc::new(tokio::sync::Semaphore::new((permits as usize).min(MAX_PERMITS)));
            Ok(Semaphore { permits, waiting: Rc::default() })
        };
        natives.set("make", make.host(Phases::ANY, new)?)?;
        natives.set("wait", make.waiting(make.host(Phases::ANY, wait)?)?)?;
        let post = |_: &Lua, _: &Host, (semaphore, count): (UserDataRef<Semaphore>, f64)| {
            let room = MAX_PERMITS - semaphore.permits.available_permits();
            semaphore.permits.add_permits((count as usize).min(room));
            Ok(())
        };
        natives.set("post", make.host(Phases::ANY, post)?)?;
        let count = |_: &Lua, _: &Host, semaphore: UserDataRef<Semaphore>| {
            Ok(semaphore.permits.available_permits() as i64 - semaphore.waiting.get() as i64)
        };
        natives.set("count", make.host(Phases::ANY, count)?)?;
        let chunk = make.lua.load(include_str!("semaphore.lua"));
        chunk.set_name("=[ngx.semaphore]").set_mode(ChunkMode::Text).call(natives)
    })
}

fn wait(
    lua: &Lua,
    host: &Host,
    (semaphore, seconds): (UserDataRef<Semaphore>, f64),
) -> mlua::Result<MultiValue> {
    if let Ok(permit) = semaphore.permits.try_acquire() {
        permit.forget();
        return (false, true).into_lua_multi(lua);
    }
    if seconds <= 0.0 {
        return (false, Value::Nil, "timeout").into_lua_multi(lua);
    }
    let (permits, waiter) = (semaphore.permits.clone(), Waiter::new(&semaphore.waiting));
    let limit = Duration::from_secs_f64(seconds.min(MAX_WAIT));
    let waits = host.wait_for(async move {
        let acquired = tokio::time::timeout(limit, permits.acquire()).await;
        drop(waiter);
        match acquired {
            Ok(Ok(permit)) => {
                permit.forget();
                returned(true)
            }
            _ => returned((None::<bool>, "timeout")),
        }
    })?;
    waits.into_lua_multi(lua)
}
