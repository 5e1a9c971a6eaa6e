//! What the gateway would do with a request, and why: which route is found and what the others lack, which plugins run
//! with which of their configurations, and where the request goes.
//!
//! The request takes the way of a real one as far as that has no effect: the router finds its route, plugins that
//! authenticate name its consumer. No upstream is asked, and nothing is counted.
mod asked;
mod plugins;
mod routes;
#[cfg(test)]
mod tests;
mod upstream;

pub use asked::Asked;
pub use plugins::{Configured, PluginStep};
pub use routes::{FailedPredicate, LossReason, Priority, Rival, Share, Winner};
pub use upstream::{Candidate, Upstream};

use crate::Retained;
use crate::error::RequestError;
use crate::exchange::Exchange;
use crate::pipeline::client_ip;
use crate::pipeline::respond;
use crate::pipeline::serve;
use crate::snapshot::{CompiledRoute, Snapshot};
use crate::worker::Options;
use serde::Serialize;
use std::net::IpAddr;
use std::sync::Arc;
use weir_http1::Method;
use weir_model::schema::FieldError;
use weir_model::{Document, Uuid};
use weir_plugin::LocalResponse;
use weir_upstream::UpstreamError;

/// What is wrong with a question, field by field.
#[derive(Debug, Clone, PartialEq)]
pub struct BadQuestion(pub Vec<FieldError>);

impl std::fmt::Display for BadQuestion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lines = self.0.iter().map(|violation| format!("{}: {}", violation.path, violation.message));
        f.write_str(&lines.collect::<Vec<_>>().join("; "))
    }
}

impl std::error::Error for BadQuestion {}

/// What the gateway would do with a request.
#[derive(Debug, Clone, Serialize)]
pub struct Explained {
    /// The request as routes see it.
    pub request: Seen,
    /// The route that is found.
    pub route: Option<Winner>,
    /// Routes that meet the request in part or wholly, the closest first.
    pub others: Vec<Rival>,
    /// How many more of these there are.
    pub more_others: usize,
    /// Whom an authentication plugin would take the client for.
    pub consumer: Option<Named>,
    /// The groups that the consumer is in, in the order in which their plugins are looked for.
    pub consumer_groups: Vec<Named>,
    /// The plugins that run, in order.
    pub plugins: Vec<PluginStep>,
    /// Where the request goes, unless a plugin answers it.
    pub upstream: Option<Upstream>,
    /// The gateway's own response, as far as it can be predicted.
    pub answer: Option<Answered>,
    /// The plugins that may decide otherwise when the request comes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unless: Vec<String>,
}

/// A request as routes see it.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs)]
pub struct Seen {
    pub method: String,
    pub scheme: &'static str,
    pub host: String,
    /// In its normal form, without a query.
    pub path: String,
    pub client_ip: String,
    /// The header in which a trusted peer names the client, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub real_ip_header: Option<String>,
    pub sni: Option<String>,
}

/// An entity by id and name.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Named {
    pub id: Uuid,
    pub name: Option<String>,
}

impl Named {
    fn new(id: Uuid, name: &Option<String>) -> Named {
        Named { id, name: name.clone() }
    }

    /// The name, else the id.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.id.to_string())
    }
}

/// An answer of the gateway's own.
#[derive(Debug, Clone, Serialize)]
pub struct Answered {
    /// The status; none if the plugin finds it when the request comes.
    pub status: Option<u16>,
    /// The message in its body.
    pub message: Option<String>,
    /// The plugin that answers; none for the gateway itself.
    pub plugin: Option<String>,
}

impl Answered {
    fn new(answer: &LocalResponse, plugin: Option<&str>) -> Answered {
        let (message, plugin) = (answer.message_text(), plugin.map(str::to_owned));
        Answered { status: Some(answer.status), message, plugin }
    }

    /// What a plugin answers is found when the request comes.
    fn later(plugin: &str) -> Answered {
        Answered { status: None, message: None, plugin: Some(plugin.to_owned()) }
    }
}

/// Explains a request with the active snapshot and the document that it was compiled from, on a node with these options.
///
/// # Errors
/// When there can be no such request.
pub fn explain(
    snapshot: &Arc<Snapshot>,
    document: &Document,
    asked: &Asked,
    options: &Options,
) -> Result<Explained, BadQuestion> {
    let mut exchange = asked.exchange(snapshot, options)?;
    let peer = exchange.client_ip;
    exchange.request.headers.remove_hop_by_hop();
    client_ip::strip_identity(&mut exchange);
    client_ip::determine(options, &mut exchange);
    serve::normalize(&mut exchange);
    let (route, failure) = match exchange.request.method {
        Method::Connect | Method::Trace => (None, RequestError::MethodNotAllowed),
        _ => (serve::route(&mut exchange, snapshot), RequestError::NoRoute),
    };
    let ((winner, others), unless) = match failure {
        RequestError::MethodNotAllowed => Default::default(),
        _ => (routes::judge(&exchange, snapshot, document), plugins::rewriting(&exchange, &snapshot.global)),
    };
    let mut explained = Explained {
        request: Seen::of(&exchange, peer, options),
        route: winner,
        more_others: others.len().saturating_sub(routes::MAX_OTHERS),
        others: others.into_iter().take(routes::MAX_OTHERS).collect(),
        consumer: None,
        consumer_groups: Vec::new(),
        plugins: Vec::new(),
        upstream: None,
        answer: None,
        unless,
    };
    match route {
        Some(route) => follow(&mut explained, &mut exchange, route, document),
        None => explained.answer = Some(Answered::new(&failure.answer(), None)),
    }
    Ok(explained)
}

impl Explained {
    /// The same for a node that knows how its targets fare: where none is healthy, none is asked.
    pub fn by_health(mut self, retained: &Retained, document: &Document) -> Explained {
        let upstream = self.upstream.as_ref().filter(|_| self.answer.is_none());
        if upstream.is_some_and(|upstream| upstream.is_unhealthy(retained, document)) {
            self.answer = Some(Answered::new(&RequestError::from(UpstreamError::NoTarget).answer(), None));
        }
        self
    }
}

/// Follows a request beyond its route.
fn follow(explained: &mut Explained, exchange: &mut Exchange, route: &CompiledRoute, document: &Document) {
    let redirect = respond::require_protocol(route, exchange).map(|answer| Answered::new(&answer, None));
    let unless = std::mem::take(&mut explained.unless);
    let (steps, decisions) = plugins::walk(exchange, route, document, redirect.is_none(), unless);
    explained.plugins = steps;
    explained.consumer = exchange.consumer().map(|c| Named::new(c.entity.id, &c.entity.username));
    explained.consumer_groups = plugins::groups(exchange, document);
    explained.unless = decisions.unless;
    explained.answer = redirect.or(decisions.answer);
    if explained.answer.is_some() {
        return;
    }
    explained.upstream = route.service.as_ref().map(|service| match decisions.upstream {
        Some(plugin) => Upstream::chosen_by(plugin, service),
        None => upstream::of(exchange, route, service, document),
    });
    let missing = match &explained.upstream {
        None => Some(RequestError::NoService),
        Some(upstream) if upstream.has_no_target() => Some(UpstreamError::NoTarget.into()),
        Some(_) => None,
    };
    explained.answer = missing.map(|failure| Answered::new(&failure.answer(), None));
}

impl Seen {
    fn of(exchange: &Exchange, peer: IpAddr, options: &Options) -> Seen {
        let header = options.real_ip.header().filter(|_| exchange.client_ip != peer);
        Seen {
            method: exchange.request.method_str().to_owned(),
            scheme: exchange.scheme(),
            host: exchange.request.host().unwrap_or_default().to_owned(),
            path: exchange.path().to_owned(),
            client_ip: exchange.client_ip.to_string(),
            real_ip_header: header.map(str::to_owned),
            sni: exchange.sni.as_deref().map(str::to_owned),
        }
    }
}
