//! UDP sockets.

use super::buffer::Taken;
use super::{Network, Open, TIMEOUT, connect_text, failed, text, within};
use crate::operation::{Outcome, returned};
use mlua::UserData;
use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use tokio::net::UdpSocket;

/// What is read of a datagram unless code says otherwise: OpenResty's default.
pub(super) const DATAGRAM: usize = 8192;

/// The longest datagram that is read.
pub(super) const MAX_DATAGRAM: usize = 65_507;

/// A socket of Lua.
#[derive(Clone)]
pub(super) struct Udp(Rc<State>);

struct State {
    socket: RefCell<Option<(Rc<UdpSocket>, Open)>>,
    timeout: Cell<Duration>,
}

impl UserData for Udp {}

impl Udp {
    pub(super) fn new() -> Self {
        Self(Rc::new(State { socket: RefCell::default(), timeout: Cell::new(TIMEOUT) }))
    }

    pub(super) fn set_timeout(&self, timeout: Duration) {
        self.0.timeout.set(timeout);
    }

    fn socket(&self) -> Option<Rc<UdpSocket>> {
        self.0.socket.borrow().as_ref().map(|(socket, _)| socket.clone())
    }

    /// Sends to, and receives from, this peer.
    pub(super) async fn connect(self, (host, port): (String, u16), network: Network, open: Open) -> Outcome {
        let connected = within(self.0.timeout.get(), async {
            let address = network.clear.address(&host, port).await?;
            let any: SocketAddr = match address {
                SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
            };
            let socket = UdpSocket::bind(any).await?;
            socket.connect(address).await?;
            Ok(socket)
        });
        match connected.await {
            Ok(socket) => {
                self.0.socket.replace(Some((Rc::new(socket), open)));
                returned(1)
            }
            Err(error) => failed(connect_text(&host, &error)),
        }
    }

    /// Sends a datagram.
    pub(super) async fn send(self, bytes: Vec<u8>) -> Outcome {
        let Some(socket) = self.socket() else { return failed("closed") };
        match within(self.0.timeout.get(), socket.send(&bytes)).await {
            Ok(_) => returned(1),
            Err(error) => failed(text(&error)),
        }
    }

    /// Waits for a datagram.
    pub(super) async fn receive(self, max: usize, _taken: Taken) -> Outcome {
        let Some(socket) = self.socket() else { return failed("closed") };
        let mut datagram = vec![0; max];
        match within(self.0.timeout.get(), socket.recv(&mut datagram)).await {
            Ok(len) => {
                datagram.truncate(len);
                Box::new(move |lua| super::natives::data(lua, &datagram))
            }
            Err(error) => failed(text(&error)),
        }
    }

    pub(super) fn close(&self) -> bool {
        self.0.socket.take().is_some()
    }
}
