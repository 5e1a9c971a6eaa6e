//! A front that spreads connections over several gateways, byte for byte: what a network load balancer does.
mod pair;

use crate::event_loop::{Handler, Poll, Running, ServiceError, Slots, Socket, Token, bind};
use pair::{CLIENT, Next, Pair, TARGET};
use rustix::event::epoll::EventFlags;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

const SCRATCH_BYTES: usize = 64 * 1024;

/// Which target a connection goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Balance {
    /// One after the other.
    #[default]
    RoundRobin,
    /// The one with the fewest connections.
    LeastConnections,
}

/// A front that runs. Dropping it ends it.
pub struct Front {
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    pub(crate) running: Running,
}

/// Spreads what comes to these addresses over the targets, in a thread of this process.
///
/// # Errors
/// When an address is taken, or the system is out of something.
pub fn start(
    listen: &[SocketAddr],
    targets: Vec<SocketAddr>,
    balance: Balance,
) -> Result<Front, ServiceError> {
    let mut listeners = Vec::new();
    for address in listen {
        listeners.extend(bind(*address, 1)?);
    }
    let listen = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<_>>();
    let running = Running::start(vec![(listeners, Spreader::new(targets, balance))])?;
    Ok(Front { listen: listen.map_err(ServiceError::System)?, running })
}

struct Spreader {
    targets: Vec<Target>,
    balance: Balance,
    next: usize,
    pairs: Slots<Pair>,
    scratch: Vec<u8>,
}

struct Target {
    address: SocketAddr,
    connections: usize,
}

impl Spreader {
    fn new(targets: Vec<SocketAddr>, balance: Balance) -> Self {
        let targets = targets.into_iter().map(|address| Target { address, connections: 0 }).collect();
        Self { targets, balance, next: 0, pairs: Slots::new(CLIENT), scratch: vec![0; SCRATCH_BYTES] }
    }

    /// The number of the target whose turn it is.
    fn choose(&mut self) -> usize {
        let (count, first) = (self.targets.len(), self.next);
        let in_turn = (0..count).map(|offset| (first + offset) % count);
        let chosen = match self.balance {
            Balance::RoundRobin => first,
            Balance::LeastConnections => {
                in_turn.min_by_key(|number| self.targets[*number].connections).unwrap_or(first)
            }
        };
        self.next = (chosen + 1) % count;
        chosen
    }

    fn join(&mut self, poll: &Poll, client: OwnedFd) -> io::Result<()> {
        let number = self.choose();
        let target = Socket::connect(self.targets[number].address)?;
        let token = self.pairs.insert(Pair::new(Socket::accepted(client), target, number));
        self.targets[number].connections += 1;
        let Some(pair) = self.pairs.get_mut(token) else { return Ok(()) };
        let watched = poll
            .watch(&pair.client.socket, token)
            .and_then(|()| poll.watch(&pair.target.socket, token.with_kind(TARGET)));
        watched.inspect_err(|_| self.part(token))
    }

    fn part(&mut self, token: Token) {
        if let Some(pair) = self.pairs.remove(token) {
            self.targets[pair.number].connections -= 1;
        }
    }
}

impl Handler for Spreader {
    fn accepted(&mut self, poll: &mut Poll, socket: OwnedFd, _: usize) {
        // The client of a target that cannot be connected to sees its connection end.
        let _ = self.join(poll, socket);
    }

    fn ready(&mut self, poll: &mut Poll, token: Token, flags: EventFlags) {
        let Some(pair) = self.pairs.get_mut(token) else { return };
        pair.note(token.kind(), flags);
        match pair.drive(&mut self.scratch) {
            Ok(Next::Wait) => {}
            Ok(Next::Again) => poll.again(token),
            Ok(Next::Close) | Err(_) => self.part(token),
        }
    }
}
