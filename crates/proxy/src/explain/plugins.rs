//! Explains which plugins run, with which of their configurations.
use super::{Answered, Named};
use crate::exchange::Exchange;
use crate::snapshot::CompiledRoute;
use crate::snapshot::chain::{Chain, Instance};
use serde::Serialize;
use std::collections::HashSet;
use weir_model::entity::Plugin;
use weir_model::{Document, Uuid};
use weir_plugin::{AccessEffect, Flow, Phases};

/// One plugin that runs.
#[derive(Debug, Clone, Serialize)]
pub struct PluginStep {
    /// The plugin's name.
    pub name: String,
    /// The configuration that applies.
    #[serde(flatten)]
    pub configured: Configured,
    /// False where its `protocols` leave out how the client came.
    pub runs: bool,
    /// Less specific configurations that it takes the place of, the most specific first; and those of groups with later
    /// names.
    pub overrides: Vec<Configured>,
}

/// One configuration of a plugin, and where it was put.
#[derive(Debug, Clone, Serialize)]
pub struct Configured {
    /// Its id.
    pub id: Uuid,
    /// Its own name.
    pub instance_name: Option<String>,
    /// The route that it is for.
    pub route: Option<Named>,
    /// The service that it is for.
    pub service: Option<Named>,
    /// The consumer that it is for.
    pub consumer: Option<Named>,
    /// The consumer group that it is for.
    pub consumer_group: Option<Named>,
}

impl Configured {
    fn of(plugin: &Plugin, document: &Document) -> Configured {
        let name =
            |id: &Uuid, found: Option<&Option<String>>| Named { id: *id, name: found.cloned().flatten() };
        let route = |id| document.routes.iter().find(|route| route.id == id).map(|route| &route.name);
        let service = |id| document.services.iter().find(|service| service.id == id).map(|it| &it.name);
        let group = |id| document.consumer_groups.iter().find(|it| it.id == id).map(|it| it.name.clone());
        let consumer = |id| document.consumers.iter().find(|it| it.id == id).map(|it| &it.username);
        Configured {
            id: plugin.id,
            instance_name: plugin.instance_name.clone(),
            route: plugin.route.as_ref().map(|id| name(id, route(*id))),
            service: plugin.service.as_ref().map(|id| name(id, service(*id))),
            consumer: plugin.consumer.as_ref().map(|id| name(id, consumer(*id))),
            consumer_group: plugin.consumer_group.map(|id| Named { id, name: group(id) }),
        }
    }

    /// `global`, or what it is for: `route orders`, `service shop and consumer alice`.
    pub fn scope(&self) -> String {
        let parts = [
            ("route", &self.route),
            ("service", &self.service),
            ("consumer", &self.consumer),
            ("consumer_group", &self.consumer_group),
        ];
        let parts: Vec<_> = parts
            .iter()
            .filter_map(|(kind, named)| Some(format!("{kind} {}", named.as_ref()?.label())))
            .collect();
        if parts.is_empty() { "global".to_owned() } else { parts.join(" and ") }
    }
}

/// The groups that the consumer is in, in their order.
pub(super) fn groups(exchange: &Exchange, document: &Document) -> Vec<Named> {
    let Some(consumer) = exchange.consumer().map(|consumer| consumer.entity.id) else { return Vec::new() };
    let members = document.consumer_group_consumers.iter().filter(|member| member.consumer == consumer);
    let of_them: HashSet<Uuid> = members.map(|member| member.consumer_group).collect();
    let groups = document.consumer_groups.iter().filter(|group| of_them.contains(&group.id));
    let mut groups: Vec<_> =
        groups.map(|group| Named { id: group.id, name: Some(group.name.clone()) }).collect();
    groups.sort_by(|a, b| a.name.cmp(&b.name));
    groups
}

/// The global plugins that may answer the request, or change it, before its route is found.
pub(super) fn rewriting(exchange: &Exchange, global: &Chain) -> Vec<String> {
    let instances = global.steps_of(Phases::REWRITE).filter_map(|step| step.base.as_ref());
    let running = instances.filter(|instance| {
        instance.runs(exchange.tls, Phases::REWRITE) && instance.hooks.may_rewrite(exchange)
    });
    running.map(|instance| instance.name.to_owned()).collect()
}

/// What the plugins of a route decide of a request.
#[derive(Default)]
pub(super) struct Decisions {
    /// The answer of a plugin in the place of the upstream's.
    pub(super) answer: Option<Answered>,
    /// The plugin that chooses the upstream.
    pub(super) upstream: Option<String>,
    /// The plugins that may decide otherwise when the request comes.
    pub(super) unless: Vec<String>,
}

impl Decisions {
    /// Adds what a plugin decides. Of the hooks only those of plugins that authenticate run, and those that are
    /// predictable: they change nothing but the exchange.
    fn add(&mut self, instance: &Instance, name: &str, exchange: &mut Exchange) {
        let effect = instance.hooks.access_effect(exchange);
        match effect {
            AccessEffect::Answers => self.answer = Some(Answered::later(name)),
            AccessEffect::ChoosesUpstream => self.upstream = Some(name.to_owned()),
            AccessEffect::Unknown => self.may_differ(name),
            // What the hook goes by may be otherwise when the request comes, such as the consumer.
            AccessEffect::Predictable if !self.unless.is_empty() => self.may_differ(name),
            AccessEffect::Passes if !instance.authenticates => {}
            AccessEffect::Passes | AccessEffect::Predictable => match instance.hooks.access(exchange) {
                Flow::Respond(answer) => self.answer = Some(Answered::new(&answer, Some(name))),
                Flow::Wait(_) => self.may_differ(name),
                Flow::Continue => {}
            },
        }
    }

    fn may_differ(&mut self, name: &str) {
        // Its rewrite hook may be there already.
        if !self.unless.iter().any(|known| known == name) {
            self.unless.push(name.to_owned());
        }
    }
}

/// The steps of a route's chain, and what they decide if the request is `followed` as far as them. `unless` has the plugins that
/// may have changed it before.
pub(super) fn walk(
    exchange: &mut Exchange,
    route: &CompiledRoute,
    document: &Document,
    followed: bool,
    unless: Vec<String>,
) -> (Vec<PluginStep>, Decisions) {
    let (mut steps, mut decisions) = (Vec::new(), Decisions { unless, ..Decisions::default() });
    for step in &route.chain.steps {
        let Some(instance) = step.configured(exchange) else { continue };
        let Some(plugin) = document.plugins.iter().find(|plugin| plugin.id == instance.id) else { continue };
        let runs = instance.runs(exchange.tls, Phases::ALL);
        steps.push(PluginStep {
            name: plugin.name.clone(),
            configured: Configured::of(plugin, document),
            runs,
            overrides: overridden(plugin, exchange, document),
        });
        exchange.engine.running = step.priority;
        if runs && followed && decisions.answer.is_none() {
            decisions.add(instance, &plugin.name, exchange);
        }
    }
    (steps, decisions)
}

fn overridden(chosen: &Plugin, exchange: &Exchange, document: &Document) -> Vec<Configured> {
    let consumer = exchange.consumer().map(|consumer| consumer.entity.id);
    let groups = groups(exchange, document);
    let place = |plugin: &Plugin| groups.iter().position(|group| Some(group.id) == plugin.consumer_group);
    let route = exchange.route().map(|route| route.entity.id);
    let service = exchange.route().and_then(|route| route.entity.service);
    let applies = |plugin: &&Plugin| {
        let here = |scope: Option<Uuid>, is: Option<Uuid>| scope.is_none() || scope == is;
        plugin.enabled
            && plugin.name == chosen.name
            && plugin.id != chosen.id
            && here(plugin.route, route)
            && here(plugin.service, service)
            && here(plugin.consumer, consumer)
            && (plugin.consumer_group.is_none() || place(plugin).is_some())
    };
    let mut others: Vec<&Plugin> = document.plugins.iter().map(|plugin| &**plugin).filter(applies).collect();
    others.sort_by_key(|plugin| (generality(plugin), place(plugin)));
    others.into_iter().map(|plugin| Configured::of(plugin, document)).collect()
}

/// Kong's order: the most specific first.
fn generality(plugin: &Plugin) -> usize {
    let is_of_group = plugin.consumer_group.is_some();
    match (plugin.route.is_some(), plugin.service.is_some(), plugin.consumer.is_some() || is_of_group) {
        (true, true, true) => usize::from(is_of_group),
        (true, false, true) if is_of_group => 4,
        (true, false, true) => 2,
        (false, true, true) if is_of_group => 5,
        (false, true, true) => 3,
        (true, true, false) => 6,
        (false, false, true) => 7 + usize::from(is_of_group),
        (true, false, false) => 9,
        (false, true, false) => 10,
        (false, false, false) => 11,
    }
}
