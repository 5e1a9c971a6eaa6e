//! Listening addresses with nginx's flags: `0.0.0.0:8000, 0.0.0.0:8443 ssl http2 backlog=1024, unix:/run/weir.sock`.
use super::value::Value;
use serde_json::Value as Json;
use std::net::{SocketAddr, ToSocketAddrs};
use weir_proxy::Address;

/// One address to listen on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listen {
    /// Port 0 asks the system for a free one.
    pub(crate) address: Address,
    /// The host name whose address is not looked up yet.
    pub(crate) host: Option<String>,
    /// The listener uses TLS.
    pub(crate) ssl: bool,
    /// HTTP/2 is offered.
    pub(crate) http2: bool,
    /// Each connection begins with a header of the PROXY protocol.
    pub(crate) proxy_protocol: bool,
    /// The listener serves HTTP/3 over QUIC.
    pub(crate) quic: bool,
    /// A stream listener receives datagrams.
    pub(crate) udp: bool,
    /// Who may connect to a Unix socket.
    pub(crate) mode: Option<u32>,
    /// How many connections may wait to be accepted.
    pub(crate) backlog: Option<u32>,
}

/// The listeners of one kind; empty when `off`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listeners(pub(crate) Vec<Listen>);

/// Listeners of streams; empty when `off`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamListeners(pub(crate) Vec<Listen>);

impl Value for Listeners {
    const KIND: &'static str = "listeners, or `off`";
    fn parse(text: &str) -> Result<Self, String> {
        listeners(text, Flags::Http).map(Listeners)
    }
    fn shown(text: &str) -> Json {
        Vec::<String>::shown(text)
    }
}

impl Value for StreamListeners {
    const KIND: &'static str = "listeners, or `off`";
    fn parse(text: &str) -> Result<Self, String> {
        listeners(text, Flags::Stream).map(StreamListeners)
    }
    fn shown(text: &str) -> Json {
        Vec::<String>::shown(text)
    }
}

/// Which flags a listener may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flags {
    Http,
    Stream,
}

fn listeners(text: &str, flags: Flags) -> Result<Vec<Listen>, String> {
    if text == "off" {
        return Ok(Vec::new());
    }
    let texts = Vec::<String>::parse(text)?;
    if texts.is_empty() {
        return Err("name at least one `address:port`, or `off`".into());
    }
    texts.iter().map(|text| Listen::read(text, flags)).collect()
}

impl Listen {
    fn read(text: &str, flags: Flags) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let (address, host) = place(words.next().unwrap_or_default())?;
        let mut listen = Listen {
            address,
            host,
            ssl: false,
            http2: false,
            quic: false,
            proxy_protocol: false,
            udp: false,
            mode: None,
            backlog: None,
        };
        words.try_for_each(|flag| listen.set(flag, flags))?;
        listen.check()?;
        Ok(listen)
    }

    fn set(&mut self, flag: &str, flags: Flags) -> Result<(), String> {
        match flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value))) {
            ("ssl", None) => self.ssl = true,
            ("http2", None) if flags == Flags::Http => self.http2 = true,
            ("quic", None) if flags == Flags::Http => self.quic = true,
            ("udp", None) if flags == Flags::Stream => self.udp = true,
            ("proxy_protocol", None) => self.proxy_protocol = true,
            ("mode", Some(mode)) => {
                let read = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o777);
                self.mode =
                    Some(read.ok_or_else(|| format!("`{flag}`: write a mode as of chmod, as `0660`"))?);
            }
            ("backlog", Some(size)) => {
                self.backlog =
                    Some(size.parse().map_err(|_| format!("`{flag}`: the backlog is not a number"))?);
            }
            // One acceptor feeds every worker, so these nginx flags change nothing here.
            ("reuseport" | "bind", None) | ("so_keepalive" | "ipv6only", Some(_)) => {}
            ("deferred", None) if flags == Flags::Http => {}
            _ => {
                let own = if flags == Flags::Http { "http2, quic, deferred" } else { "udp" };
                return Err(format!(
                    "`{flag}` is not a flag of this listener: use ssl, {own}, proxy_protocol, backlog=N, reuseport, \
                     bind, so_keepalive=… or, of a Unix socket, mode=…"
                ));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let unix = matches!(self.address, Address::Unix(_));
        if self.mode.is_some() && !unix {
            return Err("`mode` is of Unix sockets: leave it out, or listen on `unix:/path`".to_owned());
        }
        if self.quic && (self.ssl || self.http2 || self.proxy_protocol || unix) {
            let message = "`quic` goes with an address and a port, without `ssl`, `http2` and `proxy_protocol`: it is \
                           always TLS and HTTP/3. Name the address twice, as in `0.0.0.0:8443 ssl http2, 0.0.0.0:8443 quic`";
            return Err(message.to_owned());
        }
        if self.udp && (self.ssl || self.proxy_protocol || unix) {
            let message = "`udp` goes with an address and a port, without `ssl` and without `proxy_protocol`";
            return Err(message.to_owned());
        }
        Ok(())
    }

    /// Looks the host name up, if the address is one. Of several addresses the first counts, IPv4 before IPv6.
    pub(super) fn resolve(&mut self) -> Result<(), String> {
        let Some(host) = self.host.take() else { return Ok(()) };
        let port = self.address.ip().map_or(0, |address| address.port());
        let unknown = |why: &dyn std::fmt::Display| {
            format!(
                "`{host}` has no address: {why}: write an IP address, or a name that this machine can look up"
            )
        };
        let found = (host.as_str(), port).to_socket_addrs().map_err(|error| unknown(&error))?;
        let first = found.min_by_key(SocketAddr::is_ipv6).ok_or_else(|| unknown(&"the name is empty"))?;
        self.address = Address::Ip(first);
        Ok(())
    }

    /// Only this machine can connect.
    pub(crate) fn is_loopback(&self) -> bool {
        self.address.ip().is_none_or(|address| address.ip().to_canonical().is_loopback())
    }
}

/// An address, or a port and a host name to be looked up.
fn place(text: &str) -> Result<(Address, Option<String>), String> {
    if let Ok(address) = text.parse() {
        return Ok((address, None));
    }
    let named = text.rsplit_once(':').filter(|(host, _)| is_host_name(host));
    let port = named.and_then(|(host, port)| Some((host.to_owned(), port.parse::<u16>().ok()?)));
    let Some((host, port)) = port else {
        return Err(format!(
            "`{text}` is not an `address:port`: write an IP address or a host name, as in `127.0.0.1:8000`, \
             `[::]:8000` or `localhost:8000`, or `unix:/path`"
        ));
    };
    Ok((Address::Ip(SocketAddr::from(([0; 4], port))), Some(host)))
}

/// Letters, digits, `-`, `_` and dots; digits and dots alone are a malformed address.
fn is_host_name(host: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    host.bytes().all(known) && host.bytes().any(|byte| byte.is_ascii_alphabetic()) && host != "unix"
}

impl std::fmt::Display for Listen {
    /// As it is read.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.host, self.address.ip()) {
            (Some(host), Some(address)) => write!(f, "{host}:{}", address.port())?,
            _ => write!(f, "{}", self.address)?,
        }
        let flags = [
            (self.ssl, "ssl"),
            (self.http2, "http2"),
            (self.quic, "quic"),
            (self.udp, "udp"),
            (self.proxy_protocol, "proxy_protocol"),
        ];
        for (_, name) in flags.into_iter().filter(|(set, _)| *set) {
            write!(f, " {name}")?;
        }
        if let Some(mode) = self.mode {
            write!(f, " mode={mode:04o}")?;
        }
        self.backlog.map_or(Ok(()), |size| write!(f, " backlog={size}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Listen {
        Listen::read(text, Flags::Http).unwrap()
    }

    #[test]
    fn kongs_default_is_read() {
        let text = "0.0.0.0:8000 reuseport backlog=16384, [::]:8443 http2 ssl reuseport so_keepalive=30m::10";
        let Listeners(listeners) = Listeners::parse(text).unwrap();
        let plain = Listen { backlog: Some(16384), ..read("0.0.0.0:8000") };
        let tls = Listen { ssl: true, http2: true, ..read("[::]:8443") };
        assert_eq!(listeners, [plain, tls]);
    }

    #[test]
    fn stream_listeners_and_unix_sockets_are_read_as_they_are_written() {
        let text = "0.0.0.0:9000 proxy_protocol, 0.0.0.0:9443 ssl backlog=64, 127.0.0.1:53 udp, \
                    unix:/run/a.sock ssl mode=0660";
        let StreamListeners(listeners) = StreamListeners::parse(text).unwrap();
        let written: Vec<_> = listeners.iter().map(ToString::to_string).collect();
        assert_eq!(written.join(", "), text);
        assert_eq!(listeners[3].mode, Some(0o660));
        assert!(listeners[3].is_loopback());
    }

    #[test]
    fn quic_stands_beside_tls() {
        let text = "0.0.0.0:8443 ssl http2, 0.0.0.0:8443 quic";
        let Listeners(listeners) = Listeners::parse(text).unwrap();
        assert_eq!(listeners.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "), text);
        assert!(listeners[1].quic && !listeners[1].ssl);
    }

    #[test]
    fn a_host_name_is_looked_up() {
        let mut listen = read("localhost:8000 ssl");
        assert_eq!(listen.to_string(), "localhost:8000 ssl");
        listen.resolve().unwrap();
        assert!(listen.is_loopback());
        let mut unknown = read("weir.invalid:8000");
        assert!(unknown.resolve().unwrap_err().contains("`weir.invalid` has no address"));
    }

    #[test]
    fn off_is_no_listener() {
        assert_eq!(Listeners::parse("off"), Ok(Listeners(Vec::new())));
        assert_eq!(StreamListeners::parse("off"), Ok(StreamListeners(Vec::new())));
    }

    #[test]
    fn what_cannot_be_listened_on_is_refused() {
        for text in [
            "",
            "8000",
            "localhost",
            "256.0.0.1:8000",
            "local host:8000",
            ":8000",
            "127.0.0.1",
            "127.0.0.1:8000 tls",
            "127.0.0.1:8000 backlog",
            "127.0.0.1:8000 backlog=x",
            "127.0.0.1:8000 ssl=on",
            "127.0.0.1:8000 udp",
            "127.0.0.1:8000 quic ssl",
            "127.0.0.1:8000 http2 quic",
            "127.0.0.1:8000 quic proxy_protocol",
            "unix:/run/a.sock quic",
            "127.0.0.1:8000 mode=0660",
            "unix:run/a.sock",
            "unix:/run/a.sock mode=8",
            "unix:/run/a.sock mode=1777",
            "127.0.0.1:99999",
            "off, 127.0.0.1:8000",
        ] {
            assert!(Listeners::parse(text).is_err(), "{text}");
        }
        for text in [
            "127.0.0.1:8000 http2",
            "127.0.0.1:8000 quic",
            "127.0.0.1:8000 udp ssl",
            "127.0.0.1:8000 udp proxy_protocol",
            "unix:/a udp",
        ] {
            assert!(StreamListeners::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn loopback_in_every_spelling() {
        for (text, loopback) in
            [("127.0.0.9:1", true), ("[::1]:1", true), ("[::ffff:127.0.0.1]:1", true), ("0.0.0.0:1", false)]
        {
            assert_eq!(read(text).is_loopback(), loopback, "{text}");
        }
    }
}
