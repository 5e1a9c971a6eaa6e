//! Determines the client's address behind trusted proxies, and removes identity headers that the client sent itself.

use crate::pipeline::head::REWRITTEN;
use crate::worker::Options;
use std::net::{IpAddr, SocketAddr};
use weir_http1::{Known, KnownSet};
use weir_plugin::Exchange;
use weir_plugin::engine::{CERTIFICATE, IDENTITY};

/// What no client may say: who the consumer is, and `Proxy`, which CGI programs take for the setting of their own proxy
/// (httpoxy).
const FORBIDDEN: KnownSet = IDENTITY.with(KnownSet::of(&[Known::Proxy]));

/// Removes what only the gateway may say.
pub(crate) fn strip_identity(exchange: &mut Exchange) {
    let trusted = exchange.engine.connection.trusted;
    let headers = &mut exchange.request.headers;
    headers.remove_all_known(if trusted { FORBIDDEN } else { FORBIDDEN.with(CERTIFICATE) });
    headers.remove_underscore_aliases(IDENTITY.with(CERTIFICATE).with(REWRITTEN));
}

/// Sets the client's address: what a trusted peer says in `real_ip_header`, else what the connection says.
pub(crate) fn determine(options: &Options, exchange: &mut Exchange) {
    if !exchange.engine.connection.trusted {
        return;
    }
    let Some(header) = options.real_ip.header() else { return };
    let named = exchange.request.headers.get_all(header);
    let named: Vec<&[u8]> = named.flat_map(|value| value.split(|b| *b == b',')).collect();
    let trusted = |ip: IpAddr| options.trusted_ips.iter().any(|network| network.contains(ip));
    for value in named.into_iter().rev() {
        let Some((ip, port)) = parse_address(value) else { return };
        exchange.client_ip = ip;
        exchange.engine.set_client_port(port);
        if !(options.real_ip_recursive && trusted(ip)) {
            return;
        }
    }
}

fn parse_address(value: &[u8]) -> Option<(IpAddr, Option<u16>)> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| (address.ip(), Some(address.port())));
    bare.parse().ok().map(|ip| (ip, None)).or_else(with_port)
}

#[cfg(test)]
mod tests {
    use super::parse_address;

    #[test]
    fn addresses_come_with_or_without_ports() {
        for (text, port) in [("10.0.0.1", None), (" 10.0.0.1 ", None), ("10.0.0.1:80", Some(80))] {
            assert_eq!(parse_address(text.as_bytes()), Some(([10, 0, 0, 1].into(), port)));
        }
        for (text, port) in [("::1", None), ("[::1]", None), ("[::1]:80", Some(80))] {
            assert_eq!(parse_address(text.as_bytes()), Some((std::net::Ipv6Addr::LOCALHOST.into(), port)));
        }
        assert_eq!(parse_address(b"unknown"), None);
    }
}
