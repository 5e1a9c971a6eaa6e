//! Sessions with servers, which are resumed without verifying the certificate again: only while it is valid.
use super::client::validity;
use rustls::NamedGroup;
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many servers each configuration remembers sessions of.
const RESUMABLE_SERVERS: usize = 256;

/// How many sessions of TLS 1.3 the cache keeps of a server; its size is in these.
const SESSIONS_OF_A_SERVER: usize = 8;

/// The sessions of a configuration that verifies certificates.
#[derive(Debug)]
pub(super) struct Sessions {
    cache: ClientSessionMemoryCache,
    /// When the first of the certificates expires that were verified for a server since its sessions were last forgotten.
    valid_until: Mutex<HashMap<ServerName<'static>, UnixTime>>,
    now: fn() -> UnixTime,
}

/// A cache for sessions of a configuration that accepts any certificate.
pub(super) fn cache() -> ClientSessionMemoryCache {
    ClientSessionMemoryCache::new(RESUMABLE_SERVERS * SESSIONS_OF_A_SERVER)
}

impl Sessions {
    pub(super) fn new(now: fn() -> UnixTime) -> Self {
        Self { cache: cache(), valid_until: Mutex::default(), now }
    }

    /// This certificate was verified for this server.
    pub(super) fn verified(&self, server: &ServerName<'_>, certificate: &CertificateDer<'_>) {
        let Ok((_, not_after)) = validity(certificate) else { return };
        let server = server.to_owned();
        let mut valid_until = self.valid_until();
        // Clients may choose the names, so their number is limited as that of the sessions is.
        if valid_until.len() >= RESUMABLE_SERVERS && !valid_until.contains_key(&server) {
            valid_until.clear();
        }
        let until = valid_until.entry(server).or_insert(not_after);
        *until = not_after.min(*until);
    }

    /// Whether sessions with this server may be resumed. Those of an expired certificate are forgotten.
    fn may_resume(&self, server: &ServerName<'_>) -> bool {
        let until = self.valid_until().get(server).copied();
        let is_valid = until.is_some_and(|until| (self.now)() <= until);
        if until.is_some() && !is_valid {
            self.forget(&server.to_owned());
        }
        is_valid
    }

    fn forget(&self, server: &ServerName<'static>) {
        self.valid_until().remove(server);
        self.cache.remove_tls12_session(server);
        while self.cache.take_tls13_ticket(server).is_some() {}
    }

    fn valid_until(&self) -> MutexGuard<'_, HashMap<ServerName<'static>, UnixTime>> {
        self.valid_until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, server: ServerName<'static>, group: NamedGroup) {
        self.cache.set_kx_hint(server, group);
    }

    fn kx_hint(&self, server: &ServerName<'_>) -> Option<NamedGroup> {
        self.cache.kx_hint(server)
    }

    fn set_tls12_session(&self, server: ServerName<'static>, session: Tls12ClientSessionValue) {
        if self.may_resume(&server) {
            self.cache.set_tls12_session(server, session);
        }
    }

    fn tls12_session(&self, server: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        if self.may_resume(server) { self.cache.tls12_session(server) } else { None }
    }

    fn remove_tls12_session(&self, server: &ServerName<'static>) {
        self.cache.remove_tls12_session(server);
    }

    fn insert_tls13_ticket(&self, server: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        if self.may_resume(&server) {
            self.cache.insert_tls13_ticket(server, ticket);
        }
    }

    fn take_tls13_ticket(&self, server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        if self.may_resume(server) { self.cache.take_tls13_ticket(server) } else { None }
    }
}
