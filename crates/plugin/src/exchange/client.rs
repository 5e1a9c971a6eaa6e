//! Who sent the request: ports, protocol, and the consumer as other than header-setting plugins name it.

use super::Exchange;
use crate::views::{Consumer, ConsumerIndex};
use std::borrow::Cow;
use std::net::IpAddr;
use weir_http1::Known;
use weir_model::Uuid;
use weir_model::entity::Protocol;

impl Exchange {
    /// The client's port, by `trusted_ips` and `real_ip_header`; none where a header names the client without one.
    pub fn client_port(&self) -> Option<u16> {
        match self.engine.extras.as_ref().and_then(|extras| extras.client_port) {
            Some(port) => Some(port),
            None => {
                let connection = &*self.engine.connection;
                (self.client_ip == connection.client_ip).then_some(connection.client_port)
            }
        }
    }

    /// Whether `trusted_ips` holds the address.
    pub fn is_trusted_ip(&self, ip: IpAddr) -> bool {
        self.engine.configuration.is_trusted(ip)
    }

    /// The protocol that the request came by, as its route names it. If `allow_terminated`, a trusted proxy may say by
    /// `X-Forwarded-Proto` that it came over TLS. The error is Kong's text.
    pub fn protocol(&self, allow_terminated: bool) -> Result<Protocol, &'static str> {
        let route = self.route().ok_or("No active route found")?;
        if let [only] = *route.entity.protocols {
            return Ok(only);
        }
        Ok(if self.was_encrypted(allow_terminated)? { Protocol::Https } else { Protocol::Http })
    }

    /// Whether the request came over TLS; if `allow_terminated`, a trusted proxy may say so by `X-Forwarded-Proto`. The
    /// error is Kong's text.
    pub fn was_encrypted(&self, allow_terminated: bool) -> Result<bool, &'static str> {
        Ok(self.tls || (allow_terminated && self.was_terminated()?))
    }

    fn was_terminated(&self) -> Result<bool, &'static str> {
        let mut named = self.request.headers.get_all_known(Known::XForwardedProto);
        let first = named.next().filter(|_| self.is_from_trusted_proxy());
        match first {
            Some(_) if named.next().is_some() => Err("Only one X-Forwarded-Proto header allowed"),
            first => Ok(first.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"https"))),
        }
    }

    /// The consumer at this place of the configuration.
    pub fn consumer_by_index(&self, index: ConsumerIndex) -> Option<&Consumer> {
        self.engine.configuration.consumer(index)
    }

    /// The consumer of this id.
    pub fn find_consumer(&self, id: Uuid) -> Option<ConsumerIndex> {
        self.engine.configuration.find_consumer(id)
    }

    /// The consumer of this username.
    pub fn find_consumer_by_username(&self, username: &str) -> Option<ConsumerIndex> {
        self.engine.configuration.find_consumer_by_username(username)
    }

    /// Sets the consumer, or that none is known, without headers for the upstream, for plugins that set headers
    /// themselves. The id of a credential may be any text: where it is no UUID, [`Exchange::credential`] is one that is
    /// made from it.
    pub fn set_authenticated(&mut self, consumer: Option<ConsumerIndex>, credential: Option<&str>) {
        match consumer {
            Some(consumer) => self.engine.identify(consumer),
            None => self.engine.forget_consumer(),
        }
        self.engine.anonymous = false;
        let id = credential.and_then(|text| text.parse().ok());
        self.engine.credential =
            id.or_else(|| Some(Uuid::new_v5(&Uuid::NAMESPACE_OID, credential?.as_bytes())));
        let named = credential.filter(|_| id.is_none()).map(Into::into);
        if named.is_some() || self.engine.extras.is_some() {
            self.engine.extras().credential = named;
        }
    }

    /// The id of the credential as text.
    pub fn credential_text(&self) -> Option<Cow<'_, str>> {
        let named = self.engine.extras.as_ref().and_then(|extras| extras.credential.as_deref());
        named.map(Cow::Borrowed).or_else(|| Some(Cow::Owned(self.credential()?.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Gateway, entity, id, trusted};
    use serde_json::json;
    use weir_model::entity::Protocol;

    #[test]
    fn a_consumer_is_found_and_set_without_headers() {
        let mut exchange = Gateway::new(&[]).exchange("GET /");
        let bob = exchange.find_consumer(id(2)).unwrap();
        assert_eq!(exchange.find_consumer_by_username("bob"), Some(bob));
        assert_eq!((exchange.find_consumer(id(9)), exchange.find_consumer_by_username("eve")), (None, None));
        assert_eq!(exchange.consumer_by_index(bob).unwrap().entity.username.as_deref(), Some("bob"));

        exchange.set_authenticated(Some(bob), Some("subject-1"));
        assert_eq!(exchange.consumer().unwrap().entity.id, id(2));
        assert_eq!(exchange.credential_text().as_deref(), Some("subject-1"));
        let derived = exchange.credential().unwrap();
        assert_eq!(exchange.request.headers.get("X-Consumer-ID"), None);

        exchange.set_authenticated(None, Some(&id(7).to_string()));
        assert!(exchange.consumer().is_none() && exchange.consumer_index().is_none());
        assert_eq!((exchange.credential(), derived == id(7)), (Some(id(7)), false));
        assert_eq!(exchange.credential_text(), Some(id(7).to_string().into()));
        exchange.set_authenticated(Some(bob), None);
        assert_eq!((exchange.credential(), exchange.credential_text()), (None, None));
    }

    #[test]
    fn a_consumer_that_is_forgotten_was_known_to_those_before() {
        let mut exchange = Gateway::new(&[]).exchange("GET /");
        let (alice, bob) = (exchange.find_consumer(id(1)).unwrap(), exchange.find_consumer(id(2)).unwrap());
        exchange.engine.running = 1500;
        exchange.set_authenticated(Some(bob), Some("subject-1"));
        exchange.engine.running = 1300;
        exchange.set_authenticated(None, Some("subject-2"));
        assert_eq!(exchange.engine.consumer_at(1400), Some(bob));
        exchange.engine.running = 1200;
        exchange.authenticate(alice, crate::Credential { id: id(7), identifier: None });
        let at = [1600, 1400, 1250, 1100].map(|priority| exchange.engine.consumer_at(priority));
        assert_eq!(at, [None, Some(bob), None, Some(alice)]);
        assert_eq!(exchange.credential_text(), Some(id(7).to_string().into()));
    }

    #[test]
    fn the_protocol_is_the_routes_or_what_a_trusted_proxy_says() {
        let mut gateway = Gateway::new(&[]);
        let terminated = "GET /\nX-Forwarded-Proto: https";
        let exchange = gateway.exchange(terminated);
        assert_eq!(exchange.protocol(true), Ok(Protocol::Http));
        let exchange = trusted(exchange);
        assert_eq!(exchange.protocol(true), Ok(Protocol::Https));
        assert_eq!(exchange.protocol(false), Ok(Protocol::Http));
        let twice = trusted(gateway.exchange(&format!("{terminated}\nX-Forwarded-Proto: http")));
        assert_eq!(twice.protocol(true), Err("Only one X-Forwarded-Proto header allowed"));
        let route = json!({ "id": id(0x61), "paths": ["/"], "protocols": ["grpcs"] });
        gateway.document.routes = vec![entity(route)];
        assert_eq!(gateway.exchange("GET /").protocol(false), Ok(Protocol::Grpcs));
        let mut lost = gateway.exchange("GET /");
        lost.engine.route = None;
        assert_eq!(lost.protocol(true), Err("No active route found"));
    }

    #[test]
    fn the_port_is_the_peers_where_the_peer_is_the_client() {
        let mut exchange = Gateway::new(&[]).exchange("GET /");
        assert_eq!(exchange.client_port(), Some(50000));
        exchange.client_ip = [203, 0, 113, 7].into();
        assert_eq!(exchange.client_port(), None);
        exchange.engine.set_client_port(Some(4711));
        assert_eq!(exchange.client_port(), Some(4711));
        assert!(!exchange.is_trusted_ip([192, 0, 2, 1].into()));
    }
}
