//! A client's TLS handshake: which certificate is presented, whether the client is asked for one, and the plugins that have a
//! say in it.

use crate::exchange::WorkerSnapshot;
use crate::snapshot::chain::Instance;
use crate::worker::Worker;
use rustls::ServerConfig;
use rustls::server::{Acceptor, ClientHello};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, TlsAcceptor};
use weir_net::socket::Socket;
use weir_plugin::{Admission, Handshake, HandshakeAnswer, HandshakeFlow};

/// Who shakes hands with whom.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    /// The other end of the connection.
    pub(crate) peer: SocketAddr,
    /// The client, which may be another where the PROXY protocol is spoken.
    pub(crate) client: SocketAddr,
    /// What the client connected to.
    pub(crate) local: SocketAddr,
}

/// The handshake, and whether it asked for a certificate. It is looked at who the client is only where that decides
/// something.
pub(crate) async fn accept(
    worker: &Worker,
    socket: Socket,
    http2: bool,
    ends: Ends,
) -> io::Result<(TlsStream<Socket>, bool)> {
    let (tls, snapshot) = (&worker.node.tls, worker.snapshot());
    let plain = if http2 { &tls.http2 } else { &tls.config };
    if snapshot.asked.is_empty() && snapshot.handshake.is_empty() {
        drop(snapshot);
        return Ok((TlsAcceptor::from(plain.clone()).accept(socket).await?, false));
    }
    let begun = LazyConfigAcceptor::new(Acceptor::default(), socket).await?;
    let asked = snapshot.asked.includes(begun.client_hello().server_name());
    let (config, asked) = if snapshot.handshake.is_empty() {
        drop(snapshot);
        let config = if asked { tls.asking(http2) } else { plain };
        (config.clone(), asked)
    } else {
        let mut handshake = begun_by(&begun.client_hello(), ends);
        handshake.has_certificate = has_certificate(worker, &handshake);
        let generation = snapshot.handshake_generation;
        match Box::pin(answer(snapshot, handshake)).await {
            Some(handshake) => decided(worker, http2, asked, (generation, handshake)),
            None => (tls.refusing().clone(), false),
        }
    };
    Ok((begun.into_stream(config).await?, asked))
}

/// Whether plugins admit a client whose handshake is over already, as it is over QUIC.
pub(crate) async fn admit(worker: &Worker, sni: Option<&str>, ends: Ends) -> Admission {
    let snapshot = worker.snapshot();
    if snapshot.handshake.is_empty() {
        return Admission::Admit;
    }
    let mut handshake = Handshake::new(ends.peer, ends.local, sni, vec![b"h3".to_vec()]);
    handshake.client = ends.client;
    handshake.has_certificate = has_certificate(worker, &handshake);
    let generation = snapshot.handshake_generation;
    match Box::pin(answer(snapshot, handshake)).await {
        Some(handshake) => {
            let sni = handshake.sni.clone();
            remember(worker, generation, sni.as_deref(), &handshake.into_answer());
            Admission::Admit
        }
        None => Admission::Refuse,
    }
}

/// Has the next handshake over QUIC present the same certificate, unless it is for this handshake alone, as is one that proves to a
/// CA by its own protocol who owns the name. The plugins are those of a snapshot that may have been replaced meanwhile: the
/// generation says so.
fn remember(worker: &Worker, generation: u64, sni: Option<&str>, answer: &HandshakeAnswer) {
    let is_for_all = answer.alpn.is_none() && !answer.disables_resumption;
    if let Some(name) = sni.filter(|_| is_for_all) {
        let certificate = answer.certificate.as_ref().map(|certificate| certificate.clone().key());
        worker.node.tls.remember(generation, name, certificate.as_ref());
    }
}

fn has_certificate(worker: &Worker, handshake: &Handshake) -> bool {
    handshake.sni.as_deref().is_some_and(|name| worker.node.tls.certificates().has(name))
}

fn begun_by(hello: &ClientHello<'_>, ends: Ends) -> Handshake {
    let alpn = hello.alpn().into_iter().flatten().map(<[u8]>::to_vec).collect();
    let mut handshake = Handshake::new(ends.peer, ends.local, hello.server_name(), alpn);
    handshake.client = ends.client;
    handshake
}

/// The configuration that plugins of this generation have decided on, and whether it asks the client for a certificate.
fn decided(
    worker: &Worker,
    http2: bool,
    asked: bool,
    (generation, handshake): (u64, Handshake),
) -> (Arc<ServerConfig>, bool) {
    let tls = &worker.node.tls;
    let (sni, answer) = (handshake.sni.clone(), handshake.into_answer());
    let asked = asked || answer.requests_certificate;
    let config = match (asked, http2) {
        (true, _) => tls.asking(http2),
        (false, true) => &tls.http2,
        (false, false) => &tls.config,
    };
    remember(worker, generation, sni.as_deref(), &answer);
    let certificate = answer.certificate.map(|certificate| certificate.key());
    match (certificate, answer.alpn) {
        (None, None) if !answer.disables_resumption => (config.clone(), asked),
        (certificate, alpn) => (tls.presenting(config, certificate, alpn), asked),
    }
}

/// Runs the hooks of the plugins, from the highest priority to the lowest. None where one refuses, or fails.
async fn answer(snapshot: std::rc::Rc<WorkerSnapshot>, mut handshake: Handshake) -> Option<Handshake> {
    for instance in &snapshot.handshake {
        let mut running = pin!(run(instance, &mut handshake));
        let ran = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx))) {
            Ok(polled) => polled.map(Some),
            Err(_) => Poll::Ready(None),
        });
        match ran.await {
            Some(Admission::Admit) => {}
            Some(Admission::Refuse) => return None,
            None => {
                tracing::error!(plugin = instance.name, "the certificate hook panicked");
                return None;
            }
        }
    }
    Some(handshake)
}

async fn run(instance: &Instance, handshake: &mut Handshake) -> Admission {
    let mut flow = instance.hooks.certificate(handshake);
    loop {
        flow = match flow {
            HandshakeFlow::Continue => return Admission::Admit,
            HandshakeFlow::Refuse => return Admission::Refuse,
            HandshakeFlow::Wait(future) => future.await(handshake),
        };
    }
}
