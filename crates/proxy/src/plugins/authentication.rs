//! What the authentication plugins share: whom a request without a valid credential passes as.

use crate::plugin::{Answer, Build, ConsumerIndex, Exchange, Flow};

/// Groups that an authentication plugin knows the caller to be in, whoever the consumer is.
pub(super) struct AuthenticatedGroups(pub(super) Vec<String>);

/// What becomes of requests that could not be authenticated.
pub(super) enum Fallback {
    /// They are refused.
    Refuse,
    /// They pass as this consumer.
    Anonymous(ConsumerIndex),
    /// They should pass as a consumer that does not exist.
    Missing(String),
}

impl Fallback {
    /// By the `anonymous` of a configuration.
    pub(super) fn of(anonymous: Option<&str>, build: &Build<'_>) -> Self {
        let Some(named) = anonymous else { return Fallback::Refuse };
        build.consumer_named(named).map_or_else(|| Fallback::Missing(named.to_owned()), Fallback::Anonymous)
    }

    /// Whether another plugin's success is enough: those with `anonymous` are alternatives to each other.
    pub(super) fn is_settled(&self, exchange: &Exchange) -> bool {
        !matches!(self, Fallback::Refuse) && exchange.credential().is_some()
    }

    /// Refuses the request, or lets it pass as the anonymous consumer.
    pub(super) fn unauthenticated(&self, exchange: &mut Exchange, refusal: impl FnOnce() -> Answer) -> Flow {
        match self {
            Fallback::Refuse => Flow::Respond(refusal()),
            Fallback::Anonymous(consumer) => {
                exchange.authenticate_anonymous(*consumer);
                Flow::Continue
            }
            Fallback::Missing(named) => {
                let message = format!("anonymous consumer {named} is configured but doesn't exist");
                Flow::Respond(Answer::error(500, &message))
            }
        }
    }
}
