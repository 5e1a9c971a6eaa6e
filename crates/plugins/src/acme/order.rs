//! One order, from the CA's challenge to the certificate.

use super::ca::{Ca, Problem};
use super::certificate::issuer_of_root;
use super::error::AcmeError;
use super::method::Method;
use super::storage::Storage;
use base64::prelude::{BASE64_URL_SAFE_NO_PAD as BASE64, Engine};
use http::header::LINK;
use serde::Deserialize;
use serde_json::json;
use std::net::Ipv4Addr;
use std::time::Duration;
use weir_plugin::Bytes;

/// How long the answer to a challenge is kept.
const CHALLENGE_TTL: Duration = Duration::from_hours(1);

/// How many chains beside the first one are looked at.
const MAX_CHAINS: usize = 8;

/// Whether a token is one: nothing else is looked for in the storage.
pub(super) fn is_token(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=256).contains(&text.len()) && text.bytes().all(is_part)
}

#[derive(Deserialize)]
pub(super) struct Order {
    status: String,
    #[serde(default)]
    authorizations: Vec<String>,
    finalize: String,
    certificate: Option<String>,
    #[serde(default)]
    error: Problem,
}

#[derive(Deserialize)]
pub(super) struct Authorization {
    status: String,
    #[serde(default)]
    challenges: Vec<Challenge>,
}

#[derive(Deserialize)]
pub(super) struct Challenge {
    #[serde(rename = "type")]
    kind: String,
    url: String,
    token: Option<String>,
    #[serde(default)]
    error: Problem,
}

impl Order {
    fn is_settled(&self) -> bool {
        !matches!(&*self.status, "pending" | "processing")
    }
}

impl Authorization {
    /// The challenge of this kind, with its token.
    pub(super) fn challenge(&self, method: Method) -> Option<(&Challenge, &str)> {
        let challenge = self.challenges.iter().find(|challenge| challenge.kind == method.name())?;
        Some((challenge, challenge.token.as_deref().filter(|token| is_token(token))?))
    }
}

/// A host that a certificate is ordered for, and how it is proven that the host leads here.
pub(super) struct Claim<'a> {
    pub(super) host: &'a str,
    pub(super) method: Method,
    /// Where all nodes find the answer to the challenge.
    pub(super) storage: &'a Storage,
}

/// An order whose host the CA has validated.
pub(super) struct Validated {
    url: String,
    finalize: String,
}

/// Orders a certificate for a host, up to where the CA waits for the request.
pub(super) async fn order(ca: &mut Ca<'_>, claim: &Claim<'_>) -> Result<Validated, AcmeError> {
    let host = claim.host;
    let kind = if host.parse::<Ipv4Addr>().is_ok() { "ip" } else { "dns" };
    let asked = json!({ "identifiers": [{ "type": kind, "value": host }] });
    let (url, order): (_, Order) = ca.order(&asked).await?;
    for authorization in &order.authorizations {
        authorize(ca, claim, authorization).await?;
    }
    let order: Order = ca.wait(&url, "the order", |order: &Order| order.status != "pending").await?;
    match &*order.status {
        "ready" => Ok(Validated { url, finalize: order.finalize }),
        _ => Err(AcmeError::refused("the certificate", 200, &order.error.detail)),
    }
}

/// Ends an order with this request (CSR, in DER); returns the certificate's chain in PEM.
pub(super) async fn finish(
    ca: &mut Ca<'_>,
    validated: &Validated,
    request: &[u8],
    preferred_chain: Option<&str>,
) -> Result<String, AcmeError> {
    let Validated { url, finalize } = validated;
    ca.post(finalize, Some(&json!({ "csr": BASE64.encode(request) })), "the request").await?;
    let order =
        ca.wait(url, "the order", |order: &Order| order.is_settled() && order.status != "ready").await?;
    match order.certificate {
        Some(certificate) if order.status == "valid" => chain(ca, &certificate, preferred_chain).await,
        _ => Err(AcmeError::refused("the certificate", 200, &order.error.detail)),
    }
}

/// Proves to the CA that the host leads to this node.
async fn authorize(ca: &mut Ca<'_>, claim: &Claim<'_>, url: &str) -> Result<(), AcmeError> {
    let Claim { host, method, storage } = *claim;
    let authorization: Authorization = ca.wait(url, "the authorization", |_| true).await?;
    if authorization.status == "valid" {
        return Ok(());
    }
    let (challenge, token) = authorization.challenge(method).ok_or_else(|| method.missing())?;
    let key = match method {
        Method::Http => method.key(token),
        Method::TlsAlpn => method.key(host),
    };
    let answer = format!("{token}.{}", ca.key.thumbprint());
    storage.set(&key, &answer, Some(CHALLENGE_TTL)).await?;
    let validated = validate(ca, method, url, &challenge.url).await;
    // It ends by itself too.
    let _ = storage.delete(&key).await;
    validated
}

async fn validate(ca: &mut Ca<'_>, method: Method, url: &str, challenge: &str) -> Result<(), AcmeError> {
    ca.post(challenge, Some(&json!({})), "the answer to its challenge").await?;
    let is_settled = |authorization: &Authorization| authorization.status != "pending";
    let authorization: Authorization = ca.wait(url, "the authorization", is_settled).await?;
    match &*authorization.status {
        "valid" => Ok(()),
        _ => {
            let detail = authorization.challenge(method).map(|(challenge, _)| &*challenge.error.detail);
            Err(AcmeError::challenge(detail.unwrap_or("it does not say why"), method.port()))
        }
    }
}

/// The chain, or another one that the CA offers and that leads to the preferred root.
async fn chain(ca: &mut Ca<'_>, url: &str, preferred: Option<&str>) -> Result<String, AcmeError> {
    let response = ca.post(url, None, "the certificate").await?;
    let first = pem(response.body())?;
    let Some(preferred) = preferred else { return Ok(first) };
    if issuer_of_root(&first).as_deref() == Some(preferred) {
        return Ok(first);
    }
    let links = response.headers().get_all(LINK).iter().filter_map(|link| alternate(link.to_str().ok()?));
    let others: Vec<String> = links.map(str::to_owned).take(MAX_CHAINS).collect();
    for other in others {
        let other = pem(ca.post(&other, None, "the certificate").await?.body())?;
        if issuer_of_root(&other).as_deref() == Some(preferred) {
            return Ok(other);
        }
    }
    tracing::warn!("acme: the CA offers no chain to {preferred}; check preferred_chain");
    Ok(first)
}

fn pem(body: &Bytes) -> Result<String, AcmeError> {
    let text = std::str::from_utf8(body).ok().filter(|text| text.contains("-----BEGIN CERTIFICATE-----"));
    text.map(str::to_owned).ok_or(AcmeError::Malformed("the certificate is no PEM"))
}

/// The target of a link to another chain.
fn alternate(link: &str) -> Option<&str> {
    let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
    let is_alternate =
        parameters.split(';').any(|it| matches!(it.trim(), "rel=\"alternate\"" | "rel=alternate"));
    is_alternate.then_some(target)
}
