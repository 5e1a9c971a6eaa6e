//! A service: where requests go.
use crate::schema::{Choice, FieldError, Record};
use uuid::Uuid;

/// A protocol that requests arrive or leave by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Choice)]
pub enum Protocol {
    Grpc,
    Grpcs,
    Http,
    Https,
    Tcp,
    Tls,
    TlsPassthrough,
    Udp,
}

impl Protocol {
    /// Whether it is passed on as it is, by stream listeners.
    pub fn is_stream(self) -> bool {
        matches!(self, Protocol::Tcp | Protocol::Tls | Protocol::TlsPassthrough | Protocol::Udp)
    }
}

/// A version of the PROXY protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Choice)]
pub enum ProxyProtocol {
    V1,
    V2,
}

/// Where requests go.
#[derive(Debug, Clone, PartialEq, Record)]
#[record(check = path_has_meaning, check = tls_has_meaning, check = proxy_protocol_has_meaning)]
pub struct Service {
    #[field(auto)]
    pub id: Uuid,
    #[field(unique, matches = name)]
    pub name: Option<String>,
    /// How often a request that got no response is sent again, to other targets first, where that is safe.
    #[field(nullable, default = 5, between = [0, 32767])]
    pub retries: u16,
    /// The protocol spoken to the host.
    #[field(default = "http")]
    pub protocol: Protocol,
    /// A host name, an IP address, the name of an upstream, or `unix:` and the path of a socket.
    #[field(matches = host_or_socket)]
    pub host: String,
    #[field(default = 80)]
    pub port: u16,
    /// What the paths of requests are put behind.
    #[field(matches = path, depends_on = "protocol")]
    pub path: Option<String>,
    /// Milliseconds to connect.
    #[field(nullable, default = 60000, between = [1, 2147483646])]
    pub connect_timeout: u32,
    /// Milliseconds between two writes to the host.
    #[field(nullable, default = 60000, between = [1, 2147483646])]
    pub write_timeout: u32,
    /// Milliseconds between two reads from the host.
    #[field(nullable, default = 60000, between = [1, 2147483646])]
    pub read_timeout: u32,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    /// The certificate presented to the host.
    #[field(foreign = "certificates", depends_on = "protocol")]
    pub client_certificate: Option<Uuid>,
    /// Whether the host's certificate is verified.
    #[field(depends_on = "protocol")]
    pub tls_verify: Option<bool>,
    /// How many intermediates may stand between the host's certificate and a root.
    #[field(between = [0, 64], depends_on = "protocol")]
    pub tls_verify_depth: Option<u8>,
    /// The authorities that the host's certificate is verified by.
    #[field(foreign = "ca_certificates", depends_on = "protocol")]
    pub ca_certificates: Option<Vec<Uuid>>,
    /// The PROXY protocol that carries the client's address to the host, with protocol tcp or tls.
    #[field(extension)]
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Whether requests are let through.
    #[field(default = true)]
    pub enabled: bool,
    #[field(auto)]
    pub created_at: Option<i64>,
    #[field(auto)]
    pub updated_at: Option<i64>,
}

fn path_has_meaning(service: &Service) -> Vec<FieldError> {
    match service.protocol {
        Protocol::Http | Protocol::Https => Vec::new(),
        _ if service.path.is_none() => Vec::new(),
        other => {
            let message = format!("has no meaning with protocol {}; leave it out", other.as_str());
            vec![FieldError::new("path", message)]
        }
    }
}

fn proxy_protocol_has_meaning(service: &Service) -> Vec<FieldError> {
    if service.proxy_protocol.is_none() || matches!(service.protocol, Protocol::Tcp | Protocol::Tls) {
        return Vec::new();
    }
    let message = "needs protocol tcp or tls; change `protocol`, or leave it out";
    vec![FieldError::new("proxy_protocol", message)]
}

fn tls_has_meaning(service: &Service) -> Vec<FieldError> {
    if matches!(service.protocol, Protocol::Https | Protocol::Tls) {
        return Vec::new();
    }
    let set = [
        ("client_certificate", service.client_certificate.is_some()),
        ("tls_verify", service.tls_verify.is_some()),
        ("tls_verify_depth", service.tls_verify_depth.is_some()),
        ("ca_certificates", service.ca_certificates.is_some()),
    ];
    let set = set.into_iter().filter(|(_, set)| *set);
    set.map(|(field, _)| {
        let message = format!(
            "needs protocol https or tls; change `protocol`, or leave it out; in a PATCH, set {field} to null with it"
        );
        FieldError::new(field, message)
    })
    .collect()
}
