//! OCSP (RFC 6960): the question whether a certificate still stands, and what may be relied on of the answer.

use super::provider;
use rustls::pki_types::{CertificateDer, UnixTime};
use sha1::{Digest, Sha1};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;
use x509_parser::time::ASN1Time;

const SEQUENCE: u8 = 0x30;
const OCTETS: u8 = 0x04;
/// SHA-1, by which every responder knows its certificates.
const HASH_ALGORITHM: [u8; 11] = [SEQUENCE, 9, 6, 5, 0x2b, 0x0e, 0x03, 0x02, 0x1a, 5, 0];
const OCSP_SIGNING: [u8; 8] = [0x2b, 6, 1, 5, 5, 7, 3, 9];
/// How far apart the clocks may be.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

/// What is asked about one certificate.
pub(super) struct Question {
    /// Where: `http://host:port/path`.
    pub(super) responder: String,
    /// The request, in DER.
    pub(super) request: Vec<u8>,
    /// The hashes and the number that name the certificate.
    named: Vec<u8>,
    issuer: CertificateDer<'static>,
}

/// An answer that says that the certificate stands.
pub(super) struct Good {
    pub(super) since: SystemTime,
    /// None where the responder always has newer.
    pub(super) until: Option<SystemTime>,
}

/// Who is to be asked about a certificate, as it says itself.
fn responder<'c>(certificate: &'c X509Certificate<'_>) -> Option<&'c str> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityInfoAccess(access) => {
            access.iter().find_map(|it| match it.access_location {
                GeneralName::URI(uri) if it.access_method.to_id_string() == "1.3.6.1.5.5.7.48.1" => Some(uri),
                _ => None,
            })
        }
        _ => None,
    })
}

/// Whether a certificate that names a responder comes alone, so that nobody can be asked about it.
pub(super) fn lacks_issuer(chain: &[CertificateDer<'static>]) -> bool {
    let [own] = chain else { return false };
    x509_parser::parse_x509_certificate(own).is_ok_and(|(_, own)| responder(&own).is_some())
}

/// Whom the first certificate of a chain is about.
pub(super) fn subject(chain: &[CertificateDer<'static>]) -> String {
    let read = chain.first().and_then(|own| x509_parser::parse_x509_certificate(own).ok());
    read.map(|(_, own)| own.subject().to_string()).unwrap_or_default()
}

impl Question {
    /// About the first certificate of a chain; none where it names no responder or comes without its issuer.
    pub(super) fn about(chain: &[CertificateDer<'static>]) -> Option<Self> {
        let [own, issuer, ..] = chain else { return None };
        let (_, own) = x509_parser::parse_x509_certificate(own).ok()?;
        let (_, issuer_read) = x509_parser::parse_x509_certificate(issuer).ok()?;
        let responder = responder(&own)?;
        let key = &issuer_read.public_key().subject_public_key.data;
        let named = [
            tagged(OCTETS, &Sha1::digest(own.issuer().as_raw())),
            tagged(OCTETS, &Sha1::digest(key)),
            tagged(0x02, own.raw_serial()),
        ]
        .concat();
        let certificate = tagged(SEQUENCE, &[&HASH_ALGORITHM[..], &named].concat());
        // A list of one request, in a request's body, in a request.
        let request = (0..4).fold(certificate, |inner, _| tagged(SEQUENCE, &inner));
        Some(Self { responder: responder.to_owned(), request, named, issuer: issuer.clone() })
    }

    /// Reads an answer; none where it cannot be relied on, or does not say that the certificate stands.
    pub(super) fn read(&self, response: &[u8]) -> Option<Good> {
        let mut response = Der(Der(response).take(SEQUENCE)?);
        if response.take(0x0a)? != [0] {
            return None;
        }
        let mut bytes = Der(Der(response.take(0xa0)?).take(SEQUENCE)?);
        bytes.take(0x06)?;
        let mut basic = Der(Der(bytes.take(OCTETS)?).take(SEQUENCE)?);
        let signed = basic.whole(SEQUENCE)?;
        let (algorithm, signature) = (basic.take(SEQUENCE)?, basic.take(0x03)?);
        let signer = basic
            .take(0xa0)
            .and_then(|certificates| Der(certificates).take(SEQUENCE))
            .and_then(|all| Der(all).whole(SEQUENCE));
        self.check_signature(signed, algorithm, signature.strip_prefix(&[0])?, signer)?;
        self.read_data(Der(Der(signed).take(SEQUENCE)?))
    }

    fn read_data(&self, mut data: Der<'_>) -> Option<Good> {
        data.take(0xa0);
        data.take(0xa1).or_else(|| data.take(0xa2))?;
        data.take(0x18)?;
        let mut answers = Der(data.take(SEQUENCE)?);
        while let Some(answer) = answers.take(SEQUENCE) {
            let mut answer = Der(answer);
            let mut certificate = Der(answer.take(SEQUENCE)?);
            certificate.take(SEQUENCE)?;
            if certificate.0 == self.named {
                answer.take(0x80)?;
                return good(answer);
            }
        }
        None
    }

    /// By the issuer, or by whom it lets sign in its place.
    fn check_signature(
        &self,
        signed: &[u8],
        algorithm: &[u8],
        signature: &[u8],
        signer: Option<&[u8]>,
    ) -> Option<()> {
        let issued = |der: &[u8]| {
            let der = CertificateDer::from(der);
            let anchors = [anchor_from_trusted_cert(&self.issuer).ok()?];
            let usage = KeyUsage::required(&OCSP_SIGNING);
            let algorithms = provider().signature_verification_algorithms.all;
            let certificate = EndEntityCert::try_from(&der).ok()?;
            certificate
                .verify_for_usage(algorithms, &anchors, &[], UnixTime::now(), usage, None, None)
                .ok()?;
            verify(&certificate, signed, algorithm, signature)
        };
        let issuer = EndEntityCert::try_from(&self.issuer).ok()?;
        verify(&issuer, signed, algorithm, signature).or_else(|| issued(signer?))
    }
}

fn verify(by: &EndEntityCert<'_>, signed: &[u8], algorithm: &[u8], signature: &[u8]) -> Option<()> {
    let all = provider().signature_verification_algorithms.all;
    let mut fitting = all.iter().filter(|known| known.signature_alg_id().as_ref() == algorithm);
    fitting.any(|known| by.verify_signature(*known, signed, signature).is_ok()).then_some(())
}

fn good(mut answer: Der<'_>) -> Option<Good> {
    let since = time(answer.whole(0x18)?)?;
    let until = match answer.take(0xa0) {
        Some(next) => Some(time(next)?),
        None => None,
    };
    let now = SystemTime::now();
    let stands = since <= now + CLOCK_SKEW && until.is_none_or(|until| until > now);
    stands.then_some(Good { since, until })
}

fn time(der: &[u8]) -> Option<SystemTime> {
    let (_, time) = ASN1Time::from_der(der).ok()?;
    Some(UNIX_EPOCH + Duration::from_secs(time.timestamp().try_into().ok()?))
}

fn tagged(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let mut out = vec![tag];
    match length {
        0..128 => out.push(length as u8),
        128..256 => out.extend([0x81, length as u8]),
        _ => out.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    out.extend_from_slice(content);
    out
}

/// What is left of a sequence of DER's elements.
#[derive(Clone, Copy)]
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The content of the next element, if it has this tag.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (head, length) = self.measure(tag)?;
        let content = self.0.get(head..head.checked_add(length)?)?;
        self.0 = &self.0[head + length..];
        Some(content)
    }

    /// The next element itself, if it has this tag.
    fn whole(&mut self, tag: u8) -> Option<&'a [u8]> {
        let before = self.0;
        self.take(tag)?;
        Some(&before[..before.len() - self.0.len()])
    }

    fn measure(&self, tag: u8) -> Option<(usize, usize)> {
        match *self.0 {
            [found, ..] if found != tag => None,
            [_, short @ 0..=0x7f, ..] => Some((2, short.into())),
            [_, 0x81, length, ..] => Some((3, length.into())),
            [_, 0x82, high, low, ..] => Some((4, usize::from(high) << 8 | usize::from(low))),
            _ => None,
        }
    }
}
