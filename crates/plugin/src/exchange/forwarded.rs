//! Host, port, path and scheme of a request, as the client sent them and as a trusted proxy says that its client did.

use super::Exchange;
use crate::authority::without_port;
use std::borrow::Cow;
use weir_http1::Known;

impl Exchange {
    /// The host that the request is for: `Host` or `:authority` in small letters, without port.
    pub fn host(&self) -> Cow<'_, str> {
        lowercase(without_port(self.request.host().unwrap_or_default()))
    }

    /// The path as the client sent it, without query. What decides who may do what should look at [`Exchange::path`],
    /// which others cannot write in several ways.
    pub fn raw_path(&self) -> &str {
        self.request.path()
    }

    /// The scheme of the client's request: `X-Forwarded-Proto` of a trusted proxy, else [`Exchange::scheme`].
    pub fn forwarded_scheme(&self) -> Cow<'_, str> {
        self.forwarded(Known::XForwardedProto).map_or(Cow::Borrowed(self.scheme()), lowercase)
    }

    /// The host of the client's request: `X-Forwarded-Host` of a trusted proxy, else [`Exchange::host`].
    pub fn forwarded_host(&self) -> Cow<'_, str> {
        match self.forwarded(Known::XForwardedHost) {
            Some(named) => lowercase(host_and_port(named).0),
            None => self.host(),
        }
    }

    /// The port of the client's request: that of `X-Forwarded-Port` or `X-Forwarded-Host` of a trusted proxy, else the one
    /// that the peer connected to.
    pub fn forwarded_port(&self) -> u16 {
        let named = self.forwarded(Known::XForwardedPort).and_then(port);
        let of_host = || host_and_port(self.forwarded(Known::XForwardedHost)?).1.and_then(port);
        named.or_else(of_host).unwrap_or_else(|| self.local().port())
    }

    /// The path of the client's request: `X-Forwarded-Path` of a trusted proxy, else [`Exchange::path`].
    pub fn forwarded_path(&self) -> &str {
        self.forwarded(Known::XForwardedPath).unwrap_or_else(|| self.path())
    }

    /// What was stripped of the client's path: `X-Forwarded-Prefix` of a trusted proxy, else what the route strips.
    pub fn forwarded_prefix(&self) -> Option<&str> {
        self.forwarded(Known::XForwardedPrefix).or_else(|| self.stripped_prefix())
    }

    /// The beginning of the path that the route strips, if it strips any.
    pub fn stripped_prefix(&self) -> Option<&str> {
        self.route().filter(|route| route.entity.strips_path())?;
        let matched = self.path().get(..self.engine.matched_path as usize)?;
        Some(matched).filter(|matched| !matches!(*matched, "" | "/"))
    }

    /// What a trusted proxy says in this header.
    fn forwarded(&self, header: Known) -> Option<&str> {
        let value = self.header(header).filter(|_| self.is_from_trusted_proxy())?;
        std::str::from_utf8(value).ok()
    }
}

/// The host and the port of `user@host:port`, read as Kong reads it.
fn host_and_port(named: &str) -> (&str, Option<&str>) {
    let named = named.split_once('@').map_or(named, |(_, host)| host);
    match named.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (named, None),
    }
}

fn port(text: &str) -> Option<u16> {
    text.trim().parse().ok().filter(|port| *port > 0)
}

fn lowercase(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use crate::Exchange;
    use crate::testing::{Gateway, trusted};
    use serde_json::json;

    const FORWARDED: &str = "GET //a/../shop/%7Ex?q=1\nX-Forwarded-Proto: HTTPS\n\
        X-Forwarded-Host: u@Shop.Test:8443\nX-Forwarded-Path: /old\nX-Forwarded-Prefix: /v1";

    fn views(exchange: &Exchange) -> String {
        let prefix = exchange.forwarded_prefix().unwrap_or("-");
        let (scheme, host) = (exchange.forwarded_scheme(), exchange.forwarded_host());
        format!("{scheme} {host} {} {} {prefix}", exchange.forwarded_port(), exchange.forwarded_path())
    }

    #[test]
    fn forwarded_headers_are_believed_of_trusted_proxies_alone() {
        let gateway = Gateway::new(&[]);
        let exchange = gateway.exchange(FORWARDED);
        assert_eq!(views(&exchange), "http gateway.test 8000 //a/../shop/%7Ex -");
        assert_eq!(views(&trusted(exchange)), "https shop.test 8443 /old /v1");
        let exchange = gateway.exchange(&format!("{FORWARDED}\nX-Forwarded-Port: 443"));
        assert_eq!(trusted(exchange).forwarded_port(), 443);
        let exchange = gateway.exchange("GET /\nX-Forwarded-Port: 0\nX-Forwarded-Host: a:b");
        assert_eq!(views(&trusted(exchange)), "http a 8000 / -");
    }

    #[test]
    fn the_prefix_is_what_the_route_strips() {
        let mut gateway = Gateway::new(&[]);
        let mut exchange = gateway.exchange("GET /shop/1");
        exchange.engine.matched_path = 5;
        assert_eq!(exchange.forwarded_prefix(), Some("/shop"));
        let route = json!({ "id": crate::testing::id(0x61), "paths": ["/"], "strip_path": false });
        gateway.document.routes = vec![crate::testing::entity(route)];
        let mut exchange = gateway.exchange("GET /shop/1");
        exchange.engine.matched_path = 5;
        assert_eq!(exchange.forwarded_prefix(), None);
    }

    #[test]
    fn hosts_have_no_port_and_are_in_small_letters() {
        let gateway = Gateway::new(&[]);
        let mut exchange = gateway.exchange("GET /a?b=c");
        exchange.request.headers.set("Host", b"[2001:DB8::1]:80");
        assert_eq!((&*exchange.host(), exchange.raw_path()), ("[2001:db8::1]", "/a"));
    }
}
