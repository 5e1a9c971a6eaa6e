//! Sockets that code opens: `ngx.socket`.
//!
//! What they read ahead stays outside of the VM, whose limit does not count it: all of a VM share one. So do the sockets
//! themselves, with those that are kept for others to use.

mod buffer;
mod connection;
mod natives;
mod pool;
mod tcp;
mod udp;

pub(crate) use natives::table;

use crate::operation::{Outcome, returned};
use buffer::Room;
use mlua::Lua;
use pool::Pool;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use weir_plugin::{BuildContext, Dialer, Retained};

/// How many sockets a VM has open at a time, with idle ones.
const MAX_OPEN: usize = 4096;

/// What sockets wait for unless code says otherwise: OpenResty's default.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What opens connections.
#[derive(Clone)]
pub(crate) struct Network {
    clear: Dialer,
    secure: Arc<SecureDialers>,
}

/// Dialers that verify servers, and that do not; made once for a node.
#[derive(Default)]
struct SecureDialers(OnceLock<[Result<Dialer, String>; 2]>);

impl Network {
    /// That of the node.
    pub(crate) fn of(retained: &Retained) -> Self {
        Self { clear: Dialer::new(retained.get()), secure: retained.get() }
    }

    /// Has the node's network know which authorities servers are verified against.
    pub(crate) fn prepare(build: &BuildContext<'_>) {
        let secure: Arc<SecureDialers> = build.retained.get();
        secure.0.get_or_init(|| [false, true].map(|verify| build.tls_dialer(verify, "ssl_verify = false")));
    }

    fn secure(&self, verify: bool) -> Result<Dialer, String> {
        let dialers = self.secure.0.get().ok_or("there is no TLS")?;
        dialers[usize::from(verify)].clone()
    }
}

/// The sockets of a VM.
pub(crate) struct Sockets {
    network: Network,
    pool: Rc<Pool>,
    open: Rc<Cell<usize>>,
    room: Room,
}

impl Sockets {
    /// Gives a VM its sockets: none yet.
    pub(crate) fn install(lua: &Lua, network: Network) {
        let (pool, open, room) = Default::default();
        lua.set_app_data(Rc::new(Self { network, pool, open, room }));
    }

    /// Those of the VM whose code calls a function.
    fn of(lua: &Lua) -> mlua::Result<Rc<Self>> {
        let sockets = lua.app_data_ref::<Rc<Self>>().map(|sockets| sockets.clone());
        sockets.ok_or_else(|| mlua::Error::runtime("the VM is not ready"))
    }

    /// Room for a further socket, if there is some.
    fn open(&self) -> Option<Open> {
        if self.open.get() >= MAX_OPEN && !self.pool.close_oldest() {
            return None;
        }
        self.open.set(self.open.get() + 1);
        Some(Open(self.open.clone()))
    }
}

/// A socket that counts, until it is closed.
struct Open(Rc<Cell<usize>>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// What OpenResty says of an error.
fn text(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => "timeout".to_owned(),
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset by peer".to_owned(),
        io::ErrorKind::BrokenPipe => "broken pipe".to_owned(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::NotConnected => "closed".to_owned(),
        _ => error.to_string(),
    }
}

/// Why there is no connection to a host.
fn connect_text(host: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("{host} could not be resolved ({error})"),
        _ => text(error),
    }
}

/// The outcome of a function that fails.
fn failed(why: impl Into<String>) -> Outcome {
    returned((None::<bool>, why.into()))
}

/// Waits for this long at most.
async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
