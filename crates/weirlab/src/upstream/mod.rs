//! The upstream that targets are put in front of: fixed or templated responses, delays, mixes of statuses; over HTTP/2 as
//! well, gRPC calls, WebSocket echoes; raw epoll.
mod answer;
mod connection;
mod echo;
mod frame;
mod http2;
mod pace;
mod server;
mod stream;

pub use answer::Answers;
pub use pace::{Delay, Stall};

use crate::event_loop::{Running, ServiceError, bind};
use server::Server;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Instant;

/// What an upstream does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where it listens; port 0 takes a free one.
    pub listen: Vec<SocketAddr>,
    /// Where it listens with TLS.
    pub listen_tls: Vec<SocketAddr>,
    /// How many threads serve; with several, the kernel deals connections to them by hash.
    pub threads: usize,
    /// What it answers.
    pub answers: Answers,
    /// How long it holds answers back.
    pub delay: Option<Delay>,
    /// How many answers each thread works on at a time; others wait for these. Without a delay it has no effect.
    pub at_once: Option<usize>,
    /// How long it waits after each chunk of a body. Beside `at_once` it has no effect.
    pub event_pause: Option<Delay>,
    /// When it freezes.
    pub stall: Option<Stall>,
    /// The seed of every random choice.
    pub seed: u64,
}

/// An upstream that runs. Dropping it ends it.
pub struct Upstream {
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// Where it listens with TLS.
    pub listen_tls: Vec<SocketAddr>,
    pub(crate) running: Running,
}

/// Starts an upstream in threads of this process.
///
/// # Errors
/// When an address is taken, or the system is out of something.
pub fn start(plan: Plan) -> Result<Upstream, ServiceError> {
    let tls = if plan.listen_tls.is_empty() { None } else { Some(stream::self_signed()?) };
    let mut shares: Vec<Vec<TcpListener>> = (0..plan.threads).map(|_| Vec::new()).collect();
    let mut addresses = Vec::new();
    for address in plan.listen.iter().chain(&plan.listen_tls) {
        let listeners = bind(*address, plan.threads)?;
        addresses.push(listeners[0].local_addr().map_err(ServiceError::System)?);
        shares.iter_mut().zip(listeners).for_each(|(share, listener)| share.push(listener));
    }
    let listen_tls = addresses.split_off(plan.listen.len());
    let (plan, started) = (Arc::new(plan), Instant::now());
    let servers = (0..)
        .zip(shares)
        .map(|(thread, share)| (share, Server::new(Arc::clone(&plan), tls.clone(), started, thread)));
    let running = Running::start(servers.collect())?;
    Ok(Upstream { listen: addresses, listen_tls, running })
}
