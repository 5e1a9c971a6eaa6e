//! The plugin chain of a route, in execution order, compiled with the snapshot.

use std::collections::HashMap;
use std::sync::Arc;
use weir_model::Uuid;
use weir_plugin::engine::GroupIndex;
use weir_plugin::{Admission, ConsumerIndex, Hooks, Phases, Session, WantsBody};

/// The plugins of one route, from the highest priority to the lowest.
#[derive(Default)]
pub(crate) struct Chain {
    pub(crate) steps: Vec<Step>,
    /// The steps that take part in each phase.
    by_phase: StepsByPhase,
    /// How many access hooks run before the first that reads the request's body, and whether one of them needs it.
    pub(crate) reader: Option<(usize, WantsBody)>,
    /// Whether clients are asked for certificates.
    pub(crate) wants_client_certificate: bool,
}

/// For each phase, which steps take part in it, in their order: those with a configuration that does.
#[derive(Default)]
struct StepsByPhase {
    /// All lists, one behind the other.
    steps: Box<[u32]>,
    /// Where the list of each phase ends.
    ends: [u32; Phases::COUNT],
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

/// One configured plugin, and the phases that it takes part in by the protocols that it runs on.
#[derive(Clone)]
pub(crate) struct Instance {
    /// The entity that configures it.
    pub(crate) id: Uuid,
    /// The plugin's name.
    pub(crate) name: &'static str,
    /// Whether the plugin finds out who calls, or asks about that alone.
    pub(crate) authenticates: bool,
    pub(crate) hooks: Arc<dyn Hooks>,
    pub(crate) http: Phases,
    pub(crate) https: Phases,
    /// For sessions of stream listeners.
    pub(crate) stream: Phases,
}

/// What the configurations of one step want, taken together.
#[derive(Default)]
struct Wants {
    phases: Phases,
    body: WantsBody,
    client_certificate: bool,
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

    fn wants(&self) -> Wants {
        let own = self.own_here.iter().chain(&self.own_anywhere).flat_map(Own::instances);
        let all = self.here.iter().chain(&self.base).chain(own);
        all.fold(Wants::default(), |wants, instance| Wants {
            phases: wants.phases | instance.http | instance.https | instance.stream,
            body: wants.body.and(instance.hooks.wants_body()),
            client_certificate: wants.client_certificate || instance.hooks.wants_client_certificate(),
        })
    }
}

impl StepsByPhase {
    fn new(phases: &[Phases]) -> Self {
        let (mut steps, mut ends) = (Vec::new(), [0; Phases::COUNT]);
        for phase in Phases::ALL.each() {
            let taking_part = phases.iter().zip(0..).filter(|(phases, _)| phases.intersects(phase));
            steps.extend(taking_part.map(|(_, step)| step));
            ends[phase.index()] = steps.len() as u32;
        }
        Self { steps: steps.into(), ends }
    }

    #[inline]
    fn of(&self, phase: Phases) -> &[u32] {
        let index = phase.index();
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.steps[start as usize..self.ends[index] as usize]
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
    /// Whether it runs in the phase, or one of these, for requests that came by this scheme.
    pub(crate) fn runs(&self, tls: bool, phases: Phases) -> bool {
        if tls { self.https.intersects(phases) } else { self.http.intersects(phases) }
    }
}

impl Chain {
    /// The chain of these steps.
    pub(crate) fn new(steps: Vec<Step>) -> Self {
        let wants: Vec<Wants> = steps.iter().map(Step::wants).collect();
        let phases: Vec<Phases> = wants.iter().map(|wants| wants.phases).collect();
        let by_phase = StepsByPhase::new(&phases);
        let first = wants.iter().zip(0..).find(|(wants, _)| wants.body != WantsBody::No);
        let reader = first.map(|(_, first)| {
            let before = by_phase.of(Phases::ACCESS).partition_point(|step| *step < first);
            (before, wants.iter().fold(WantsBody::No, |all, wants| all.and(wants.body)))
        });
        let wants_client_certificate = wants.iter().any(|wants| wants.client_certificate);
        Self { steps, by_phase, reader, wants_client_certificate }
    }

    /// The steps that take part in a phase.
    #[inline]
    pub(crate) fn steps_of(&self, phase: Phases) -> impl ExactSizeIterator<Item = &Step> {
        self.by_phase.of(phase).iter().map(|step| &self.steps[*step as usize])
    }

    /// The plugins that run for sessions in a phase.
    fn of_sessions(&self, phase: Phases) -> impl Iterator<Item = &dyn Hooks> {
        let configured = self.steps_of(phase).filter_map(Step::for_nobody);
        let running = configured.filter(move |instance| instance.stream.intersects(phase));
        running.map(|instance| &*instance.hooks)
    }

    /// The plugins that have a say in TLS handshakes, which know of no route and no consumer.
    pub(crate) fn of_handshakes(&self) -> impl Iterator<Item = &Instance> {
        let global = self.steps_of(Phases::CERTIFICATE).filter_map(|step| step.base.as_ref());
        global.filter(|instance| instance.https.intersects(Phases::CERTIFICATE))
    }

    /// Whether every plugin admits the session.
    pub(crate) fn preread(&self, session: &Session) -> Admission {
        let refused =
            self.of_sessions(Phases::PREREAD).any(|hooks| hooks.preread(session) == Admission::Refuse);
        if refused { Admission::Refuse } else { Admission::Admit }
    }

    /// Runs the hooks of a session that has ended.
    pub(crate) fn log_stream(&self, session: &Session) {
        self.of_sessions(Phases::LOG_STREAM).for_each(|hooks| hooks.log_stream(session));
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
    fn each_phase_has_the_steps_that_take_part_in_it() {
        let base = |phases: Phases| Instance {
            id: Uuid::nil(),
            name: "doorman",
            authenticates: false,
            hooks: Arc::new(Doorman(Admission::Admit, AtomicUsize::new(0))),
            http: phases,
            https: Phases::NONE,
            stream: Phases::NONE,
        };
        let step = |priority, phases| Step { priority, base: Some(base(phases)), ..Step::default() };
        let own = Own::Consumer(Arc::new([(ConsumerIndex(0), base(Phases::RESPONSE))].into()));
        let chain = Chain::new(vec![
            step(4, Phases::ACCESS | Phases::LOG),
            step(3, Phases::NONE),
            Step { own_anywhere: vec![own], ..step(2, Phases::LOG) },
            step(1, Phases::ALL),
        ]);
        let steps = |phase| chain.steps_of(phase).map(|step| step.priority).collect::<Vec<_>>();
        assert_eq!(steps(Phases::ACCESS), [4, 1]);
        assert_eq!(steps(Phases::RESPONSE), [2, 1], "one of its configurations takes part");
        assert_eq!(steps(Phases::LOG), [4, 2, 1]);
        assert_eq!(steps(Phases::LOG_STREAM), [1]);
        assert_eq!(chain.steps.len(), 4);
    }

    #[test]
    fn a_session_is_admitted_by_every_plugin_of_streams_or_not_at_all() {
        let doorman = |admission| Arc::new(Doorman(admission, AtomicUsize::new(0)));
        let step = |hooks: &Arc<Doorman>, stream: bool| {
            let hooks: Arc<dyn Hooks> = hooks.clone();
            let instance = Instance {
                id: Uuid::nil(),
                name: "doorman",
                authenticates: false,
                hooks,
                http: Phases::ALL,
                https: Phases::ALL,
                stream: Phases::ALL.only_if(stream),
            };
            Step { base: Some(instance), ..Step::default() }
        };
        let (kind, stern, last) =
            (doorman(Admission::Admit), doorman(Admission::Refuse), doorman(Admission::Admit));
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 80));
        let session = Session::new(address, address);
        let of_requests = Chain::new(vec![step(&kind, true), step(&stern, false), step(&last, true)]);
        assert_eq!(of_requests.preread(&session), Admission::Admit);
        let of_streams = Chain::new(vec![step(&kind, true), step(&stern, true), step(&last, true)]);
        assert_eq!(of_streams.preread(&session), Admission::Refuse);
        let asked = [&kind, &stern, &last].map(|doorman| doorman.1.load(Ordering::Relaxed));
        assert_eq!(asked, [2, 1, 1], "no plugin runs after the one that rejects");
    }
}
