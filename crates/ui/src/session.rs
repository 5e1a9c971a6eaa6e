//! Who asks: sessions of those who have logged in, and the token that proves that a form is ours.
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use uuid::Uuid;

/// How long a session lasts.
const LIFETIME: Duration = Duration::from_secs(12 * 3600);

/// How many sessions there are at most; the oldest ends for a further one.
const MAX_SESSIONS: usize = 1_000;

/// The pause after a wrong token, one at a time.
const WRONG_TOKEN_PAUSE: Duration = Duration::from_secs(1);

/// How many wrong tokens may wait for their answer.
const MAX_WAITING: usize = 16;

/// The cookie of the session.
pub(crate) const COOKIE: &str = "weir_session";

type Key = [u8; 32];

/// Values by what only one browser knows: bounded in number and time.
pub(crate) struct Expiring<V> {
    values: Mutex<HashMap<Key, (V, Instant)>>,
    lifetime: Duration,
    max: usize,
}

impl<V: Clone> Expiring<V> {
    pub(crate) fn new(lifetime: Duration, max: usize) -> Expiring<V> {
        Expiring { values: Mutex::default(), lifetime, max }
    }

    /// Stores a value; returns the id that it is found by.
    pub(crate) fn put(&self, value: V) -> String {
        let id = new_id();
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        values.retain(|_, (_, since)| since.elapsed() < self.lifetime);
        if values.len() >= self.max {
            let oldest = values.iter().min_by_key(|(_, (_, since))| *since).map(|(key, _)| *key);
            oldest.and_then(|oldest| values.remove(&oldest));
        }
        values.insert(key(&id), (value, Instant::now()));
        id
    }

    pub(crate) fn get(&self, id: &str) -> Option<V> {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let (value, since) = values.get(&key(id))?;
        (since.elapsed() < self.lifetime).then(|| value.clone())
    }

    pub(crate) fn remove(&self, id: &str) {
        self.values.lock().unwrap_or_else(PoisonError::into_inner).remove(&key(id));
    }
}

/// A person who has logged in.
#[derive(Clone)]
pub(crate) struct Login {
    /// The token of the Admin API.
    pub(crate) token: String,
    /// Whether the token may only read.
    pub(crate) is_read_only: bool,
}

/// Those who have logged in.
pub(crate) struct Sessions {
    pub(crate) logins: Expiring<Login>,
    waiting: Semaphore,
    turn: tokio::sync::Mutex<()>,
}

impl Default for Sessions {
    fn default() -> Sessions {
        let turn = tokio::sync::Mutex::default();
        Sessions { logins: Expiring::new(LIFETIME, MAX_SESSIONS), waiting: Semaphore::new(MAX_WAITING), turn }
    }
}

impl Sessions {
    /// Slows those down who guess tokens. `false`: too many wait already.
    pub(crate) async fn wrong_token(&self) -> bool {
        let Ok(_waiting) = self.waiting.try_acquire() else { return false };
        let _turn = self.turn.lock().await;
        tokio::time::sleep(WRONG_TOKEN_PAUSE).await;
        true
    }
}

fn key(id: &str) -> Key {
    Sha256::digest(id.as_bytes()).into()
}

/// An id that cannot be guessed.
pub(crate) fn new_id() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

/// What the forms of a session carry: another site cannot know it, because it does not see the cookie.
pub(crate) fn form_token(id: &str) -> String {
    let digest = Sha256::digest(format!("form {id}").as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::task::JoinSet;

    #[test]
    fn values_are_found_until_they_are_removed_or_expire() {
        let tokens = Expiring::new(LIFETIME, MAX_SESSIONS);
        let id = tokens.put("secret");
        assert_eq!((tokens.get(&id), tokens.get("other")), (Some("secret"), None));
        tokens.remove(&id);
        assert_eq!(tokens.get(&id), None);
        let expired = Expiring::new(Duration::ZERO, 1);
        assert_eq!(expired.get(&expired.put("secret")), None);
    }

    #[test]
    fn values_are_bounded() {
        let tokens = Expiring::new(LIFETIME, MAX_SESSIONS);
        let first = tokens.put("first");
        (0..MAX_SESSIONS).for_each(|_| drop(tokens.put("next")));
        assert_eq!(tokens.get(&first), None);
        assert_eq!(tokens.values.lock().unwrap().len(), MAX_SESSIONS);
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_guess_wait_for_each_other_and_too_many_are_refused() {
        let (sessions, start) = (Arc::new(Sessions::default()), tokio::time::Instant::now());
        let guess = |sessions: Arc<Sessions>| async move { sessions.wrong_token().await };
        let guesses: JoinSet<bool> = (0..=MAX_WAITING).map(|_| guess(sessions.clone())).collect();
        let answered = guesses.join_all().await.into_iter().filter(|is_answered| *is_answered).count();
        assert_eq!((answered, start.elapsed()), (MAX_WAITING, WRONG_TOKEN_PAUSE * MAX_WAITING as u32));
    }

    #[test]
    fn each_session_has_forms_of_its_own() {
        assert_ne!(form_token(&new_id()), form_token(&new_id()));
        assert_eq!(form_token("a"), form_token("a"));
    }
}
