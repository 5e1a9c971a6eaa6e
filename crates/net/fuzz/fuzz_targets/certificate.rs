//! No certificate of a client makes its reading panic, and what is read of it can stand in a header.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rustls::pki_types::CertificateDer;
use weir_net::tls::ClientCertificate;

fuzz_target!(|der: &[u8]| {
    let Some(certificate) = ClientCertificate::read(&[CertificateDer::from(der)]) else { return };
    let names = certificate.alternative_names().iter().map(String::as_str);
    for text in names.chain(certificate.common_name()).chain([certificate.subject()]) {
        assert!(text.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{text:?}");
    }
});
