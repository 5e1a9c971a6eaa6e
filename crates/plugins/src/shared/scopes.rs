//! Which requests meet a plugin, as far as a document says.

use std::collections::{BTreeSet, HashMap};
use weir_plugin::entity::{Plugin, Route};
use weir_plugin::{Document, Uuid};

/// The routes of a document, so that each plugin finds its own without a search.
pub(crate) struct Routes<'d> {
    all: Vec<&'d Route>,
    by_id: HashMap<Uuid, &'d Route>,
    of_service: HashMap<Uuid, Vec<&'d Route>>,
}

impl<'d> Routes<'d> {
    pub(crate) fn of(document: &'d Document) -> Self {
        let all: Vec<&Route> = document.routes.iter().map(|route| &**route).collect();
        let mut of_service = HashMap::<_, Vec<_>>::new();
        for route in &all {
            of_service.entry(route.service).or_default().push(*route);
        }
        let of_service = of_service.into_iter().filter_map(|(service, routes)| Some((service?, routes)));
        Self {
            by_id: all.iter().map(|route| (route.id, *route)).collect(),
            of_service: of_service.collect(),
            all,
        }
    }

    /// Those whose requests meet a plugin.
    pub(crate) fn met_by(&self, plugin: &Plugin) -> &[&'d Route] {
        match (plugin.route, plugin.service) {
            (Some(id), service) => {
                let route = self.by_id.get(&id).filter(|it| service.is_none() || it.service == service);
                route.map_or(&[], std::slice::from_ref)
            }
            (None, Some(service)) => self.of_service.get(&service).map_or(&[], Vec::as_slice),
            (None, None) => &self.all,
        }
    }

    /// The route, the service and the consumer that requests must have to meet a plugin.
    fn scope(&self, plugin: &Plugin) -> Scope {
        let route = plugin.route.and_then(|id| self.by_id.get(&id));
        [plugin.route, plugin.service.or(route.and_then(|route| route.service)), plugin.consumer]
    }
}

/// What is given has to be that of the request.
type Scope = [Option<Uuid>; 3];

/// What is asked of a member of a scope.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Wanted {
    Anything,
    /// This one, or that none is given.
    Only(Option<Uuid>),
}

/// What there is for the requests of each scope. A look-up takes the same time however many scopes there are.
pub(crate) struct ByScope<T>(HashMap<[Wanted; 3], BTreeSet<T>>);

impl<T: Ord + Copy> ByScope<T> {
    /// Of plugins, each with what there is for its requests.
    pub(crate) fn of<'d>(routes: &Routes<'_>, plugins: impl IntoIterator<Item = (&'d Plugin, T)>) -> Self {
        let mut found = HashMap::<_, BTreeSet<T>>::new();
        for (plugin, value) in plugins {
            let scope = routes.scope(plugin);
            for wanted in combinations(scope.map(|given| [Wanted::Anything, Wanted::Only(given)])) {
                found.entry(wanted).or_default().insert(value);
            }
        }
        Self(found)
    }

    /// What there is for requests that meet a plugin.
    pub(crate) fn met_by(&self, routes: &Routes<'_>, plugin: &Plugin) -> Met<'_, T> {
        let wanted = routes.scope(plugin).map(|given| match given {
            Some(_) => [Wanted::Only(given), Wanted::Only(None)],
            // The same twice adds nothing to a set.
            None => [Wanted::Anything; 2],
        });
        Met(combinations(wanted).filter_map(|wanted| self.0.get(&wanted)).collect())
    }
}

/// What there is for the requests that meet a plugin.
pub(crate) struct Met<'s, T>(Vec<&'s BTreeSet<T>>);

impl<T: Ord + Copy> Met<'_, T> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn contains(&self, value: &T) -> bool {
        self.0.iter().any(|set| set.contains(value))
    }

    /// Some several times.
    pub(crate) fn iter(&self) -> impl Iterator<Item = T> {
        self.0.iter().flat_map(|set| set.iter().copied())
    }
}

/// Each choice of one out of each pair.
fn combinations(of: [[Wanted; 2]; 3]) -> impl Iterator<Item = [Wanted; 3]> {
    (0..8_usize).map(move |bits| [of[0][bits & 1], of[1][(bits >> 1) & 1], of[2][bits >> 2]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_plugin::testing::{entity, id};

    /// Whether a request may meet both, by trying.
    fn do_meet(document: &Document, one: &Plugin, other: &Plugin) -> bool {
        let differ =
            |one: Option<Uuid>, other: Option<Uuid>| one.is_some() && other.is_some() && one != other;
        let service = |plugin: &Plugin| {
            let route = document.routes.iter().find(|route| Some(route.id) == plugin.route);
            plugin.service.or(route.and_then(|route| route.service))
        };
        !differ(one.route, other.route)
            && !differ(service(one), service(other))
            && !differ(one.consumer, other.consumer)
    }

    /// A plugin for each scope of two routes, two services and two consumers, and of none.
    fn document() -> Document {
        let reference = |number: u128| if number == 0 { json!(null) } else { json!({ "id": id(number) }) };
        let mut plugins = Vec::new();
        for (route, service, consumer) in
            (0..4).flat_map(|r| (0..3).flat_map(move |s| (0..3).map(move |c| (r, s, c))))
        {
            plugins.push(entity(json!({
                "id": id(100 + plugins.len() as u128), "name": "cors", "config": {}, "route": reference(route),
                "service": reference(if service == 0 { 0 } else { 10 + service }),
                "consumer": reference(if consumer == 0 { 0 } else { 20 + consumer }),
            })));
        }
        let routes = [(1, Some(11)), (2, Some(12)), (3, None)].map(|(route, service)| {
            entity(json!({ "id": id(route), "paths": ["/"], "service": service.map(|it| json!({ "id": id(it) })) }))
        });
        Document { routes: routes.into(), plugins, ..Document::default() }
    }

    #[test]
    fn what_a_look_up_finds_is_what_meets() {
        let document = document();
        let routes = Routes::of(&document);
        let known: HashMap<Uuid, &Plugin> = document.plugins.iter().map(|it| (it.id, &**it)).collect();
        let all = ByScope::of(&routes, known.values().map(|plugin| (*plugin, plugin.id)));
        for plugin in &document.plugins {
            let met = all.met_by(&routes, plugin);
            for (id, other) in &known {
                assert_eq!(met.contains(id), do_meet(&document, plugin, other), "{plugin:?}\n{other:?}");
            }
            let listed: BTreeSet<Uuid> = met.iter().collect();
            assert!(listed.iter().all(|id| met.contains(id)) && !met.is_empty());
        }
        assert!(ByScope::<()>::of(&routes, []).met_by(&routes, &document.plugins[0]).is_empty());
    }

    #[test]
    fn a_plugin_has_the_routes_of_its_scope() {
        let document = document();
        let routes = Routes::of(&document);
        for plugin in &document.plugins {
            let is_met = |it: &&Route| {
                plugin.route.is_none_or(|id| it.id == id)
                    && plugin.service.is_none_or(|id| it.service == Some(id))
            };
            let expected: Vec<_> = document.routes.iter().map(|it| &**it).filter(is_met).collect();
            assert_eq!(routes.met_by(plugin), expected, "{plugin:?}");
        }
    }
}
