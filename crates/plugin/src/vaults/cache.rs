//! What was read from vaults, and when it is to be read again.
use super::{Request, Vault, member};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use weir_model::SecretReference;

/// How many secrets are asked for at the same time.
const MAX_PARALLEL: usize = 8;

/// How long vaults are asked for secrets that are needed together. What is left then is missing until the next rotation.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Secrets by their references, which have all options, and no key.
#[derive(Default)]
pub(super) struct Cache(Mutex<HashMap<SecretReference, Entry>>);

struct Entry {
    vault: Arc<dyn Vault>,
    secret: Fetched,
    /// When the vault was asked last.
    asked: Instant,
    /// When the secret was read last.
    read: Instant,
    /// Whether a plugin has asked for it, rather than a field of an entity.
    pinned: bool,
}

type Fetched = Result<String, Cow<'static, str>>;

impl Cache {
    fn entries(&self) -> MutexGuard<'_, HashMap<SecretReference, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries().is_empty()
    }

    /// Reads the secrets that are not cached, and waits for them.
    pub(super) fn fetch(&self, requests: &[Request]) {
        let mut missing = Vec::new();
        {
            let (entries, mut known) = (self.entries(), HashSet::new());
            for Request { vault, reference, .. } in requests {
                if !entries.contains_key(reference) && known.insert(reference) {
                    missing.push((reference.clone(), vault.clone()));
                }
            }
        }
        let fetched = fetch_all(&missing);
        let (mut entries, now) = (self.entries(), Instant::now());
        for ((reference, vault), secret) in missing.into_iter().zip(fetched) {
            entries.insert(reference, Entry { vault, secret, asked: now, read: now, pinned: false });
        }
    }

    /// The cached secret.
    pub(super) fn get(&self, request: &Request) -> Result<String, String> {
        match self.entries().get(&request.reference).map(|entry| &entry.secret) {
            Some(Ok(secret)) => member(secret, request.key.as_deref()),
            Some(Err(why)) => {
                Err(format!("could not get value from external vault (no value found ({why}))"))
            }
            None => Err("could not get value from external vault (no value found)".to_owned()),
        }
    }

    /// Reads a secret if it is not cached, and keeps it although no entity refers to it.
    pub(super) fn pin(&self, request: &Request) {
        self.fetch(std::slice::from_ref(request));
        if let Some(entry) = self.entries().get_mut(&request.reference) {
            entry.pinned = true;
        }
    }

    /// Forgets secrets that are not among these, which entities refer to.
    pub(super) fn keep(&self, used: &HashSet<SecretReference>) {
        self.entries().retain(|reference, entry| entry.pinned || used.contains(reference));
    }

    /// Reads secrets again whose time has come. Returns whether one has changed.
    pub(super) fn rotate(&self) -> bool {
        let now = Instant::now();
        let entries = self.entries();
        let due = entries.iter().filter(|(reference, entry)| entry.is_due(reference, now));
        let due: Vec<_> = due.map(|(reference, entry)| (reference.clone(), entry.vault.clone())).collect();
        drop(entries);
        let fetched = fetch_all(&due);
        let (mut entries, now, mut changed) = (self.entries(), Instant::now(), false);
        for ((reference, _), secret) in due.into_iter().zip(fetched) {
            if let Some(entry) = entries.get_mut(&reference) {
                changed |= entry.update(&reference, secret, now);
            }
        }
        changed
    }
}

impl Entry {
    fn is_due(&self, reference: &SecretReference, now: Instant) -> bool {
        let lasts = if self.secret.is_ok() { "ttl" } else { "neg_ttl" };
        now >= self.asked + seconds(reference, lasts).unwrap_or_default()
    }

    /// Takes what a vault has now. Returns whether that is something else. A secret that cannot be read any more is kept,
    /// for as long as `resurrect_ttl` allows.
    fn update(&mut self, reference: &SecretReference, secret: Fetched, now: Instant) -> bool {
        self.asked = now;
        if let (Ok(_), Err(why)) = (&self.secret, &secret) {
            let lasts = seconds(reference, "resurrect_ttl")
                .map(|more| seconds(reference, "ttl").unwrap_or_default() + more);
            if lasts.is_none_or(|lasts| now < self.read + lasts) {
                let (vault, resource) = (&reference.vault, &reference.resource);
                tracing::warn!(
                    "the secret {vault}/{resource} cannot be read again ({why}): the one read before is used"
                );
                return false;
            }
        }
        if secret.is_ok() {
            self.read = now;
        }
        let is_same = match (&self.secret, &secret) {
            (Ok(before), Ok(secret)) => before == secret,
            (Err(_), Err(_)) => true,
            _ => false,
        };
        self.secret = secret;
        !is_same
    }
}

fn seconds(reference: &SecretReference, option: &str) -> Option<Duration> {
    let seconds = reference.option(option)?.parse::<u32>().ok()?;
    Some(Duration::from_secs(seconds.into()))
}

/// Asks vaults for secrets, several at a time, on threads without a runtime, because some vaults start one. Vaults of this
/// machine come first, so that no server that is slow uses up their time.
fn fetch_all(requests: &[(SecretReference, Arc<dyn Vault>)]) -> Vec<Fetched> {
    let end = Instant::now() + MAX_WAIT;
    let get = |(reference, vault): &(SecretReference, Arc<dyn Vault>)| match Instant::now() < end {
        true => vault.get(reference),
        false => Err("the vaults take too long".into()),
    };
    let mut order: Vec<usize> = (0..requests.len()).collect();
    order.sort_by_key(|at| requests[*at].1.is_remote());
    let next = AtomicUsize::new(0);
    let take = || order.get(next.fetch_add(1, Relaxed)).copied();
    let work = || std::iter::from_fn(take).map(|at| (at, get(&requests[at]))).collect::<Vec<_>>();
    let mut fetched = vec![Err("the vault could not be asked".into()); requests.len()];
    thread::scope(|scope| {
        let start = |_| thread::Builder::new().name("weir-vaults".to_owned()).spawn_scoped(scope, work).ok();
        let threads: Vec<_> = (0..requests.len().min(MAX_PARALLEL)).filter_map(start).collect();
        let secrets = threads.into_iter().filter_map(|thread| thread.join().ok()).flatten();
        secrets.for_each(|(at, secret)| fetched[at] = secret);
    });
    fetched
}
