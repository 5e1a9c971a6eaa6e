//! Kong's phases, and in which of them a function of the PDK may be called.

/// A phase, by Kong's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A worker starts.
    InitWorker,
    /// A client's TLS handshake has begun.
    Certificate,
    /// Before the route is found.
    Rewrite,
    /// Before the upstream is asked.
    Access,
    /// The response is whole, and goes to the client next.
    Response,
    /// The response's head goes to the client next.
    HeaderFilter,
    /// Some of the response's body goes to the client next.
    BodyFilter,
    /// The last byte was sent.
    Log,
    /// Beside requests.
    Timer,
}

/// A set of phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Phases(u16);

/// The phases in the order in which messages name them, with those that do not exist here.
const NAMES: [(u16, &str); 14] = [
    (1, "init_worker"),
    (1 << 1, "certificate"),
    (1 << 2, "client_hello"),
    (1 << 3, "rewrite"),
    (1 << 4, "access"),
    (1 << 5, "balancer"),
    (1 << 6, "response"),
    (1 << 7, "header_filter"),
    (1 << 8, "body_filter"),
    (1 << 9, "timer"),
    (1 << 10, "log"),
    (1 << 11, "preread"),
    (1 << 12, "error"),
    (1 << 13, "admin_api"),
];

impl Phase {
    const fn bit(self) -> u16 {
        match self {
            Self::InitWorker => 1,
            Self::Certificate => 1 << 1,
            Self::Rewrite => 1 << 3,
            Self::Access => 1 << 4,
            Self::Response => 1 << 6,
            Self::HeaderFilter => 1 << 7,
            Self::BodyFilter => 1 << 8,
            Self::Timer => 1 << 9,
            Self::Log => 1 << 10,
        }
    }

    /// Kong's name.
    pub(crate) fn name(self) -> &'static str {
        NAMES.iter().find(|(bit, _)| *bit == self.bit()).map_or("", |(_, name)| name)
    }

    /// Whether Lua may answer in it.
    pub(crate) fn answers(self) -> bool {
        matches!(self, Self::Rewrite | Self::Access | Self::Response | Self::Certificate)
    }

    /// Whether Lua may wait in it. The error is OpenResty's text.
    pub(crate) fn may_wait(self) -> Result<(), &'static str> {
        match self {
            Self::Certificate | Self::Rewrite | Self::Access | Self::Response | Self::Timer => Ok(()),
            Self::InitWorker => Err("API disabled in the context of init_worker_by_lua*"),
            Self::HeaderFilter => Err("API disabled in the context of header_filter_by_lua*"),
            Self::BodyFilter => Err("API disabled in the context of body_filter_by_lua*"),
            Self::Log => Err("API disabled in the context of log_by_lua*"),
        }
    }
}

const REWRITE: u16 = Phase::Rewrite.bit();
const ACCESS: u16 = Phase::Access.bit();
const BALANCER: u16 = 1 << 5;
const RESPONSE: u16 = Phase::Response.bit();
const HEADER_FILTER: u16 = Phase::HeaderFilter.bit();
const BODY_FILTER: u16 = Phase::BodyFilter.bit();
const LOG: u16 = Phase::Log.bit();
const PREREAD: u16 = 1 << 11;
const ERROR: u16 = 1 << 12;
const ADMIN_API: u16 = 1 << 13;

impl Phases {
    /// Every phase.
    pub(crate) const ANY: Self = Self(u16::MAX);
    /// Those of a request.
    pub(crate) const REQUEST: Self =
        Self(REWRITE | ACCESS | BALANCER | RESPONSE | HEADER_FILTER | BODY_FILTER | LOG | ERROR | ADMIN_API);
    /// Those in which a request's body can be read.
    pub(crate) const REQUEST_BODY: Self = Self(REWRITE | ACCESS | RESPONSE | ERROR | ADMIN_API);
    /// Those with a route.
    pub(crate) const ROUTED: Self = Self(ACCESS | RESPONSE | HEADER_FILTER | BODY_FILTER | LOG);
    /// Those that see the response.
    pub(crate) const RESPONSE_READ: Self =
        Self(RESPONSE | HEADER_FILTER | BODY_FILTER | LOG | ERROR | ADMIN_API);
    /// Those before the response's head is sent.
    pub(crate) const RESPONSE_WRITE: Self =
        Self(REWRITE | ACCESS | BALANCER | RESPONSE | HEADER_FILTER | ERROR | ADMIN_API);
    /// Those that can end a request.
    pub(crate) const EXIT: Self = Self(Self::RESPONSE_WRITE.0 | PREREAD);
    /// Those in which the service's response is known.
    pub(crate) const SERVICE_RESPONSE: Self = Self(RESPONSE | HEADER_FILTER | BODY_FILTER | LOG);
    /// Those in which the upstream's body can be changed.
    pub(crate) const BODY: Self = Self(BODY_FILTER);
    /// The handshake of a client.
    pub(crate) const CERTIFICATE: Self = Self(Phase::Certificate.bit());
    /// Those in which the client's certificate can be read.
    pub(crate) const TLS_CHAIN: Self = Self(REWRITE | ACCESS | BALANCER | RESPONSE | LOG);
    /// The same, before the log.
    pub(crate) const TLS_VERIFY: Self = Self(REWRITE | ACCESS | BALANCER | RESPONSE);
    /// Before the upstream is asked.
    pub(crate) const BEFORE: Self = Self(REWRITE | ACCESS);
    /// Those in which code can write the response.
    pub(crate) const PRINT: Self = Self(REWRITE | ACCESS | RESPONSE);
    /// The same, with the choice of a target.
    pub(crate) const BALANCED: Self = Self(REWRITE | ACCESS | BALANCER);
    /// The same, with streams.
    pub(crate) const TARGET: Self = Self(REWRITE | ACCESS | BALANCER | PREREAD);
    /// Where the target of a stream is chosen.
    pub(crate) const STREAM_TARGET: Self = Self(BALANCER | PREREAD);
    /// The first message of a client's handshake.
    pub(crate) const CLIENT_HELLO: Self = Self(1 << 2);
    /// In the access phase alone.
    pub(crate) const ACCESS: Self = Self(ACCESS);
    /// The log phase alone.
    pub(crate) const LOG: Self = Self(LOG);
    /// Those that know the client.
    pub(crate) const CLIENT: Self = Self(Phase::Certificate.bit() | 1 << 2 | PREREAD | Self::REQUEST.0);
    /// From the beginning of a request to its log.
    pub(crate) const TO_LOG: Self =
        Self(REWRITE | ACCESS | BALANCER | RESPONSE | HEADER_FILTER | BODY_FILTER | LOG | PREREAD);

    /// Whether the phase is one of them.
    #[inline]
    pub(crate) const fn has(self, phase: Phase) -> bool {
        self.0 & phase.bit() != 0
    }

    /// The message of a function that may not be called in this phase.
    pub(crate) fn refusal(self, phase: Phase) -> String {
        let names: Vec<_> =
            NAMES.iter().filter(|(bit, _)| self.0 & bit != 0).map(|(_, name)| *name).collect();
        format!("function cannot be called in {} phase (only in: {})", phase.name(), names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::{Phase, Phases};

    #[test]
    fn a_refusal_names_the_phases() {
        assert!(Phases::LOG.has(Phase::Log) && !Phases::LOG.has(Phase::Access));
        assert_eq!(
            Phases::BALANCED.refusal(Phase::Log),
            "function cannot be called in log phase (only in: rewrite, access, balancer)"
        );
    }
}
