//! `kong.cluster_events`: events that code broadcasts to the other nodes of the same database.

use crate::beside::Beside;
use crate::cluster_events::{ClusterEvents, Heard};
use crate::host::{Host, Origin};
use crate::namespace::{Namespace, refused};
use crate::phase::Phases;
use crate::steps::Steps;
use foldhash::HashMap;
use mlua::{IntoLuaMulti, Lua, MultiValue, RegistryKey, Table, Value};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// What an event costs.
pub(super) const STEPS_PER_EVENT: usize = 4096;
/// How many bytes an event may have.
const MAX_BYTES: usize = 65_535;
/// The longest delay of an event, in seconds: a day.
const MAX_DELAY: f64 = 86_400.0;
/// How many subscriptions a worker may have to one channel.
const MAX_SUBSCRIPTIONS: u32 = 64;
/// How many channels a worker may have subscriptions to.
const MAX_CHANNELS: usize = 1000;

/// How many subscriptions a VM has to each channel.
type Counts = Rc<RefCell<HashMap<String, u32>>>;

/// Makes the namespace.
pub(super) fn table(make: &Namespace<'_>, events: &ClusterEvents) -> mlua::Result<Table> {
    let table = make.table()?;
    let of = events.clone();
    let broadcast = move |lua: &Lua, _: &Host, given| broadcast(lua, &of, given);
    table.set("broadcast", make.host(Phases::ANY, broadcast)?)?;
    let (of, counts) = (events.clone(), Counts::default());
    let subscribe = move |lua: &Lua, host: &Host, given| subscribe(lua, host, (&of, &counts), given);
    table.set("subscribe", make.host(Phases::ANY, subscribe)?)?;
    Ok(table)
}

/// `broadcast(channel, data, delay)`: true, or nil and why not.
fn broadcast(
    lua: &Lua,
    events: &ClusterEvents,
    (_, channel, data, delay): (Value, Value, Value, Value),
) -> mlua::Result<MultiValue> {
    let failed = |why: &str| (Value::Nil, why).into_lua_multi(lua);
    let (Value::String(channel), Value::String(data)) = (&channel, &data) else {
        let what = if channel.is_string() { "data" } else { "channel" };
        return failed(&format!("{what} must be a string"));
    };
    let Some(delay) = seconds(&delay) else { return failed("delay must be a number") };
    let bytes = channel.as_bytes().len() + data.as_bytes().len();
    if channel.as_bytes().is_empty() {
        return failed("channel is required");
    } else if bytes > MAX_BYTES {
        return failed(&format!("an event may have at most {MAX_BYTES} bytes"));
    }
    Steps::of(lua).take_many(STEPS_PER_EVENT + bytes)?;
    match events.broadcast(&channel.to_string_lossy(), &data.as_bytes(), delay) {
        Ok(()) => true.into_lua_multi(lua),
        Err(why) => failed(&why),
    }
}

/// A delay, if it is a number of seconds.
fn seconds(delay: &Value) -> Option<Duration> {
    let seconds = match delay {
        Value::Nil => 0.0,
        Value::Integer(seconds) => *seconds as f64,
        Value::Number(seconds) => *seconds,
        _ => return None,
    };
    seconds.is_finite().then(|| Duration::from_secs_f64(seconds.clamp(0.0, MAX_DELAY)))
}

/// `subscribe(channel, callback)`
fn subscribe(
    lua: &Lua,
    host: &Host,
    (events, counts): (&ClusterEvents, &Counts),
    (_, channel, callback): (Value, Value, Value),
) -> mlua::Result<bool> {
    let Value::String(channel) = channel else { return refused("channel must be a string") };
    let Value::Function(callback) = callback else { return refused("callback must be a function") };
    let (channel, mut counts) = (channel.to_string_lossy(), counts.borrow_mut());
    if !counts.contains_key(&channel) && counts.len() >= MAX_CHANNELS {
        return refused(format!("a worker has subscriptions to at most {MAX_CHANNELS} channels"));
    }
    let count = counts.entry(channel.clone()).or_default();
    if *count >= MAX_SUBSCRIPTIONS {
        return refused(format!("a worker has at most {MAX_SUBSCRIPTIONS} subscriptions to a channel"));
    }
    let beside = Beside::of(lua)?;
    if beside.serves() {
        let callback = lua.create_registry_value(callback)?;
        let subscription = Subscription { origin: host.origin(), channel, number: *count, callback };
        beside.spawn(subscription.run(beside.clone(), events.subscribe()));
    }
    *count += 1;
    Ok(true)
}

/// What takes the events of a channel. Of the workers of a node, one takes each.
struct Subscription {
    origin: Rc<Origin>,
    channel: String,
    /// Which of those of its VM to the channel it is.
    number: u32,
    callback: RegistryKey,
}

impl Subscription {
    async fn run(self, beside: Rc<Beside>, mut receiver: Receiver<Arc<Heard>>) {
        loop {
            let received = tokio::select! {
                received = receiver.recv() => received,
                () = beside.node().ending() => return,
            };
            match received {
                Ok(event) if event.channel == self.channel && event.take(self.number) => {
                    beside.run(&self.origin, &self.callback, Data(event)).await;
                }
                Ok(_) => {}
                Err(RecvError::Lagged(count)) => {
                    tracing::warn!(count, "a worker has lost events of kong.cluster_events: send fewer");
                }
                Err(RecvError::Closed) => return,
            }
        }
    }
}

/// The data of an event as the argument of a function.
struct Data(Arc<Heard>);

impl IntoLuaMulti for Data {
    fn into_lua_multi(self, lua: &Lua) -> mlua::Result<MultiValue> {
        lua.create_string(&self.0.data)?.into_lua_multi(lua)
    }
}
