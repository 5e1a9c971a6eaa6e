//! Field names recognised once, at parsing, so that later questions are a byte compare.

macro_rules! known {
    ($($variant:ident = $name:literal,)*) => {
        /// A field name that the gateway asks about; every other name is [`Known::Other`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Known {
            /// A name not in this list.
            Other,
            $(#[doc = $name] $variant,)*
        }

        const NAMES: &[&str] = &["", $($name,)*];
        const ALL: &[Known] = &[Known::Other, $(Known::$variant,)*];
    };
}

known! {
    // This connection's own
    Connection = "connection",
    KeepAlive = "keep-alive",
    ProxyConnection = "proxy-connection",
    Te = "te",
    Trailer = "trailer",
    TransferEncoding = "transfer-encoding",
    Upgrade = "upgrade",
    // End to end
    Host = "host",
    ContentLength = "content-length",
    ContentType = "content-type",
    ContentEncoding = "content-encoding",
    Expect = "expect",
    Accept = "accept",
    AcceptEncoding = "accept-encoding",
    Authorization = "authorization",
    ProxyAuthorization = "proxy-authorization",
    Proxy = "proxy",
    Cookie = "cookie",
    SetCookie = "set-cookie",
    Origin = "origin",
    UserAgent = "user-agent",
    Range = "range",
    CacheControl = "cache-control",
    Location = "location",
    Server = "server",
    Date = "date",
    Via = "via",
    Forwarded = "forwarded",
    XForwardedFor = "x-forwarded-for",
    XForwardedProto = "x-forwarded-proto",
    XForwardedHost = "x-forwarded-host",
    XForwardedPort = "x-forwarded-port",
    XForwardedPath = "x-forwarded-path",
    XForwardedPrefix = "x-forwarded-prefix",
    XRealIp = "x-real-ip",
    XRequestId = "x-request-id",
    XKongRequestId = "x-kong-request-id",
    XKongUpstreamLatency = "x-kong-upstream-latency",
    XKongProxyLatency = "x-kong-proxy-latency",
    XKongResponseLatency = "x-kong-response-latency",
    XKongRequestDebug = "x-kong-request-debug",
    XKongRequestDebugToken = "x-kong-request-debug-token",
    XConsumerId = "x-consumer-id",
    XConsumerCustomId = "x-consumer-custom-id",
    XConsumerUsername = "x-consumer-username",
    XConsumerGroups = "x-consumer-groups",
    XAuthenticatedGroups = "x-authenticated-groups",
    XCredentialIdentifier = "x-credential-identifier",
    XAnonymousConsumer = "x-anonymous-consumer",
    XClientCertDn = "x-client-cert-dn",
    XClientCertSan = "x-client-cert-san",
    ClientCert = "client-cert",
    ClientCertChain = "client-cert-chain",
    KongDebug = "kong-debug",
    GrpcTimeout = "grpc-timeout",
    Apikey = "apikey",
}

impl Known {
    /// Every one of them, where its number says.
    pub const EVERY: &'static [Self] = ALL;

    /// Recognises a name in any case.
    #[inline]
    pub fn of(name: &[u8]) -> Self {
        if name.len() < 2 {
            return Self::Other;
        }
        let candidate = SLOTS[slot(name)];
        if is_any_case_of(name, candidate.name().as_bytes()) { candidate } else { Self::Other }
    }

    /// Recognises a name whose hyphens may be written as underscores.
    pub(crate) fn of_alias(name: &[u8]) -> Self {
        let mut folded = [0; 32];
        let Some(folded) = folded.get_mut(..name.len()) else { return Self::Other };
        for (to, from) in folded.iter_mut().zip(name) {
            *to = if *from == b'_' { b'-' } else { *from };
        }
        Self::of(folded)
    }

    /// The name in lower case; empty for [`Known::Other`].
    #[inline]
    pub const fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// Whether the field concerns this connection alone and is never forwarded (RFC 9110, 7.6.1).
    #[inline]
    pub fn is_hop_by_hop(self) -> bool {
        HOP_BY_HOP.holds(self)
    }

    /// The bit of this name in a set of names.
    #[inline]
    pub(crate) fn bit(self) -> u64 {
        1 << self as u8
    }
}

/// Several known names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownSet(u64);

impl KnownSet {
    /// The set of these names. [`Known::Other`] is not a name and never in a set.
    pub const fn of(names: &[Known]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < names.len() {
            bits |= 1 << names[index] as u8;
            index += 1;
        }
        Self(bits & !1)
    }

    /// The names of both sets.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the name is one of the set.
    #[inline]
    pub fn holds(self, known: Known) -> bool {
        self.0 & known.bit() != 0
    }

    #[inline]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }
}

/// The fields that concern one connection alone (RFC 9110, 7.6.1).
pub(crate) const HOP_BY_HOP: KnownSet = KnownSet::of(&[
    Known::Connection,
    Known::KeepAlive,
    Known::ProxyConnection,
    Known::Te,
    Known::Trailer,
    Known::TransferEncoding,
    Known::Upgrade,
]);

const SLOT_COUNT: usize = 256;

/// Which known name each slot stands for. Built by the compiler, which refuses two names in one slot.
static SLOTS: [Known; SLOT_COUNT] = {
    assert!(ALL.len() <= u64::BITS as usize, "a set of known names is a u64");
    let mut slots = [Known::Other; SLOT_COUNT];
    let mut index = 1;
    while index < ALL.len() {
        let at = slot(NAMES[index].as_bytes());
        assert!(slots[at] as u8 == 0, "two known names share a slot: change the factors in `slot`");
        slots[at] = ALL[index];
        index += 1;
    }
    slots
};

/// A name's slot, from its length and four of its letters. `| 0x20` folds case and leaves `-` alone.
const fn slot(name: &[u8]) -> usize {
    let length = name.len();
    let first = (name[0] | 0x20) as usize;
    let middle = (name[length / 2] | 0x20) as usize;
    let before_last = (name[length - 2] | 0x20) as usize;
    let last = (name[length - 1] | 0x20) as usize;
    (length + first + middle + before_last * 7 + last * 8) % SLOT_COUNT
}

/// Whether `name` is `lower` in any case, eight bytes at a time; `lower` holds small letters and hyphens only.
#[inline]
fn is_any_case_of(name: &[u8], lower: &[u8]) -> bool {
    if name.len() != lower.len() {
        return false;
    }
    let (Some(name_end), Some(lower_end)) = (name.last_chunk(), lower.last_chunk()) else {
        return name.eq_ignore_ascii_case(lower);
    };
    let words = name.as_chunks().0.iter().zip(lower.as_chunks().0);
    words.fold(differ(name_end, lower_end), |differing, (name, lower)| differing | differ(name, lower)) == 0
}

/// The bits in which two words differ, but for the case of letters: of small letters and hyphens, only letters have
/// bit 0x40, which shifted is the bit of case.
#[inline]
fn differ(name: &[u8; 8], lower: &[u8; 8]) -> u64 {
    let (name, lower) = (u64::from_ne_bytes(*name), u64::from_ne_bytes(*lower));
    (name ^ lower) & !((lower & 0x4040_4040_4040_4040) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_recognised_in_any_case() {
        for known in &ALL[1..] {
            assert_eq!(Known::of(known.name().as_bytes()), *known);
            assert_eq!(Known::of(known.name().to_ascii_uppercase().as_bytes()), *known);
        }
    }

    #[test]
    fn near_misses_are_other() {
        for name in [
            "",
            "h",
            "hosts",
            "hos",
            "x_forwarded_for",
            "content-lengtH2",
            "transfer-encodinG ",
            "x\rreal-ip",
            "X-Real\rIP",
        ] {
            assert_eq!(Known::of(name.as_bytes()), Known::Other, "{name}");
        }
    }

    #[test]
    fn one_changed_byte_is_another_name() {
        for known in &ALL[1..] {
            for at in 0..known.name().len() {
                for byte in 0..=u8::MAX {
                    let mut name = known.name().as_bytes().to_vec();
                    name[at] = byte;
                    let same = name.eq_ignore_ascii_case(known.name().as_bytes());
                    assert_eq!(Known::of(&name) == *known, same, "{known:?} with {byte:#x} at {at}");
                }
            }
        }
    }

    #[test]
    fn hop_by_hop_is_the_list_of_rfc_9110() {
        let names: Vec<_> =
            ALL.iter().filter(|known| known.is_hop_by_hop()).map(|known| known.name()).collect();
        let expected =
            ["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"];
        assert_eq!(names, expected);
    }
}
