//! `kong.worker_events`: events that code on one worker posts to all workers of the node.

use crate::beside::Beside;
use crate::cache::Record;
use crate::host::{Host, Origin};
use crate::namespace::{Namespace, refused};
use crate::phase::Phases;
use crate::worker::Worker;
use crate::worker_events::{Event, WorkerEvents};
use mlua::chunk::ChunkMode;
use mlua::{Function, IntoLuaMulti, Lua, LuaString, MultiValue, RegistryKey, Table, Value};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// How many bytes an event may have, with its names.
const MAX_BYTES: usize = 65_535;

/// An event as the arguments of a function.
struct Arguments(Arc<Event>);

impl IntoLuaMulti for Arguments {
    fn into_lua_multi(self, lua: &Lua) -> mlua::Result<MultiValue> {
        let Self(event) = self;
        let data = Record::read(&event.data).map_or(Ok(Value::Nil), |record| record.value(lua))?;
        let (source, name) = (lua.create_string(&event.source)?, lua.create_string(&event.name)?);
        (source, name, data, event.worker).into_lua_multi(lua)
    }
}

/// Makes `kong.worker_events`.
pub(super) fn of_workers(make: &Namespace<'_>, events: &Arc<WorkerEvents>) -> mlua::Result<Table> {
    let natives = make.table()?;
    let of = events.clone();
    natives.set("send", make.host(Phases::ANY, move |lua, _: &Host, event| send(lua, &of, event))?)?;
    let of = events.clone();
    let listen = move |lua: &Lua, host: &Host, dispatch: Function| {
        let dispatch = lua.create_registry_value(dispatch)?;
        let listener = Listener { beside: Beside::of(lua)?, origin: host.origin(), dispatch };
        let receiver = of.0.subscribe();
        listener.beside.clone().spawn(listener.run(receiver));
        Ok(())
    };
    natives.set("listen", make.host(Phases::ANY, listen)?)?;
    let chunk = make.lua.load(include_str!("events.lua")).set_name("=[kong.worker_events]");
    chunk.set_mode(ChunkMode::Text).call(natives)
}

/// Has all workers get an event.
fn send(
    lua: &Lua,
    events: &WorkerEvents,
    (source, name, data): (LuaString, LuaString, Value),
) -> mlua::Result<(bool, Option<String>)> {
    let data = match Record::write(lua, 0, &data)? {
        Ok(data) => data,
        Err(kind) => return refused(format!("cannot post a value of type {kind}")),
    };
    let (source, name) = (source.as_bytes(), name.as_bytes());
    if source.len() + name.len() + data.len() > MAX_BYTES {
        let message = format!("failed to publish event: payload exceeds the limitation ({MAX_BYTES})");
        return Ok((false, Some(message)));
    }
    let (source, name) = (source.to_vec().into(), name.to_vec().into());
    // Where nobody listens, nobody gets it.
    let _ = events.0.send(Arc::new(Event { source, name, data, worker: Worker::of_thread().index }));
    Ok((true, None))
}

/// What takes the events of one VM.
struct Listener {
    beside: Rc<Beside>,
    origin: Rc<Origin>,
    dispatch: RegistryKey,
}

impl Listener {
    async fn run(self, mut receiver: Receiver<Arc<Event>>) {
        loop {
            let received = tokio::select! {
                received = receiver.recv() => received,
                () = self.beside.node().ending() => return,
            };
            match received {
                Ok(event) => self.beside.run(&self.origin, &self.dispatch, Arguments(event)).await,
                Err(RecvError::Lagged(count)) => {
                    tracing::warn!(count, "a worker has lost events of kong.worker_events: post fewer");
                }
                Err(RecvError::Closed) => return,
            }
        }
    }
}
