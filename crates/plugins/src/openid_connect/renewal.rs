//! Renews access tokens by refresh tokens, once for all requests of a session that need it: many providers accept a refresh
//! token once, and take a second use for a theft.

use super::Instance;
use super::client::TokenResponse;
use super::error::ProviderError;
use super::metadata::Metadata;
use super::session::{Session, purpose};
use serde_json::Value as Json;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use weir_plugin::{Fingerprint, FingerprintMap, Fingerprinter, unix_time};

/// How long the outcome is known, for requests that were on their way with the former session.
const KEPT: Duration = Duration::from_secs(30);

/// What became of a renewal.
pub(super) type Outcome = Result<Arc<Session>, ProviderError>;

/// The same, once it is known.
type Pending = watch::Receiver<Option<Outcome>>;

/// The renewals in progress, and recent ones.
pub(super) struct Renewals {
    key: Fingerprinter,
    known: Mutex<FingerprintMap<(Instant, Pending)>>,
}

impl Default for Renewals {
    fn default() -> Self {
        Self { key: Fingerprinter::with_random_key(), known: Mutex::default() }
    }
}

impl Renewals {
    /// The renewal of a session, which `begin` begins where there is none.
    fn of(&self, key: Fingerprint, begin: impl FnOnce(watch::Sender<Option<Outcome>>)) -> Pending {
        let now = Instant::now();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, outcome)) = known.get(&key).filter(|(until, _)| *until > now) {
            return outcome.clone();
        }
        known.retain(|_, (until, _)| *until > now);
        let (sender, outcome) = watch::channel(None);
        known.insert(key, (now + KEPT, outcome.clone()));
        begin(sender);
        outcome
    }

    /// Lets the next request try again.
    fn forget(&self, key: Fingerprint) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }
}

impl Instance {
    /// Whether a session's access token has expired, or is about to.
    pub(super) fn has_expired(&self, session: &Session) -> bool {
        let leeway = u64::from(self.config.access_token_expires_leeway);
        session.expires.is_some_and(|expires| expires <= unix_time().saturating_add(leeway))
    }

    /// The session with a new access token.
    pub(super) async fn renewed(self: Arc<Self>, session: Session, refresh_token: String) -> Outcome {
        // Two sessions of one refresh token are the same but for when they were used.
        let own = self.renewals.key.clone().with(purpose("renewal", &self.config).as_bytes());
        let key = own.with(session.subject.as_bytes()).of(refresh_token.as_bytes());
        let instance = self.clone();
        let mut outcome = self.renewals.of(key, move |sender| {
            let provider = instance.provider().clone();
            provider.background().spawn(async move {
                let (outcome, may_try_again) = instance.renew(session, &refresh_token).await;
                if may_try_again {
                    instance.renewals.forget(key);
                }
                sender.send_replace(Some(outcome.map(Arc::new)));
            });
        });
        // It waits for the token endpoint, and perhaps for a document or two.
        let timeout = self.config.timeout() * 4;
        let known = tokio::time::timeout(timeout, outcome.wait_for(Option::is_some)).await;
        let known = known.ok().and_then(Result::ok).and_then(|known| known.clone());
        known.unwrap_or_else(|| Err(ProviderError::Unreachable("no token was renewed in time".to_owned())))
    }

    /// The renewed session, and whether the next request may try again after a failure. Without the metadata the refresh token
    /// was not used, and once there are tokens it was, whatever comes then.
    async fn renew(&self, session: Session, refresh_token: &str) -> (Result<Session, ProviderError>, bool) {
        let metadata = match self.provider().fetched_metadata().await {
            Ok(metadata) => metadata,
            Err(error) => return (Err(error), true),
        };
        let parameters = vec![("grant_type", "refresh_token"), ("refresh_token", refresh_token)];
        match self.client.tokens(&metadata, parameters).await {
            Ok(tokens) => (self.updated(&metadata, session, tokens).await, false),
            Err(error) => {
                let may_try_again =
                    matches!(error, ProviderError::Unreachable(_) | ProviderError::Misconfigured(_));
                (Err(error), may_try_again)
            }
        }
    }

    async fn updated(
        &self,
        metadata: &Metadata,
        mut session: Session,
        tokens: TokenResponse,
    ) -> Result<Session, ProviderError> {
        if let Some(id_token) = &tokens.id_token {
            let claims = self.id_token(metadata, id_token, None, Some(&session.subject)).await?;
            let claim = self.config.consumer_claim.as_deref();
            let consumer = claim.and_then(|claim| claims.get(claim)).and_then(Json::as_str);
            session.consumer = consumer.map(str::to_owned).or(session.consumer.take());
        }
        session.update(tokens, &self.config);
        Ok(session)
    }
}

#[cfg(test)]
mod tests {
    use super::super::OpenIdConnect;
    use super::super::config::Config;
    use super::super::tests::config;
    use super::*;
    use serde_json::json;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use weir_plugin::testing::{Gateway, entity, id};
    use weir_plugin::{Plugin, Record};

    /// A provider whose discovery document and tokens are there or not, and whose keys never are.
    fn provider(has_document: bool, tokens: Option<&'static str>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let [token_endpoint, jwks_uri] = ["token", "keys"].map(|path| format!("{base}/{path}"));
        let document =
            json!({ "issuer": base, "token_endpoint": token_endpoint, "jwks_uri": jwks_uri }).to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut head) = (stream.unwrap(), [0; 4096]);
                let len = stream.read(&mut head).unwrap();
                let (status, body) = match (&head[..len], tokens) {
                    ([b'G', b'E', b'T', b' ', b'/', b'd', ..], _) if has_document => ("200 OK", &*document),
                    ([b'P', ..], Some(tokens)) => ("200 OK", tokens),
                    _ => ("404 Not Found", "<html>"),
                };
                let head =
                    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n", body.len());
                stream.write_all(format!("{head}\r\n{body}").as_bytes()).unwrap();
            }
        });
        format!("{base}/d")
    }

    #[tokio::test]
    async fn a_failure_is_known_only_where_the_refresh_token_may_have_been_used() {
        const TOKENS: &str = r#"{"access_token":"a","id_token":"eyJhbGciOiJSUzI1NiJ9.e30.AAAA"}"#;
        for (has_document, tokens, is_known) in
            [(false, None, false), (true, None, true), (true, Some(TOKENS), true)]
        {
            let mut config = config("sixteen letters.");
            config["discovery"] = provider(has_document, tokens).into();
            let plugin = json!({ "id": id(1), "name": "openid-connect", "config": config });
            let plugin = entity::<weir_plugin::entity::Plugin>(plugin);
            let OpenIdConnect(instance) = Gateway::new(crate::PLUGINS).build_with(&plugin, |build| {
                OpenIdConnect::new(Config::from_resolved(&plugin.config).unwrap(), build).unwrap()
            });
            let renewals = instance.renewals.clone();
            let outcome = instance.renewed(Session::new("u-1".to_owned()), "refresh".to_owned()).await;
            let error = outcome.err().unwrap();
            match tokens {
                Some(_) => assert!(matches!(error, ProviderError::Unreachable(_)), "{error}"),
                None => assert!(matches!(error, ProviderError::Invalid(_)), "{error}"),
            }
            assert_eq!(renewals.known.lock().unwrap().len(), usize::from(is_known), "{error}");
        }
    }
}
