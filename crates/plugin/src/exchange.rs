//! One request and its response, as the engine and its plugins see them, whatever HTTP version carries them.

pub(super) mod body_filter;
mod client;
pub(super) mod connection;
pub(super) mod extras;
pub(super) mod fallback;
mod forwarded;
pub mod grpc_status;
mod headers;
pub(super) mod local_response;
mod log_fields;
mod log_view;
mod query;
pub(super) mod secrets;
mod service_override;
mod service_response;
pub(super) mod state;
pub(super) mod upstream_replacement;
mod vacant;

use super::body_memory::BufferedBody;
use super::extensions::Extensions;
use super::views::{Consumer, ConsumerIndex, Route};
use connection::{CERTIFICATE, IDENTITY};
use state::{ExchangeState, NormalPath};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use tokio::time::Instant;
use weir_http1::{Framing, Known, RequestHead, ResponseHead};
use weir_model::Uuid;
use weir_model::entity::Service;
use weir_net::tls::ClientCertificate;

pub use body_filter::{BodyFilter, ResumeBody, WaitForBody};
pub use extras::{FailedTry, Observer};
pub use fallback::BodyBegin;
pub use headers::{HeaderError, HeadersOf};
pub use local_response::LocalResponse;
pub use log_fields::{LogField, LogFieldMode};
pub use log_view::Latencies;
pub use service_override::{ServiceOverride, ServiceTarget, TargetError};
pub use service_response::ResponseSource;
pub use upstream_replacement::UpstreamOutcome;

/// What proved a consumer's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credential<'a> {
    /// The credential's id.
    pub id: Uuid,
    /// What Kong puts into `X-Credential-Identifier`: the key's id, or the user's name.
    pub identifier: Option<&'a str>,
}

/// Who made the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The upstream.
    Service,
    /// The gateway itself: a plugin or an error.
    Kong,
}

/// The moments of an exchange that telemetry and the latency headers need.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// The request's head was complete.
    pub start: Instant,
    /// The upstream was asked.
    pub upstream_start: Option<Instant>,
    /// The upstream's response head was complete.
    pub upstream_head: Option<Instant>,
    /// The last byte was sent.
    pub end: Option<Instant>,
}

/// One request and its response.
pub struct Exchange {
    /// The request's head. What plugins change here goes to the upstream.
    pub request: Box<RequestHead>,
    /// The response's status and headers, once there is one. What plugins change here goes to the client.
    pub response: Box<ResponseHead>,
    /// Who made the response.
    pub source: Source,
    /// The peer of the connection.
    pub peer: SocketAddr,
    /// The client's address, by `trusted_ips` and `real_ip_header`.
    pub client_ip: IpAddr,
    /// Whether the client came over TLS.
    pub tls: bool,
    /// The server name that the client asked for in its TLS handshake.
    pub sni: Option<Rc<str>>,
    /// The request's id: 32 hexadecimal digits.
    pub id: [u8; 32],
    /// Which worker serves it.
    pub worker: usize,
    /// When things happened.
    pub timing: Timing,
    /// Bytes of the request as received, head and body.
    pub bytes_in: u64,
    /// Bytes of the response as sent, head and body.
    pub bytes_out: u64,
    /// What plugins keep from one hook to the next.
    pub extensions: Extensions,
    /// What the engine alone touches.
    #[doc(hidden)]
    pub engine: ExchangeState,
}

impl Exchange {
    /// The route that the request matched.
    pub fn route(&self) -> Option<&Route> {
        self.engine.configuration.route(self.engine.route?)
    }

    /// The service that the route leads to.
    pub fn service(&self) -> Option<&Service> {
        self.route().and_then(|route| route.service.as_deref()).map(|service| &*service.entity)
    }

    /// Who calls, once an authentication plugin has said so.
    pub fn consumer(&self) -> Option<&Consumer> {
        self.engine.configuration.consumer(self.engine.consumer?)
    }

    /// The consumer's place in the configuration, once an authentication plugin has named it.
    pub fn consumer_index(&self) -> Option<ConsumerIndex> {
        self.engine.consumer
    }

    /// The id of the credential that proved the consumer's identity. None for an anonymous one.
    pub fn credential(&self) -> Option<Uuid> {
        self.engine.credential
    }

    /// Names the consumer, and adds Kong's headers about it to the request.
    pub fn authenticate(&mut self, consumer: ConsumerIndex, credential: Credential<'_>) {
        self.engine.identify(consumer);
        self.engine.set_credential(Some(credential.id));
        self.engine.anonymous = false;
        self.name_consumer(Some(credential));
    }

    /// Lets the request pass as the anonymous consumer.
    pub fn authenticate_anonymous(&mut self, consumer: ConsumerIndex) {
        self.engine.identify(consumer);
        self.engine.set_credential(None);
        self.engine.anonymous = true;
        self.name_consumer(None);
    }

    fn name_consumer(&mut self, credential: Option<Credential<'_>>) {
        let configuration = &*self.engine.configuration;
        let Some(consumer) = self.engine.consumer.and_then(|index| configuration.consumer(index)) else {
            return;
        };
        let identifier = credential.and_then(|c| c.identifier);
        let headers = &mut self.request.headers;
        headers.remove_all_known(IDENTITY);
        let mut say = |known, name, value: Option<&str>| {
            if let Some(value) = value {
                headers.append_known(known, name, value.as_bytes());
            }
        };
        say(Known::XConsumerId, "X-Consumer-ID", Some(&consumer.id_text));
        say(Known::XConsumerCustomId, "X-Consumer-Custom-ID", consumer.entity.custom_id.as_deref());
        say(Known::XConsumerUsername, "X-Consumer-Username", consumer.entity.username.as_deref());
        say(Known::XCredentialIdentifier, "X-Credential-Identifier", identifier);
        say(Known::XAnonymousConsumer, "X-Anonymous-Consumer", credential.is_none().then_some("true"));
    }

    /// The certificate that the client presented in its TLS handshake. It holds the key; who vouches for it, the caller
    /// has to ask.
    pub fn client_certificate(&self) -> Option<Rc<ClientCertificate>> {
        self.engine.connection.tls.as_ref()?.client.clone()
    }

    /// Whether the client was asked for a certificate in its TLS handshake.
    pub fn is_asked_for_certificate(&self) -> bool {
        self.engine.connection.tls.as_ref().is_some_and(|tls| tls.asked)
    }

    /// Removes what the request's headers say of a certificate.
    pub fn forget_client_certificate(&mut self) {
        self.request.headers.remove_all_known(CERTIFICATE);
    }

    /// The address and port that the client connected to.
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(self.engine.connection.local_ip, self.engine.connection.local_port)
    }

    /// The number of the connection among all of this process.
    pub fn connection_number(&self) -> u64 {
        self.engine.connection.number
    }

    /// How many requests the connection has carried, this one included.
    pub fn request_number(&self) -> u64 {
        self.engine.connection.requests.get()
    }

    /// The query string as the upstream will get it, without `?`.
    pub fn query(&self) -> Option<&str> {
        match &self.engine.query {
            Some(query) => (!query.is_empty()).then_some(query),
            None => self.request.query(),
        }
    }

    /// Replaces the query string that the upstream will get; an empty one is none. What cannot stand in a request line
    /// is escaped.
    pub fn set_query(&mut self, query: String) {
        let sendable = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
        self.engine.query = Some(if query.bytes().all(sendable) {
            query
        } else {
            let escaped =
                |byte| if sendable(byte) { char::from(byte).into() } else { format!("%{byte:02X}") };
            query.bytes().map(escaped).collect()
        });
    }

    /// The request's body, if a plugin of the chain asked for it and it is short enough to be held.
    pub fn body(&self) -> Option<&[u8]> {
        self.engine.body.as_deref().filter(|_| self.engine.body_is_whole)
    }

    /// A buffer for a copy of a body that passes, as long as the node has memory for it.
    pub fn body_buffer(&self) -> BufferedBody {
        BufferedBody::within(self.engine.reserve_body(true))
    }

    /// A plugin has no such hook: nothing is measured of it.
    #[inline]
    pub(super) fn has_no_hook(&self) {
        self.engine.absent.set(true);
    }

    /// Whether the request has a body, which is not empty as far as its head says.
    pub fn has_body(&self) -> bool {
        !matches!(self.request.framing, Framing::None | Framing::Length(0))
    }

    /// The request's path, normalised, without query.
    pub fn path(&self) -> &str {
        match &self.engine.path {
            NormalPath::AsSent => self.request.path(),
            NormalPath::Rewritten(path) => path,
        }
    }

    /// The request's id as text.
    pub fn id(&self) -> &str {
        std::str::from_utf8(&self.id).unwrap_or_default()
    }

    /// `http` or `https`, as the client came.
    pub fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }

    /// Whether `trusted_ips` holds the peer, so that what it says of the client by forwarded headers is believed.
    pub fn is_from_trusted_proxy(&self) -> bool {
        self.engine.connection.trusted
    }

    /// The value of a request header.
    pub fn header(&self, known: Known) -> Option<&[u8]> {
        self.request.headers.get_known(known)
    }
}
