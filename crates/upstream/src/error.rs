//! The errors of requests to upstreams.

use h2::Reason;
use std::{fmt, io};
use weir_http1::ParseError;
use weir_net::resolve::ResolveError;

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
            Self::Connect(error) => write!(f, "connecting to the upstream failed: {error}"),
            Self::ConnectTimeout => {
                f.write_str("connecting to the upstream took longer than connect_timeout")
            }
            Self::Closed(error) => write!(f, "the upstream closed the connection early: {error}"),
            Self::Reset(reason) => write!(f, "the upstream reset the stream: {reason}"),
            Self::InvalidResponse(error) => write!(f, "the upstream's response was refused: {error}"),
            Self::Timeout => f.write_str("the upstream took longer than read_timeout or write_timeout"),
        }
    }
}

impl std::error::Error for UpstreamError {}
