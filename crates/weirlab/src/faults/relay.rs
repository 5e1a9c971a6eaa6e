//! A relay in front of the server of counters or of the configuration, which can hold answers back.
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How late answers come: later than clients of counters wait, and much sooner than those of a database give up.
const LATE: Duration = Duration::from_millis(300);

/// A relay that runs. Dropping it ends it for new connections; those that are open end with one of their sides.
pub(super) struct Relay {
    /// Where it listens.
    pub(super) address: SocketAddr,
    delay: Arc<Delay>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Whether answers are held back, and whether one ever was.
#[derive(Default)]
struct Delay {
    is_slow: AtomicBool,
    has_acted: AtomicBool,
}

impl Delay {
    /// Holds back a piece of an answer, if that is to come late.
    fn wait(&self) {
        if self.is_slow.load(Ordering::Acquire) {
            thread::sleep(LATE);
            self.has_acted.store(true, Ordering::Release);
        }
    }
}

impl Relay {
    /// Starts it on a free port, in front of that server.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let (delay, stop) = (Arc::<Delay>::default(), Arc::<AtomicBool>::default());
        let shared = (Arc::clone(&delay), Arc::clone(&stop));
        let thread = Some(thread::spawn(move || accept(&listener, server, &shared.0, &shared.1)));
        Ok(Self { address, delay, stop, thread })
    }

    /// From now on each piece of an answer comes late, or again at once.
    pub(super) fn slow(&self, is_slow: bool) {
        self.delay.is_slow.store(is_slow, Ordering::Release);
    }

    /// Whether a piece of an answer came late.
    #[must_use]
    pub(super) fn has_acted(&self) -> bool {
        self.delay.has_acted.load(Ordering::Acquire)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // It looks at that once another connection has come.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, server: SocketAddr, delay: &Arc<Delay>, stop: &AtomicBool) {
    for client in listener.incoming().map_while(Result::ok) {
        if stop.load(Ordering::Acquire) {
            return;
        }
        // Without the server, the client sees its connection end.
        if let Ok(server) = TcpStream::connect(server) {
            // A connection that cannot be relayed ends.
            let _ = relay(client, server, delay);
        }
    }
}

fn relay(client: TcpStream, server: TcpStream, delay: &Arc<Delay>) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_server) = (client.try_clone()?, server.try_clone()?);
    let delay = Arc::clone(delay);
    thread::spawn(move || pass(from_client, to_server, || {}));
    thread::spawn(move || pass(server, client, || delay.wait()));
    Ok(())
}

/// Passes what one side sends, until either ends.
fn pass(mut from: TcpStream, mut to: TcpStream, before: impl Fn()) {
    let mut piece = [0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        before();
        if to.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    // The other side may have ended them already.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_pass_at_once_and_late() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let relay = Relay::start(server.local_addr().unwrap()).unwrap();
        let mut client = TcpStream::connect(relay.address).unwrap();
        let (mut peer, _) = server.accept().unwrap();
        let mut has_acted = false;
        for is_slow in [false, true, false] {
            relay.slow(is_slow);
            client.write_all(b"ask").unwrap();
            let (mut asked, mut answer) = ([0; 3], [0; 6]);
            peer.read_exact(&mut asked).unwrap();
            peer.write_all(b"answer").unwrap();
            client.read_exact(&mut answer).unwrap();
            assert_eq!((&asked, &answer), (b"ask", b"answer"));
            has_acted |= is_slow;
            assert_eq!(relay.has_acted(), has_acted);
        }
        drop(peer);
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "the end passes, too");
    }
}
