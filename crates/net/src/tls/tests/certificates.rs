//! Tests which certificate is selected, and which configurations are rejected.

use super::*;
use rustls::SignatureScheme::{ECDSA_NISTP256_SHA256, RSA_PSS_SHA256};
use weir_model::entity::CaCertificate;

fn found(certificates: &Certificates, name: Option<&str>) -> Vec<u8> {
    certificates.find(name, &[ECDSA_NISTP256_SHA256, RSA_PSS_SHA256]).cert[0].to_vec()
}

#[test]
fn server_names_are_looked_up_in_the_order_of_kong() {
    let issued: Vec<_> = (0..5).map(|i| ecdsa(&format!("c{i}"))).collect();
    let all = issued.iter().zip(0..).map(|(issued, id)| certificate(id, issued)).collect();
    let names = ["www.Example.com", "*.example.com", "www.example.*", "*", "example.*"];
    let snis = names.iter().zip(0..).map(|(name, id)| sni(name, id)).collect();
    let certificates = Certificates::build(&document(all, snis), default()).unwrap();
    for (name, expected) in [
        ("www.example.com", 0),
        ("WWW.EXAMPLE.COM", 0),
        ("www.example.com.", 0),
        ("api.example.com", 1),
        ("www.example.org", 2),
        ("example.org", 4),
        ("example.com", 4),
        ("a.b.example.com", 3),
        ("www.example.co.uk", 3),
        ("example", 3),
        (".", 3),
        ("", 3),
    ] {
        assert_eq!(found(&certificates, Some(name)), der(&issued[expected]), "{name}");
    }
    assert_eq!(found(&certificates, None), certificates.find(None, &[]).cert[0].to_vec());
}

#[test]
fn unknown_names_get_the_default_certificate() {
    let default = default();
    let known = document(vec![certificate(1, &ecdsa("a.test"))], vec![sni("a.test", 1)]);
    let certificates = Certificates::build(&known, default.clone()).unwrap();
    assert_eq!(found(&certificates, Some("b.test")), default.cert[0].to_vec());
    assert_eq!(found(&certificates, None), default.cert[0].to_vec());
}

#[test]
fn a_leading_wildcard_needs_three_labels() {
    let top = document(vec![certificate(1, &ecdsa("a"))], vec![sni("*.com", 1)]);
    let certificates = Certificates::build(&top, default()).unwrap();
    assert_eq!(found(&certificates, Some("example.com")), found(&certificates, None));
}

#[test]
fn the_key_type_follows_what_the_client_can_verify() {
    for (own, alt) in [(ecdsa("a"), rsa("a")), (rsa("a"), ecdsa("a"))] {
        let both = Certificate {
            cert_alt: Some(alt.cert.clone()),
            key_alt: Some(alt.key.clone()),
            ..certificate(1, &own)
        };
        let built = Certificates::build(&document(vec![both], vec![sni("a", 1)]), default()).unwrap();
        let algorithm = |schemes: &[_]| built.find(Some("a"), schemes).key.algorithm();
        assert_eq!(algorithm(&[RSA_PSS_SHA256]), rustls::SignatureAlgorithm::RSA);
        assert_eq!(algorithm(&[ECDSA_NISTP256_SHA256]), rustls::SignatureAlgorithm::ECDSA);
        assert_eq!(algorithm(&[RSA_PSS_SHA256, ECDSA_NISTP256_SHA256]), rustls::SignatureAlgorithm::ECDSA);
        assert!(built.get(Uuid::from_u128(1)).is_some());
        assert!(built.get(Uuid::from_u128(2)).is_none());
    }
}

#[test]
fn a_rebuild_parses_what_has_changed_and_forgets_what_has_gone() {
    let all = |a: &Issued, b: &Issued| vec![certificate(1, a), certificate(2, b)];
    let snis = || vec![sni("a", 1), sni("b", 2)];
    let (a, b, renewed) = (ecdsa("a"), ecdsa("b"), ecdsa("b"));
    let default = default();
    let first = Certificates::build(&document(all(&a, &b), snis()), default.clone()).unwrap();
    let second = first.rebuild(&document(all(&a, &renewed), snis()), |_| false).unwrap();
    assert!(Arc::ptr_eq(&first.find(Some("a"), &[]), &second.find(Some("a"), &[])));
    assert_eq!(found(&second, Some("b")), der(&renewed));
    let mixed = Certificate { key: b.key, ..certificate(2, &renewed) };
    let error = &second.rebuild(&document(vec![mixed], Vec::new()), |_| false).unwrap_err()[0];
    assert_eq!(error.problem, Problem::KeyMismatch);
    let third = second.rebuild(&document(vec![certificate(1, &a)], vec![sni("b", 1)]), |_| false).unwrap();
    assert_eq!(found(&third, Some("b")), der(&a));
    assert!(Arc::ptr_eq(&third.find(Some("a"), &[]), &default));
    assert!(third.get(Uuid::from_u128(2)).is_none());
}

#[test]
fn a_certificate_that_may_fail_keeps_the_pair_before_until_both_parts_are_replaced() {
    let (old, new) = (ecdsa("a"), ecdsa("a"));
    let of = |cert: &Issued, key: &Issued| {
        let mixed = Certificate { key: key.key.clone(), ..certificate(1, cert) };
        document(vec![mixed], vec![sni("a", 1)])
    };
    let first = Certificates::build(&of(&old, &old), default()).unwrap();
    let mixed = first.rebuild(&of(&new, &old), |_| true).unwrap();
    assert_eq!(found(&mixed, Some("a")), der(&old));
    let again = mixed.rebuild(&of(&new, &old), |_| true).unwrap();
    assert_eq!(found(&again, Some("a")), der(&old));
    let replaced = again.rebuild(&of(&new, &new), |_| true).unwrap();
    assert_eq!(found(&replaced, Some("a")), der(&new));
    assert!(first.rebuild(&of(&new, &old), |_| false).is_err(), "only what may fail keeps it");
}

#[test]
fn every_error_is_reported_with_its_entity() {
    let (good, other, strong) = (ecdsa("a"), ecdsa("b"), rsa("a"));
    let broken = |id, change: &dyn Fn(&mut Certificate)| {
        let mut certificate = certificate(id, &good);
        change(&mut certificate);
        certificate
    };
    let all = vec![
        broken(1, &|c| c.cert = "no PEM".into()),
        broken(2, &|c| c.key = c.key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY")),
        broken(3, &|c| c.key = other.key.clone()),
        broken(4, &|c| c.cert_alt = Some(strong.cert.clone())),
        broken(5, &|c| (c.cert_alt, c.key_alt) = (Some(other.cert.clone()), Some(other.key.clone()))),
        broken(6, &|c| (c.cert_alt, c.key_alt) = (Some(strong.cert.clone()), Some(other.key.clone()))),
        broken(7, &|c| c.cert = nonsense("CERTIFICATE")),
        broken(8, &|c| c.key = nonsense("PRIVATE KEY")),
        certificate(9, &good),
    ];
    let document = document(all, vec![sni("a", 1), sni("b", 9), sni("c", 10)]);
    let errors = Certificates::build(&document, default()).unwrap_err();
    let subject = |id, alt| Subject::Certificate { id: Uuid::from_u128(id), alt };
    let expected = [
        (subject(1, false), Problem::CertificatePem),
        (subject(2, false), Problem::KeyPem),
        (subject(3, false), Problem::KeyMismatch),
        (subject(4, true), Problem::AltIncomplete),
        (subject(5, true), Problem::AltSameType),
        (subject(6, true), Problem::KeyMismatch),
        (subject(7, false), Problem::UnusableCertificate("it is no X.509 certificate".into())),
        (subject(8, false), Problem::UnusableKey),
        (Subject::Sni("c".into()), Problem::UnknownCertificate(Uuid::from_u128(10))),
    ];
    assert_eq!(errors, expected.map(|(subject, problem)| TlsError { subject, problem }));
    for error in errors {
        let text = error.to_string();
        assert!(text.contains('(') && text.ends_with(')'), "no advice in: {text}");
    }
}

fn nonsense(label: &str) -> String {
    format!("-----BEGIN {label}-----\nbm8gREVS\n-----END {label}-----\n")
}

#[test]
fn the_default_certificate_comes_from_files_if_given() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let missing = default_certificate(Some((&cert, &key))).unwrap_err();
    assert!(missing.to_string().starts_with("ssl_cert and ssl_cert_key: cannot read "));
    let issued = ecdsa("files.test");
    std::fs::write(&cert, &issued.cert).unwrap();
    std::fs::write(&key, &issued.key).unwrap();
    assert_eq!(default_certificate(Some((&cert, &key))).unwrap().cert[0].to_vec(), der(&issued));
    std::fs::write(&key, &ecdsa("files.test").key).unwrap();
    assert_eq!(default_certificate(Some((&cert, &key))).unwrap_err().problem, Problem::KeyMismatch);
}

#[test]
fn a_bundle_of_ca_certificates_is_read_whole() {
    let bundle = format!("{}{}", ecdsa("a").cert, ecdsa("b").cert);
    assert_eq!(ca_certificates(&bundle).unwrap().len(), 2);
    assert_eq!(ca_certificates("").unwrap_err().subject, Subject::CaCertificate(None));
}

#[test]
fn the_roots_of_a_service_are_found_by_id() {
    let ca = |id, cert| {
        Arc::new(CaCertificate {
            id: Uuid::from_u128(id),
            cert,
            cert_digest: None,
            tags: None,
            created_at: None,
            updated_at: None,
        })
    };
    let (one, two) = (ecdsa("one"), ecdsa("two"));
    let ca_certificates = vec![ca(1, one.cert.clone()), ca(2, two.cert.clone()), ca(3, "no PEM".into())];
    let document = Document { ca_certificates, ..Document::default() };
    let find =
        |ids: &[u128]| roots(&document, &ids.iter().map(|id| Uuid::from_u128(*id)).collect::<Vec<_>>());
    assert_eq!(
        find(&[2, 1]).unwrap().iter().map(|root| root.to_vec()).collect::<Vec<_>>(),
        [der(&two), der(&one)]
    );
    for (id, problem) in [(3, Problem::CertificatePem), (4, Problem::UnknownCertificate(Uuid::from_u128(4)))]
    {
        let subject = Subject::CaCertificate(Some(Uuid::from_u128(id)));
        assert_eq!(find(&[1, id]), Err(TlsError { subject, problem }));
    }
}
