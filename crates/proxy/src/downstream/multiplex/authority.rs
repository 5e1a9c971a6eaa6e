//! Rejects misdirected requests (RFC 9113, 9.1.1). A client may reuse a connection for every host of the certificate
//! that it got, but routes and certificates may treat those hosts differently.

use crate::exchange::Exchange;
use crate::pipeline::serve;
use crate::snapshot::Snapshot;
use std::rc::Rc;
use weir_plugin::without_port;

/// Whether the request belongs on a connection of its own: the host that it asks for has another certificate than the
/// connection's server name, or a connection made for it would lead to a route that is bound to its name.
pub(crate) fn is_misdirected(exchange: &mut Exchange, snapshot: &Snapshot) -> bool {
    let Some(sni) = exchange.sni.clone() else { return false };
    let host = without_port(exchange.request.host().unwrap_or_default()).to_ascii_lowercase();
    if *host == *sni {
        return false;
    }
    snapshot.certificates.differ(&sni, &host) || leads_elsewhere(exchange, snapshot, &sni, host.into())
}

fn leads_elsewhere(exchange: &mut Exchange, snapshot: &Snapshot, sni: &Rc<str>, host: Rc<str>) -> bool {
    let route = |exchange: &Exchange| {
        serve::with_query(exchange, |query| snapshot.router.find(query)).map(|found| found.index)
    };
    let found = route(exchange);
    exchange.sni = Some(host);
    let own = route(exchange);
    exchange.sni = Some(sni.clone());
    own.is_some_and(|own| snapshot.routes[own as usize].entity.snis.is_some() && found != Some(own))
}
