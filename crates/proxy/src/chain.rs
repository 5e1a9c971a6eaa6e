//! The plugins that a route's requests meet, in order, compiled with the snapshot.

use crate::costs::{self, Phase};
use crate::exchange::{ConsumerIndex, Exchange};
use crate::plugin::{Admission, Flow, Hooks};
use crate::stream::Session;
use std::collections::HashMap;
use std::sync::Arc;
use weir_model::Uuid;

/// The plugins of one route, from the highest priority to the lowest.
#[derive(Default)]
pub(crate) struct Chain {
    pub(crate) steps: Vec<Step>,
    /// Whether an access hook reads the request's body.
    pub(crate) wants_body: bool,
    /// Whether clients are asked for certificates.
    pub(crate) wants_client_certificate: bool,
}

/// The configurations that consumers have of their own, shared by all chains of one scope.
pub(crate) type ByConsumer = Arc<HashMap<ConsumerIndex, Instance>>;

/// One plugin's place in the chain, and which of its configurations applies, the most specific first.
#[derive(Default)]
pub(crate) struct Step {
    /// Of a consumer on this route and service, on this route, on this service.
    pub(crate) consumer_here: Vec<ByConsumer>,
    /// Of this route and service; stands here only if `consumer_anywhere` comes between it and `base`.
    pub(crate) here: Option<Instance>,
    /// Of a consumer on any route.
    pub(crate) consumer_anywhere: Option<ByConsumer>,
    /// Of everybody else.
    pub(crate) base: Option<Instance>,
}

/// One configured plugin and the protocols that it runs on.
#[derive(Clone)]
pub(crate) struct Instance {
    /// The entity that configures it.
    pub(crate) id: Uuid,
    /// The plugin's name.
    pub(crate) name: &'static str,
    pub(crate) hooks: Arc<dyn Hooks>,
    pub(crate) http: bool,
    pub(crate) https: bool,
    /// Whether it runs for sessions of stream listeners.
    pub(crate) stream: bool,
}

impl Step {
    fn instance(&self, exchange: &Exchange) -> Option<&Instance> {
        let instance = self.configured(exchange.consumer)?;
        instance.runs(exchange.tls).then_some(instance)
    }

    /// The configuration that applies to this consumer, or to nobody in particular.
    pub(crate) fn configured(&self, consumer: Option<ConsumerIndex>) -> Option<&Instance> {
        match consumer {
            Some(consumer) => self.for_consumer(consumer),
            None => self.here.as_ref().or(self.base.as_ref()),
        }
    }

    fn for_consumer(&self, consumer: ConsumerIndex) -> Option<&Instance> {
        let here = self.consumer_here.iter().find_map(|own| own.get(&consumer)).or(self.here.as_ref());
        let anywhere = || self.consumer_anywhere.as_ref().and_then(|own| own.get(&consumer));
        here.or_else(anywhere).or(self.base.as_ref())
    }
}

impl Instance {
    /// Whether it runs for requests that came by this scheme.
    pub(crate) fn runs(&self, tls: bool) -> bool {
        if tls { self.https } else { self.http }
    }
}

impl Chain {
    /// Runs the access hooks from `from` on. Stops where one responds or waits, and says which and where to go on.
    pub(crate) fn access(&self, exchange: &mut Exchange, from: usize) -> (Flow, usize, Option<Uuid>) {
        for (at, step) in self.steps.iter().enumerate().skip(from) {
            if let Some(instance) = step.instance(exchange) {
                match costs::access(instance, exchange) {
                    Flow::Continue => {}
                    flow => return (flow, at + 1, Some(instance.id)),
                }
            }
        }
        (Flow::Continue, self.steps.len(), None)
    }

    /// Runs the response hooks.
    pub(crate) fn response(&self, exchange: &mut Exchange) {
        for step in &self.steps {
            if let Some(instance) = step.instance(exchange) {
                costs::hook(instance, Phase::Response, exchange, |hooks, exchange| hooks.response(exchange));
            }
        }
    }

    /// Has the plugins replace a response's body that is whole.
    pub(crate) fn response_body(&self, exchange: &mut Exchange, mut body: Vec<u8>) -> Vec<u8> {
        for step in &self.steps {
            if let Some(instance) = step.instance(exchange) {
                let run = |hooks: &dyn Hooks, exchange: &mut Exchange| hooks.response_body(exchange, body);
                body = costs::hook(instance, Phase::ResponseBody, exchange, run);
            }
        }
        body
    }

    /// The plugins that run for sessions.
    fn of_sessions(&self) -> impl Iterator<Item = &dyn Hooks> {
        let configured = self.steps.iter().filter_map(|step| step.configured(None));
        configured.filter(|instance| instance.stream).map(|instance| &*instance.hooks)
    }

    /// Whether every plugin admits the session.
    pub(crate) fn preread(&self, session: &Session) -> Admission {
        let refused = self.of_sessions().any(|hooks| hooks.preread(session) == Admission::Refuse);
        if refused { Admission::Refuse } else { Admission::Admit }
    }

    /// Runs the hooks of a session that has ended.
    pub(crate) fn session(&self, session: &Session) {
        self.of_sessions().for_each(|hooks| hooks.session(session));
    }

    /// Runs the log hooks.
    pub(crate) fn log(&self, exchange: &mut Exchange) {
        for step in &self.steps {
            if let Some(instance) = step.instance(exchange) {
                costs::hook(instance, Phase::Log, exchange, |hooks, exchange| hooks.log(exchange));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Transport;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts what it is asked, and admits nobody or everybody.
    struct Doorman(Admission, AtomicUsize);

    impl Hooks for Doorman {
        fn preread(&self, _: &Session) -> Admission {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0
        }
    }

    #[test]
    fn a_session_is_admitted_by_every_plugin_of_streams_or_not_at_all() {
        let doorman = |admission| Arc::new(Doorman(admission, AtomicUsize::new(0)));
        let step = |hooks: &Arc<Doorman>, stream| {
            let hooks: Arc<dyn Hooks> = hooks.clone();
            let instance =
                Instance { id: Uuid::nil(), name: "doorman", hooks, http: true, https: true, stream };
            Step { base: Some(instance), ..Step::default() }
        };
        let (kind, stern, last) =
            (doorman(Admission::Admit), doorman(Admission::Refuse), doorman(Admission::Admit));
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 80));
        let session = Session::new(address, address, Transport::Tcp);
        let chain = |steps| Chain { steps, wants_body: false, wants_client_certificate: false };
        let of_requests = chain(vec![step(&kind, true), step(&stern, false), step(&last, true)]);
        assert_eq!(of_requests.preread(&session), Admission::Admit);
        let of_streams = chain(vec![step(&kind, true), step(&stern, true), step(&last, true)]);
        assert_eq!(of_streams.preread(&session), Admission::Refuse);
        let asked = [&kind, &stern, &last].map(|doorman| doorman.1.load(Ordering::Relaxed));
        assert_eq!(asked, [2, 1, 1], "nobody is asked after the one who refuses");
    }
}
