//! Authenticates clients by a certificate that they present in the TLS handshake.
//!
//! ```yaml
//! ca_certificates:
//!   - id: 2e013e8c-7e2a-4b3c-9f6e-0a1d4b6f3a11
//!     cert: |
//!       -----BEGIN CERTIFICATE-----
//!       …
//! consumers:
//!   - username: alice.example.com
//! plugins:
//!   - name: mtls-auth
//!     route: orders
//!     config:
//!       ca_certificates: [2e013e8c-7e2a-4b3c-9f6e-0a1d4b6f3a11]
//! ```
//!
//! `curl --cert alice.pem --key alice.key https://orders.example.com:8443/orders`
//!
//! The plugin has the name and the fields of a plugin of Kong Enterprise. Weir requests a client certificate in the
//! handshake if the SNI is among the `snis` of a route with this plugin, or, if it has none, among its `hosts`; if a
//! route has neither, Weir requests one from every client. Other clients need no certificate. Each route verifies the
//! certificate by its own authorities, also on resumed sessions.
//!
//! The consumer is the one whose username or custom id is one of the certificate's subject alternative names (DNS
//! names, mail addresses, URIs, IP addresses), or else its common name. Revocation is not checked, so give clients
//! short-lived certificates.
//!
//! ## To the upstream
//!
//! `X-Client-Cert-Dn` contains the subject in the form of RFC 2253, `X-Client-Cert-San` the alternative names, joined
//! by commas; `%2C` stands for a comma within a name. With `forward_certificate`, `Client-Cert` contains the certificate in the form of RFC 9440. The headers
//! that identify the consumer are those of the other authentication plugins. Clients cannot set these headers, on any
//! route, unless they are among `trusted_ips`.
//!
//! ## Responses
//!
//! | status | message | when |
//! |---|---|---|
//! | 401 | `No required TLS certificate was sent` | the client sent none, or did not use TLS |
//! | 401 | `TLS certificate failed verification` | no authority signed it, it has expired, or it belongs to no consumer |
//! | 421 | `The TLS handshake was for another name` | the SNI is not one for which Weir requests a certificate, or the request came over HTTP/3, where Weir requests none |
//! | 500 | `anonymous consumer … is configured but doesn't exist` | `anonymous` names a consumer that does not exist |
//!
//! With `anonymous`, such requests pass as that consumer instead.

use crate::shared::authentication::{Consumers, Fallback};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::sync::Arc;
use weir_plugin::{
    BuildContext, ClientAuthorities, ClientCertificate, Credential, Exchange, Flow, Hooks, Known,
    LocalResponse, Phases, Plugin, Record, Uuid,
};

/// Which certificates are valid, and which consumers they belong to.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// The authorities, as ids of CA certificates.
    #[field(len_min = 1, foreign = "ca_certificates")]
    pub ca_certificates: Vec<Uuid>,
    /// The id or username of the consumer that requests without a valid certificate pass as.
    pub anonymous: Option<String>,
    /// Which fields of consumers are compared with the names in a certificate.
    #[field(default = ["username", "custom_id"], one_of = ["username", "custom_id"], len_min = 1)]
    pub consumer_by: Vec<String>,
    /// Lets every valid certificate pass, whether or not there is a consumer for it.
    #[field(default = false)]
    pub skip_consumer_lookup: bool,
    /// With `skip_consumer_lookup`, which name in the certificate is the group that acl checks.
    #[field(default = "CN", one_of = ["CN", "DN"])]
    pub authenticated_group_by: Option<String>,
    /// Whether revocation is checked: it is not.
    #[field(default = "SKIP", one_of = ["SKIP"])]
    pub revocation_check_mode: String,
    /// Sends the certificate to the upstream, in `Client-Cert`. Kong has no such field.
    #[field(default = false)]
    pub forward_certificate: bool,
}

/// One configured instance.
pub(super) struct MtlsAuth {
    config: Config,
    authorities: Arc<ClientAuthorities>,
    fallback: Fallback,
    consumers: Arc<Consumers>,
}

impl Plugin for MtlsAuth {
    const NAME: &'static str = "mtls-auth";
    const PRIORITY: i32 = 1600;
    const EXTENSION: bool = true;
    const FOR_CONSUMERS: bool = false;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self {
            authorities: build.client_authorities(&config.ca_certificates)?,
            fallback: Fallback::of(config.anonymous.as_deref(), build),
            consumers: build.once(Consumers::new),
            config,
        })
    }
}

impl Hooks for MtlsAuth {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        if self.fallback.is_settled(exchange) {
            return Flow::Continue;
        }
        let refusal = match exchange.client_certificate() {
            Some(certificate) => match self.authenticate(exchange, &certificate) {
                true => return Flow::Continue,
                false => LocalResponse::error(401, "TLS certificate failed verification"),
            },
            None if exchange.tls && !exchange.is_asked_for_certificate() => {
                LocalResponse::error(421, "The TLS handshake was for another name")
            }
            None => LocalResponse::error(401, "No required TLS certificate was sent"),
        };
        self.fallback.unauthenticated(exchange, || refusal)
    }

    fn wants_client_certificate(&self) -> bool {
        true
    }
}

impl MtlsAuth {
    fn authenticate(&self, exchange: &mut Exchange, certificate: &ClientCertificate) -> bool {
        if !certificate.is_vouched_for(&self.authorities) {
            return false;
        }
        if !self.config.skip_consumer_lookup {
            let names = certificate.alternative_names().iter().map(String::as_str);
            let found = names
                .chain(certificate.common_name())
                .find_map(|name| Some((self.consumers.find(&self.config.consumer_by, name)?, name)));
            let Some(((consumer, id), name)) = found else { return false };
            exchange.authenticate(consumer, Credential { id, identifier: Some(name) });
        } else if let Some(group) = self.group(certificate) {
            exchange.set_authenticated_groups(vec![group.to_owned()]);
        }
        self.tell_upstream(exchange, certificate);
        true
    }

    fn group<'a>(&self, certificate: &'a ClientCertificate) -> Option<&'a str> {
        match self.config.authenticated_group_by.as_deref()? {
            "DN" => Some(certificate.subject()),
            _ => certificate.common_name(),
        }
    }

    fn tell_upstream(&self, exchange: &mut Exchange, certificate: &ClientCertificate) {
        exchange.forget_client_certificate();
        let headers = &mut exchange.request.headers;
        let mut say = |known, name, value: &str| headers.append_known(known, name, value.as_bytes());
        say(Known::XClientCertDn, "X-Client-Cert-Dn", certificate.subject());
        let names = certificate.alternative_names();
        if !names.is_empty() {
            let names: Vec<String> = names.iter().map(|name| name.replace(',', "%2C")).collect();
            say(Known::XClientCertSan, "X-Client-Cert-San", &names.join(","));
        }
        if self.config.forward_certificate {
            say(Known::ClientCert, "Client-Cert", &format!(":{}:", STANDARD.encode(certificate.der())));
        }
    }
}
