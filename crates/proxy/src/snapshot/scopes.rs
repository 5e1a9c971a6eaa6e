//! Which configuration of each plugin applies where: Kong's order of specificity, compiled into chains.

use super::chain::{ByConsumer, ByGroup, Chain, Instance, Own, Step};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use weir_model::Uuid;
use weir_plugin::ConsumerIndex;
use weir_plugin::engine::GroupIndex;

/// One configured plugin and where it was put.
pub(super) struct Placed {
    pub(super) priority: i32,
    pub(super) instance: Instance,
    pub(super) route: Option<Uuid>,
    pub(super) service: Option<Uuid>,
    pub(super) caller: Caller,
}

/// Whom a configuration is for.
pub(super) enum Caller {
    Anybody,
    Consumer(ConsumerIndex),
    Group(GroupIndex),
}

type Scope = (Option<Uuid>, Option<Uuid>);

/// All configured plugins.
pub(super) struct Scopes {
    /// From the highest priority to the lowest.
    plugins: Vec<Plugin>,
    /// The routes and services that have a configuration of their own.
    named: HashSet<Uuid>,
    /// By route and service, where these are named.
    chains: Mutex<HashMap<Scope, Arc<Chain>>>,
}

/// The configurations of one plugin, by scope.
struct Plugin {
    name: &'static str,
    priority: i32,
    anybody: HashMap<Scope, Instance>,
    consumers: HashMap<Scope, ByConsumer>,
    groups: HashMap<Scope, ByGroup>,
}

/// The same while they are collected.
#[derive(Default)]
struct Collected {
    anybody: HashMap<Scope, Instance>,
    consumers: HashMap<Scope, HashMap<ConsumerIndex, Instance>>,
    groups: HashMap<Scope, BTreeMap<GroupIndex, Instance>>,
}

impl Collected {
    fn add(&mut self, it: Placed) {
        let scope = (it.route, it.service);
        match it.caller {
            Caller::Anybody => drop(self.anybody.insert(scope, it.instance)),
            Caller::Consumer(index) => {
                drop(self.consumers.entry(scope).or_default().insert(index, it.instance));
            }
            Caller::Group(index) => drop(self.groups.entry(scope).or_default().insert(index, it.instance)),
        }
    }

    fn finish(self, name: &'static str, priority: i32) -> Plugin {
        let consumers = self.consumers.into_iter().map(|(scope, own)| (scope, Arc::new(own)));
        let groups = self.groups.into_iter().map(|(scope, own)| (scope, own.into_iter().collect()));
        let (consumers, groups) = (consumers.collect(), groups.collect());
        Plugin { name, priority, anybody: self.anybody, consumers, groups }
    }
}

impl Scopes {
    pub(super) fn new(placed: Vec<Placed>) -> Self {
        let mut plugins: HashMap<&'static str, (i32, Collected)> = HashMap::new();
        let named = placed.iter().flat_map(|it| it.route.into_iter().chain(it.service)).collect();
        for it in placed {
            let known = plugins.entry(it.instance.name);
            known.or_insert_with(|| (it.priority, Collected::default())).1.add(it);
        }
        let finished =
            plugins.into_iter().map(|(name, (priority, collected))| collected.finish(name, priority));
        let mut plugins: Vec<Plugin> = finished.collect();
        let order = |p: &Plugin| std::cmp::Reverse((p.priority, p.name));
        plugins.sort_by(|a, b| order(a).cmp(&order(b)));
        Self { plugins, named, chains: Mutex::default() }
    }

    /// The chain of a route and its service: the same of all for which the same is configured.
    pub(super) fn chain(&self, route: Option<Uuid>, service: Option<Uuid>) -> Arc<Chain> {
        let named = |id: &Uuid| self.named.contains(id);
        let (route, service) = (route.filter(named), service.filter(named));
        let mut chains = self.chains.lock().unwrap_or_else(PoisonError::into_inner);
        chains.entry((route, service)).or_insert_with(|| Arc::new(self.new_chain(route, service))).clone()
    }

    fn new_chain(&self, route: Option<Uuid>, service: Option<Uuid>) -> Chain {
        Chain::new(self.plugins.iter().filter_map(|plugin| plugin.step(route, service)).collect())
    }
}

impl Plugin {
    /// Kong's order, the most specific first.
    fn step(&self, route: Option<Uuid>, service: Option<Uuid>) -> Option<Step> {
        // A scope that lacks its route or service is a less specific one, which has its own turn below.
        let here = route.is_some().then_some((route, service)).filter(|_| service.is_some());
        let on_route = route.is_some().then_some((route, None));
        let on_service = service.is_some().then_some((None, service));
        let anywhere = Some((None, None));
        let anybody = |scope: Option<Scope>| self.anybody.get(&scope?).cloned();
        let consumers = |scope: Option<Scope>| self.consumers.get(&scope?).cloned().map(Own::Consumer);
        let groups = |scope: Option<Scope>| self.groups.get(&scope?).cloned().map(Own::Group);
        let own_here = [
            consumers(here),
            groups(here),
            consumers(on_route),
            consumers(on_service),
            groups(on_route),
            groups(on_service),
        ];
        let step = Step {
            priority: self.priority,
            own_here: own_here.into_iter().flatten().collect(),
            here: anybody(here),
            own_anywhere: [consumers(anywhere), groups(anywhere)].into_iter().flatten().collect(),
            base: anybody(on_route).or_else(|| anybody(on_service)).or_else(|| anybody(anywhere)),
        };
        step.applies().then_some(step)
    }
}

impl Step {
    fn applies(&self) -> bool {
        self.base.is_some()
            || self.here.is_some()
            || !self.own_anywhere.is_empty()
            || !self.own_here.is_empty()
    }
}
