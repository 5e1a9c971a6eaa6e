//! Certificates that are presented to upstreams.

use super::compiler;
use crate::snapshot::Destination;
use crate::testing::{entity, id};
use serde_json::json;
use std::sync::Arc;
use weir_model::Document;
use weir_model::entity::Certificate;

#[test]
fn what_a_certificate_of_two_keys_is_replaced_by_is_presented() {
    let issued = |algorithm| {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let certificate =
            rcgen::CertificateParams::new(["a.test".to_owned()]).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    };
    let main = issued(&rcgen::PKCS_ED25519);
    let certificate = |alt: (String, String)| {
        let (main, (cert_alt, key_alt)) = (main.clone(), alt);
        Arc::new(Certificate {
            id: id(3),
            cert: main.0,
            key: main.1,
            cert_alt: Some(cert_alt),
            key_alt: Some(key_alt),
            tags: None,
            created_at: None,
            updated_at: None,
        })
    };
    let compiler = compiler();
    let mut document = Document {
        services: vec![entity(
            json!({ "id": id(1), "host": "a.test", "protocol": "https", "client_certificate": id(3) }),
        )],
        routes: vec![entity(json!({ "id": id(2), "paths": ["/"], "service": id(1) }))],
        ..Document::default()
    };
    let mut presented = || {
        document.certificates = vec![certificate(issued(&rcgen::PKCS_ECDSA_P256_SHA256))];
        let snapshot = compiler.compile(&document).unwrap();
        let Destination::Host(host) = &snapshot.routes[0].service.as_ref().unwrap().destination else {
            panic!("a host")
        };
        (host.id, host.tls.clone().unwrap())
    };
    let (before, after) = (presented(), presented());
    assert!(!Arc::ptr_eq(&before.1, &after.1));
    assert_ne!(before.0, after.0, "kept connections have presented the other one");
}
