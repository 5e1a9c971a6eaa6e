//! The plugin chain of a route, in execution order, compiled with the snapshot.

use std::collections::HashMap;
use std::sync::Arc;
use weir_model::Uuid;
use weir_plugin::engine::GroupIndex;
use weir_plugin::{Admission, ConsumerIndex, Hooks, Session, WantsBody};

/// The plugins of one route, from the highest priority to the lowest.
#[derive(Default)]
pub(crate) struct Chain {
    pub(crate) steps: Vec<Step>,
    /// The first step whose access hook reads the request's body, and whether one of them needs it.
    pub(crate) reader: Option<(usize, WantsBody)>,
    /// Whether clients are asked for certificates.
    pub(crate) wants_client_certificate: bool,
}

/// The configurations that consumers have of their own, shared by all chains of one scope.
pub(crate) type ByConsumer = Arc<HashMap<ConsumerIndex, Instance>>;

/// The configurations that consumer groups have of their own, in the order of the groups, shared likewise.
pub(crate) type ByGroup = Arc<[(GroupIndex, Instance)]>;

/// The configurations of one scope that are for some consumers alone.
pub(crate) enum Own {
    Consumer(ByConsumer),
    Group(ByGroup),
}

/// One plugin's place in the chain, and which of its configurations applies, the most specific first.
#[derive(Default)]
pub(crate) struct Step {
    /// The plugin's priority.
    pub(crate) priority: i32,
    /// Of a consumer or a group on this route and service, on this route, on this service.
    pub(crate) own_here: Vec<Own>,
    /// Of this route and service; stands here only if `own_anywhere` comes between it and `base`.
    pub(crate) here: Option<Instance>,
    /// Of a consumer or a group on any route.
    pub(crate) own_anywhere: Vec<Own>,
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
    /// Whether the plugin finds out who calls, or asks about that alone.
    pub(crate) authenticates: bool,
    pub(crate) hooks: Arc<dyn Hooks>,
    pub(crate) http: bool,
    pub(crate) https: bool,
    /// Whether it runs for sessions of stream listeners.
    pub(crate) stream: bool,
}

impl Step {
    /// Whether some consumers or groups have a configuration of their own.
    pub(crate) fn has_own(&self) -> bool {
        !self.own_here.is_empty() || !self.own_anywhere.is_empty()
    }

    /// The configuration that applies to requests without a consumer.
    pub(crate) fn for_nobody(&self) -> Option<&Instance> {
        self.here.as_ref().or(self.base.as_ref())
    }
}

impl Own {
    /// The configurations.
    pub(crate) fn instances(&self) -> Box<dyn Iterator<Item = &Instance> + '_> {
        match self {
            Own::Consumer(own) => Box::new(own.values()),
            Own::Group(own) => Box::new(own.iter().map(|(_, instance)| instance)),
        }
    }
}

impl Instance {
    /// Whether it runs for requests that came by this scheme.
    pub(crate) fn runs(&self, tls: bool) -> bool {
        if tls { self.https } else { self.http }
    }
}

impl Chain {
    /// The plugins that run for sessions.
    fn of_sessions(&self) -> impl Iterator<Item = &dyn Hooks> {
        let configured = self.steps.iter().filter_map(Step::for_nobody);
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts its calls, and admits all callers or none.
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
            let instance = Instance {
                id: Uuid::nil(),
                name: "doorman",
                authenticates: false,
                hooks,
                http: true,
                https: true,
                stream,
            };
            Step { base: Some(instance), ..Step::default() }
        };
        let (kind, stern, last) =
            (doorman(Admission::Admit), doorman(Admission::Refuse), doorman(Admission::Admit));
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 80));
        let session = Session::new(address, address);
        let chain = |steps| Chain { steps, ..Chain::default() };
        let of_requests = chain(vec![step(&kind, true), step(&stern, false), step(&last, true)]);
        assert_eq!(of_requests.preread(&session), Admission::Admit);
        let of_streams = chain(vec![step(&kind, true), step(&stern, true), step(&last, true)]);
        assert_eq!(of_streams.preread(&session), Admission::Refuse);
        let asked = [&kind, &stern, &last].map(|doorman| doorman.1.load(Ordering::Relaxed));
        assert_eq!(asked, [2, 1, 1], "no plugin runs after the one that rejects");
    }
}
