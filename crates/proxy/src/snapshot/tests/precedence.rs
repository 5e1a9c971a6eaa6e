//! Which configuration of a plugin applies, against the order that Kong documents, looked up the slow and plain way.

use crate::exchange::Exchange;
use crate::snapshot::chain::Chain;
use crate::testing::{Gateway, entity, id};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;
use weir_model::Uuid;
use weir_model::entity::Plugin;
use weir_plugin::ConsumerIndex;

/// Kong's order, the most specific first: what a configuration is for.
const ORDER: [&[&str]; 12] = [
    &["consumer", "route", "service"],
    &["consumer_group", "route", "service"],
    &["consumer", "route"],
    &["consumer", "service"],
    &["consumer_group", "route"],
    &["consumer_group", "service"],
    &["route", "service"],
    &["consumer"],
    &["consumer_group"],
    &["route"],
    &["service"],
    &[],
];

/// Who calls, and what they ask for.
#[derive(Debug, Clone)]
struct Caller {
    route: Option<Uuid>,
    service: Option<Uuid>,
    consumer: Option<Uuid>,
    /// In the order of their names.
    groups: Vec<Uuid>,
}

fn field(plugin: &Plugin, name: &str) -> Option<Uuid> {
    match name {
        "route" => plugin.route,
        "service" => plugin.service,
        "consumer" => plugin.consumer,
        _ => plugin.consumer_group,
    }
}

impl Caller {
    fn is_meant(&self, plugin: &Plugin, field_name: &str) -> bool {
        let Some(named) = field(plugin, field_name) else { return false };
        match field_name {
            "route" => self.route == Some(named),
            "service" => self.service == Some(named),
            "consumer" => self.consumer == Some(named),
            _ => self.groups.contains(&named),
        }
    }

    fn reference(&self, plugins: &[Arc<Plugin>]) -> Option<Uuid> {
        let fields = ["route", "service", "consumer", "consumer_group"];
        ORDER.iter().find_map(|row| {
            let applies = |plugin: &&Arc<Plugin>| {
                fields.iter().all(|name| field(plugin, name).is_some() == row.contains(name))
                    && row.iter().all(|name| self.is_meant(plugin, name))
            };
            let place = |plugin: &&Arc<Plugin>| {
                self.groups.iter().position(|group| Some(*group) == plugin.consumer_group)
            };
            plugins.iter().filter(applies).min_by_key(place).map(|plugin| plugin.id)
        })
    }
}

fn chosen(chain: &Chain, exchange: &Exchange) -> Option<Uuid> {
    chain.steps.iter().find_map(|step| step.configured(exchange)).map(|instance| instance.id)
}

/// A configuration for a route, a service, a consumer, a group.
fn plugin(number: u128, scope: &[(&str, Uuid)]) -> Arc<Plugin> {
    let mut written = json!({ "id": id(number), "name": "request-termination" });
    for (field, id) in scope {
        written[*field] = json!(id);
    }
    entity(written)
}

fn group(number: u128, name: &str) -> Arc<weir_model::entity::ConsumerGroup> {
    entity(json!({ "id": id(number), "name": name }))
}

fn member(number: u128, group: u128, consumer: u128) -> Arc<weir_model::entity::ConsumerGroupConsumer> {
    entity(json!({ "id": id(number), "consumer_group": id(group), "consumer": id(consumer) }))
}

#[test]
fn every_combination_of_scopes_is_as_documented() {
    let (alice, orders, all, gold) = (id(1), id(0x51), id(0x61), id(0x71));
    let named = |name: &str| match name {
        "consumer" => alice,
        "consumer_group" => gold,
        "route" => all,
        _ => orders,
    };
    let mut gateway = Gateway::new();
    gateway.document.consumer_groups = vec![group(0x71, "gold")];
    gateway.document.consumer_group_consumers = vec![member(0x81, 0x71, 1), member(0x82, 0x71, 2)];
    let rows: Vec<Arc<Plugin>> = (0x100..)
        .zip(ORDER)
        .map(|(number, row)| plugin(number, &row.iter().map(|name| (*name, named(name))).collect::<Vec<_>>()))
        .collect();
    // Alice, Bob, who is in her group, a guest, who is in no group, and an anonymous client.
    let callers = [(Some(0), vec![gold]), (Some(1), vec![gold]), (Some(2), Vec::new()), (None, Vec::new())];
    for subset in 0..1 << ORDER.len() {
        let taken = rows.iter().enumerate().filter(|(place, _)| subset & (1 << place) != 0);
        gateway.document.plugins = taken.map(|(_, plugin)| plugin.clone()).collect();
        let mut exchange = gateway.exchange("GET /");
        for (index, groups) in callers.clone() {
            exchange.engine.consumer = index.map(ConsumerIndex);
            let consumer = exchange.consumer().map(|consumer| consumer.entity.id);
            let caller = Caller { route: Some(all), service: Some(orders), consumer, groups };
            let chain = &exchange.snapshot.routes[0].chain;
            assert_eq!(
                chosen(chain, &exchange),
                caller.reference(&gateway.document.plugins),
                "{caller:?} {:?}",
                gateway.document.plugins
            );
        }
    }
}

/// Few routes, services, consumers and groups, and configurations for any of them.
fn scopes() -> impl Strategy<Value = Vec<Vec<(&'static str, Uuid)>>> {
    let route = proptest::option::of(0x61u128..0x64);
    let service = proptest::option::of(0x51u128..0x53);
    let caller = prop_oneof![
        Just(None),
        (1u128..4).prop_map(|number| Some(("consumer", id(number)))),
        (0x71u128..0x76).prop_map(|number| Some(("consumer_group", id(number)))),
    ];
    let scope = (route, service, caller).prop_map(|(route, service, caller)| {
        let route = route.map(|number| ("route", id(number)));
        let service = service.map(|number| ("service", id(number)));
        route.into_iter().chain(service).chain(caller).collect()
    });
    proptest::collection::vec(scope, 0..40).prop_map(|mut scopes: Vec<Vec<_>>| {
        scopes.sort_unstable();
        scopes.dedup();
        scopes
    })
}

/// Names whose order is not that of their ids.
const NAMES: [(u128, &str); 5] =
    [(0x71, "silver"), (0x72, "gold"), (0x73, "Zinc"), (0x74, "g"), (0x75, "bronze")];

fn gateway(scopes: &[Vec<(&'static str, Uuid)>], members: &[(u128, u128)]) -> Gateway {
    let mut gateway = Gateway::new();
    let document = &mut gateway.document;
    document.services.push(entity(json!({ "id": id(0x52), "host": "other.test" })));
    for (number, service) in [(0x62, json!(id(0x52))), (0x63, Value::Null)] {
        document.routes.push(entity(json!({ "id": id(number), "paths": ["/"], "service": service })));
    }
    document.consumer_groups = NAMES.iter().map(|(number, name)| group(*number, name)).collect();
    let numbered = (0x1000..).zip(members);
    document.consumer_group_consumers =
        numbered.map(|(number, (group, consumer))| member(number, *group, *consumer)).collect();
    document.plugins = (0x100..).zip(scopes).map(|(number, scope)| plugin(number, scope)).collect();
    gateway
}

proptest! {
    #[test]
    fn of_several_groups_the_first_by_name_counts(
        scopes in scopes(),
        members in proptest::collection::btree_set((0x71u128..0x76, 1u128..4), 0..12),
    ) {
        let members: Vec<_> = members.into_iter().collect();
        let gateway = gateway(&scopes, &members);
        let mut exchange = gateway.exchange("GET /");
        let mut by_name = NAMES;
        by_name.sort_by_key(|(_, name)| *name);
        for consumer in [None, Some(0), Some(1), Some(2)] {
            exchange.engine.consumer = consumer.map(ConsumerIndex);
            let is_in = |group: u128| consumer.is_some_and(|at| members.contains(&(group, u128::from(at) + 1)));
            let groups: Vec<_> =
                by_name.iter().filter(|(number, _)| is_in(*number)).map(|(number, _)| id(*number)).collect();
            let routes = exchange.snapshot.routes.iter().map(|route| {
                (Some(route.entity.id), route.entity.service, &route.chain)
            });
            for (route, service, chain) in routes.chain([(None, None, &exchange.snapshot.global)]) {
                let caller = Caller {
                    route, service, consumer: consumer.map(|at| id(u128::from(at) + 1)), groups: groups.clone(),
                };
                let expected = caller.reference(&gateway.document.plugins);
                prop_assert_eq!(chosen(chain, &exchange), expected, "{:?}", caller);
            }
        }
    }
}

#[test]
fn who_was_known_at_a_plugins_turn_decides_whatever_becomes_known_later() {
    let mut gateway = Gateway::new();
    let everybody = plugin(0x100, &[]);
    let own = [1, 2].map(|consumer| plugin(0x100 + consumer, &[("consumer", id(consumer))]));
    gateway.document.plugins = own.into_iter().chain([everybody]).collect();
    let mut exchange = gateway.exchange("GET /");
    let priority = exchange.snapshot.routes[0].chain.steps[0].priority;
    let mut named_by = |named_at: &[i32]| {
        exchange.engine.take_consumers();
        for (index, named_at) in (0..).zip(named_at) {
            exchange.engine.running = *named_at;
            exchange.engine.identify(ConsumerIndex(index));
        }
        chosen(&exchange.snapshot.routes[0].chain, &exchange)
    };
    let (before, behind) = (priority + 1, priority - 1);
    assert_eq!(named_by(&[before]), Some(id(0x101)));
    assert_eq!(named_by(&[behind]), Some(id(0x100)));
    assert_eq!(named_by(&[before + 1, before]), Some(id(0x102)), "the last one counts");
    assert_eq!(named_by(&[before, behind]), Some(id(0x101)), "but for those behind it alone");
    assert_eq!(named_by(&[behind, behind - 1]), Some(id(0x100)));
}

#[test]
fn who_is_in_many_groups_and_groups_of_many_cost_a_place_in_a_list_each() {
    let mut gateway = Gateway::new();
    let numbers = 0..10_000u128;
    let document = &mut gateway.document;
    document.consumer_groups =
        numbers.clone().map(|n| group(0x10_0000 + n, &format!("group-{n:05}"))).collect();
    let consumer = |n: u128| entity(json!({ "id": id(0x20_0000 + n), "username": format!("c-{n}") }));
    document.consumers.extend(numbers.clone().map(consumer));
    // Alice is in every group, everybody is in the last one.
    let of_alice = numbers.clone().map(|n| member(0x30_0000 + n, 0x10_0000 + n, 1));
    let of_all = numbers.map(|n| member(0x40_0000 + n, 0x10_0000 + 9_999, 0x20_0000 + n));
    document.consumer_group_consumers = of_alice.chain(of_all).collect();
    document.plugins = [9_999, 7_000]
        .map(|n: u128| plugin(0x50_0000 + n, &[("consumer_group", id(0x10_0000 + n))]))
        .to_vec();
    let mut exchange = gateway.exchange("GET /");
    let mut chosen_for = |index| {
        exchange.engine.consumer = Some(ConsumerIndex(index));
        chosen(&exchange.snapshot.routes[0].chain, &exchange)
    };
    assert_eq!(chosen_for(0), Some(id(0x50_0000 + 7_000)));
    assert_eq!(chosen_for(1), None, "Bob is in no group");
    assert_eq!(chosen_for(10_002), Some(id(0x50_0000 + 9_999)));
    let snapshot = &exchange.snapshot;
    let own = snapshot.routes[0].chain.steps[0].own_anywhere.iter().map(|own| own.instances().count());
    assert_eq!(own.sum::<usize>(), 2, "as many as there are configurations");
    let places = snapshot.consumers.iter().map(|consumer| consumer.groups().len());
    assert_eq!(places.sum::<usize>(), 20_000, "as many as there are members");
}
