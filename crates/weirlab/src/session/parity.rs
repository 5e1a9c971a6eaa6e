//! The parity check: before a cell is measured, its target must answer as the case asks. A target that answers otherwise
//! is not slower or faster; it does something else.
use crate::host::{ClientRequest, ClientResponse, Host, HostError};
use crate::load::Protocol;
use crate::result::Parity;
use crate::scenario::ParityCheck;
use std::net::SocketAddr;

/// Where a target answers, and what its upstream answers when asked directly.
pub(crate) struct Subject<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) protocol: Protocol,
    pub(crate) tls: bool,
    pub(crate) host: Option<&'a str>,
    pub(crate) upstream: SocketAddr,
}

/// Makes each request of the check, from the machine that loads come from, and says what was expected and what came.
pub(crate) fn check(host: &dyn Host, subject: &Subject<'_>, checks: &[ParityCheck]) -> Vec<Parity> {
    checks.iter().map(|check| one(host, subject, check)).collect()
}

fn one(host: &dyn Host, subject: &Subject<'_>, check: &ParityCheck) -> Parity {
    let mut headers = check.headers.clone();
    if let Some(host) =
        subject.host.filter(|_| !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")))
    {
        headers.push(("Host".to_owned(), host.to_owned()));
    }
    let ask = ClientRequest {
        address: subject.address,
        protocol: subject.protocol,
        tls: subject.tls,
        method: check.method.clone(),
        path: check.path.clone(),
        headers,
        body: check.body.clone(),
    };
    let protocol = match subject.protocol {
        // Gateways speak HTTP/1.1 to it.
        Protocol::Http2 { .. } => Protocol::Http1,
        other => other,
    };
    let upstream = ClientRequest { address: subject.upstream, protocol, tls: false, ..ask.clone() };
    let own = check.upstream_body.then(|| host.send(&upstream));
    let (got, agrees) = match host.send(&ask) {
        Err(error) => (error.to_string(), false),
        Ok(answer) => judge(check, &answer, own.as_ref()),
    };
    Parity { request: format!("{} {}", check.method, check.path), expected: expected(check), got, agrees }
}

fn expected(check: &ParityCheck) -> String {
    let mut words = vec![check.status.to_string()];
    words.extend(check.with_headers.iter().map(|name| format!("with {name}")));
    words.extend(check.grpc_status.map(|status| format!("grpc-status {status}")));
    if check.upstream_body {
        words.push("the upstream's body".to_owned());
    }
    words.join(", ")
}

fn judge(
    check: &ParityCheck,
    answer: &ClientResponse,
    own: Option<&Result<ClientResponse, HostError>>,
) -> (String, bool) {
    let mut words = vec![answer.status.to_string()];
    let mut agrees = answer.status == check.status;
    for name in &check.with_headers {
        let there = answer.headers.contains(&name.to_ascii_lowercase());
        words.push(format!("{} {name}", if there { "with" } else { "without" }));
        agrees &= there;
    }
    if let Some(expected) = check.grpc_status {
        let status = answer.grpc_status.as_deref();
        words.push(status.map_or("no grpc-status".to_owned(), |status| format!("grpc-status {status}")));
        agrees &= status == Some(expected.to_string().as_str());
    }
    match own {
        None => {}
        Some(Err(error)) => {
            words.push(format!("(the upstream itself: {error})"));
            agrees = false;
        }
        Some(Ok(own)) if own.body == answer.body => words.push("the upstream's body".to_owned()),
        Some(Ok(_)) => {
            words.push(format!("another body of {} bytes", answer.body.len()));
            agrees = false;
        }
    }
    (words.join(", "), agrees)
}
