//! Whether a certificate that a peer presented was revoked, as its OCSP responder says.

use super::ClientAuthorities;
use super::ocsp::{Question, Standing};
use super::responder;
use crate::connect;
use rustls::pki_types::CertificateDer;
use std::io;
use std::time::Duration;

/// What the responder says of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Revocation {
    /// It stands.
    Good,
    /// It was revoked.
    Revoked,
    /// There is no reliable response, for this reason.
    Unknown(String),
}

/// Asks the responder that the first certificate of a chain names. Its issuer is the second of the chain, or one of the
/// authorities. The system resolves the responder's name.
pub async fn revocation(
    chain: &[CertificateDer<'static>],
    authorities: &[CertificateDer<'static>],
    timeout: Duration,
) -> Revocation {
    let Some(own) = chain.first() else { return Revocation::Unknown("no certificate".to_owned()) };
    let Some(question) =
        issuer(own, chain, authorities).and_then(|issuer| Question::about(&[own.clone(), issuer.clone()]))
    else {
        return Revocation::Unknown(
            "the certificate names no OCSP responder, or its issuer is unknown".to_owned(),
        );
    };
    let response = match tokio::time::timeout(timeout, fetch(&question)).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => return Revocation::Unknown(format!("{}: {error}", question.responder)),
        Err(_) => return Revocation::Unknown(format!("{}: no response in time", question.responder)),
    };
    match question.read(&response) {
        Some(Standing::Good(_)) => Revocation::Good,
        Some(Standing::Revoked) => Revocation::Revoked,
        None => Revocation::Unknown(format!("{}: the response cannot be relied on", question.responder)),
    }
}

/// The certificate that another was signed with. The name alone proves nothing: the peer chooses what it presents.
fn issuer<'c>(
    own: &CertificateDer<'_>,
    chain: &'c [CertificateDer<'static>],
    authorities: &'c [CertificateDer<'static>],
) -> Option<&'c CertificateDer<'static>> {
    let (_, parsed) = x509_parser::parse_x509_certificate(own).ok()?;
    let is_named = |candidate: &CertificateDer<'static>| {
        x509_parser::parse_x509_certificate(candidate)
            .is_ok_and(|(_, candidate)| candidate.subject().as_raw() == parsed.issuer().as_raw())
    };
    let has_signed = |candidate: &CertificateDer<'static>| {
        let authority = ClientAuthorities::new(vec![candidate.clone()]);
        authority.is_ok_and(|authority| authority.vouch_for(std::slice::from_ref(own)).is_ok())
    };
    chain.iter().skip(1).chain(authorities).find(|candidate| is_named(candidate) && has_signed(candidate))
}

async fn fetch(question: &Question) -> io::Result<Vec<u8>> {
    let (authority, _) = responder::place(question)?;
    let (host, port) = responder::host_and_port(authority)?;
    let addresses = tokio::net::lookup_host((host, port)).await?;
    let opened = connect::first(addresses, connect::tcp).await;
    let tcp = opened.unwrap_or_else(|| Err(io::Error::other("the responder's name has no address")))?;
    responder::ask(tcp, question).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

    fn authority() -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    #[test]
    fn a_namesake_of_the_issuer_is_passed_over() {
        let (real, namesake) = (authority(), authority());
        let params = CertificateParams::new(vec!["data.test".to_owned()]).unwrap();
        let own = params.signed_by(&KeyPair::generate().unwrap(), &real).unwrap().der().clone();
        let (real, namesake) = (real.der().clone(), namesake.der().clone());
        let chain = [own.clone(), namesake];
        assert_eq!(issuer(&own, &chain, std::slice::from_ref(&real)), Some(&real));
        assert_eq!(issuer(&own, &chain, &[]), None);
    }
}
