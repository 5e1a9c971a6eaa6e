//! What is compiled anew and what is kept, and what is refused before it is stored.

use super::*;
use crate::plugin::{Hooks, Json};
use crate::testing::{Gateway, entity, id};
use crate::tls::default_certificate;
use serde_json::json;
use std::sync::LazyLock;
use weir_model::entity::Entity;
use weir_model::{Document, Entities};

fn compiler() -> Compiler {
    static CERTIFICATE: LazyLock<Arc<crate::tls::CertifiedKey>> =
        LazyLock::new(|| default_certificate(None).unwrap());
    let (default_certificate, retained) = (CERTIFICATE.clone(), Arc::default());
    Compiler { workers: 1, default_certificate, trusted_certificates: Vec::new(), retained }
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
    let mut document = Gateway::new().document;
    let terminates = |status: u16| plugin(1, "request-termination", json!({ "status_code": status }));
    document.plugins = vec![plugin(2, "key-auth", json!({ "key_names": ["apikey"] })), terminates(503)];
    let compile = |document: &Document| instances(&compiler.compile(document).unwrap());
    let first = compile(&document);
    let second = compile(&document);
    assert!(!Arc::ptr_eq(&first[0], &second[0]), "key-auth looks at the credentials");
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
fn positions_of_upstreams_that_are_no_more_are_forgotten() {
    let compiler = compiler();
    let positions = compiler.retained.get::<super::compile::Positions>();
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
