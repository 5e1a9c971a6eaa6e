//! Who decided the outcome of a request, and why.
use std::fmt;

/// Which side the outcome came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// The client: its request was refused or it left.
    Client,
    /// The gateway: a plugin or the gateway itself responded.
    Gateway,
    /// The upstream: it responded or failed.
    Upstream,
}

impl Origin {
    /// The name in queries and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Gateway => "gateway",
            Self::Upstream => "upstream",
        }
    }
}

/// Declares the causes that have no value: variant, code, name.
macro_rules! causes {
    ($($(#[$doc:meta])* $variant:ident = $code:literal $name:literal,)*) => {
        /// Why a request ended as it did. The codes are stored on disk, so a code never changes its meaning.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Cause {
            $($(#[$doc])* $variant,)*
            /// The upstream responded with this `grpc-status`, which is not 0.
            GrpcStatus(u8),
            /// A plugin responded: its id among [`crate::entities::Kind::Plugin`]. Higher ids than 16,383 count as 0.
            Plugin(u16),
            /// A later release wrote this code.
            Unknown(u16),
        }

        impl Cause {
            /// The names of all causes.
            pub const NAMES: &[&str] = &[$($name,)* "grpc_status", "plugin"];

            /// The cause as stored.
            #[inline]
            pub fn code(self) -> u16 {
                match self {
                    $(Self::$variant => $code,)*
                    Self::GrpcStatus(status) => GRPC | u16::from(status),
                    Self::Plugin(id) => PLUGIN | if id <= MAX_PLUGIN { id } else { 0 },
                    Self::Unknown(code) => code,
                }
            }

            /// The cause of a stored code.
            pub fn from_code(code: u16) -> Cause {
                match code {
                    $($code => Self::$variant,)*
                    code if code & PLUGIN != 0 && code & !PLUGIN <= MAX_PLUGIN => Self::Plugin(code & !PLUGIN),
                    code if code & 0xff00 == GRPC => Self::GrpcStatus(code as u8),
                    code => Self::Unknown(code),
                }
            }

            /// The name in queries and answers.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::GrpcStatus(_) => "grpc_status",
                    Self::Plugin(_) => "plugin",
                    Self::Unknown(_) => "unknown",
                }
            }
        }
    };
}

const PLUGIN: u16 = 0x8000;
const MAX_PLUGIN: u16 = 0x3fff;
const GRPC: u16 = 0x300;

causes! {
    /// The upstream responded.
    Response = 0x200 "response",
    /// No connection to the upstream could be made.
    Connect = 0x201 "connect",
    /// The upstream did not accept the connection in time.
    ConnectTimeout = 0x202 "connect_timeout",
    /// TLS with the upstream failed.
    Tls = 0x203 "tls",
    /// The upstream's name could not be resolved.
    Dns = 0x204 "dns",
    /// The upstream did not respond in time.
    Timeout = 0x205 "timeout",
    /// The upstream closed or reset the connection.
    Reset = 0x206 "reset",
    /// The upstream's response was not valid.
    InvalidResponse = 0x207 "invalid_response",
    /// The upstream has no healthy target.
    NoTarget = 0x208 "no_target",
    /// The request is not valid.
    Rejected = 0x001 "rejected",
    /// The request's body is too large.
    BodyTooLarge = 0x002 "body_too_large",
    /// The client did not send its request in time.
    ClientTimeout = 0x003 "client_timeout",
    /// The client left.
    ClientGone = 0x004 "client_gone",
    /// The deadline of the client's call passed.
    DeadlineExceeded = 0x005 "deadline_exceeded",
    /// No route matches.
    NoRoute = 0x101 "no_route",
    /// The route has no service.
    NoService = 0x102 "no_service",
    /// There is no memory to buffer a body.
    NoMemory = 0x103 "no_memory",
    /// The gateway failed: a defect.
    Internal = 0x104 "internal",
    /// The gateway itself responded, as for a redirect to HTTPS.
    Local = 0x105 "local",
    /// The request was shed, because there were too many.
    Overload = 0x106 "overload",
}

impl Cause {
    /// Which side the outcome came from.
    pub fn origin(self) -> Origin {
        match self.code() {
            0..0x100 => Origin::Client,
            0x200..0x400 => Origin::Upstream,
            _ => Origin::Gateway,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GrpcStatus(status) => write!(f, "grpc_status {status}"),
            cause => f.write_str(cause.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_comes_back() {
        for code in 0..=u16::MAX {
            assert_eq!(Cause::from_code(code).code(), code);
        }
    }

    #[test]
    fn origins() {
        assert_eq!(Cause::Rejected.origin(), Origin::Client);
        assert_eq!(Cause::Plugin(3).origin(), Origin::Gateway);
        assert_eq!(Cause::NoRoute.origin(), Origin::Gateway);
        assert_eq!(Cause::Timeout.origin(), Origin::Upstream);
        assert_eq!(Cause::GrpcStatus(14).origin(), Origin::Upstream);
    }

    #[test]
    fn a_plugin_id_that_does_not_fit_is_none() {
        assert_eq!(Cause::from_code(Cause::Plugin(u16::MAX).code()), Cause::Plugin(0));
    }
}
