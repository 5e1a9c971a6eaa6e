//! The order of Kong, in words and against a model that looks at every route.

use super::*;
use crate::testing::entity;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};
use std::sync::Arc;
use weir_model::Uuid;

fn route(number: u128, mut json: Value) -> Arc<Route> {
    json["id"] = json!(Uuid::from_u128(number));
    entity(json)
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn found(routes: &[Arc<Route>], query: &Query<'_>) -> Option<u128> {
    let bare: Vec<&Route> = routes.iter().map(|route| &**route).collect();
    let router = StreamRouter::build(&bare, Flavor::default(), &mut Patterns::default()).unwrap();
    router.find(query).map(|index| routes[index as usize].id.as_u128())
}

fn from(source: &str, destination: &str) -> Query<'static> {
    Query { transport: Transport::Tcp, source: address(source), destination: address(destination), sni: None }
}

#[test]
fn an_address_comes_before_a_port_before_a_range_and_sources_before_destinations() {
    let tcp = |number, field: &str, place: Value| {
        let mut route_json = json!({ "protocols": ["tcp"] });
        route_json[field] = json!([place]);
        route(number, route_json)
    };
    let mut routes = vec![
        tcp(1, "sources", json!({ "ip": "10.0.0.1" })),
        tcp(2, "sources", json!({ "port": 7 })),
        tcp(3, "sources", json!({ "ip": "10.0.0.0/8" })),
        tcp(4, "destinations", json!({ "ip": "10.0.0.2", "port": 80 })),
        tcp(5, "destinations", json!({ "ip": "10.0.0.2" })),
        tcp(6, "destinations", json!({ "port": 80 })),
        tcp(7, "destinations", json!({ "ip": "10.0.0.0/8" })),
        tcp(8, "destinations", json!({ "ip": "10.0.0.0/16" })),
    ];
    let query = from("10.0.0.1:7", "10.0.0.2:80");
    // The last two weigh the same: the higher id wins.
    for best in [1, 2, 3, 4, 5, 6, 8, 7] {
        assert_eq!(found(&routes, &query), Some(best));
        routes.retain(|route| route.id.as_u128() != best);
    }
    assert_eq!(found(&routes, &query), None);
}

#[test]
fn names_come_before_addresses_unless_both_ends_are_given() {
    let routes = [
        route(1, json!({ "protocols": ["tls"], "snis": ["a.test"] })),
        route(2, json!({ "protocols": ["tls"], "destinations": [{ "ip": "10.0.0.2", "port": 80 }] })),
        route(
            3,
            json!({ "protocols": ["tls"], "sources": [{ "port": 7 }], "destinations": [{ "port": 80 }] }),
        ),
        route(4, json!({ "protocols": ["tls_passthrough"], "snis": ["*.b.test"] })),
    ];
    let tls = |source, sni| Query { transport: Transport::Tls, sni, ..from(source, "10.0.0.2:80") };
    assert_eq!(found(&routes, &tls("10.0.0.1:7", Some("a.test"))), Some(3));
    assert_eq!(found(&routes, &tls("10.0.0.1:8", Some("a.test"))), Some(1));
    assert_eq!(found(&routes, &tls("10.0.0.1:8", Some("x.test"))), Some(2));
    assert_eq!(found(&routes, &tls("10.0.0.1:8", Some("x.b.test"))), Some(4));
    assert_eq!(found(&routes, &tls("10.0.0.1:8", None)), Some(2));
    assert_eq!(
        found(&routes, &from("10.0.0.1:7", "10.0.0.2:80")),
        None,
        "TLS routes take no plain connection"
    );
}

const IPS: [&str; 4] = ["10.0.0.1", "10.1.0.0/16", "::1", "fd00::/8"];
const SNIS: [&str; 4] = ["a.test", "A.test.", "*.a.test", "b.*"];

fn any_places() -> impl Strategy<Value = Value> {
    let place = (prop::option::of(select(&IPS[..])), prop::option::of(select(vec![1u16, 2])))
        .prop_filter("ip or port", |(ip, port)| ip.is_some() || port.is_some())
        .prop_map(|(ip, port)| json!({ "ip": ip, "port": port }));
    prop::collection::vec(place, 0..3).prop_map(Value::from)
}

fn any_route() -> impl Strategy<Value = Value> {
    let protocols =
        prop_oneof![subsequence(vec!["tcp", "tls", "udp"], 1..=3), Just(vec!["tls_passthrough"]),];
    (protocols, any_places(), any_places(), subsequence(&SNIS[..], 0..3)).prop_filter_map(
        "matches something",
        |(protocols, sources, destinations, snis)| {
            let encrypted = protocols.iter().any(|protocol| protocol.starts_with("tls"));
            let snis = if encrypted { snis } else { Vec::new() };
            let places = protocols != ["tls_passthrough"] && (sources != json!([]) || destinations != json!([]));
            (places || !snis.is_empty()).then(|| {
                json!({ "protocols": protocols, "sources": sources, "destinations": destinations, "snis": snis })
            })
        },
    )
}

fn any_address() -> impl Strategy<Value = SocketAddr> {
    let ip = select(vec!["10.0.0.1", "10.1.2.3", "::1", "fd00::9", "::ffff:10.0.0.1"]);
    (ip, 1u16..=3).prop_map(|(ip, port)| SocketAddr::new(ip.parse().unwrap(), port))
}

/// Kong's expression of a route, over what a connection says.
fn model_matches(route: &Route, query: &Query<'_>) -> bool {
    let has = |protocol| route.protocols.contains(&protocol);
    let spoken = match query.transport {
        Transport::Tcp => has(Protocol::Tcp),
        Transport::Udp => has(Protocol::Udp),
        Transport::Tls => has(Protocol::Tls) || has(Protocol::TlsPassthrough),
    };
    let holds = |place: &IpPort, address: SocketAddr| {
        let ip = place.ip.as_deref().is_none_or(|ip| match (ip, address.ip().to_canonical().to_string()) {
            ("10.1.0.0/16", text) => text.starts_with("10.1."),
            ("fd00::/8", text) => text.starts_with("fd"),
            (ip, text) => ip == text,
        });
        ip && place.port.is_none_or(|port| port == address.port())
    };
    let among = |places: &Option<Vec<IpPort>>, address| match places.as_deref() {
        None | Some([]) => true,
        Some(places) => places.iter().any(|place| holds(place, address)),
    };
    let named = match route.snis.as_deref() {
        None | Some([]) => true,
        Some(_) if query.transport != Transport::Tls => true,
        Some(snis) => query.sni.is_some_and(|sni| {
            snis.iter().any(|wanted| match wanted.trim_end_matches('.').to_lowercase() {
                name if name == "*.a.test" => sni.ends_with(".a.test"),
                name if name == "b.*" => sni.starts_with("b."),
                name => name == sni,
            })
        }),
    };
    spoken && named && among(&route.sources, query.source) && among(&route.destinations, query.destination)
}

proptest! {
    #[test]
    fn the_index_finds_what_a_look_at_every_route_does(
        routes in prop::collection::vec(any_route(), 1..8),
        source in any_address(),
        destination in any_address(),
        transport in select(vec![Transport::Tcp, Transport::Tls, Transport::Udp]),
        sni in prop::option::of(select(vec!["a.test", "x.a.test", "b.org", "c.test"])),
    ) {
        let routes: Vec<_> = (1..).zip(routes).map(|(number, json)| route(number, json)).collect();
        let query = Query { transport, source, destination, sni };
        let matching = routes.iter().filter(|route| model_matches(route, &query));
        let best = matching.max_by_key(|route| (priority(route), route.id)).map(|route| route.id.as_u128());
        prop_assert_eq!(found(&routes, &query), best);
    }
}
