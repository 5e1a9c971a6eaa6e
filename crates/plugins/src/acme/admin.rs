//! `/acme` of the Admin API, as Kong has it.

use super::certificate::shown;
use super::domains::is_host;
use super::error::AcmeError;
use super::issuer::Issuer;
use super::method::Method;
use super::results;
use super::storage::RENEWALS;
use super::{Current, on_background};
use http::{Request, Uri};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use weir_plugin::{AdminMethod, AdminRequest, AdminResponse, AdminRoute, Bytes, HttpError, PendingResponse};

pub(super) const ROUTES: &[AdminRoute] = &[
    AdminRoute::later(
        AdminMethod::Post,
        "/acme",
        "create-acme-certificate",
        "Get a certificate for a host by ACME",
        create,
    ),
    AdminRoute::later(
        AdminMethod::Patch,
        "/acme",
        "renew-acme-certificates",
        "Renew the certificates that are due",
        renew,
    ),
    AdminRoute::later(
        AdminMethod::Get,
        "/acme/certificates",
        "list-acme-certificates",
        "List the certificates of the plugin `acme`",
        list,
    ),
    AdminRoute::later(
        AdminMethod::Get,
        "/acme/certificates/{host}",
        "get-acme-certificate",
        "A certificate of the plugin `acme`",
        show,
    ),
];

/// How long a host may take to answer the test.
const TEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait for the instance of a configuration that has just become active.
const START_TIMEOUT: Duration = Duration::from_secs(5);
const START_PAUSE: Duration = Duration::from_millis(10);

/// Does something with the instance in use, on the thread of plugins: connections belong to it.
fn with_issuer<F>(
    request: &AdminRequest<'_>,
    work: impl FnOnce(Arc<Issuer>) -> F + Send + 'static,
) -> PendingResponse
where
    F: Future<Output = AdminResponse> + Send + 'static,
{
    if !request.has_plugin("acme") {
        return Box::pin(async { AdminResponse::not_found() });
    }
    let current: Arc<Current> = request.retained.get();
    Box::pin(async move {
        let Ok(issuer) = timeout(START_TIMEOUT, in_use(&current)).await else {
            return AdminResponse::message(503, "this node serves no requests: ask one that does");
        };
        let work = work(issuer.clone());
        on_background(&issuer, work)
            .await
            .unwrap_or_else(|_| AdminResponse::message(500, "the thread of plugins does not run"))
    })
}

async fn in_use(current: &Current) -> Arc<Issuer> {
    loop {
        if let Some(issuer) = current.issuer() {
            return issuer;
        }
        tokio::time::sleep(START_PAUSE).await;
    }
}

fn failed(what: &str, error: &AcmeError) -> AdminResponse {
    AdminResponse::message(500, &format!("{what}{error}"))
}

fn create(request: &AdminRequest<'_>) -> PendingResponse {
    let host = request.body.get("host").and_then(Value::as_str).map(str::to_ascii_lowercase);
    let tests = request.body.get("test_http_challenge_flow");
    let tests = tests.is_some_and(|it| *it == true || *it == "true");
    with_issuer(request, move |issuer| async move {
        match host.as_deref().filter(|host| !host.is_empty()) {
            None => AdminResponse::message(400, "host must be provided and containing a single domain"),
            Some(host) if host.contains(':') => AdminResponse::message(400, "port is not allowed in host"),
            Some(host) if !is_host(host) => insane(host, "it is no host name"),
            Some(host) if !issuer.domains.allow(host) => {
                insane(host, "host is not included in plugin config.domains")
            }
            Some(host) if tests => test(&issuer, host).await,
            Some(host) => match issuer.update(host, None).await {
                Ok(()) => AdminResponse::message(201, &format!("certificate for host {host} is created")),
                Err(error) => failed("failed to update certificate: ", &error),
            },
        }
    })
}

fn insane(host: &str, why: &str) -> AdminResponse {
    AdminResponse::message(400, &format!("problem found running sanity check for {host}: {why}"))
}

/// Asks the host itself whether its challenges would lead to the plugin.
async fn test(issuer: &Issuer, host: &str) -> AdminResponse {
    if issuer.method != Method::Http {
        return insane(
            host,
            "config.challenge is not http-01, so that there is nothing to test by HTTP: order a certificate instead",
        );
    }
    let Ok(uri) = format!("http://{host}/.well-known/acme-challenge/x").parse::<Uri>() else {
        return insane(host, "it is no host name");
    };
    let mut request = Request::new(Bytes::new());
    *request.uri_mut() = uri;
    match issuer.http.send(request, TEST_TIMEOUT).await {
        Ok(response) if response.body() == "Not found\n" => {
            AdminResponse::message(200, &format!("sanity test for host {host} passed"))
        }
        Ok(response) => {
            insane(host, &format!("unexpected response, with the status {}", response.status().as_u16()))
        }
        Err(HttpError::Timeout) => insane(host, "timeout"),
        Err(error) => insane(host, &error.to_string()),
    }
}

fn renew(request: &AdminRequest<'_>) -> PendingResponse {
    with_issuer(request, |issuer| async move {
        let renewing = issuer.clone();
        issuer.background.spawn(async move { renewing.renew().await });
        AdminResponse::message(202, "Renewal process started successfully")
    })
}

fn list(request: &AdminRequest<'_>) -> PendingResponse {
    let invalid_only = request.argument("invalid_only").is_some_and(|it| it != "false");
    with_issuer(request, move |issuer| async move {
        match listed(&issuer, invalid_only).await {
            Ok(data) => AdminResponse::json(200, json!({ "data": data })),
            Err(error) => failed("", &error),
        }
    })
}

async fn listed(issuer: &Issuer, invalid_only: bool) -> Result<Vec<Value>, AcmeError> {
    let mut data = Vec::new();
    for name in issuer.storage.list(RENEWALS).await? {
        let host = name.strip_prefix(RENEWALS).unwrap_or_default();
        let issued = results::load(&issuer.database, &issuer.storage, host).await?;
        let shown = issued.and_then(|issued| shown(&issued.chain));
        data.extend(shown.filter(|(_, is_valid)| !invalid_only || !is_valid).map(|(shown, _)| shown));
    }
    Ok(data)
}

fn show(request: &AdminRequest<'_>) -> PendingResponse {
    let host = request.parameter("host").to_owned();
    with_issuer(request, |issuer| async move {
        match results::load(&issuer.database, &issuer.storage, &host).await {
            Ok(issued) => match issued.and_then(|issued| shown(&issued.chain)) {
                Some((data, _)) => AdminResponse::json(200, json!({ "data": data })),
                // Kong's message has no space there.
                None => {
                    AdminResponse::message(404, &format!("Certificate for host {host}not found in storage"))
                }
            },
            Err(error) => failed("", &error),
        }
    })
}
