//! The PROXY protocol, versions 1 and 2: a proxy in front sends the client's address before any other bytes.

mod receive;
#[cfg(test)]
mod tests;

pub(crate) use receive::open;
pub use receive::{Refused, receive};

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The maximum length of a header, as in nginx.
pub const MAX_HEADER_LEN: usize = 4096;

/// The maximum length of a version 1 header, line break included.
const MAX_LINE_LEN: usize = 107;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const LINE: &[u8; 6] = b"PROXY ";

/// For whom a connection was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// The client.
    pub source: SocketAddr,
    /// What the client connected to.
    pub destination: SocketAddr,
}

/// A header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// None where the proxy speaks for itself, or for a client without an IP address.
    pub addresses: Option<Addresses>,
    /// How many bytes it takes.
    pub length: usize,
}

/// Why bytes are no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// They begin as no header does.
    Missing,
    /// It is longer than any that is taken.
    TooLong,
    /// The line of version 1 is not as it must be.
    Line,
    /// A version of the binary form that is not 2, or a command that is neither LOCAL nor PROXY.
    Version,
    /// The addresses of version 2 are cut short, or of an unknown kind.
    Addresses,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Malformed::Missing => "there is no PROXY protocol header",
            Malformed::TooLong => "the PROXY protocol header is too long",
            Malformed::Line => "the PROXY protocol line is malformed",
            Malformed::Version => "the PROXY protocol header has an unknown version or command",
            Malformed::Addresses => "the PROXY protocol header's addresses are malformed",
        })
    }
}

impl std::error::Error for Malformed {}

/// Reads a header from the first bytes of a connection; none while it is not complete.
pub fn parse(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    if bytes.starts_with(SIGNATURE) {
        return binary(bytes);
    }
    if bytes.starts_with(LINE) {
        return line(bytes);
    }
    let begins = |text: &[u8]| bytes.len() < text.len() && text.starts_with(bytes);
    if begins(SIGNATURE) || begins(LINE) { Ok(None) } else { Err(Malformed::Missing) }
}

fn line(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    let window = &bytes[..bytes.len().min(MAX_LINE_LEN)];
    let Some(end) = memchr::memchr(b'\n', window) else {
        return if bytes.len() < MAX_LINE_LEN { Ok(None) } else { Err(Malformed::TooLong) };
    };
    let text = window[..end].strip_suffix(b"\r").ok_or(Malformed::Line)?;
    let text = std::str::from_utf8(&text[LINE.len()..]).map_err(|_| Malformed::Line)?;
    let addresses = if text == "UNKNOWN" || text.starts_with("UNKNOWN ") {
        None
    } else {
        Some(line_addresses(text).ok_or(Malformed::Line)?)
    };
    Ok(Some(Header { addresses, length: end + 1 }))
}

fn line_addresses(text: &str) -> Option<Addresses> {
    let mut words = text.split(' ');
    let family = words.next()?;
    let ip = |word: &str| match family {
        "TCP4" => word.parse().ok().map(IpAddr::V4),
        "TCP6" => word.parse().ok().map(IpAddr::V6),
        _ => None,
    };
    let (source, destination) = (ip(words.next()?)?, ip(words.next()?)?);
    let (source_port, destination_port) = (port(words.next()?)?, port(words.next()?)?);
    words.next().is_none().then_some(Addresses {
        source: SocketAddr::new(source, source_port),
        destination: SocketAddr::new(destination, destination_port),
    })
}

/// Digits alone, without a sign and without needless zeros.
fn port(word: &str) -> Option<u16> {
    let plain = word.bytes().all(|byte| byte.is_ascii_digit()) && (word.len() == 1 || !word.starts_with('0'));
    word.parse().ok().filter(|_| plain)
}

fn binary(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    let Some((&[command, family, high, low], rest)) = bytes[SIGNATURE.len()..].split_first_chunk() else {
        return Ok(None);
    };
    let is_proxied = match command {
        0x20 => false,
        0x21 => true,
        _ => return Err(Malformed::Version),
    };
    let length = SIGNATURE.len() + 4 + usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_HEADER_LEN {
        return Err(Malformed::TooLong);
    }
    let Some(body) = rest.get(..length - SIGNATURE.len() - 4) else { return Ok(None) };
    // What a proxy says of its own connection, as of a health check, is not looked at.
    let addresses = if is_proxied { binary_addresses(family, body)? } else { None };
    Ok(Some(Header { addresses, length }))
}

/// What stands behind the addresses, TLVs, is skipped.
fn binary_addresses(family: u8, body: &[u8]) -> Result<Option<Addresses>, Malformed> {
    match family {
        0x11 | 0x12 => {
            let (block, _) = body.split_first_chunk::<12>().ok_or(Malformed::Addresses)?;
            let [a, b, c, d, e, f, g, h, ports @ ..] = *block;
            let (source, destination) = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
            Ok(Some(with_ports(source.into(), destination.into(), ports)))
        }
        0x21 | 0x22 => {
            let (source, rest) = body.split_first_chunk::<16>().ok_or(Malformed::Addresses)?;
            let (destination, rest) = rest.split_first_chunk::<16>().ok_or(Malformed::Addresses)?;
            let (ports, _) = rest.split_first_chunk::<4>().ok_or(Malformed::Addresses)?;
            Ok(Some(with_ports(Ipv6Addr::from(*source).into(), Ipv6Addr::from(*destination).into(), *ports)))
        }
        // Two paths of 108 bytes.
        0x31 | 0x32 if body.len() >= 216 => Ok(None),
        0x00 => Ok(None),
        _ => Err(Malformed::Addresses),
    }
}

fn with_ports(source: IpAddr, destination: IpAddr, [a, b, c, d]: [u8; 4]) -> Addresses {
    Addresses {
        source: SocketAddr::new(source, u16::from_be_bytes([a, b])),
        destination: SocketAddr::new(destination, u16::from_be_bytes([c, d])),
    }
}

/// Which form a header is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// Appends a header.
pub fn write(out: &mut Vec<u8>, form: Form, addresses: &Addresses) {
    let (source, destination) = same_family(addresses);
    match form {
        Form::V1 => {
            let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
            let (from, to) = (source.ip(), destination.ip());
            let line = format!("PROXY {family} {from} {to} {} {}\r\n", source.port(), destination.port());
            out.extend_from_slice(line.as_bytes());
        }
        Form::V2 => {
            out.extend_from_slice(SIGNATURE);
            let (family, length) = if source.is_ipv4() { (0x11, 12) } else { (0x21, 36) };
            out.extend_from_slice(&[0x21, family, 0, length]);
            for ip in [source.ip(), destination.ip()] {
                match ip {
                    IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
                    IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
                }
            }
            out.extend_from_slice(&source.port().to_be_bytes());
            out.extend_from_slice(&destination.port().to_be_bytes());
        }
    }
}

/// Both as IPv4 if both are, else both as IPv6: a header has one family.
fn same_family(addresses: &Addresses) -> (SocketAddr, SocketAddr) {
    let Addresses { source, destination } = addresses;
    let (from, to) = (source.ip().to_canonical(), destination.ip().to_canonical());
    let wide = |ip| match ip {
        IpAddr::V4(ip) => IpAddr::V6(ip.to_ipv6_mapped()),
        ip => ip,
    };
    let (from, to) = if from.is_ipv4() == to.is_ipv4() { (from, to) } else { (wide(from), wide(to)) };
    (SocketAddr::new(from, source.port()), SocketAddr::new(to, destination.port()))
}
