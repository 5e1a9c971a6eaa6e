//! OCSP (RFC 6960): asks a responder whether a certificate was revoked, and validates the response.
//!
//! The structures have the names of the RFC's ASN.1 module, and are read and written by the crate `asn1-rs`, on which
//! `x509-parser` stands too. What they mean, and whether a signature counts, is decided here.

use super::provider;
use asn1_rs::{
    Any, BitString, Class, DerSequence, Enumerated, Error, FromDer, GeneralizedTime, Integer, Null,
    OctetString, Oid, Sequence, SerializeResult, Tag, ToDer, oid,
};
use rustls::pki_types::{CertificateDer, UnixTime};
use sha1::{Digest, Sha1};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};

/// The value of id-kp-OCSPSigning: who has it in its certificate signs in its issuer's place.
const OCSP_SIGNING: [u8; 8] = [0x2b, 6, 1, 5, 5, 7, 3, 9];
/// SHA-1, by which every responder knows its certificates.
const SHA_1: Oid<'static> = oid!(1.3.14.3.2.26);
/// id-pkix-ocsp-basic, the one form of answers that there is.
const BASIC: Oid<'static> = oid!(1.3.6.1.5.5.7.48.1.1);
/// `successful`, of the states of an `OCSPResponse`.
const SUCCESSFUL: u32 = 0;
/// `good`, of the choices of a `CertStatus`.
const GOOD: Tag = Tag(0);
/// `revoked`, of the same.
const REVOKED: Tag = Tag(1);
/// The maximum clock skew.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

#[derive(DerSequence)]
struct OcspResponse<'a> {
    status: Enumerated,
    #[tag_explicit(0)]
    #[optional]
    bytes: Option<ResponseBytes<'a>>,
}

#[derive(DerSequence)]
struct ResponseBytes<'a> {
    kind: Oid<'a>,
    response: &'a [u8],
}

#[derive(DerSequence)]
struct BasicOcspResponse<'a> {
    /// Signed as it stands.
    data: Any<'a>,
    algorithm: Any<'a>,
    signature: BitString<'a>,
    #[tag_explicit(0)]
    #[optional]
    certificates: Option<Sequence<'a>>,
}

#[derive(DerSequence)]
struct ResponseData<'a> {
    #[tag_explicit(0)]
    #[optional]
    _version: Option<u32>,
    _responder: Any<'a>,
    _produced: GeneralizedTime,
    responses: Sequence<'a>,
}

#[derive(DerSequence)]
struct SingleResponse<'a> {
    certificate: CertId<'a>,
    status: Any<'a>,
    since: GeneralizedTime,
    #[tag_explicit(0)]
    #[optional]
    until: Option<GeneralizedTime>,
}

/// Names a certificate by hashes of its issuer, and by its number.
#[derive(DerSequence)]
struct CertId<'a> {
    algorithm: HashAlgorithm<'a>,
    issuer_name: &'a [u8],
    issuer_key: &'a [u8],
    serial: Any<'a>,
}

#[derive(DerSequence)]
struct HashAlgorithm<'a> {
    oid: Oid<'a>,
}

/// What is asked about one certificate.
pub(super) struct Question {
    /// Where: `http://host:port/path`.
    pub(super) responder: String,
    /// The request, in DER.
    pub(super) request: Vec<u8>,
    issuer_name: Vec<u8>,
    issuer_key: Vec<u8>,
    serial: Vec<u8>,
    issuer: CertificateDer<'static>,
}

/// What a response reports of the certificate.
pub(super) enum Standing {
    Good(Good),
    Revoked,
}

/// A response that reports the certificate as good.
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

/// Whether a certificate names a responder but comes without its issuer, so that no request can be built.
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
        let mut question = Self {
            responder: responder(&own)?.to_owned(),
            request: Vec::new(),
            issuer_name: Sha1::digest(own.issuer().as_raw()).to_vec(),
            issuer_key: Sha1::digest(&issuer_read.public_key().subject_public_key.data).to_vec(),
            serial: own.raw_serial().to_vec(),
            issuer: issuer.clone(),
        };
        question.request = question.written().ok()?;
        Some(question)
    }

    /// An `OCSPRequest` with a `TBSRequest` with a list of one `Request`.
    fn written(&self) -> SerializeResult<Vec<u8>> {
        let algorithm = sequence(&[&SHA_1, &Null::new()])?;
        let (name, key) = (OctetString::new(&self.issuer_name), OctetString::new(&self.issuer_key));
        let certificate = sequence(&[&algorithm, &name, &key, &Integer::new(&self.serial)])?;
        let list = sequence(&[&sequence(&[&certificate])?])?;
        sequence(&[&sequence(&[&list])?])?.to_der_vec()
    }

    /// Reads a response; none where it cannot be relied on, or knows nothing of the certificate.
    pub(super) fn read(&self, response: &[u8]) -> Option<Standing> {
        let (_, response) = OcspResponse::from_der(response).ok()?;
        let bytes = response.bytes.filter(|bytes| response.status.0 == SUCCESSFUL && bytes.kind == BASIC)?;
        let (_, basic) = BasicOcspResponse::from_der(bytes.response).ok()?;
        let signed = basic.data.to_der_vec().ok()?;
        self.check_signature(&signed, &basic)?;
        let (_, data) = ResponseData::from_der(&signed).ok()?;
        self.read_data(&data)
    }

    fn read_data(&self, data: &ResponseData<'_>) -> Option<Standing> {
        for answer in data.responses.der_iter::<SingleResponse<'_>, Error>() {
            let answer = answer.ok()?;
            if answer.certificate.is_of(self) {
                return standing(&answer);
            }
        }
        None
    }

    /// By the issuer, or by whom it lets sign in its place.
    fn check_signature(&self, signed: &[u8], basic: &BasicOcspResponse<'_>) -> Option<()> {
        let algorithm = basic.algorithm.as_bytes();
        let signature = Some(&*basic.signature.data).filter(|_| basic.signature.unused_bits == 0)?;
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
        verify(&issuer, signed, algorithm, signature).or_else(|| issued(&basic.signer()?))
    }
}

impl BasicOcspResponse<'_> {
    /// The first of the certificates that came along.
    fn signer(&self) -> Option<Vec<u8>> {
        let first = self.certificates.as_ref()?.der_iter::<Any<'_>, Error>().next()?;
        first.ok()?.to_der_vec().ok()
    }
}

impl CertId<'_> {
    fn is_of(&self, question: &Question) -> bool {
        self.algorithm.oid == SHA_1
            && self.issuer_name == question.issuer_name
            && self.issuer_key == question.issuer_key
            && self.serial.as_bytes() == question.serial
    }
}

fn sequence(parts: &[&dyn ToDer]) -> SerializeResult<Sequence<'static>> {
    let mut content = Vec::new();
    for part in parts {
        part.write_der(&mut content)?;
    }
    Ok(Sequence::new(content.into()))
}

fn verify(by: &EndEntityCert<'_>, signed: &[u8], algorithm: &[u8], signature: &[u8]) -> Option<()> {
    let all = provider().signature_verification_algorithms.all;
    let mut fitting = all.iter().filter(|known| known.signature_alg_id().as_ref() == algorithm);
    fitting.any(|known| by.verify_signature(*known, signed, signature).is_ok()).then_some(())
}

fn standing(answer: &SingleResponse<'_>) -> Option<Standing> {
    let (class, choice) = (answer.status.class(), answer.status.tag());
    let since = time(&answer.since)?;
    let until = match &answer.until {
        Some(next) => Some(time(next)?),
        None => None,
    };
    let now = SystemTime::now();
    let is_current = since <= now + CLOCK_SKEW && until.is_none_or(|until| until > now);
    match choice {
        _ if class != Class::ContextSpecific || !is_current => None,
        GOOD => Some(Standing::Good(Good { since, until })),
        REVOKED => Some(Standing::Revoked),
        _ => None,
    }
}

fn time(time: &GeneralizedTime) -> Option<SystemTime> {
    let seconds = time.utc_datetime().ok()?.unix_timestamp();
    Some(UNIX_EPOCH + Duration::from_secs(seconds.try_into().ok()?))
}
