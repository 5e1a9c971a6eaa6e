//! The question: a hypothetical request, which was never sent.
use super::BadQuestion;
use crate::exchange::WorkerSnapshot;
use crate::exchange::{Connection, Exchange, Sampler, Tls};
use crate::snapshot::Snapshot;
use crate::worker::Options;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use weir_http1::{Known, Limits, ParseError, RequestHead, Version};
use weir_model::schema::{FieldError, Json, Record};
use weir_plugin::engine::grpc_status;
use weir_plugin::without_port;

/// A request to explain.
#[derive(Clone, Record)]
pub struct Asked {
    /// The method.
    #[field(default = "GET", check = method)]
    pub method: String,
    /// How the client would come.
    #[field(default = "http", one_of = ["http", "https"])]
    pub scheme: String,
    /// The Host header: a name or an address, perhaps with a port.
    #[field(check = visible)]
    pub host: String,
    /// The port of the gateway that the client would connect to; the scheme's own when not given.
    pub port: Option<u16>,
    /// The path, perhaps with a query.
    #[field(default = "/", check = target)]
    pub path: String,
    /// Other headers, and the values of each.
    #[field(default = {}, secret, key_check = header_name, check = header_value)]
    pub headers: BTreeMap<String, Vec<String>>,
    /// The client's address, or that of the peer which names the client in a header.
    #[field(default = "127.0.0.1", check = address)]
    pub client_ip: String,
    /// The server name of the TLS handshake; the host's when not given.
    #[field(check = visible)]
    pub sni: Option<String>,
}

/// Shows no value of a header.
impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.keys().collect();
        write!(f, "Asked({} {}://{}{} {headers:?})", self.method, self.scheme, self.host, self.path)
    }
}

impl Asked {
    /// Reads the question from JSON; a header with one value may be a string.
    ///
    /// # Errors
    /// Everything that is wrong with it, each with its field.
    pub fn read(question: &Json) -> Result<Asked, BadQuestion> {
        let mut question = question.clone();
        let headers = question.get_mut("headers").and_then(Json::as_object_mut);
        for (_, value) in headers.into_iter().flatten().filter(|(_, value)| value.is_string()) {
            *value = Json::Array(vec![value.take()]);
        }
        Asked::from_value(&question).map_err(BadQuestion)
    }

    /// The request as a worker would have it once its head has arrived.
    pub(super) fn exchange(
        &self,
        snapshot: &Arc<Snapshot>,
        options: &Options,
    ) -> Result<Exchange, BadQuestion> {
        let mut request = Box::<RequestHead>::default();
        request.parse(self.head().as_bytes(), &Limits::default()).map_err(refused)?;
        if request.headers.get_known(Known::ContentType).is_some_and(grpc_status::is_content_type) {
            // Calls come over HTTP/2 alone.
            request.version = Version::Http2;
        }
        let connection = Rc::new(self.connection(snapshot, options));
        let snapshot = Rc::new(WorkerSnapshot::apart(snapshot.clone()));
        let heads = (request, Box::default());
        Ok(Exchange::new(&connection, snapshot, (0, [b'0'; 32]), heads, Sampler::default()))
    }

    fn is_https(&self) -> bool {
        self.scheme == "https"
    }

    /// What was checked holds no line end.
    fn head(&self) -> String {
        let mut head = format!("{} {} HTTP/1.1\r\nHost: {}\r\n", self.method, self.path, self.host);
        for (name, values) in &self.headers {
            values.iter().for_each(|value| head.extend([name.as_str(), ": ", value, "\r\n"]));
        }
        head + "\r\n"
    }

    fn connection(&self, snapshot: &Snapshot, options: &Options) -> Connection {
        let peer = self.client_ip.parse().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let port = self.port.unwrap_or(if self.is_https() { 443 } else { 80 });
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let server_name = self.server_name();
        let tls = self.is_https().then(|| Tls {
            asked: snapshot.asked.includes(server_name.as_deref()),
            sni: server_name.map(Rc::from),
            version: "TLSv1.3",
            cipher: String::new(),
            client: None,
        });
        Connection::new(SocketAddr::new(peer, 0), local, 0, tls, options.trusts_address(peer))
    }

    /// Addresses are not named in a handshake.
    fn server_name(&self) -> Option<String> {
        let host = without_port(&self.host);
        let of_host = || (!host.starts_with('[') && host.parse::<IpAddr>().is_err()).then_some(host);
        self.sni.as_deref().or_else(of_host).map(str::to_ascii_lowercase)
    }
}

/// What is refused of a head, as the field that it came from.
fn refused(reject: ParseError) -> BadQuestion {
    use ParseError::{
        Authority, HostInvalid, HostMissing, HostRepeated, RequestLine, Target, TargetFragment, TargetTooLong,
    };
    let field = match reject {
        RequestLine => "method",
        Target | TargetFragment | TargetTooLong => "path",
        Authority | HostInvalid | HostMissing => "host",
        HostRepeated => return BadQuestion(vec![FieldError::new("headers", "give Host as `host`")]),
        _ => "headers",
    };
    BadQuestion(vec![FieldError::new(field, reject.to_string())])
}

fn method(text: &str) -> Result<(), String> {
    let letters = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'-');
    if letters { Ok(()) } else { Err(format!("expected a method such as GET, got {text:?}")) }
}

fn visible(text: &str) -> Result<(), String> {
    let visible = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if visible { Ok(()) } else { Err(format!("expected visible ASCII characters only, got {text:?}")) }
}

fn target(text: &str) -> Result<(), String> {
    if !text.starts_with('/') {
        return Err(format!("a path starts with /; write \"/{text}\""));
    }
    let sendable = |byte: u8| byte > b' ' && byte != 0x7F;
    if text.bytes().all(sendable) {
        Ok(())
    } else {
        Err("write spaces and the like percent-encoded".to_owned())
    }
}

fn header_name(name: &str) -> Result<(), String> {
    weir_model::rule::header_name(name)
}

fn header_value(value: &str) -> Result<(), String> {
    let control = |byte: u8| byte != b'\t' && byte < b' ' || byte == 0x7F;
    if value.bytes().any(control) {
        Err("a header's value has no control characters".to_owned())
    } else {
        Ok(())
    }
}

fn address(text: &str) -> Result<(), String> {
    text.parse::<IpAddr>().map(drop).map_err(|_| format!("expected an IP address, got {text:?}"))
}
