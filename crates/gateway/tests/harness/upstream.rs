//! An upstream that a test scripts.
use super::http::Peer;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

/// Runs a closure on a thread of its own for each connection, until dropped.
pub struct Upstream {
    /// Where it listens.
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
    closing: Arc<AtomicBool>,
}

impl Upstream {
    /// Starts; the closure is given each connection, and its number counted from 0.
    pub fn start(serve: impl Fn(Peer, usize) + Send + Sync + 'static) -> Upstream {
        Upstream::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), serve)
    }

    /// The same at an address, whose port is free.
    pub fn start_at(address: SocketAddr, serve: impl Fn(Peer, usize) + Send + Sync + 'static) -> Upstream {
        let listener = TcpListener::bind(address).expect("a free port");
        let address = listener.local_addr().unwrap();
        let (connections, closing) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, ended, serve) = (connections.clone(), closing.clone(), Arc::new(serve));
        thread::spawn(move || {
            for stream in listener.incoming().flatten().take_while(|_| !ended.load(Ordering::SeqCst)) {
                let (number, serve) = (counted.fetch_add(1, Ordering::SeqCst), serve.clone());
                thread::spawn(move || serve(Peer::new(stream), number));
            }
        });
        Upstream { address, connections, closing }
    }

    /// Answers every request of every connection with the same bytes.
    pub fn answering(response: &str) -> Upstream {
        let response = response.to_owned();
        Upstream::start(move |mut peer, _| {
            while peer.request().is_some() {
                peer.send(&response);
            }
        })
    }

    /// Answers every request with the same bytes, once who asks is let go: each is told of by what lets it go.
    pub fn holding(response: &str) -> (Upstream, mpsc::Receiver<mpsc::Sender<()>>) {
        let (response, (asked, all)) = (response.to_owned(), mpsc::channel());
        let upstream = Upstream::start(move |mut peer, _| {
            while peer.request().is_some() {
                let (go, wait) = mpsc::channel();
                asked.send(go).unwrap();
                let () = wait.recv().unwrap();
                peer.send(&response);
            }
        });
        (upstream, all)
    }

    /// Answers every request with its own head and body, as text.
    pub fn echoing() -> Upstream {
        Upstream::start(|mut peer, _| {
            while let Some(request) = peer.request() {
                let fields: String =
                    request.head.fields.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
                let body =
                    format!("{}\n{fields}\n{}", request.head.start, String::from_utf8_lossy(&request.body));
                peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
            }
        })
    }

    /// How many connections were made so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::SeqCst);
        // The thread waits in accept; this wakes it.
        let _ = TcpStream::connect(self.address);
    }
}

/// An address that refuses connections: a socket has it to the end of the test, so that no other process gets it, and
/// does not listen.
pub fn closed_port() -> SocketAddr {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
    let address = getsockname(&socket).ok().and_then(|address| address.try_into().ok());
    std::mem::forget(socket);
    address.expect("an address")
}
