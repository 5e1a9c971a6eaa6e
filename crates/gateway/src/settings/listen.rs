//! Listening addresses with nginx's flags: `0.0.0.0:8000, 0.0.0.0:8443 ssl http2 backlog=1024`.
use super::value::Value;
use std::net::SocketAddr;

/// One address to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listen {
    /// Port 0 asks the system for a free one.
    pub(crate) address: SocketAddr,
    /// TLS is spoken.
    pub(crate) ssl: bool,
    /// HTTP/2 is offered.
    pub(crate) http2: bool,
    /// How many connections may wait to be accepted.
    pub(crate) backlog: Option<u32>,
}

/// The listeners of one kind; empty when `off`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listeners(pub(crate) Vec<Listen>);

impl Value for Listeners {
    const KIND: &'static str = "listeners, or `off`";
    fn parse(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Listeners(Vec::new()));
        }
        let listeners = Vec::<Listen>::parse(text)?;
        if listeners.is_empty() {
            return Err("name at least one `address:port`, or `off`".into());
        }
        Ok(Listeners(listeners))
    }
}

impl Value for Listen {
    const KIND: &'static str = "`address:port` and flags";
    fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let address = words.next().unwrap_or_default();
        let address = address.parse().map_err(|_| {
            format!("`{address}` is not an `address:port`: write an IP address as in `127.0.0.1:8000` or `[::]:8000`")
        })?;
        let mut listen = Listen { address, ssl: false, http2: false, backlog: None };
        words.try_for_each(|flag| listen.set(flag))?;
        Ok(listen)
    }
}

impl Listen {
    fn set(&mut self, flag: &str) -> Result<(), String> {
        match flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value))) {
            ("ssl", None) => self.ssl = true,
            ("http2", None) => self.http2 = true,
            // Accepted, it would make a listener that answers 400 to everyone.
            ("proxy_protocol", None) => {
                return Err(
                    "`proxy_protocol` is not spoken by this version: remove it, and have whatever stands in \
                            front connect without it"
                        .to_owned(),
                );
            }
            ("backlog", Some(size)) => {
                self.backlog =
                    Some(size.parse().map_err(|_| format!("`{flag}`: the backlog is not a number"))?);
            }
            // One acceptor feeds every worker, so these nginx flags change nothing here.
            ("reuseport" | "deferred" | "bind", None) | ("so_keepalive" | "ipv6only", Some(_)) => {}
            _ => {
                return Err(format!(
                    "`{flag}` is not a flag of a listener: use ssl, http2, backlog=N, reuseport, \
                     deferred, bind or so_keepalive=…"
                ));
            }
        }
        Ok(())
    }

    /// Only this machine can connect.
    pub(crate) fn is_loopback(&self) -> bool {
        self.address.ip().to_canonical().is_loopback()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kongs_default_is_read() {
        let text = "0.0.0.0:8000 reuseport backlog=16384, [::]:8443 http2 ssl reuseport so_keepalive=30m::10";
        let Listeners(listeners) = Listeners::parse(text).unwrap();
        let plain = Listen {
            address: "0.0.0.0:8000".parse().unwrap(),
            ssl: false,
            http2: false,
            backlog: Some(16384),
        };
        let tls = Listen { address: "[::]:8443".parse().unwrap(), ssl: true, http2: true, backlog: None };
        assert_eq!(listeners, [plain, tls]);
    }

    #[test]
    fn off_is_no_listener() {
        assert_eq!(Listeners::parse("off"), Ok(Listeners(Vec::new())));
    }

    #[test]
    fn what_cannot_be_listened_on_is_refused() {
        for text in [
            "",
            "8000",
            "localhost:8000",
            "127.0.0.1",
            "127.0.0.1:8000 tls",
            "127.0.0.1:8000 backlog",
            "127.0.0.1:8000 backlog=x",
            "127.0.0.1:8000 ssl=on",
            "127.0.0.1:8000 proxy_protocol",
            "127.0.0.1:99999",
            "off, 127.0.0.1:8000",
        ] {
            assert!(Listeners::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn loopback_in_every_spelling() {
        for (text, loopback) in
            [("127.0.0.9:1", true), ("[::1]:1", true), ("[::ffff:127.0.0.1]:1", true), ("0.0.0.0:1", false)]
        {
            assert_eq!(Listen::parse(text).unwrap().is_loopback(), loopback, "{text}");
        }
    }
}
