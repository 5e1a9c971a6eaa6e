//! One request and its response, as the engine serves it: what plugins see of it, and what they do not.

mod decision;
mod sampler;
mod time_tree;
mod times;
mod worker_snapshot;

pub(crate) use decision::{Decision, grpc_cause};
pub(crate) use sampler::{Call, Sampler, Waited};
pub(crate) use time_tree::Tree;
pub(crate) use times::Times;
pub(crate) use worker_snapshot::WorkerSnapshot;

use crate::snapshot::CompiledRoute;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::time::Duration;
use weir_http1::Known;
use weir_plugin as plugin;
use weir_plugin::engine;
use weir_plugin::engine::{BodyChanges, grpc_status};

pub(crate) use weir_plugin::engine::{Connection, GroupIndex, Heads, NormalPath, Tls};
pub(crate) use weir_plugin::{ConsumerIndex, FailedTry, Source, WORKSPACE};

/// One request and its response.
pub(crate) struct Exchange {
    /// What plugins see.
    pub(crate) public: plugin::Exchange,
    /// The configuration that was active when it began.
    pub(crate) snapshot: Rc<WorkerSnapshot>,
    /// Whether its hooks are measured.
    pub(crate) watch: Sampler,
    /// What decided its outcome.
    pub(crate) decision: Decision,
    measured: Option<Box<Measured>>,
}

/// What few exchanges have: those that are measured.
#[derive(Default)]
struct Measured {
    took: Vec<Took>,
    times: Option<Times>,
    /// The hook that waits.
    waiting: Option<Call>,
}

/// The time that a plugin's hooks have taken, for `Server-Timing`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Took {
    pub(crate) plugin: &'static str,
    pub(crate) spent: Duration,
    pub(crate) waited: Option<Duration>,
}

impl Exchange {
    /// A request whose head has arrived, on its way from here.
    #[inline(always)] // It is too large to be moved for each request.
    pub(crate) fn new(
        connection: &Rc<Connection>,
        snapshot: Rc<WorkerSnapshot>,
        origin: (usize, [u8; 32]),
        heads: Heads,
        watch: Sampler,
    ) -> Exchange {
        Exchange {
            public: engine::begin(connection, snapshot.configuration.clone(), origin, heads),
            snapshot,
            watch,
            decision: Decision::default(),
            measured: None,
        }
    }

    /// The route that the request matched.
    pub(crate) fn route(&self) -> Option<&CompiledRoute> {
        self.engine.route.map(|index| &self.snapshot.routes[index as usize])
    }

    /// The groups that a consumer is in, in the order of their names.
    pub(crate) fn groups_of(&self, ConsumerIndex(index): ConsumerIndex) -> &[GroupIndex] {
        self.snapshot.consumers[index as usize].groups()
    }

    /// Has it see another configuration from now on.
    pub(crate) fn set_snapshot(&mut self, snapshot: Rc<WorkerSnapshot>) {
        self.engine.configuration = snapshot.configuration.clone();
        self.snapshot = snapshot;
    }

    /// Takes what the response hooks have asked for the body. Those of gRPC calls are neither buffered nor left out: their
    /// messages are for the client one by one.
    #[inline]
    pub(crate) fn take_body_changes(&mut self) -> Option<BodyChanges> {
        let mut changes = self.engine.take_body_changes()?;
        if grpc_status::is_call(self) {
            (changes.buffers, changes.drops) = (false, false);
        }
        Some(changes)
    }

    // ---- what is measured of few ----

    fn measured(&mut self) -> &mut Measured {
        self.measured.get_or_insert_default()
    }

    /// A plugin's hook has taken so long, which is added to what others of its name have.
    pub(crate) fn took(&mut self, plugin: &'static str, spent: Duration, waited: Option<Duration>) {
        let took = &mut self.measured().took;
        match took.iter_mut().find(|took| took.plugin == plugin) {
            Some(took) => {
                took.spent += spent;
                if let Some(waited) = waited {
                    *took.waited.get_or_insert_default() += waited;
                }
            }
            None => took.push(Took { plugin, spent, waited }),
        }
    }

    /// What plugins have taken, in the order in which they ran.
    pub(crate) fn took_by_plugin(&self) -> &[Took] {
        self.measured.as_ref().map_or(&[], |measured| &measured.took)
    }

    /// The times that are written down, where the client has asked for them.
    #[inline]
    pub(crate) fn times(&mut self) -> Option<&mut Times> {
        self.measured.as_mut()?.times.as_mut()
    }

    pub(crate) fn set_times(&mut self, times: Times) {
        self.measured().times = Some(times);
    }

    pub(crate) fn take_times(&mut self) -> Option<Times> {
        self.measured.as_mut()?.times.take()
    }

    /// A hook that is measured waits.
    pub(crate) fn set_waiting(&mut self, call: Call) {
        self.measured().waiting = Some(call);
    }

    pub(crate) fn take_waiting(&mut self) -> Option<Call> {
        self.measured.as_mut()?.waiting.take()
    }
}

impl Deref for Exchange {
    type Target = plugin::Exchange;

    #[inline]
    fn deref(&self) -> &plugin::Exchange {
        &self.public
    }
}

impl DerefMut for Exchange {
    #[inline]
    fn deref_mut(&mut self) -> &mut plugin::Exchange {
        &mut self.public
    }
}

/// Whether a proxy says that it passes the request on, so that the peer is not who asks.
pub(crate) fn is_forwarded(exchange: &plugin::Exchange) -> bool {
    let headers = &exchange.request.headers;
    exchange.engine.connection.announced
        || headers.contains_known(Known::XForwardedFor)
        || headers.contains_known(Known::XRealIp)
        || headers.get("Forwarded").is_some()
}
