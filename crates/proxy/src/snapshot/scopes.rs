//! Which configuration of each plugin applies where: Kong's order of specificity, compiled into chains.

use crate::chain::{ByConsumer, Chain, Instance, Step};
use crate::exchange::ConsumerIndex;
use crate::plugin::{Definition, Hooks};
use std::collections::HashMap;
use std::sync::Arc;
use weir_model::Uuid;

/// One configured plugin and where it was put.
pub(super) struct Placed {
    pub(super) definition: &'static Definition,
    pub(super) instance: Instance,
    pub(super) route: Option<Uuid>,
    pub(super) service: Option<Uuid>,
    pub(super) consumer: Option<ConsumerIndex>,
}

type Scope = (Option<Uuid>, Option<Uuid>);
type ByScope = HashMap<Scope, HashMap<ConsumerIndex, Instance>>;

/// All configured plugins, from the highest priority to the lowest.
pub(super) struct Scopes(Vec<Plugin>);

/// The configurations of one plugin, by scope.
struct Plugin {
    definition: &'static Definition,
    anybody: HashMap<Scope, Instance>,
    consumers: HashMap<Scope, ByConsumer>,
}

impl Scopes {
    pub(super) fn new(placed: Vec<Placed>) -> Self {
        let mut plugins: HashMap<&str, (Plugin, ByScope)> = HashMap::new();
        for it in placed {
            let (plugin, consumers) = plugins.entry(it.definition.name).or_insert_with(|| {
                let none = (HashMap::new(), HashMap::new());
                (Plugin { definition: it.definition, anybody: none.0, consumers: none.1 }, HashMap::new())
            });
            let scope = (it.route, it.service);
            match it.consumer {
                None => drop(plugin.anybody.insert(scope, it.instance)),
                Some(consumer) => drop(consumers.entry(scope).or_default().insert(consumer, it.instance)),
            }
        }
        let finish = |(mut plugin, consumers): (Plugin, ByScope)| {
            plugin.consumers = consumers.into_iter().map(|(scope, own)| (scope, Arc::new(own))).collect();
            plugin
        };
        let mut plugins: Vec<Plugin> = plugins.into_values().map(finish).collect();
        let order = |p: &Plugin| (std::cmp::Reverse(p.definition.priority), p.definition.name);
        plugins.sort_by(|a, b| order(a).cmp(&order(b)));
        Self(plugins)
    }

    /// The chain of a route and its service.
    pub(super) fn chain(&self, route: Option<Uuid>, service: Option<Uuid>) -> Chain {
        let steps: Vec<Step> = self.0.iter().filter_map(|plugin| plugin.step(route, service)).collect();
        let any = |wants: fn(&dyn Hooks) -> bool| steps.iter().any(|step| step.any(wants));
        let (wants_body, wants_client_certificate) =
            (any(|hooks| hooks.wants_body()), any(|hooks| hooks.wants_client_certificate()));
        Chain { steps, wants_body, wants_client_certificate }
    }
}

impl Plugin {
    fn step(&self, route: Option<Uuid>, service: Option<Uuid>) -> Option<Step> {
        // A scope that lacks its route or service is a less specific one, which has its own turn below.
        let both = route.is_some() && service.is_some();
        let anybody = |scope: Scope| self.anybody.get(&scope).cloned();
        let consumers = |scope: Scope| self.consumers.get(&scope).cloned();
        let here = both.then(|| anybody((route, service))).flatten();
        let on_route = route.and_then(|_| anybody((route, None)));
        let on_service = service.and_then(|_| anybody((None, service)));
        let step = Step {
            consumer_here: [
                both.then(|| consumers((route, service))).flatten(),
                route.and_then(|_| consumers((route, None))),
                service.and_then(|_| consumers((None, service))),
            ]
            .into_iter()
            .flatten()
            .collect(),
            here,
            consumer_anywhere: consumers((None, None)),
            base: on_route.or(on_service).or_else(|| anybody((None, None))),
        };
        step.applies().then_some(step)
    }
}

impl Step {
    fn applies(&self) -> bool {
        self.base.is_some()
            || self.here.is_some()
            || self.consumer_anywhere.is_some()
            || !self.consumer_here.is_empty()
    }

    fn any(&self, wants: fn(&dyn Hooks) -> bool) -> bool {
        let own = self.consumer_here.iter().chain(&self.consumer_anywhere).flat_map(|own| own.values());
        self.here.iter().chain(&self.base).chain(own).any(|instance| wants(&*instance.hooks))
    }
}
