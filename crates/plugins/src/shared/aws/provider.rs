//! Credentials that are got when they are needed, and again shortly before they expire.

use super::source::{self, ImdsVersion};
use super::sts::Sts;
use super::{Credentials, CredentialsError};
use arc_swap::ArcSwapOption;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};
use weir_plugin::{BuildContext, HttpClient, HttpProxy};

/// Credentials are got anew this long before they expire, or earlier in the last quarter of a short life.
const MARGIN: Duration = Duration::from_secs(300);
/// After a failure no source is asked for this long.
const BACKOFF: Duration = Duration::from_secs(2);
/// How long an idle connection to STS is kept.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// What the credentials of a caller derive from. Providers of the same configuration are one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CredentialsConfig {
    /// Given ones, in the place of those that are found.
    pub(crate) given: Option<Credentials>,
    /// A role that is assumed with them.
    pub(crate) role: Option<AssumedRole>,
    pub(crate) region: String,
    /// A URL in the place of AWS's own STS.
    pub(crate) sts_endpoint: Option<String>,
    pub(crate) imds: ImdsVersion,
    /// What STS is asked through.
    pub(crate) proxy: Option<HttpProxy>,
    /// Whether STS's certificate is verified.
    pub(crate) ssl_verify: bool,
}

/// A role, and the name of the session in AWS's records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AssumedRole {
    pub(crate) arn: String,
    pub(crate) session_name: String,
}

/// Credentials as they came.
pub(super) struct Temporary {
    pub(super) credentials: Credentials,
    /// None if they do not expire.
    pub(super) expires: Option<SystemTime>,
    /// Who gave them.
    pub(super) server: &'static str,
}

/// Credentials, and until when they hold.
struct Cached {
    credentials: Arc<Credentials>,
    /// When others are to be got, and when these expire.
    times: Option<(SystemTime, SystemTime)>,
}

/// Gets the credentials of one configuration.
pub(crate) struct CredentialsProvider {
    source: Source,
    cached: ArcSwapOption<Cached>,
    /// Held by who gets credentials.
    refreshing: tokio::sync::Mutex<Option<(Instant, CredentialsError)>>,
}

enum Source {
    /// Those that do not change.
    Given(Arc<Credentials>),
    /// The environment or the machine.
    Found { local: Box<HttpClient>, sts: Result<Box<Sts>, CredentialsError>, imds: ImdsVersion },
    /// A role that others' credentials may assume.
    Role { role: AssumedRole, sts: Result<Box<Sts>, CredentialsError>, base: Arc<CredentialsProvider> },
}

/// The providers in use, so that plugins with the same configuration ask AWS once.
#[derive(Default)]
struct Providers(Mutex<Vec<(CredentialsConfig, Weak<CredentialsProvider>)>>);

impl CredentialsProvider {
    /// The provider of a configuration. `switch` is what turns the verification of certificates off.
    pub(crate) fn of(
        config: &CredentialsConfig,
        build: &BuildContext<'_>,
        switch: &'static str,
    ) -> Result<Arc<Self>, String> {
        let providers = build.retained.get::<Providers>();
        let known = |config: &CredentialsConfig| {
            let mut all = providers.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|(_, provider)| provider.strong_count() > 0);
            all.iter().find(|(known, _)| known == config).and_then(|(_, provider)| provider.upgrade())
        };
        if let Some(provider) = known(config) {
            return Ok(provider);
        }
        let source = Source::new(config, build, switch)?;
        let provider =
            Arc::new(Self { source, cached: ArcSwapOption::empty(), refreshing: Default::default() });
        let mut all = providers.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push((config.clone(), Arc::downgrade(&provider)));
        Ok(provider)
    }

    /// The credentials. While one request gets new ones, others go on with the old ones, or wait if those have expired.
    pub(crate) async fn get(&self) -> Result<Arc<Credentials>, CredentialsError> {
        if let Source::Given(credentials) = &self.source {
            return Ok(credentials.clone());
        }
        let cached = self.cached.load_full().filter(|cached| !cached.is_expired());
        match cached {
            Some(cached) if !cached.is_due() => Ok(cached.credentials.clone()),
            Some(cached) => match self.refreshing.try_lock() {
                Ok(mut failure) => {
                    Ok(self.refresh(&mut failure).await.unwrap_or_else(|_| cached.credentials.clone()))
                }
                Err(_) => Ok(cached.credentials.clone()),
            },
            None => {
                let mut failure = self.refreshing.lock().await;
                // Another request may have got them meanwhile.
                match self.cached.load_full().filter(|cached| !cached.is_expired()) {
                    Some(cached) => Ok(cached.credentials.clone()),
                    None => self.refresh(&mut failure).await,
                }
            }
        }
    }

    async fn refresh(
        &self,
        failure: &mut Option<(Instant, CredentialsError)>,
    ) -> Result<Arc<Credentials>, CredentialsError> {
        if let Some((_, error)) = failure.as_ref().filter(|(at, _)| at.elapsed() < BACKOFF) {
            return Err(error.clone());
        }
        match self.source.fetch().await.and_then(Cached::new) {
            Ok(cached) => {
                *failure = None;
                let credentials = cached.credentials.clone();
                self.cached.store(Some(Arc::new(cached)));
                Ok(credentials)
            }
            Err(error) => {
                tracing::warn!("no new AWS credentials: {error}");
                *failure = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }
}

impl Source {
    fn new(
        config: &CredentialsConfig,
        build: &BuildContext<'_>,
        switch: &'static str,
    ) -> Result<Self, String> {
        let sts = || {
            let dialer = build.tls_dialer(config.ssl_verify, switch)?;
            let client = HttpClient::through(config.proxy.clone(), dialer, KEEPALIVE);
            Ok::<_, String>(Sts::new(client, config.sts_endpoint.as_deref(), &config.region).map(Box::new))
        };
        if let Some(role) = &config.role {
            let base = CredentialsConfig { role: None, ..config.clone() };
            let base = CredentialsProvider::of(&base, build, switch)?;
            return Ok(Self::Role { role: role.clone(), sts: sts()?, base });
        }
        if let Some(given) = &config.given {
            return Ok(Self::Given(Arc::new(given.clone())));
        }
        let local = Box::new(HttpClient::new(build.tls_dialer(config.ssl_verify, switch)?));
        Ok(Self::Found { local, sts: sts()?, imds: config.imds })
    }

    /// Boxed, because a role asks another provider.
    fn fetch(&self) -> Pin<Box<dyn Future<Output = Result<Temporary, CredentialsError>> + Send + '_>> {
        Box::pin(async move {
            match self {
                Self::Given(given) => {
                    let credentials = Credentials::clone(given);
                    Ok(Temporary { credentials, expires: None, server: "the configuration" })
                }
                Self::Found { local, sts, imds } => {
                    source::find(local, sts.as_deref().map_err(Clone::clone), *imds).await
                }
                Self::Role { role, sts, base } => {
                    let sts = sts.as_ref().map_err(Clone::clone)?;
                    let credentials = base.get().await?;
                    sts.assume_role(&credentials, (&role.arn, &role.session_name)).await
                }
            }
        })
    }
}

impl Cached {
    fn new(temporary: Temporary) -> Result<Self, CredentialsError> {
        let (now, server) = (SystemTime::now(), temporary.server);
        let times = temporary.expires.map(|expires| {
            let left = expires.duration_since(now).ok().filter(|left| !left.is_zero());
            let left = left.ok_or(CredentialsError::Expired { server })?;
            Ok((expires - MARGIN.min(left / 4), expires))
        });
        Ok(Self { credentials: Arc::new(temporary.credentials), times: times.transpose()? })
    }

    fn is_due(&self) -> bool {
        self.times.is_some_and(|(due, _)| due <= SystemTime::now())
    }

    fn is_expired(&self) -> bool {
        self.times.is_some_and(|(_, expires)| expires <= SystemTime::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn temporary(seconds: Option<u64>) -> Temporary {
        let credentials = Credentials {
            access_key_id: "AKID".to_owned(),
            secret_access_key: "hunter2".to_owned().into(),
            session_token: None,
        };
        let expires = seconds.map(|seconds| SystemTime::now() + Duration::from_secs(seconds));
        Temporary { credentials, expires, server: "a test" }
    }

    #[test]
    fn credentials_are_got_anew_before_they_expire() {
        let margin = |seconds| {
            let (due, expires) = Cached::new(temporary(Some(seconds))).ok().unwrap().times.unwrap();
            expires.duration_since(due).unwrap().as_secs()
        };
        assert_eq!((margin(43_200), margin(3_600), margin(900), margin(100)), (300, 300, 224, 24));
        assert!(Cached::new(temporary(None)).ok().unwrap().times.is_none());
        let expired = Cached::new(temporary(Some(0))).err().unwrap().to_string();
        assert!(expired.contains("a test") && expired.contains("clock"), "{expired}");
    }
}
