//! Plugins that run only for requests that meet a condition: APISIX's `_meta.filter`, as a member of the configuration of
//! any plugin.

use crate::shared::expression::Expression;
use std::sync::Arc;
use weir_plugin::node::{Node, Value};
use weir_plugin::schema::{Reader, Record, RecordContext, read_record};
use weir_plugin::{
    AccessEffect, Admission, BuildContext, Built, Exchange, Flow, Handshake, HandshakeFlow, Hooks, Json,
    Phases, Plugin, Session, WantsBody,
};

/// The member with the condition, and the condition in it.
const META: &str = "_meta";
const FILTER: &str = "filter";

/// Reads a configuration, which may have a condition.
pub(crate) fn read<P: Plugin>(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Json> {
    let plain = |node: &Node<'_>, reader: &mut Reader<'_>| {
        read_record::<P::Config>(node, &RecordContext::NONE, reader).map(|config| config.to_value())
    };
    let Some(meta) = node.get(META) else { return plain(node, reader) };
    if let Value::Map(members) = &meta.value
        && let Some(other) = members.iter().find(|member| member.key != FILTER)
    {
        reader.report(other.node.at, format!("'{META}.{}' is not available: expected '{FILTER}'", other.key));
        return None;
    }
    let filter = meta.get(FILTER).map(Node::to_json).unwrap_or_default();
    if let Err(message) = Expression::parse(&filter) {
        reader.report(meta.at, format!("failed to validate the '{META}.{FILTER}' expression: {message}"));
        return None;
    }
    let mut own = node.clone();
    if let Value::Map(members) = &mut own.value {
        members.retain(|member| member.key != META);
    }
    let mut config = plain(&own, reader)?;
    config[META][FILTER] = filter;
    Some(config)
}

/// Builds an instance, and has it run under the condition of its configuration.
pub(crate) fn build<P: Plugin>(config: &Json, build: &BuildContext<'_>) -> Built {
    let plain = const { weir_plugin::define::<P>() };
    let Some(meta) = config.get(META) else { return (plain.build)(config, build) };
    let condition = Expression::parse(&meta[FILTER])?;
    let mut own = config.clone();
    own.as_object_mut().and_then(|members| members.remove(META));
    Ok(Arc::new(Conditional { condition, inner: (plain.build)(&own, build)? }))
}

/// An instance, and when it runs.
struct Conditional {
    condition: Expression,
    inner: Arc<dyn Hooks>,
}

/// What was decided of a request: for each instance by its address, because it is decided once, when the instance is
/// first asked.
#[derive(Default)]
struct Decisions(Vec<(usize, bool)>);

impl Conditional {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn decided(&self, exchange: &Exchange) -> Option<bool> {
        let Decisions(made) = exchange.extensions.get()?;
        made.iter().find(|(address, _)| *address == self.address()).map(|(_, runs)| *runs)
    }

    fn runs(&self, exchange: &mut Exchange) -> bool {
        if let Some(decided) = self.decided(exchange) {
            return decided;
        }
        let runs = self.condition.is_met(exchange);
        if exchange.extensions.get::<Decisions>().is_none() {
            exchange.extensions.insert(Decisions::default());
        }
        if let Some(Decisions(made)) = exchange.extensions.get_mut() {
            made.push((self.address(), runs));
        }
        runs
    }
}

impl Hooks for Conditional {
    fn phases(&self) -> Phases {
        self.inner.phases()
    }

    fn rewrite(&self, exchange: &mut Exchange) -> Flow {
        if self.runs(exchange) { self.inner.rewrite(exchange) } else { Flow::Continue }
    }

    fn access_effect(&self, exchange: &Exchange) -> AccessEffect {
        if self.condition.is_met(exchange) {
            self.inner.access_effect(exchange)
        } else {
            AccessEffect::Passes
        }
    }

    fn may_rewrite(&self, exchange: &Exchange) -> bool {
        self.condition.is_met(exchange) && self.inner.may_rewrite(exchange)
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        if self.runs(exchange) { self.inner.access(exchange) } else { Flow::Continue }
    }

    fn response(&self, exchange: &mut Exchange) {
        if self.runs(exchange) {
            self.inner.response(exchange);
        }
    }

    fn response_body(&self, exchange: &mut Exchange, body: Vec<u8>) -> Vec<u8> {
        if self.runs(exchange) { self.inner.response_body(exchange, body) } else { body }
    }

    fn log(&self, exchange: &mut Exchange) {
        if self.decided(exchange).unwrap_or_else(|| self.condition.is_met(exchange)) {
            self.inner.log(exchange);
        }
    }

    fn certificate(&self, handshake: &mut Handshake) -> HandshakeFlow {
        self.inner.certificate(handshake)
    }

    fn preread(&self, session: &Session) -> Admission {
        self.inner.preread(session)
    }

    fn log_stream(&self, session: &Session) {
        self.inner.log_stream(session);
    }

    fn wants_body(&self) -> WantsBody {
        self.inner.wants_body()
    }

    fn wants_client_certificate(&self) -> bool {
        self.inner.wants_client_certificate()
    }
}
