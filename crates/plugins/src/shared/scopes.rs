//! Which requests meet a plugin, as far as a document says.

use weir_plugin::entity::{Plugin, Route};
use weir_plugin::{Document, Uuid};

/// Whether a request may meet both plugins.
pub(crate) fn do_meet(document: &Document, one: &Plugin, other: &Plugin) -> bool {
    let differ = |one: Option<Uuid>, other: Option<Uuid>| one.is_some() && other.is_some() && one != other;
    let service = |plugin: &Plugin| {
        let route = document.routes.iter().find(|route| Some(route.id) == plugin.route);
        plugin.service.or(route.and_then(|route| route.service))
    };
    !differ(one.route, other.route)
        && !differ(service(one), service(other))
        && !differ(one.consumer, other.consumer)
}

/// The routes whose requests meet a plugin.
pub(crate) fn routes_of<'d>(document: &'d Document, plugin: &Plugin) -> impl Iterator<Item = &'d Route> {
    let (route, service) = (plugin.route, plugin.service);
    let is_met = move |it: &&Route| {
        route.is_none_or(|id| it.id == id) && service.is_none_or(|id| it.service == Some(id))
    };
    document.routes.iter().map(|route| &**route).filter(is_met)
}
