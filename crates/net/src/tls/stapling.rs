//! OCSP stapling: fetches OCSP responses in the background, so that no handshake waits for one.

use super::ServerTls;
use super::certificates::{Pair, Slot};
use super::ocsp::{self, Good, Question};
use crate::connect;
use crate::resolve::Resolver;
use rustls::pki_types::CertificateDer;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use weir_http1::{BodyDecoder, Limits, Method, ResponseHead};

/// How often the schedule is checked for due responses.
const TURN: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(10);
/// The retry interval after a failure.
const RETRY: Duration = Duration::from_secs(60);
/// The maximum time between two fetches.
const RENEWAL: Duration = Duration::from_secs(3600);
/// The interval for a certificate that has no responder.
const NEVER: Duration = Duration::from_secs(3600 * 24 * 365);
/// The maximum length of an OCSP response.
const MAX_RESPONSE_LEN: usize = 64 * 1024;

/// When the OCSP response of each certificate is due.
type Schedule = HashMap<*const Pair, (Arc<Pair>, Instant)>;

/// Keeps the OCSP responses of all active certificates fresh.
pub async fn keep_fresh(resolver: &Resolver, tls: &ServerTls) {
    let mut schedule = Schedule::new();
    let mut known = None;
    loop {
        let certificates = tls.certificates();
        if !known.as_ref().is_some_and(|known| Arc::ptr_eq(known, &certificates)) {
            let pairs = certificates.pairs().map(|pair| (Arc::as_ptr(pair), pair.clone()));
            let earlier =
                |(at, pair)| (at, schedule.get(&at).cloned().unwrap_or_else(|| (pair, Instant::now())));
            schedule = pairs.map(earlier).collect();
            known = Some(certificates);
        }
        for (pair, due) in schedule.values_mut().filter(|(_, due)| *due <= Instant::now()) {
            let mut next = NEVER;
            for slot in pair.slots() {
                next = next.min(renew(resolver, slot).await);
            }
            *due = Instant::now() + next;
        }
        tokio::time::sleep(TURN).await;
    }
}

/// Fetches the OCSP response of one certificate, and returns the time until the next fetch.
async fn renew(resolver: &Resolver, slot: &Slot) -> Duration {
    let chain = &slot.key().cert;
    let Some(question) = Question::about(chain) else { return unasked(chain) };
    let fetched = match tokio::time::timeout(TIMEOUT, fetch(resolver, &question)).await {
        Ok(fetched) => fetched,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    };
    let checked = fetched.and_then(|response| {
        let refused = || io::Error::new(io::ErrorKind::InvalidData, "the answer does not say that it stands");
        Ok((question.read(&response).ok_or_else(refused)?, response))
    });
    match checked {
        Ok((good, response)) => {
            slot.staple(response, good.until);
            due(&good)
        }
        Err(error) => {
            let certificate = ocsp::subject(chain);
            tracing::warn!(
                certificate,
                responder = question.responder,
                "no OCSP response for a certificate: {error}"
            );
            slot.drop_stale();
            RETRY
        }
    }
}

/// Warns about a certificate without its issuer, because no OCSP request can be built for it until it is replaced.
fn unasked(chain: &[CertificateDer<'static>]) -> Duration {
    if ocsp::lacks_issuer(chain) {
        let certificate = ocsp::subject(chain);
        tracing::warn!(
            certificate,
            "ssl_stapling does nothing for a certificate without its issuer: append the issuer's to its chain"
        );
    }
    NEVER
}

/// Schedules the next fetch in the middle of the response's validity.
fn due(good: &Good) -> Duration {
    let Some(until) = good.until else { return RENEWAL };
    let middle = good.since + until.duration_since(good.since).unwrap_or_default() / 2;
    middle.duration_since(SystemTime::now()).unwrap_or(RETRY).clamp(TURN, RENEWAL)
}

async fn fetch(resolver: &Resolver, question: &Question) -> io::Result<Vec<u8>> {
    let unusable = || io::Error::other("only http:// can be asked");
    let place = question.responder.strip_prefix("http://").ok_or_else(unusable)?;
    let (authority, path) = place.split_at(place.find('/').unwrap_or(place.len()));
    let mut tcp = open(resolver, authority).await?;
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/ocsp-request\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        if path.is_empty() { "/" } else { path },
        question.request.len()
    );
    tcp.write_all(&[head.as_bytes(), &question.request].concat()).await?;
    let mut received = Vec::new();
    loop {
        let ended = received.len() > MAX_RESPONSE_LEN || tcp.read_buf(&mut received).await? == 0;
        match body(&received, ended) {
            Some(body) => return Ok(body),
            None if ended => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "no whole response of status 200"));
            }
            None => {}
        }
    }
}

async fn open(resolver: &Resolver, authority: &str) -> io::Result<TcpStream> {
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "80"));
    let port = port.parse().map_err(io::Error::other)?;
    let found = resolver.resolve(host).await.map_err(|error| io::Error::other(error.to_string()))?;
    let opened = connect::first(found.sockets(port, 0), connect::tcp).await;
    opened.unwrap_or_else(|| Err(io::Error::other("the responder's name has no address")))
}

/// The body of a response of status 200, once it is whole.
fn body(received: &[u8], ended: bool) -> Option<Vec<u8>> {
    let mut head = ResponseHead::default();
    let length = head.parse(received, &Limits::default(), Method::Post).ok()??;
    let mut decoder = BodyDecoder::of_response(head.framing);
    let (mut rest, mut body) = (&received[length..], Vec::new());
    while !decoder.is_done() && !rest.is_empty() {
        let decoded = decoder.decode(rest).ok()?;
        if decoded.consumed == 0 {
            break;
        }
        body.extend_from_slice(&rest[decoded.data]);
        rest = &rest[decoded.consumed..];
    }
    let whole = decoder.is_done() || ended && decoder.finish().is_ok();
    (head.status == 200 && whole).then_some(body)
}
