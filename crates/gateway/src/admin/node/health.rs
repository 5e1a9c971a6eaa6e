//! The health of an upstream's targets on this node, and the routes by which an operator sets it.
use crate::admin::request::ApiRequest;
use crate::admin::response::{ApiError, json_response};
use crate::control::Control;
use axum::Router;
use axum::extract::{RawPathParams, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::UNIX_EPOCH;
use weir_model::entity::{Entity, EntityKind, Target, Upstream};
use weir_model::schema::Record;
use weir_upstream::health::{HealthChange, are_used};

/// Kong's words for how a target or one of its addresses is.
const OFF: &str = "HEALTHCHECKS_OFF";
const DNS_ERROR: &str = "DNS_ERROR";

/// `HEALTHY` or `UNHEALTHY`.
fn word(healthy: bool) -> &'static str {
    if healthy { "HEALTHY" } else { "UNHEALTHY" }
}

pub(in crate::admin) async fn of_upstream(call: ApiRequest) -> Result<Response, ApiError> {
    let (upstream, targets) = named(&call.control, call.ids.first())?;
    let standings = standings(&call.control, &upstream, targets).await;
    let data = match call.is_on("balancer_health") {
        true => of_balancer(&upstream, &standings),
        false => standings.iter().map(Standing::shown).collect(),
    };
    let node_id = call.control.node_id();
    Ok(json_response(StatusCode::OK, &json!({ "data": data, "next": null, "node_id": node_id })))
}

/// The upstream in the path, and its targets.
fn named(
    control: &Control,
    name: Option<impl AsRef<str>>,
) -> Result<(Arc<Upstream>, Vec<Arc<Target>>), ApiError> {
    let entities = control.registry().entities();
    let found = name.and_then(|name| entities.find(EntityKind::Upstreams, name.as_ref()));
    let Some(Entity::Upstreams(upstream)) = found else { return Err(ApiError::NotFound) };
    let naming = entities.referencing((EntityKind::Upstreams, upstream.id), EntityKind::Targets, None);
    let targets = naming.filter_map(|entity| match entity {
        Entity::Targets(target) => Some(target.clone()),
        _ => None,
    });
    let mut targets: Vec<_> = targets.collect();
    // As in Kong, the newest first.
    targets.sort_by(|one, other| other.created_at.unwrap_or(0.0).total_cmp(&one.created_at.unwrap_or(0.0)));
    Ok((upstream.clone(), targets))
}

/// The health of one target.
struct Standing {
    target: Arc<Target>,
    /// The type of the DNS record that was found, or the error.
    dns: String,
    addresses: Vec<AddressHealth>,
}

/// One address of a target.
struct AddressHealth {
    address: SocketAddr,
    /// The host that an SRV record names.
    srv_name: Option<Arc<str>>,
    weight: u16,
    /// None where health checks are off.
    healthy: Option<bool>,
    /// Since when it is so, and why; none if it is not known.
    changed: Option<HealthChange>,
}

impl AddressHealth {
    /// Kong shows the host of an SRV record in place of its address.
    fn host(&self) -> String {
        self.srv_name.as_ref().map_or_else(|| self.address.ip().to_string(), |name| name.to_string())
    }

    fn shown(&self) -> Value {
        let health = self.healthy.map_or(OFF, word);
        let mut shown = json!({ "ip": self.host(), "port": self.address.port(), "weight": self.weight, "health": health });
        if let Some(changed) = &self.changed {
            let since = changed.at.duration_since(UNIX_EPOCH).unwrap_or_default();
            shown["since"] = json!(since.as_millis() as f64 / 1_000.0);
            shown["decided_by"] = json!(changed.source.name());
            shown["reason"] = json!(changed.reason());
        }
        shown
    }
}

/// Resolves all names at once.
async fn standings(
    control: &Arc<Control>,
    upstream: &Arc<Upstream>,
    targets: Vec<Arc<Target>>,
) -> Vec<Standing> {
    let used = are_used(upstream);
    let asked = targets.into_iter().map(|target| {
        let (control, entity, upstream) = (control.clone(), target.clone(), upstream.clone());
        let of = async move { resolve_addresses(&control, (&upstream, &entity), used).await };
        (target, tokio::spawn(of))
    });
    let mut standings = Vec::new();
    for (target, asked) in asked.collect::<Vec<_>>() {
        let (dns, addresses) = asked.await.unwrap_or_default();
        standings.push(Standing { target, dns, addresses });
    }
    standings
}

fn host_port(target: &Target) -> (&str, u16) {
    target.host_and_port().unwrap_or((&target.target, Target::DEFAULT_PORT))
}

async fn resolve_addresses(
    control: &Control,
    (upstream, target): (&Upstream, &Target),
    used: bool,
) -> (String, Vec<AddressHealth>) {
    if target.is_socket() {
        return Default::default();
    }
    let (host, port) = host_port(target);
    let found = match control.resolve(host).await {
        Ok(found) => found,
        Err(error) => return (error.to_string(), Vec::new()),
    };
    let health = used.then(|| control.target_health(upstream, target));
    let addresses: Vec<AddressHealth> = found
        .entries
        .iter()
        .map(|entry| {
            let address = SocketAddr::new(entry.ip, entry.port.unwrap_or(port));
            let known = health.as_ref().and_then(|health| health.of(address));
            AddressHealth {
                address,
                srv_name: entry.srv_name.clone(),
                weight: entry.weight.unwrap_or(target.weight),
                // One of which nothing is known is healthy.
                healthy: used.then(|| known.is_none_or(|known| known.is_healthy)),
                changed: known.map(|known| known.changed),
            }
        })
        .collect();
    let dns = match found.entries.first() {
        Some(entry) if entry.port.is_some() => "SRV",
        Some(entry) if entry.ip.is_ipv6() => "AAAA",
        _ => "A",
    };
    (dns.to_owned(), addresses)
}

impl Standing {
    /// A target is healthy if any of its addresses is.
    fn health(&self) -> &'static str {
        match self.addresses.iter().map(|entry| entry.healthy).max() {
            Some(Some(healthy)) => word(healthy),
            Some(None) => OFF,
            None if self.target.is_socket() => OFF,
            None => DNS_ERROR,
        }
    }

    /// The weight of all addresses, and of those that are unhealthy.
    fn weights(&self) -> (u64, u64) {
        if self.target.is_socket() {
            return (self.target.weight.into(), 0);
        }
        let weight = |entry: &AddressHealth| u64::from(entry.weight);
        let unhealthy = self.addresses.iter().filter(|entry| entry.healthy == Some(false));
        (self.addresses.iter().map(weight).sum(), unhealthy.map(weight).sum())
    }

    fn data(&self, address: impl Fn(&AddressHealth) -> Value) -> Value {
        let (host, port) = host_port(&self.target);
        json!({
            "host": host,
            "port": port,
            "dns": self.dns,
            "nodeWeight": self.target.weight,
            "weight": weight(self.weights()),
            "addresses": self.addresses.iter().map(address).collect::<Value>(),
        })
    }

    /// As an entity, with its health.
    fn shown(&self) -> Value {
        let mut value = self.target.to_value();
        value["upstream"] = json!({ "id": self.target.upstream.to_string() });
        value["health"] = self.health().into();
        value["data"] = self.data(AddressHealth::shown);
        value
    }
}

fn weight((total, unavailable): (u64, u64)) -> Value {
    json!({ "total": total, "available": total - unavailable, "unavailable": unavailable })
}

/// The health of the upstream as a whole.
fn of_balancer(upstream: &Upstream, standings: &[Standing]) -> Value {
    let mut data = json!({ "id": upstream.id.to_string(), "name": upstream.name });
    let mut health = OFF;
    if are_used(upstream) {
        let weights = standings.iter().map(Standing::weights);
        let (total, unavailable) = weights.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        let available = (total - unavailable) as f64 / total.max(1) as f64 * 100.0;
        let healthy = available > upstream.healthchecks.threshold;
        let host = |standing: &Standing| {
            standing.data(|entry| {
                let healthy = entry.healthy != Some(false);
                json!({ "ip": entry.host(), "port": entry.address.port(), "weight": entry.weight, "healthy": healthy })
            })
        };
        health = word(healthy);
        data["details"] = json!({
            "healthy": healthy,
            "weight": weight((total, unavailable)),
            "hosts": standings.iter().map(host).collect::<Value>(),
        });
    }
    data["health"] = health.into();
    data["balancer_health"] = health.into();
    data
}

/// The health that an operator sets.
pub(super) fn of_targets() -> Router<Arc<Control>> {
    const TARGET: &str = "/upstreams/{upstream}/targets/{target}";
    let mut router = Router::new();
    for below in [TARGET.to_owned(), format!("{TARGET}/{{address}}")] {
        let set_healthy = |control, names| set(control, names, true);
        let set_unhealthy = |control, names| set(control, names, false);
        router = router
            .route(&format!("{below}/healthy"), post(set_healthy).put(set_healthy))
            .route(&format!("{below}/unhealthy"), post(set_unhealthy).put(set_unhealthy));
    }
    router
}

async fn set(
    State(control): State<Arc<Control>>,
    names: RawPathParams,
    healthy: bool,
) -> Result<Response, ApiError> {
    let mut names = names.iter().map(|(_, name)| name);
    let (upstream, targets) = named(&control, names.next())?;
    let wanted = names.next().unwrap_or_default();
    let address = names.next().and_then(address);
    let stored = Target::with_port(wanted);
    let is_wanted = |target: &Arc<Target>| {
        [target.target.as_str(), &target.id.to_string()].contains(&wanted)
            || stored.as_ref() == Some(&target.target)
    };
    let target = targets.into_iter().find(is_wanted).ok_or(ApiError::NotFound)?;
    if !are_used(&upstream) {
        let message = format!("no healthchecker found for {}", upstream.name);
        return Ok(json_response(StatusCode::BAD_REQUEST, &json!({ "message": message })));
    }
    let (_, addresses) = resolve_addresses(&control, (&upstream, &target), true).await;
    let addresses: Vec<SocketAddr> = addresses.iter().map(|entry| entry.address).collect();
    control.mark(&upstream, (&target.target, &addresses), address, healthy);
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// An address of the target, its port filled in; a name stands for all addresses.
fn address(text: &str) -> Option<SocketAddr> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let with_port = |ip: IpAddr| SocketAddr::new(ip, Target::DEFAULT_PORT);
    text.parse().ok().or_else(|| bare.parse().ok().map(with_port))
}
