//! Reads the SNI from a ClientHello without consuming it, because TLS that is not terminated here passes through
//! unchanged.

use rustls::server::Acceptor;
use std::io;
use tokio::io::AsyncWriteExt;
use weir_net::socket::Socket;

/// The maximum length of a ClientHello: one TLS record.
const MAX_HELLO_LEN: usize = 16 * 1024 + 5;

/// Why no ClientHello was read.
#[derive(Debug)]
pub(super) enum NoHello {
    /// The connection ended before.
    Ended,
    /// It is longer than one record.
    TooLong,
    /// What came is no TLS.
    NotTls(rustls::Error),
    /// The socket failed.
    Io(io::Error),
}

impl std::fmt::Display for NoHello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoHello::Ended => f.write_str("the client left before its TLS handshake had begun"),
            NoHello::TooLong => f.write_str("the client's TLS hello is too long"),
            NoHello::NotTls(error) => write!(f, "the client does not speak TLS: {error}"),
            NoHello::Io(error) => write!(f, "the client's TLS hello could not be read: {error}"),
        }
    }
}

/// Waits for the hello and returns the name in it, in lower case.
pub(super) async fn server_name(socket: &mut Socket) -> Result<Option<String>, NoHello> {
    let mut bytes = vec![0; MAX_HELLO_LEN];
    let mut known = 0;
    loop {
        let seen = socket.peek_beyond(known, &mut bytes).await.map_err(NoHello::Io)?;
        if let Some(name) = read(&bytes[..seen], socket).await? {
            return Ok(name);
        }
        match seen {
            MAX_HELLO_LEN => return Err(NoHello::TooLong),
            _ if seen == known => return Err(NoHello::Ended),
            _ => known = seen,
        }
    }
}

/// The SNI, if there is one; `None` while the ClientHello is incomplete. Sends an alert to a client that does not speak
/// TLS.
async fn read(bytes: &[u8], socket: &mut Socket) -> Result<Option<Option<String>>, NoHello> {
    let refused = match parse(bytes) {
        Ok(read) => return Ok(read),
        Err(refused) => refused,
    };
    let _ = socket.write_all(&refused.alert).await;
    Err(NoHello::NotTls(refused.error))
}

/// Why bytes are not a ClientHello, and the alert for their sender.
#[derive(Debug)]
struct Refused {
    error: rustls::Error,
    alert: Vec<u8>,
}

fn parse(bytes: &[u8]) -> Result<Option<Option<String>>, Refused> {
    let mut acceptor = Acceptor::default();
    let mut unread = bytes;
    while !unread.is_empty() {
        let taken = acceptor.read_tls(&mut unread);
        taken.map_err(|error| Refused {
            error: rustls::Error::General(error.to_string()),
            alert: Vec::new(),
        })?;
    }
    match acceptor.accept() {
        Ok(Some(accepted)) => Ok(Some(accepted.client_hello().server_name().map(str::to_ascii_lowercase))),
        Ok(None) => Ok(None),
        Err((error, mut written)) => {
            let mut alert = Vec::new();
            // Writing to memory does not fail.
            let _ = written.write(&mut alert);
            Err(Refused { error, alert })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustls::ClientConnection;
    use weir_net::tls::client_config;

    /// What a client sends first.
    fn hello(name: &str) -> Vec<u8> {
        let config = client_config(None, None).unwrap();
        let mut client = ClientConnection::new(config, name.to_owned().try_into().unwrap()).unwrap();
        let mut sent = Vec::new();
        client.write_tls(&mut sent).unwrap();
        sent
    }

    #[test]
    fn a_name_is_read_once_the_hello_is_whole() {
        for (name, expected) in [("WWW.Shop.test", Some("www.shop.test")), ("127.0.0.1", None)] {
            let sent = hello(name);
            for end in 0..sent.len() {
                assert_eq!(parse(&sent[..end]).unwrap(), None, "{end} of {}", sent.len());
            }
            assert_eq!(parse(&sent).unwrap(), Some(expected.map(str::to_owned)));
        }
    }

    #[test]
    fn who_speaks_something_else_is_told_so() {
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"SSH-2.0-x\r\n", &[0x16, 3, 1, 0, 4, 2, 0, 0, 0]] {
            let refused = parse(bytes).unwrap_err();
            assert_eq!(refused.alert.first(), Some(&21), "{:?} of {}", refused, bytes.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_it_however_they_are_cut(
            name in "[a-z]{1,20}\\.test",
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            end in any::<prop::sample::Index>(),
            rest in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let whole = hello(&name);
            prop_assert_eq!(parse(&whole).unwrap(), Some(Some(name)));
            let mut bytes = whole;
            for (index, byte) in changes {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
            let cut = end.index(bytes.len());
            let (part, all) = (parse(&bytes[..cut]), parse(&bytes));
            // What is refused stays refused, and a name that was read stays the same.
            match part {
                Ok(None) => {}
                Ok(Some(name)) => prop_assert_eq!(all.unwrap(), Some(name)),
                Err(_) => prop_assert!(all.is_err()),
            }
            bytes.truncate(cut);
            bytes.extend(rest);
            let _ = parse(&bytes);
        }
    }
}
