//! Gets and renews TLS certificates from a CA by ACME (RFC 8555), such as Let's Encrypt.
//!
//! ```yaml
//! plugins:
//!   - name: acme
//!     config:
//!       account_email: ops@example.com
//!       tos_accepted: true
//!       domains: [shop.example.com, "*.shops.example.com"]
//!       storage: redis
//!       storage_config:
//!         redis: {host: redis.example.com}
//! ```
//!
//! ```sh
//! curl -d host=shop.example.com -d test_http_challenge_flow=true http://localhost:8001/acme
//! curl -d host=shop.example.com http://localhost:8001/acme
//! curl https://shop.example.com
//! ```
//!
//! Weir listens on 8000 and 8443 by default, and the CA asks ports 80 and 443: set `proxy_listen = 0.0.0.0:80, 0.0.0.0:443 ssl`, or forward them. To try it,
//! set `api_uri: https://acme-staging-v02.api.letsencrypt.org/directory`, whose limits are higher and whose certificates no browser trusts.
//!
//! The plugin is for the whole node. A certificate is ordered when a client first asks for an allowed name over TLS and the
//! configuration has no certificate for it: that client gets the default certificate, later ones the new one. `POST /acme` orders one and waits
//! for it. The CA first [checks](#challenges) that the name leads to one of the nodes.
//!
//! Where a name fails, it is left alone for `fail_backoff_minutes`. A node orders at most 16 certificates at a time for handshakes, and an order
//! takes at most 3 minutes. It makes one key at a time, once the CA has validated the name. Nodes that share a storage order a certificate once.
//! With `allow_any_domain`, or with a name such as `*.example.com` in `domains`, any client can have certificates ordered for as many names as it
//! asks for, which uses up the limits that a CA has for an account, and the node's time: list the names themselves where you can.
//!
//! ## Challenges
//!
//! | `challenge` | the CA must reach one of the nodes | |
//! |---|---|---|
//! | `http-01` | by plain HTTP on port 80 | answered before a route is looked for, so that no route is needed |
//! | `tls-alpn-01` | by TLS on port 443, past nothing that ends TLS | for nodes without port 80. Kong has no such setting |
//!
//! With `tls-alpn-01` (RFC 8737) the CA offers the protocol `acme-tls/1` alone in its handshake, and gets a certificate made for that challenge.
//! The connection ends behind the handshake and carries no request. No other client gets that certificate, and without an order for the name
//! such a handshake ends with an alert. Any node answers that shares the storage.
//!
//! ## Where certificates are kept
//!
//! A node with a database writes each certificate as entities, `certificates` and `snis`, with the tag `managed-by-acme`; a renewed one
//! replaces its predecessor. A node without a database keeps certificates with their keys in the storage, and presents them from there. Over HTTP/3 it presents those that it has presented over TCP, or that a
//! handshake over QUIC has asked for before: a first one over QUIC after a start or a change of the plugin's configuration gets the default certificate. The storage has account, challenges and locks too:
//!
//! | `storage` | where | for |
//! |---|---|---|
//! | `shm` | in the memory of the node | one node. Certificates are lost when it restarts, `weir upgrade` keeps them |
//! | `kong` | in the node's database, in the table of rows | nodes with a database; without one it is like `shm` |
//! | `redis` | in Redis or Valkey, under Kong's keys | all others, such as data planes |
//! | `consul` | in Consul, below `kv_path`, under Kong's keys with `-` for `/`. When a lock ends is in the entry's flags | the same |
//! | `vault` | in HashiCorp Vault or OpenBao: a secrets engine KV of version 2 | the same |
//!
//! The token for Consul needs `key_prefix "acme" { policy = "write" }` with `kv_path: acme`, that for Vault `create`, `read`, `update`, `delete` and `list` on `data` and `metadata` of
//! the engine. With `auth_method: kubernetes` the node logs in with the token of its service account, and again where Vault no longer
//! takes the token that it has got.
//!
//! A program that can read the storage can read the keys of the account and of certificates.
//!
//! ## The account
//!
//! It is found by `api_uri` and `account_email`. Its key is made at the first order: RSA with 2048 bits. `account_key` names
//! a key of your own instead, one of the entities `keys`, RSA or P-256. `eab_kid` and `eab_hmac_key` bind the account to one that you have at the CA. The
//! CA's certificate is verified with `lua_ssl_trusted_certificate`.
//!
//! ## Renewal
//!
//! Once a day, and when a configuration with the plugin becomes active, a node renews what ends within `renew_threshold_days`. A renewed certificate keeps its key, unless `cert_type` has
//! changed. Other nodes notice a renewed certificate in the storage within an hour.
//!
//! ## Admin API
//!
//! | | |
//! |---|---|
//! | `POST /acme` | orders a certificate for `host`; with `test_http_challenge_flow=true` it checks only that `http://HOST/.well-known/acme-challenge/` leads to the plugin |
//! | `PATCH /acme` | renews what is due |
//! | `GET /acme/certificates` | lists certificates; with `invalid_only=true` those that are not valid now |
//! | `GET /acme/certificates/HOST` | one of them |
//!
//! A control plane serves no requests, so it cannot order: data planes do, with `storage: redis`, `consul` or `vault`.
//!
//! ## Responses
//!
//! For requests to `/.well-known/acme-challenge/TOKEN` by plain HTTP for an allowed name, with `http-01`:
//!
//! | status | body | when |
//! |---|---|---|
//! | 200 | the answer to the challenge | the token is one of an order in progress |
//! | 404 | `Not found` | it is not |
//! | 500 | `An unexpected error occurred` | the storage does not answer |

mod account;
mod admin;
mod ca;
mod cache;
mod certificate;
mod config;
mod domains;
mod error;
mod issuer;
mod jws;
mod method;
mod order;
mod results;
mod storage;
#[cfg(test)]
mod tests;

use cache::Cache;
use config::Config;
use domains::Domains;
use issuer::{Issuer, MAX_ORDERS};
use jws::Binding;
use method::{Method, PROTOCOL, challenged};
use order::is_token;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use storage::{MEMORY_HANDOVER, Storage};
use tokio::sync::{Semaphore, oneshot};
use weir_plugin::{
    AdminRoute, BuildContext, Configure, Exchange, FieldWarning, Flow, Handover, Handshake, HandshakeFlow,
    HandshakeResume, Hooks, HttpClient, Json, LocalResponse, Phases, Plugin, ROWS_HANDOVER, Resume, Timer,
    WorkerContext,
};

/// Reads what CAs and storages answer, for fuzzing.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_answer(answer: &[u8]) {
    let body = answer.to_vec().into();
    let _ = ca::read::<ca::Directory>(&body);
    let _ = ca::read::<ca::Problem>(&body);
    let _ = ca::read::<order::Order>(&body);
    if let Ok(authorization) = ca::read::<order::Authorization>(&body)
        && let Some((_, token)) = authorization.challenge(Method::Http)
    {
        assert!(is_token(token));
    }
    storage::read_answer(answer);
    let text = String::from_utf8_lossy(answer);
    let _ = account::AccountKey::from_jwk(&text);
    let _ = account::AccountKey::from_pem(&text);
    let _ = results::of_text(&text, "a.test");
    let _ = (certificate::not_after(&text), certificate::issuer_of_root(&text), certificate::shown(&text));
}

const CHALLENGES: &str = "/.well-known/acme-challenge/";

/// How often renewals run.
const RENEWAL_PAUSE: Duration = Duration::from_hours(24);

/// One configured instance.
pub(super) struct Acme(Arc<Issuer>);

/// The instance in use, for the Admin API, and its renewals.
#[derive(Default)]
struct Current(Mutex<Option<(Arc<Issuer>, Timer)>>);

impl Current {
    fn issuer(&self) -> Option<Arc<Issuer>> {
        let current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().map(|(issuer, _)| issuer.clone())
    }

    /// Has this instance be in use, and renew what is due, now and every day.
    fn set(&self, issuer: Option<&Arc<Issuer>>) {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |known: &Arc<Issuer>| issuer.is_some_and(|issuer| Arc::ptr_eq(known, issuer));
        if current.as_ref().is_some_and(|(known, _)| is_same(known)) {
            return;
        }
        *current = issuer.map(|issuer| {
            let renewing = issuer.clone();
            let timer = issuer.background.every(RENEWAL_PAUSE, move || {
                let issuer = renewing.clone();
                async move { issuer.renew().await }
            });
            (issuer.clone(), timer)
        });
    }
}

fn configure(worker: &WorkerContext, instances: &[&Acme]) -> Result<(), String> {
    // One worker does it for the node.
    if worker.index == 0 {
        worker.retained.get::<Current>().set(instances.first().map(|instance| &instance.0));
    }
    Ok(())
}

impl Plugin for Acme {
    const NAME: &'static str = "acme";
    const PRIORITY: i32 = 1705;
    const GLOBAL_ONLY: bool = true;
    const ADMIN_ROUTES: &'static [AdminRoute] = admin::ROUTES;
    const HANDOVERS: &'static [Handover] = &[MEMORY_HANDOVER, ROWS_HANDOVER];
    const CONFIGURE: Option<Configure<Self>> = Some(configure);
    type Config = Config;

    fn warnings(config: &Json) -> Vec<FieldWarning> {
        config::warnings(config)
    }

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let dialer = match config.api_uri.starts_with("https:") {
            true => build.tls_dialer(true, "config.api_uri to a CA with a trusted certificate")?,
            false => build.dialer(),
        };
        Ok(Self(Arc::new(Issuer {
            method: Method::of(&config),
            domains: Domains::new(&config),
            storage: Storage::new(&config, build)?,
            database: build.retained.get(),
            background: build.background(),
            http: HttpClient::new(dialer),
            binding: binding(&config)?,
            cache: Cache::default(),
            orders: Arc::new(Semaphore::new(MAX_ORDERS)),
            entering: tokio::sync::Mutex::default(),
            config,
        })))
    }
}

fn binding(config: &Config) -> Result<Option<Binding>, String> {
    match (&config.eab_kid, &config.eab_hmac_key) {
        (None, None) => Ok(None),
        (Some(kid), Some(key)) => match Binding::new(kid, key.expose()) {
            Some(binding) => Ok(Some(binding)),
            None => Err("config.eab_hmac_key: expected base64url, as the CA shows the key".to_owned()),
        },
        (Some(_), None) => Err("config.eab_hmac_key: required with eab_kid".to_owned()),
        (None, Some(_)) => Err("config.eab_kid: required with eab_hmac_key".to_owned()),
    }
}

impl Hooks for Acme {
    fn phases(&self) -> Phases {
        Phases::CERTIFICATE | Phases::REWRITE
    }

    fn certificate(&self, handshake: &mut Handshake) -> HandshakeFlow {
        let is_by_handshake = self.0.method == Method::TlsAlpn;
        if let Some(host) = challenged(handshake).filter(|host| is_by_handshake && self.0.domains.allow(host))
        {
            return prove(&self.0, host.into_owned());
        }
        let Some(host) = handshake.sni.as_deref().filter(|_| !handshake.has_certificate) else {
            return HandshakeFlow::Continue;
        };
        let host = host.trim_end_matches('.');
        if !self.0.domains.allow(host) {
            return HandshakeFlow::Continue;
        }
        if let Some(known) = self.0.cache.get(host) {
            known.iter().for_each(|certificate| handshake.set_certificate(certificate));
            return HandshakeFlow::Continue;
        }
        let (issuer, host) = (self.0.clone(), host.to_owned());
        let found = on_background(&self.0, async move { issuer.find(&host).await });
        HandshakeFlow::Wait(Box::pin(async {
            let found = found.await.ok().flatten();
            let rest: HandshakeResume = Box::new(move |handshake| {
                found.iter().for_each(|certificate| handshake.set_certificate(certificate));
                HandshakeFlow::Continue
            });
            rest
        }))
    }

    fn may_rewrite(&self, exchange: &Exchange) -> bool {
        self.token(exchange).is_some()
    }

    fn rewrite(&self, exchange: &mut Exchange) -> Flow {
        let Some(token) = self.token(exchange) else { return Flow::Continue };
        // `x` is what Kong's test of the way to the node asks for.
        if token == "x" || !is_token(token) {
            return Flow::Respond(not_found());
        }
        let (issuer, key) = (self.0.clone(), Method::Http.key(token));
        let found = on_background(&self.0, async move { issuer.storage.get(&key).await });
        Flow::Wait(Box::pin(async {
            let answer = match found.await {
                Ok(Ok(Some(answer))) => LocalResponse::raw(200, Some("text/plain"), answer),
                Ok(Ok(None)) => not_found(),
                Ok(Err(error)) => {
                    tracing::error!("acme: a challenge is not answered: {error}");
                    LocalResponse::message(500, "An unexpected error occurred")
                }
                Err(_) => LocalResponse::message(500, "An unexpected error occurred"),
            };
            let rest: Resume = Box::new(|_| Flow::Respond(answer));
            rest
        }))
    }
}

impl Acme {
    /// What a request for a challenge asks for.
    fn token<'e>(&self, exchange: &'e Exchange) -> Option<&'e str> {
        let token = exchange.request.path().strip_prefix(CHALLENGES)?;
        let is_by_http = self.0.method == Method::Http && exchange.scheme() == "http";
        let is_allowed = || self.0.domains.allow(exchange.host().trim_end_matches('.'));
        (is_by_http && !token.is_empty() && is_allowed()).then_some(token)
    }
}

/// Answers a CA that asks by a handshake. Where the host has no order the handshake ends, because it can carry no HTTP.
fn prove(issuer: &Arc<Issuer>, host: String) -> HandshakeFlow {
    let looking = issuer.clone();
    let proof = on_background(issuer, async move { looking.proof(&host).await });
    HandshakeFlow::Wait(Box::pin(async {
        let proof = proof.await.ok().flatten();
        let rest: HandshakeResume = Box::new(move |handshake| match &proof {
            Some(proof) => {
                handshake.select_alpn(PROTOCOL);
                handshake.set_certificate(proof);
                HandshakeFlow::Continue
            }
            None => HandshakeFlow::Refuse,
        });
        rest
    }))
}

fn not_found() -> LocalResponse {
    LocalResponse::raw(404, Some("text/plain"), "Not found\n")
}

/// Does something on the thread of plugins, because connections to the storage belong to it.
fn on_background<T: Send + 'static>(
    issuer: &Issuer,
    work: impl Future<Output = T> + Send + 'static,
) -> oneshot::Receiver<T> {
    let (sender, receiver) = oneshot::channel();
    issuer.background.spawn(async move {
        // Who waits may have gone.
        let _ = sender.send(work.await);
    });
    receiver
}
