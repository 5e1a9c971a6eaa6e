//! Shared by the authentication plugins: the anonymous consumer, and how consumers are found by name.

use std::collections::HashMap;
use weir_plugin::{BuildContext, ConsumerIndex, Exchange, Flow, LocalResponse, Uuid};

/// What happens to requests that could not be authenticated.
pub(crate) enum Fallback {
    /// They are refused.
    Refuse,
    /// They pass as this consumer.
    Anonymous(ConsumerIndex),
    /// The configured anonymous consumer does not exist.
    Missing(String),
}

impl Fallback {
    /// From `anonymous` of a configuration.
    pub(crate) fn of(anonymous: Option<&str>, build: &BuildContext<'_>) -> Self {
        let Some(named) = anonymous else { return Fallback::Refuse };
        build.consumer_named(named).map_or_else(|| Fallback::Missing(named.to_owned()), Fallback::Anonymous)
    }

    /// Whether another plugin's success suffices: plugins with `anonymous` are alternatives to each other.
    pub(crate) fn is_settled(&self, exchange: &Exchange) -> bool {
        !matches!(self, Fallback::Refuse) && exchange.credential().is_some()
    }

    /// Refuses the request, or lets it pass as the anonymous consumer.
    pub(crate) fn unauthenticated(
        &self,
        exchange: &mut Exchange,
        refusal: impl FnOnce() -> LocalResponse,
    ) -> Flow {
        match self {
            Fallback::Refuse => Flow::Respond(refusal()),
            Fallback::Anonymous(consumer) => {
                exchange.authenticate_anonymous(*consumer);
                Flow::Continue
            }
            Fallback::Missing(named) => {
                let message = format!("anonymous consumer {named} is configured but doesn't exist");
                Flow::Respond(LocalResponse::error(500, &message))
            }
        }
    }
}

/// The consumers by username, id or custom id.
pub(crate) struct Consumers {
    by_username: HashMap<String, (ConsumerIndex, Uuid)>,
    by_custom_id: HashMap<String, (ConsumerIndex, Uuid)>,
}

impl Consumers {
    pub(crate) fn new(build: &BuildContext<'_>) -> Self {
        let (mut by_username, mut by_custom_id) = (HashMap::new(), HashMap::new());
        for consumer in &build.document().consumers {
            let Some(index) = build.consumer(consumer.id) else { continue };
            let add = |names: &mut HashMap<_, _>, name: &Option<String>| {
                if let Some(name) = name {
                    names.insert(name.clone(), (index, consumer.id));
                }
            };
            add(&mut by_username, &consumer.username);
            add(&mut by_custom_id, &consumer.custom_id);
        }
        Self { by_username, by_custom_id }
    }

    /// Finds the consumer with this name; `by` lists what to compare it with, in order.
    pub(crate) fn find(&self, by: &[impl AsRef<str>], name: &str) -> Option<(ConsumerIndex, Uuid)> {
        by.iter()
            .find_map(|by| match by.as_ref() {
                "username" => self.by_username.get(name),
                _ => self.by_custom_id.get(name),
            })
            .copied()
    }
}
