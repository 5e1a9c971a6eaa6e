//! What is compiled anew and what is kept, and what is refused before it is stored.

mod certificates;
mod precedence;
mod secrets;

use super::chain::Own;
use super::*;
use crate::testing::{Gateway, entity, id};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::LazyLock;
use weir_model::entity::Entity;
use weir_model::{Document, Entities};
use weir_net::tls::default_certificate;
use weir_plugin::{Hooks, Json};
use weir_plugins::PLUGINS;
use weir_router::{Query, Scheme};

fn compiler() -> Compiler {
    static CERTIFICATE: LazyLock<Arc<weir_net::tls::CertifiedKey>> =
        LazyLock::new(|| default_certificate(None).unwrap());
    let (default_certificate, retained) = (CERTIFICATE.clone(), Arc::default());
    Compiler {
        workers: 1,
        default_certificate,
        client_certificate: None,
        trusted_certificates: Vec::new(),
        upstream_verification: Default::default(),
        log_tls_verify: true,
        router_flavor: weir_router::Flavor::default(),
        plugins: PLUGINS,
        retained,
    }
}

/// The instances of the global plugins.
fn instances(snapshot: &Snapshot) -> Vec<Arc<dyn Hooks>> {
    snapshot.global.steps.iter().filter_map(|step| Some(step.base.as_ref()?.hooks.clone())).collect()
}

fn plugin(number: u128, name: &str, config: Json) -> Arc<entity::Plugin> {
    entity(json!({ "id": id(number), "name": name, "config": config }))
}

#[test]
fn instances_are_kept_unless_their_configuration_or_what_they_looked_at_may_have_changed() {
    let compiler = compiler();
    let mut document = Gateway::new().document.clone();
    let terminates = |status: u16| plugin(1, "request-termination", json!({ "status_code": status }));
    document.plugins = vec![plugin(2, "acl", json!({ "allow": ["staff"] })), terminates(503)];
    let compile = |document: &Document| instances(&compiler.compile(document).unwrap());
    let first = compile(&document);
    assert!(Arc::ptr_eq(&first[0], &compile(&document)[0]), "nothing has changed");
    document.consumers.pop();
    let second = compile(&document);
    assert!(!Arc::ptr_eq(&first[0], &second[0]), "acl looks at the consumers");
    assert!(Arc::ptr_eq(&first[1], &second[1]));
    document.plugins[1] = terminates(504);
    let third = compile(&document);
    assert!(!Arc::ptr_eq(&second[1], &third[1]));
    let removed = document.plugins.pop().unwrap();
    assert_eq!(compile(&document).len(), 1);
    document.plugins.push(removed);
    assert!(!Arc::ptr_eq(&third[1], &compile(&document)[1]), "what is gone is not kept");
}

#[test]
fn what_cannot_be_compiled_is_refused_alone_as_it_would_be_in_a_document() {
    let route = |paths: &str, headers: Json| {
        Entity::Routes(entity(json!({ "id": id(1), "name": "r", "paths": [paths], "headers": headers })))
    };
    let refused = |entity: Entity| {
        let mut document = Document::default();
        document.push(entity.clone());
        let checked = compiler().check(&entity, &Entities::default());
        let compiled = compiler().compile(&document).map(drop).map_err(|mut errors| errors.remove(0));
        assert_eq!(checked, compiled);
        checked.is_err()
    };
    assert!(!refused(route("~/[0-9]+", json!({ "x-a": ["~*^a", "b"] }))));
    assert!(refused(route("~/(\\w{100}){100}", Json::Null)));
    assert!(refused(route("/", json!({ "x-a": ["~*(\\w{100}){100}"] }))));
    assert!(!refused(Entity::Plugins(plugin(2, "request-termination", json!({ "status_code": 503 })))));
    assert!(refused(Entity::Plugins(plugin(2, "request-termination", json!({ "status_code": "many" })))));
    let certificate = |cert: &str, key: &str| {
        Entity::Certificates(Arc::new(entity::Certificate {
            id: id(3),
            cert: cert.to_owned(),
            key: key.to_owned(),
            cert_alt: None,
            key_alt: None,
            tags: None,
            created_at: None,
            updated_at: None,
        }))
    };
    let issued = || rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
    let (one, other) = (issued(), issued());
    let key = |issued: &rcgen::CertifiedKey<rcgen::KeyPair>| issued.signing_key.serialize_pem();
    assert!(!refused(certificate(&one.cert.pem(), &key(&one))));
    assert!(refused(certificate(&one.cert.pem(), &key(&other))));
    assert!(refused(certificate("no PEM", &key(&one))));
}

#[test]
fn a_service_is_checked_with_the_certificates_that_it_names() {
    let issued = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
    let authority = |number, cert: &str| {
        Entity::CaCertificates(Arc::new(entity::CaCertificate {
            id: id(number),
            cert: cert.to_owned(),
            cert_digest: None,
            tags: None,
            created_at: None,
            updated_at: None,
        }))
    };
    let (good, bad) = (authority(1, &issued.cert.pem()), authority(2, "no PEM"));
    let check = |entity: &Entity, others: Vec<Entity>| compiler().check(entity, &Entities::from_iter(others));
    assert_eq!(check(&good, Vec::new()), Ok(()));
    assert_eq!(check(&bad, Vec::new()).unwrap_err().entity, format!("ca_certificate {}", id(2)));
    let service = |ca: u128| {
        Entity::Services(entity(json!({
            "id": id(9), "name": "s", "host": "a.test", "protocol": "https", "tls_verify": true, "ca_certificates": [id(ca)],
        })))
    };
    assert_eq!(check(&service(1), vec![good.clone(), bad.clone()]), Ok(()));
    assert_eq!(check(&service(2), vec![good, bad]).unwrap_err().entity, "service s");
}

#[test]
fn an_upstream_whose_probes_can_verify_nothing_is_compiled() {
    let compiler = compiler();
    assert!(compiler.trusted_certificates.is_empty());
    let active = json!({ "type": "https", "healthy": { "interval": 1 } });
    let upstream = json!({ "id": id(1), "name": "u", "healthchecks": { "active": active } });
    let mut document = Gateway::new().document.clone();
    document.upstreams.push(entity(upstream));
    assert_eq!(compiler.compile(&document).map(drop), Ok(()));
}

#[test]
fn positions_of_upstreams_that_are_no_more_are_forgotten() {
    let compiler = compiler();
    let positions = compiler.retained.get::<super::upstreams::Positions>();
    for number in 1..=5 {
        let mut document = Document::default();
        let upstream = json!({ "id": id(number), "name": "u" });
        document.upstreams.push(entity(upstream));
        document.services.push(entity(json!({ "id": id(9), "host": "u" })));
        compiler.compile(&document).unwrap();
        let kept: Vec<_> = positions.0.lock().unwrap().keys().copied().collect();
        assert_eq!(kept, [id(number)]);
    }
}

/// What a snapshot does, as text: of each route its service, where that leads, and its plugins.
fn described(snapshot: &Snapshot) -> String {
    let endpoint =
        |it: &Endpoint| format!("{}:{} as {} tls {}", it.host, it.port, it.authority, it.tls.is_some());
    let leads = |service: &CompiledService| match &service.destination {
        Destination::Host(host) => endpoint(host),
        Destination::Upstream(balancer) => {
            balancer.endpoints.iter().map(endpoint).collect::<Vec<_>>().concat()
        }
    };
    let of_each = |own: &Own| match own {
        Own::Consumer(own) => own.iter().map(|(consumer, it)| (consumer.0, it.id)).collect(),
        Own::Group(own) => own.iter().map(|(group, it)| (group.0, it.id)).collect::<BTreeSet<_>>(),
    };
    let chain = |chain: &Chain| -> Vec<String> {
        let of = |step: &super::chain::Step| {
            let base = step.base.as_ref().map(|instance| instance.id);
            let here = step.here.as_ref().map(|instance| instance.id);
            let own: Vec<_> = step.own_here.iter().chain(&step.own_anywhere).map(of_each).collect();
            format!("{base:?} {here:?} {own:?}")
        };
        chain.steps.iter().map(of).collect()
    };
    let routes = snapshot.routes.iter().map(|route| {
        let service = route.service.as_ref().map(|service| (&service.entity, leads(service)));
        format!("{:?} {service:?} {:?}\n", route.entity, chain(&route.chain))
    });
    let found = (0..6).map(|n| {
        let header: &weir_router::HeaderLookup<'_> = &|_, _| false;
        let query = Query {
            method: "GET",
            host: "h.test",
            path: &format!("/{n}"),
            scheme: Scheme::Http,
            sni: None,
            query: "",
            source: ([127, 0, 0, 1], 1).into(),
            destination: [127, 0, 0, 1].into(),
            dst_port: 80,
            header,
        };
        format!("{:?}\n", snapshot.router.find(&query))
    });
    let streams = snapshot.streams.routes.iter().map(|route| {
        let service = route.service.as_ref().map(|service| (&service.entity, leads(service)));
        format!("{:?} {service:?} {:?}\n", route.entity, chain(&route.chain))
    });
    let consumers =
        snapshot.consumers.iter().map(|consumer| format!("{:?} {:?}\n", consumer.entity, consumer.groups()));
    let http = routes.chain(found).chain(consumers).chain(chain(&snapshot.global));
    http.chain(streams).chain(streams_found(&snapshot.streams)).collect()
}

/// Which stream routes are found.
fn streams_found(streams: &Streams) -> Vec<String> {
    let ways = [(Transport::Tcp, None), (Transport::Udp, None), (Transport::Tls, Some("a.test"))];
    let queries = ways.into_iter().flat_map(|(transport, sni)| {
        let to = move |port| super::Query {
            transport,
            source: ([127, 0, 0, 1], 1).into(),
            destination: ([127, 0, 0, 1], port).into(),
            sni,
        };
        (0..4).map(to)
    });
    let found = queries.map(|query| format!("{:?}\n", streams.router.find(&query)));
    found.chain([format!("{}\n", streams.any_passthrough)]).collect()
}

/// A change of a small configuration: the `n`th entity of a kind becomes of this shape, or goes.
fn changed(document: &mut Document, kind: u8, n: u128, shape: u8, gone: bool) {
    fn put<T>(list: &mut Vec<Arc<T>>, id_of: impl Fn(&T) -> weir_model::Uuid, new: Arc<T>, gone: bool) {
        list.retain(|it| id_of(it) != id_of(&new));
        if !gone {
            let at = list.partition_point(|it| id_of(it) < id_of(&new));
            list.insert(at, new);
        }
    }
    let d = document;
    let own = id(n);
    match kind {
        0 => {
            let service = (shape % 3 < 2).then(|| json!({ "id": id(u128::from(shape % 2)) }));
            let route = json!({ "id": own, "paths": [format!("/{}", shape % 5)], "tags": [shape.to_string()], "service": service });
            put(&mut d.routes, |it| it.id, entity(route), gone);
        }
        1 => {
            let host = ["upstream.test", "a.test", "b.test"][usize::from(shape % 3)];
            let protocol = ["https", "http", "tcp", "tls", "udp"][usize::from(shape % 5)];
            let service =
                json!({ "id": own, "host": host, "protocol": protocol, "enabled": !shape.is_multiple_of(7) });
            put(&mut d.services, |it| it.id, entity(service), gone);
        }
        2 => {
            let name = if n.is_multiple_of(2) { "upstream.test" } else { "a.test" };
            let upstream = json!({ "id": own, "name": name, "slots": 10 + u32::from(shape) });
            put(&mut d.upstreams, |it| it.id, entity(upstream), gone);
        }
        3 => {
            let target =
                json!({ "id": own, "upstream": { "id": id(n % 2) }, "target": format!("t{shape}.test:80") });
            put(&mut d.targets, |it| it.id, entity(target), gone);
        }
        4 => {
            let route = (shape.is_multiple_of(2)).then(|| json!({ "id": id(u128::from(shape % 3)) }));
            let consumer = (shape.is_multiple_of(3)).then(|| json!({ "id": id(u128::from(shape % 2)) }));
            let group = (shape % 6 == 1).then(|| json!({ "id": id(u128::from(shape % 2)) }));
            let config = json!({ "status_code": 500 + u32::from(shape) });
            let plugin = if shape % 5 == 4 {
                json!({ "id": own, "name": "prometheus", "route": route, "protocols": ["http", "tcp", "udp"] })
            } else {
                json!({ "id": own, "name": "request-termination", "route": route, "consumer": consumer,
                        "consumer_group": group, "config": config })
            };
            put(&mut d.plugins, |it| it.id, entity(plugin), gone);
        }
        5 => {
            let (protocols, criterion, value) = match shape % 4 {
                0 => (json!(["tcp"]), "destinations", json!([{ "port": shape / 4 % 4 }])),
                1 => (json!(["tcp", "udp"]), "destinations", json!([{ "port": shape / 4 % 4 }])),
                2 => (json!(["tls"]), "snis", json!(["a.test"])),
                _ => (json!(["tls_passthrough"]), "snis", json!(["*.test"])),
            };
            let service = (shape % 3 < 2).then(|| json!({ "id": id(u128::from(shape % 2)) }));
            let route = json!({ "id": own, "protocols": protocols, criterion: value, "tags": [shape.to_string()], "service": service });
            put(&mut d.routes, |it| it.id, entity(route), gone);
        }
        6 => {
            let group = json!({ "id": own, "name": format!("{}-{n}", shape % 3) });
            put(&mut d.consumer_groups, |it| it.id, entity(group), gone);
        }
        7 => {
            let (group, consumer) = (id(u128::from(shape % 2)), id(u128::from(shape % 4)));
            let member = json!({ "id": own, "consumer_group": group, "consumer": consumer });
            put(&mut d.consumer_group_consumers, |it| it.id, entity(member), gone);
        }
        _ => {
            let consumer = json!({ "id": own, "username": format!("{n}-{shape}") });
            put(&mut d.consumers, |it| it.id, entity(consumer), gone);
        }
    }
}

proptest::proptest! {
    #[test]
    fn what_is_used_again_is_what_would_have_been_compiled(
        changes in proptest::collection::vec((0u8..9, 0u128..4, 0u8..30, proptest::bool::weighted(0.2)), 1..40)
    ) {
        let lasting = compiler();
        let mut document = Document::default();
        for (kind, n, shape, gone) in changes {
            changed(&mut document, kind, n, shape, gone);
            let again = lasting.compile(&document).map(|snapshot| described(&snapshot));
            let anew = compiler().compile(&document).map(|snapshot| described(&snapshot));
            proptest::prop_assert_eq!(again, anew);
        }
    }
}

#[test]
fn a_change_of_one_route_compiles_that_route() {
    let compiler = compiler();
    let mut document = Gateway::new().document.clone();
    document.routes.push(entity(json!({ "id": id(0x62), "paths": ["/other"] })));
    let first = compiler.compile(&document).unwrap();
    document.routes[1] = entity(json!({ "id": id(0x62), "paths": ["/other"], "tags": ["new"] }));
    let second = compiler.compile(&document).unwrap();
    assert!(Arc::ptr_eq(&first.routes[0].view, &second.routes[0].view));
    assert_eq!(second.routes[1].entity.tags, Some(vec!["new".to_owned()]));
    assert!(Arc::ptr_eq(&first.router, &second.router), "it asks for what it asked for");
    document.routes[1] = entity(json!({ "id": id(0x62), "paths": ["/elsewhere"] }));
    let third = compiler.compile(&document).unwrap();
    assert!(Arc::ptr_eq(&second.routes[0].view, &third.routes[0].view));
    assert!(!Arc::ptr_eq(&second.router, &third.router));
}

#[test]
fn what_was_refused_is_refused_again() {
    let compiler = compiler();
    let mut document = Gateway::new().document.clone();
    document.plugins = vec![plugin(2, "request-termination", json!({ "status_code": "many" }))];
    let refused = |document: &Document| compiler.compile(document).err();
    let first = refused(&document);
    assert!(first.is_some());
    assert_eq!(refused(&document), first);
}

#[test]
fn a_change_of_one_stream_route_compiles_that_route() {
    let compiler = compiler();
    let mut document = Document::default();
    let route = |number: u128, port: u16, tags: Json| -> Arc<entity::Route> {
        entity(json!({
            "id": id(number), "protocols": ["tcp"], "destinations": [{ "port": port }], "service": { "id": id(9) },
            "tags": tags,
        }))
    };
    document.upstreams.push(entity(json!({ "id": id(1), "name": "u" })));
    document.targets.push(entity(json!({ "id": id(2), "upstream": { "id": id(1) }, "target": "t.test:1" })));
    document.services.push(entity(json!({ "id": id(9), "host": "u", "protocol": "tcp" })));
    document.routes = vec![route(3, 1, Json::Null), route(4, 2, Json::Null)];
    let mut compile = |change: &dyn Fn(&mut Document)| {
        change(&mut document);
        compiler.compile(&document).unwrap().streams
    };
    let first = compile(&|_| {});
    let second = compile(&|document| document.routes[1] = route(4, 2, json!(["new"])));
    assert!(Arc::ptr_eq(&first.routes[0], &second.routes[0]));
    assert_eq!(second.routes[1].entity.tags, Some(vec!["new".to_owned()]));
    assert!(Arc::ptr_eq(&first.router, &second.router), "it asks for what it asked for");
    let third = compile(&|document| document.routes[1] = route(4, 3, Json::Null));
    assert!(!Arc::ptr_eq(&second.router, &third.router));
    let target = json!({ "id": id(2), "upstream": { "id": id(1) }, "target": "t.test:2" });
    let fourth = compile(&|document| document.targets[0] = entity(target.clone()));
    assert!(!Arc::ptr_eq(&third.routes[0], &fourth.routes[0]), "its service leads elsewhere");
}
