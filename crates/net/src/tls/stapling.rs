//! OCSP stapling: fetches OCSP responses in the background, so that no handshake waits for one.

use super::ServerTls;
use super::certificates::{Pair, Slot};
use super::ocsp::{self, Good, Question, Standing};
use super::responder;
use crate::connect;
use crate::resolve::Resolver;
use rustls::pki_types::CertificateDer;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::net::TcpStream;

/// How often the schedule is checked for due responses.
const TURN: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(10);
/// The retry interval after a failure.
const RETRY: Duration = Duration::from_secs(60);
/// The maximum time between two fetches.
const RENEWAL: Duration = Duration::from_secs(3600);
/// The interval for a certificate that has no responder.
const NEVER: Duration = Duration::from_secs(3600 * 24 * 365);

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
        match question.read(&response) {
            Some(Standing::Good(good)) => Ok((good, response)),
            Some(Standing::Revoked) | None => Err(refused()),
        }
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
    let (authority, _) = responder::place(question)?;
    responder::ask(open(resolver, authority).await?, question).await
}

async fn open(resolver: &Resolver, authority: &str) -> io::Result<TcpStream> {
    let (host, port) = responder::host_and_port(authority)?;
    let found = resolver.resolve(host).await.map_err(|error| io::Error::other(error.to_string()))?;
    let opened = connect::first(found.sockets(port, 0), connect::tcp).await;
    opened.unwrap_or_else(|| Err(io::Error::other("the responder's name has no address")))
}
