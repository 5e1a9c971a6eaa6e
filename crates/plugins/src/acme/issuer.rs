//! Getting certificates, and renewing them: one order for a host at a time, among all nodes that share a storage.

use super::account::AccountKey;
use super::ca::{Applicant, Ca};
use super::cache::Cache;
use super::certificate::{ACCOUNT_KEY_SIZE, Issued, certificate_key, not_after, request, rsa_key};
use super::config::{AccountKeyName, Config};
use super::domains::Domains;
use super::error::AcmeError;
use super::jws::Binding;
use super::method::{Method, proof};
use super::order::{Claim, finish, order};
use super::results;
use super::storage::{LAST_RENEWALS, RENEWALS, Storage};
use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;
use weir_plugin::entity::EntityKind;
use weir_plugin::{
    Background, CertificateKey, EntityDatabase, EntityKey, HttpClient, Json, Secret, is_reference, unix_time,
};

/// How long a lock lasts without being renewed.
const LOCK_TTL: Duration = Duration::from_secs(30);
const LOCK_RENEWAL: Duration = Duration::from_secs(10);

/// How long it lasts after a success, because other nodes do not know the certificate yet.
const LOCK_REST: Duration = Duration::from_secs(10);

/// How long one order may take.
const ORDER_TIMEOUT: Duration = Duration::from_mins(3);

/// How many orders a node makes at a time for handshakes. Others wait for a later handshake.
pub(super) const MAX_ORDERS: usize = 16;

/// Held while a key is made: one at a time, so that many orders do not take all processors.
static MAKING_KEY: Mutex<()> = Mutex::const_new(());

const DAY: f64 = 86_400.0;

/// One configured instance.
pub(super) struct Issuer {
    pub(super) config: Config,
    pub(super) method: Method,
    pub(super) domains: Domains,
    pub(super) storage: Storage,
    pub(super) database: Arc<EntityDatabase>,
    pub(super) background: Arc<Background>,
    pub(super) http: HttpClient,
    pub(super) binding: Option<Binding>,
    pub(super) cache: Cache,
    /// The orders that handshakes may begin.
    pub(super) orders: Arc<Semaphore>,
    /// Held while the account is looked for, so that orders at the same time create one.
    pub(super) entering: Mutex<()>,
}

impl Issuer {
    /// The certificate in the storage. A name without one gets an order, and no certificate for now.
    pub(super) async fn find(self: &Arc<Self>, host: &str) -> Option<CertificateKey> {
        let found = match results::writable(&self.database).await {
            // The certificate would be part of the configuration.
            Ok(Some(_)) => Ok(None),
            Ok(None) => self.load(host).await,
            Err(error) => Err(error),
        };
        match found {
            Ok(certificate) => {
                self.cache.put(host, certificate.clone());
                if certificate.is_none() {
                    self.begin_order(host);
                }
                certificate
            }
            Err(error) => {
                tracing::warn!("acme: the certificate of {host} is not known: {error}");
                self.cache.keep(host)
            }
        }
    }

    /// The certificate for a CA that asks by a handshake, while a host has an order.
    pub(super) async fn proof(&self, host: &str) -> Option<CertificateKey> {
        let answer = self.storage.get(&Method::TlsAlpn.key(host)).await;
        let proof = answer.and_then(|answer| answer.map(|answer| proof(host, &answer)).transpose());
        proof.unwrap_or_else(|error| {
            tracing::error!("acme: a challenge of {host} is not answered: {error}");
            None
        })
    }

    async fn load(&self, host: &str) -> Result<Option<CertificateKey>, AcmeError> {
        let issued = results::load(&self.database, &self.storage, host).await?;
        issued.map(|issued| presentable(&issued)).transpose()
    }

    fn begin_order(self: &Arc<Self>, host: &str) {
        let Ok(permit) = self.orders.clone().try_acquire_owned() else { return };
        let (issuer, host) = (self.clone(), host.to_owned());
        self.background.spawn(async move {
            match issuer.update(&host, None).await {
                Ok(()) => tracing::info!("acme: {host} has a certificate"),
                Err(error) if error.is_wait() => tracing::debug!("acme: {error}"),
                Err(error) => tracing::error!("acme: {host} has no certificate: {error}"),
            }
            drop(permit);
        });
    }

    /// Gets a certificate for a host, with the key of the one before, if there is one.
    pub(super) async fn update(&self, host: &str, key: Option<Secret>) -> Result<(), AcmeError> {
        let backoff = format!("kong_acme:fail_backoff:{host}");
        if let Some(until) = self.storage.get(&backoff).await? {
            let seconds = until.parse::<u64>().unwrap_or_default().saturating_sub(unix_time());
            return Err(AcmeError::Backoff { host: host.to_owned(), seconds });
        }
        let lock = format!("kong_acme:update_lock:{host}");
        if !self.storage.add(&lock, "placeholder", Some(LOCK_TTL)).await? {
            return Err(AcmeError::Locked(host.to_owned()));
        }
        let outcome = timeout(ORDER_TIMEOUT, self.holding(&lock, Box::pin(self.issue(host, key)))).await;
        let outcome = outcome.unwrap_or(Err(AcmeError::Timeout));
        if outcome.is_ok() {
            self.note(self.storage.set(&lock, "placeholder", Some(LOCK_REST)).await);
        } else {
            self.back_off(&backoff).await;
            self.note(self.storage.delete(&lock).await);
        }
        outcome
    }

    /// Does something while the lock is renewed.
    async fn holding<T>(&self, lock: &str, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            match timeout(LOCK_RENEWAL, &mut work).await {
                Ok(done) => return done,
                Err(_) => self.note(self.storage.set(lock, "placeholder", Some(LOCK_TTL)).await),
            }
        }
    }

    async fn back_off(&self, key: &str) {
        let wait = Duration::try_from_secs_f64(self.config.fail_backoff_minutes * 60.0).unwrap_or_default();
        if !wait.is_zero() {
            let until = unix_time().saturating_add(wait.as_secs()).to_string();
            self.note(self.storage.set(key, &until, Some(wait)).await);
        }
    }

    /// Logs a failure that changes nothing else.
    fn note(&self, outcome: Result<(), AcmeError>) {
        if let Err(error) = outcome {
            tracing::warn!("acme: {error}");
        }
    }

    /// The CA with the account there.
    async fn enter(&self) -> Result<Ca<'_>, AcmeError> {
        let config = &self.config;
        let applicant = Applicant {
            email: &config.account_email,
            tos_accepted: config.tos_accepted,
            binding: self.binding.as_ref(),
        };
        let _entering = self.entering.lock().await;
        Ca::enter(&self.http, &config.api_uri, self.account_key().await?, &applicant).await
    }

    async fn issue(&self, host: &str, key: Option<Secret>) -> Result<(), AcmeError> {
        let mut ca = self.enter().await?;
        let claim = Claim { host, method: self.method, storage: &self.storage };
        let validated = order(&mut ca, &claim).await?;
        // Not earlier: a name that does not lead here should not cost a key.
        let settings = self.config.clone();
        let key = computed(move || certificate_key(&settings, key.as_ref())).await?;
        let request = request(host, &key)?;
        let preferred = self.config.preferred_chain.as_deref();
        let chain = finish(&mut ca, &validated, &request, preferred).await?;
        let issued = Issued { chain, key: Secret::from(key.serialize_pem()) };
        let certificate = presentable(&issued)?;
        match results::writable(&self.database).await? {
            Some(entities) => results::replace(&*entities, host, &issued).await?,
            None => {
                results::keep(&self.storage, host, &issued).await?;
                self.cache.put(host, Some(certificate));
            }
        }
        self.schedule_renewal(host, &issued).await
    }

    async fn schedule_renewal(&self, host: &str, issued: &Issued) -> Result<(), AcmeError> {
        let renewal = json!({ "host": host, "expire_at": not_after(&issued.chain) });
        self.storage.set(&format!("{RENEWALS}{host}"), &renewal.to_string(), None).await
    }

    /// The key of the account: the configured one, or the one in the storage, which is made for the first order.
    async fn account_key(&self) -> Result<AccountKey, AcmeError> {
        if let Some(name) = &self.config.account_key {
            return self.configured_key(name);
        }
        let email = BASE64_STANDARD.encode(&self.config.account_email);
        let name = format!("kong_acme:account:{}:{email}", self.config.api_uri);
        if let Some(key) = self.stored_key(&name).await? {
            return Ok(key);
        }
        let key = computed(|| rsa_key(ACCOUNT_KEY_SIZE)).await?.serialize_pem();
        if self.storage.add(&name, &json!({ "key": key }).to_string(), None).await? {
            return AccountKey::from_pem(&key);
        }
        // Another node has added one in between.
        let stored = self.stored_key(&name).await?;
        stored.ok_or_else(|| AcmeError::AccountKey("it was deleted from the storage meanwhile".to_owned()))
    }

    async fn stored_key(&self, name: &str) -> Result<Option<AccountKey>, AcmeError> {
        let Some(text) = self.storage.get(name).await? else { return Ok(None) };
        let account: Value = serde_json::from_str(&text).unwrap_or_default();
        AccountKey::from_pem(account["key"].as_str().unwrap_or_default()).map(Some)
    }

    fn configured_key(&self, name: &AccountKeyName) -> Result<AccountKey, AcmeError> {
        let unusable = |why: &str| AcmeError::AccountKey(format!("{why}: check account_key"));
        let entities = self.database.access().ok_or_else(|| unusable("the node is starting"))?;
        let set = match &name.key_set {
            None => Json::Null,
            Some(set) => {
                let by_name = EntityKey::Fields(vec![("name", set.as_str().into())]);
                let by_id = set.parse().ok().map(EntityKey::Id);
                let mut keys = [Some(by_name), by_id].into_iter().flatten();
                let found = keys.find_map(|key| entities.find(EntityKind::KeySets, &key));
                found.ok_or_else(|| unusable("there is no such key set"))?["id"].take()
            }
        };
        let key = EntityKey::Fields(vec![("kid", name.key_id.as_str().into()), ("set", set)]);
        let key = entities.find(EntityKind::Keys, &key).ok_or_else(|| unusable("there is no such key"))?;
        match (key["pem"]["private_key"].as_str(), key["jwk"].as_str()) {
            (Some(text), _) | (_, Some(text)) if is_reference(text) => {
                Err(unusable("it refers to a vault, which is not supported here"))
            }
            (Some(pem), _) => AccountKey::from_pem(pem),
            (_, Some(jwk)) => AccountKey::from_jwk(jwk),
            (None, None) => Err(unusable("it has no private half")),
        }
    }

    /// Renews what is due.
    pub(super) async fn renew(&self) {
        let names = match self.storage.list(RENEWALS).await {
            Ok(names) => names,
            Err(error) => return tracing::error!("acme: no certificate is renewed: {error}"),
        };
        self.note(self.storage.set(LAST_RENEWALS, &unix_time().to_string(), None).await);
        for name in names {
            let host = name.strip_prefix(RENEWALS).unwrap_or_default();
            match self.renew_host(host, &name).await {
                Err(error) if error.is_wait() => tracing::debug!("acme: {error}"),
                Err(error) => tracing::error!("acme: the certificate of {host} is not renewed: {error}"),
                Ok(()) => {}
            }
        }
    }

    async fn renew_host(&self, host: &str, name: &str) -> Result<(), AcmeError> {
        let Some(issued) = results::load(&self.database, &self.storage, host).await? else {
            tracing::info!("acme: {host} has no certificate any more, so that none is renewed");
            return self.storage.delete(name).await;
        };
        if !self.is_due(&issued) {
            return Ok(());
        }
        tracing::info!("acme: the certificate of {host} is being renewed");
        self.update(host, Some(issued.key)).await
    }

    fn is_due(&self, issued: &Issued) -> bool {
        let due = not_after(&issued.chain).map(|end| end as f64 - self.config.renew_threshold_days * DAY);
        due.is_none_or(|due| due <= unix_time() as f64)
    }
}

fn presentable(issued: &Issued) -> Result<CertificateKey, AcmeError> {
    CertificateKey::from_pem(&issued.chain, issued.key.expose()).map_err(AcmeError::Crypto)
}

/// Makes a key, on a thread of its own, because an RSA key takes long.
async fn computed<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AcmeError> + Send + 'static,
) -> Result<T, AcmeError> {
    let making = MAKING_KEY.lock().await;
    let done = tokio::task::spawn_blocking(move || {
        // The thread goes on also once its order was given up.
        let _making = making;
        work()
    })
    .await;
    done.unwrap_or_else(|_| Err(AcmeError::Crypto("the thread that makes keys ended".to_owned())))
}
