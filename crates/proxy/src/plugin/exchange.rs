//! One request and its response, as the engine and its plugins see them, whatever HTTP version carries them.

mod rare;
mod told;

use crate::costs::Watch;
use crate::plugin::body_memory::{HeldBody, Room};
use crate::snapshot::{CompiledRoute, Consumer, Held};
use crate::tls::ClientCertificate;
use std::any::Any;
use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Instant;
use weir_http1::{Framing, Known, KnownSet, RequestHead, ResponseHead};
use weir_model::Uuid;
use weir_model::entity::Service;
use weir_router::Captures;

pub use rare::{FailedTry, Observer};
pub use told::{Latencies, WORKSPACE};

/// Headers by which the gateway names the consumer to the upstream. A client's own would be a forgery.
pub(crate) const IDENTITY: KnownSet = KnownSet::of(&[
    Known::XConsumerId,
    Known::XConsumerCustomId,
    Known::XConsumerUsername,
    Known::XConsumerGroups,
    Known::XAuthenticatedGroups,
    Known::XCredentialIdentifier,
    Known::XAnonymousConsumer,
]);

/// Headers by which a gateway tells of the client's certificate. They are believed where they come from a trusted peer.
pub(crate) const CERTIFICATE: KnownSet =
    KnownSet::of(&[Known::XClientCertDn, Known::XClientCertSan, Known::ClientCert, Known::ClientCertChain]);

/// Where a consumer stands in the snapshot's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConsumerIndex(pub u32);

/// Where a consumer group stands in the snapshot: in the order of their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupIndex(pub(crate) u32);

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

/// What all requests of one connection share.
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    /// The client's address, unless a request says otherwise: the peer's, or what a trusted one said by PROXY protocol.
    pub(crate) client_ip: IpAddr,
    /// The forwarded headers of a request that came with none, which is most: lines ready to be sent.
    pub(crate) forwarded: Box<str>,
    /// The peer's address as text, for the forwarded headers.
    pub(crate) peer_text: Box<str>,
    /// The address that the client connected to.
    pub(crate) local_ip: IpAddr,
    /// The port that the client connected to.
    pub(crate) local_port: u16,
    /// Its number among all connections of this process.
    pub(crate) number: u64,
    /// How many requests it has carried, the current one included.
    pub(crate) requests: Cell<u64>,
    /// Over TLS: what the handshake agreed on.
    pub(crate) tls: Option<Tls>,
    /// Whether `trusted_ips` holds the peer, so that its forwarded headers are believed.
    pub(crate) trusted: bool,
    /// Whether a proxy connected, whoever it speaks for.
    pub(crate) announced: bool,
}

/// What a TLS handshake agreed on.
pub(crate) struct Tls {
    pub(crate) sni: Option<Rc<str>>,
    /// `TLSv1.3`
    pub(crate) version: &'static str,
    /// The cipher suite's IANA name.
    pub(crate) cipher: String,
    /// Whether the client was asked for a certificate.
    pub(crate) asked: bool,
    /// The one that it presented.
    pub(crate) client: Option<Rc<ClientCertificate>>,
}

impl Connection {
    pub(crate) fn new(
        peer: SocketAddr,
        local: SocketAddr,
        number: u64,
        tls: Option<Tls>,
        trusted: bool,
    ) -> Self {
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let (ip, port) = (peer.ip(), local.port());
        let scheme = if tls.is_some() { "https" } else { "http" };
        Self {
            forwarded: format!(
                "X-Forwarded-For: {ip}\r\nX-Forwarded-Proto: {scheme}\r\nX-Forwarded-Port: {port}\r\nX-Real-IP: {ip}\r\n"
            )
            .into(),
            peer,
            client_ip: ip,
            peer_text: ip.to_string().into(),
            local_ip: local.ip().to_canonical(),
            local_port: port,
            number,
            requests: Cell::new(0),
            tls,
            trusted,
            announced: false,
        }
    }

    /// The same, begun by a header of the PROXY protocol; it may name the client.
    pub(crate) fn on_behalf_of(mut self, client: Option<SocketAddr>) -> Self {
        self.announced = true;
        if let Some(client) = client {
            self.client_ip = client.ip().to_canonical();
        }
        self
    }
}

/// The request's path in its one normal form, used for routing, by plugins and towards the upstream alike.
pub(crate) enum NormalPath {
    /// As sent.
    AsSent,
    /// Rewritten.
    Rewritten(String),
}

/// One request and its response.
pub struct Exchange {
    /// The request's head. What plugins change here goes to the upstream.
    pub request: RequestHead,
    /// The response's status and headers, once there is one. What plugins change here goes to the client.
    pub response: ResponseHead,
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
    pub(crate) connection: Rc<Connection>,
    /// What was collected of the request's body; the rest streams behind it.
    pub(crate) body: Option<HeldBody>,
    pub(crate) body_is_whole: bool,
    /// The protocol that the client asks to change to.
    pub(crate) upgrade: Option<Box<str>>,
    pub(crate) path: NormalPath,
    pub(crate) matched_path: u32,
    /// What the groups of the path's regex captured.
    pub(crate) captures: Option<Box<Captures>>,
    pub(crate) query: Option<String>,
    pub(crate) snapshot: Rc<Held>,
    pub(crate) route: Option<u32>,
    pub(crate) consumer: Option<ConsumerIndex>,
    /// The priority of the plugin that named the consumer: plugins of a lower one know who calls.
    pub(crate) named_at: i32,
    /// The priority of the plugin whose access hook runs, or ran last.
    pub(crate) running: i32,
    pub(crate) credential: Option<Uuid>,
    pub(crate) anonymous: bool,
    pub(crate) kept: Vec<Box<dyn Any>>,
    /// The response says that something failed.
    pub(crate) failed: bool,
    /// The upstream's address that was asked last.
    pub(crate) asked: Option<SocketAddr>,
    /// Whether its hooks are measured.
    pub(crate) watch: Watch,
    /// The hook that ran last is none of its plugin.
    pub(crate) absent: Cell<bool>,
    /// What plugins ask of few exchanges.
    rare: Option<Box<rare::Rare>>,
}

impl Exchange {
    /// A request whose head has arrived, on its way from here.
    pub(crate) fn new(
        connection: &Rc<Connection>,
        snapshot: Rc<Held>,
        (worker, id): (usize, [u8; 32]),
        (request, response): (RequestHead, ResponseHead),
    ) -> Exchange {
        Exchange {
            source: Source::Kong,
            peer: connection.peer,
            client_ip: connection.client_ip,
            tls: connection.tls.is_some(),
            sni: connection.tls.as_ref().and_then(|tls| tls.sni.clone()),
            id,
            worker,
            timing: Timing { start: Instant::now(), upstream_start: None, upstream_head: None, end: None },
            bytes_in: 0,
            bytes_out: 0,
            connection: connection.clone(),
            body: None,
            body_is_whole: false,
            upgrade: None,
            path: NormalPath::AsSent,
            matched_path: 0,
            captures: None,
            query: None,
            snapshot,
            route: None,
            consumer: None,
            named_at: i32::MAX,
            running: i32::MAX,
            credential: None,
            anonymous: false,
            kept: Vec::new(),
            failed: false,
            asked: None,
            watch: Watch::default(),
            absent: Cell::new(false),
            rare: None,
            request,
            response,
        }
    }

    /// The route that the request matched.
    pub fn route(&self) -> Option<&CompiledRoute> {
        self.route.map(|index| &*self.snapshot.routes[index as usize])
    }

    /// The service that the route leads to.
    pub fn service(&self) -> Option<&Service> {
        self.route().and_then(|route| route.service.as_deref()).map(|service| &*service.entity)
    }

    /// Who calls, once an authentication plugin has said so.
    pub fn consumer(&self) -> Option<&Consumer> {
        self.consumer.map(|ConsumerIndex(index)| &self.snapshot.consumers[index as usize])
    }

    /// The groups that a consumer is in, in the order of their names.
    pub(crate) fn groups_of(&self, ConsumerIndex(index): ConsumerIndex) -> &[GroupIndex] {
        &self.snapshot.consumers[index as usize].groups
    }

    /// The consumer that was known when it was the turn of the access hooks of this priority.
    pub(crate) fn consumer_at(&self, priority: i32) -> Option<ConsumerIndex> {
        if priority < self.named_at { self.consumer } else { self.earlier_consumer_at(priority) }
    }

    /// The plugin that runs says who calls. Several may, one after another.
    pub(crate) fn identify(&mut self, consumer: ConsumerIndex) {
        if let Some(before) = self.consumer.replace(consumer) {
            self.keep_earlier_consumer(before);
        }
        self.named_at = self.running;
    }

    /// The id of the credential that proved the consumer's identity. None for an anonymous one.
    pub fn credential(&self) -> Option<Uuid> {
        self.credential
    }

    /// Names the consumer, and tells the upstream by Kong's headers.
    pub fn authenticate(&mut self, consumer: ConsumerIndex, credential: Credential<'_>) {
        self.identify(consumer);
        self.credential = Some(credential.id);
        self.anonymous = false;
        self.name_consumer(Some(credential));
    }

    /// Lets the request pass as the anonymous consumer.
    pub fn authenticate_anonymous(&mut self, consumer: ConsumerIndex) {
        self.identify(consumer);
        self.credential = None;
        self.anonymous = true;
        self.name_consumer(None);
    }

    fn name_consumer(&mut self, credential: Option<Credential<'_>>) {
        let snapshot = self.snapshot.clone();
        let Some(ConsumerIndex(index)) = self.consumer else { return };
        let consumer = &snapshot.consumers[index as usize];
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
        self.connection.tls.as_ref()?.client.clone()
    }

    /// Whether the client was asked for a certificate in its TLS handshake.
    pub fn is_asked_for_certificate(&self) -> bool {
        self.connection.tls.as_ref().is_some_and(|tls| tls.asked)
    }

    /// Removes what the request's headers say of a certificate.
    pub fn forget_client_certificate(&mut self) {
        self.request.headers.remove_all_known(CERTIFICATE);
    }

    /// Keeps a value from one hook of a plugin to the next, by its type.
    pub fn keep<T: Any>(&mut self, value: T) {
        self.kept.push(Box::new(value));
    }

    /// The value of this type that an earlier hook kept.
    pub fn kept<T: Any>(&self) -> Option<&T> {
        self.kept.iter().find_map(|value| value.downcast_ref())
    }

    /// The address and port that the client connected to.
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(self.connection.local_ip, self.connection.local_port)
    }

    /// The number of the connection among all of this process.
    pub fn connection_number(&self) -> u64 {
        self.connection.number
    }

    /// How many requests the connection has carried, this one included.
    pub fn request_number(&self) -> u64 {
        self.connection.requests.get()
    }

    /// The query string as the upstream will get it, without `?`.
    pub fn query(&self) -> Option<&str> {
        match &self.query {
            Some(query) => (!query.is_empty()).then_some(query),
            None => self.request.query(),
        }
    }

    /// Replaces the query string that the upstream will get; an empty one is none. What cannot stand in a request line
    /// is escaped.
    pub fn set_query(&mut self, query: String) {
        let sendable = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
        self.query = Some(if query.bytes().all(sendable) {
            query
        } else {
            let escaped =
                |byte| if sendable(byte) { char::from(byte).into() } else { format!("%{byte:02X}") };
            query.bytes().map(escaped).collect()
        });
    }

    /// The request's body, if a plugin of the chain asked for it and it is short enough to be held.
    pub fn body(&self) -> Option<&[u8]> {
        self.body.as_deref().filter(|_| self.body_is_whole)
    }

    /// There is no body to be collected.
    pub(crate) fn has_empty_body(&mut self) {
        self.body.get_or_insert_default();
        self.body_is_whole = true;
    }

    /// Memory for a body, which a plugin can do without or not.
    pub(crate) fn room(&self, is_spare: bool) -> Room {
        Room::new(self.snapshot.bodies.clone(), is_spare)
    }

    /// Where a plugin may copy a body that passes, as long as the node has room for it.
    pub fn spare_body(&self) -> HeldBody {
        HeldBody::within(self.room(true))
    }

    /// A plugin has no such hook: nothing is measured of it.
    #[inline]
    pub(crate) fn has_no_hook(&self) {
        self.absent.set(true);
    }

    /// Whether the request has a body, which is not empty as far as its head says.
    pub fn has_body(&self) -> bool {
        !matches!(self.request.framing, Framing::None | Framing::Length(0))
    }

    /// The request's path, normalised, without query.
    pub fn path(&self) -> &str {
        match &self.path {
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

    /// The value of a request header.
    pub fn header(&self, known: Known) -> Option<&[u8]> {
        self.request.headers.get_known(known)
    }
}
