//! The errors of requests to upstreams.

use h2::Reason;
use std::{fmt, io};
use weir_http1::ParseError;
use weir_net::connect::is_shortage;
use weir_net::resolve::ResolveError;
use weir_net::tls::{FaultKind, HandshakeFault};

/// Why an upstream gave no response, or no whole one.
#[derive(Debug)]
pub enum UpstreamError {
    /// The upstream has no available target.
    NoTarget,
    /// The target's name has no address.
    NameResolution(ResolveError),
    /// No connection could be made, or TLS could not be agreed on.
    Connect(io::Error),
    /// It took longer than `connect_timeout`.
    ConnectTimeout,
    /// The upstream closed or broke the connection.
    Closed(io::Error),
    /// The upstream reset the request's stream.
    Reset(Reason),
    /// The upstream's bytes are not an HTTP response.
    InvalidResponse(ParseError),
    /// The upstream sent nothing for `read_timeout`, or read nothing for `write_timeout`.
    Timeout,
}

impl UpstreamError {
    /// Its kind, as logs and traces name it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NoTarget => "no_healthy_target",
            Self::NameResolution(_) => "name_resolution_failed",
            Self::Connect(_) => "upstream_connect_failed",
            Self::ConnectTimeout => "upstream_connect_timeout",
            Self::Closed(_) | Self::Reset(_) => "upstream_closed",
            Self::InvalidResponse(_) => "upstream_invalid_response",
            Self::Timeout => "upstream_timeout",
        }
    }

    /// Whether it is a timeout.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::ConnectTimeout | Self::Timeout)
    }
}

impl fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTarget => f.write_str("the upstream has no target that may be asked"),
            Self::NameResolution(why) => write!(f, "name resolution failed: {why}"),
            Self::Connect(error) => {
                f.write_str("connecting to the upstream failed: ")?;
                explain(error, f)
            }
            Self::ConnectTimeout => {
                f.write_str("connecting to the upstream took longer than connect_timeout")
            }
            Self::Closed(error) => {
                f.write_str("the upstream closed the connection early: ")?;
                match HandshakeFault::of(error).filter(|fault| fault.kind() != FaultKind::Ended) {
                    Some(_) => explain(error, f),
                    None => write!(f, "{error}"),
                }
            }
            Self::Reset(reason) => write!(f, "the upstream reset the stream: {reason}"),
            Self::InvalidResponse(error) => write!(f, "the upstream's response was refused: {error}"),
            Self::Timeout => f.write_str("the upstream took longer than read_timeout or write_timeout"),
        }
    }
}

impl std::error::Error for UpstreamError {}

/// Writes an error, and how to fix it if it is one of TLS or a shortage of this process.
fn explain(error: &io::Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if is_shortage(error) {
        return write!(
            f,
            "{error}: this node lacks it, not the upstream: raise worker_rlimit_nofile, or give the machine more memory"
        );
    }
    let Some(fault) = HandshakeFault::of(error) else { return write!(f, "{error}") };
    write!(f, "{fault}: {}", fix(&fault))
}

fn fix(fault: &HandshakeFault) -> &'static str {
    if fault.kind() == FaultKind::OldVersion {
        return "issue one of version 3 with a subjectAltName, or set `tls_verify: false`";
    }
    fault.fix().unwrap_or(match fault.kind() {
        FaultKind::UnknownAuthority => {
            "add its authority to the service's `ca_certificates` or to lua_ssl_trusted_certificate, or set `tls_verify: false`"
        }
        FaultKind::ClientCertificate => "set the service's `client_certificate` to one that the server trusts",
        FaultKind::UnknownName => "set the service's `host`, or the route's `preserve_host`, so that it is a name of the server",
        _ => "write `protocol: http` in the service (`grpc` or `tcp` for those), or the port at which the server speaks TLS",
    })
}
