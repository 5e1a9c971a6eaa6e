//! Running the hooks of a chain: which configuration of each plugin applies, and in which order they run.

use crate::costs::Phase;
use crate::exchange::Exchange;
use crate::observe::hooks;
use crate::snapshot::chain::{Chain, Instance, Own, Step};
use weir_http1::Headers;
use weir_plugin::engine::{GroupIndex, ReplaceLater, is_said_by_head};
use weir_plugin::{self as plugin, ConsumerIndex, Flow, Hooks, Phases};

impl Step {
    fn instance(&self, exchange: &Exchange, phase: Phases) -> Option<&Instance> {
        let instance = self.configured(exchange)?;
        instance.runs(exchange.tls, phase).then_some(instance)
    }

    /// The configuration that applies to who calls. It is the same for all hooks of a request: what counts is the
    /// consumer that was known when it was this plugin's turn among the access hooks, whether it has one or not.
    pub(crate) fn configured(&self, exchange: &Exchange) -> Option<&Instance> {
        match exchange.engine.is_anybody_named() {
            true if self.has_own() => match exchange.engine.consumer_at(self.priority) {
                Some(consumer) => self.for_consumer(consumer, exchange),
                None => self.for_nobody(),
            },
            _ => self.for_nobody(),
        }
    }

    fn for_consumer(&self, consumer: ConsumerIndex, exchange: &Exchange) -> Option<&Instance> {
        let here = Own::first(&self.own_here, consumer, exchange).or(self.here.as_ref());
        here.or_else(|| Own::first(&self.own_anywhere, consumer, exchange)).or(self.base.as_ref())
    }
}

impl Own {
    fn first<'i>(own: &'i [Own], consumer: ConsumerIndex, exchange: &Exchange) -> Option<&'i Instance> {
        own.iter().find_map(|own| own.of(consumer, exchange))
    }

    fn of(&self, consumer: ConsumerIndex, exchange: &Exchange) -> Option<&Instance> {
        match self {
            Own::Consumer(own) => own.get(&consumer),
            Own::Group(own) => first_in_common(own, exchange.groups_of(consumer)),
        }
    }
}

/// The configuration of the first group that both lists have. Either may be long, so the shorter one is gone through.
fn first_in_common<'i>(own: &'i [(GroupIndex, Instance)], groups: &[GroupIndex]) -> Option<&'i Instance> {
    let found = if own.len() < groups.len() {
        own.iter().position(|(group, _)| groups.binary_search(group).is_ok())
    } else {
        groups.iter().find_map(|group| own.binary_search_by_key(group, |(group, _)| *group).ok())
    };
    found.map(|at| &own[at].1)
}

impl Chain {
    /// Whether there are rewrite hooks. Only the chain of requests without a route may have some that run.
    #[inline]
    pub(crate) fn rewrites(&self) -> bool {
        self.steps_of(Phases::REWRITE).len() > 0
    }

    /// Runs the rewrite hooks from the one at `from` on. Stops where one responds or waits, and says where to go on and which
    /// it was; at the end it says no plugin.
    pub(crate) fn rewrite(&self, exchange: &mut Exchange, from: usize) -> (Flow, usize, Option<&Instance>) {
        for (at, step) in self.steps_of(Phases::REWRITE).enumerate().skip(from) {
            // Not the configuration of a consumer, if a hook has named one.
            let base = step.base.as_ref().filter(|base| base.runs(exchange.tls, Phases::REWRITE));
            let Some(instance) = base else { continue };
            let run = |hooks: &dyn Hooks, exchange: &mut plugin::Exchange| hooks.rewrite(exchange);
            match hooks::hook_that_waits(instance, Phase::Rewrite, exchange, run) {
                Flow::Continue => {}
                flow => return (flow, at + 1, Some(instance)),
            }
        }
        (Flow::Continue, 0, None)
    }

    /// How many steps have an access hook.
    pub(crate) fn access_hooks(&self) -> usize {
        self.steps_of(Phases::ACCESS).len()
    }

    /// Runs the access hooks from the one at `from` on, up to that at `until`. Stops where one responds or waits, and says
    /// which and where to go on.
    pub(crate) fn access(
        &self,
        exchange: &mut Exchange,
        from: usize,
        until: usize,
    ) -> (Flow, usize, Option<&Instance>) {
        for (at, step) in self.steps_of(Phases::ACCESS).enumerate().take(until).skip(from) {
            exchange.engine.running = step.priority;
            if let Some(instance) = step.instance(exchange, Phases::ACCESS) {
                let run = |hooks: &dyn Hooks, exchange: &mut plugin::Exchange| hooks.access(exchange);
                match hooks::hook_that_waits(instance, Phase::Access, exchange, run) {
                    Flow::Continue => {}
                    flow => return (flow, at + 1, Some(instance)),
                }
            }
        }
        (Flow::Continue, until, None)
    }

    /// Runs the response hooks. A status that one of them sets is that of a final response.
    pub(crate) fn response(&self, exchange: &mut Exchange) {
        for step in self.steps_of(Phases::RESPONSE) {
            if let Some(instance) = step.instance(exchange, Phases::RESPONSE) {
                let status = exchange.response.status;
                hooks::hook(instance, Phase::Response, exchange, |hooks, exchange| hooks.response(exchange));
                if exchange.response.status != status {
                    exchange.response.status = plugin::engine::final_status(exchange.response.status);
                }
            }
        }
    }

    /// Has the plugins replace a response's body that is whole, from the one at `from` on. Stops where one waits to
    /// replace it, and says where to go on.
    pub(crate) fn response_body(
        &self,
        exchange: &mut Exchange,
        mut body: Vec<u8>,
        from: usize,
    ) -> (Vec<u8>, Option<(ReplaceLater, usize)>) {
        for (at, step) in self.steps_of(Phases::RESPONSE_BODY).enumerate().skip(from) {
            if let Some(instance) = step.instance(exchange, Phases::RESPONSE_BODY) {
                let run =
                    |hooks: &dyn Hooks, exchange: &mut plugin::Exchange| hooks.response_body(exchange, body);
                body = hooks::hook(instance, Phase::ResponseBody, exchange, run);
                if let Some(later) = exchange.engine.take_later() {
                    return (body, Some((later, at + 1)));
                }
            }
        }
        (body, None)
    }

    /// The trailers of a request that the upstream gets: not those that would speak for a header, of the request itself or of a
    /// plugin.
    pub(crate) fn passing_trailers(&self, exchange: &Exchange, trailers: &Headers) -> Headers {
        let is_owned = |name: &[u8]| {
            let mut instances = self.steps.iter().filter_map(|step| step.configured(exchange));
            instances.any(|instance| instance.hooks.owns_request_header(name))
        };
        let mut passing = Headers::new();
        for field in trailers.iter().filter(|field| !is_said_by_head(exchange, field.name)) {
            if !is_owned(field.name) {
                passing.append(field.name, field.value);
            }
        }
        passing
    }

    /// Runs the log hooks.
    pub(crate) fn log(&self, exchange: &mut Exchange) {
        for step in self.steps_of(Phases::LOG) {
            if let Some(instance) = step.instance(exchange, Phases::LOG) {
                hooks::hook(instance, Phase::Log, exchange, |hooks, exchange| hooks.log(exchange));
            }
        }
    }
}
