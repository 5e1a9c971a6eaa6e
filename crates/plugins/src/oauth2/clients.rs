//! The clients of a configuration, and the proof that a request is one's.

use super::credential::OAuth2Credential;
use super::secret;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use tokio::sync::Semaphore;
use weir_plugin::{Background, BuildContext, ConsumerIndex, Fingerprint, Fingerprinter, Uuid};

/// How many hashes are computed at once: each takes a processor, and memory.
const MAX_HASHING: usize = 2;

/// All clients.
pub(super) struct Clients {
    by_client_id: HashMap<String, Arc<Client>>,
    by_id: HashMap<Uuid, Arc<Client>>,
    fingerprinter: Fingerprinter,
    hashing: Semaphore,
    background: Arc<Background>,
}

/// One client.
pub(super) struct Client {
    pub(super) id: Uuid,
    pub(super) client_id: String,
    pub(super) consumer: ConsumerIndex,
    pub(super) redirect_uris: Option<Vec<String>>,
    pub(super) is_public: bool,
    secret: String,
    is_hashed: bool,
    /// The fingerprint of the right secret, once it was seen, so that it is hashed once.
    verified: OnceLock<Fingerprint>,
}

impl Clients {
    pub(super) fn new(build: &BuildContext<'_>) -> Self {
        let client = |credential: &OAuth2Credential| {
            Some(Arc::new(Client {
                id: credential.id,
                client_id: credential.client_id.clone(),
                consumer: build.consumer(credential.consumer)?,
                redirect_uris: credential.redirect_uris.clone(),
                is_public: credential.client_type == "public",
                secret: credential.client_secret.clone(),
                is_hashed: credential.hash_secret,
                verified: OnceLock::new(),
            }))
        };
        let clients: Vec<_> = build.entities().filter_map(client).collect();
        Self {
            by_client_id: clients.iter().map(|client| (client.client_id.clone(), client.clone())).collect(),
            by_id: clients.into_iter().map(|client| (client.id, client)).collect(),
            fingerprinter: Fingerprinter::with_random_key(),
            hashing: Semaphore::new(MAX_HASHING),
            background: build.background(),
        }
    }

    /// The client of this `client_id`.
    pub(super) fn named(&self, client_id: &str) -> Option<&Arc<Client>> {
        self.by_client_id.get(client_id)
    }

    /// The client of this credential.
    pub(super) fn get(&self, id: Uuid) -> Option<&Arc<Client>> {
        self.by_id.get(&id)
    }

    /// Whether a secret is the client's.
    pub(super) async fn verify(&self, client: &Arc<Client>, given: &str) -> bool {
        if !client.is_hashed {
            return secret::is_same(given, &client.secret);
        }
        let fingerprint = self.fingerprinter.of(given.as_bytes());
        if client.verified.get() == Some(&fingerprint) {
            return true;
        }
        // The semaphore is never closed.
        let Ok(_permit) = self.hashing.acquire().await else { return false };
        let (client_of_task, given) = (client.clone(), given.to_owned());
        let verify = move || secret::verify(&given, &client_of_task.secret);
        let is_right = self.background.run_blocking(verify).await.unwrap_or_else(|error| {
            tracing::error!(%error, "oauth2 could not verify a client's secret, and refused it: if no thread can be started, raise the limit of threads");
            false
        });
        if is_right {
            client.verified.get_or_init(|| fingerprint);
        }
        is_right
    }
}
