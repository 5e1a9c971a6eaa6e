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
        let words = words(name);
        let candidate = SLOTS[slot(&words, name.len())];
        let Entry { words: lower, letters, len } = &ENTRIES[candidate as usize];
        let differing =
            (0..lower.len()).fold(0, |differing, at| differing | differ(words[at], lower[at], letters[at]));
        if differing == 0 && name.len() == usize::from(*len) { candidate } else { Self::Other }
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
        let name = NAMES[index].as_bytes();
        let at = slot(&words(name), name.len());
        assert!(slots[at] as u8 == 0, "two known names share a slot: find another FACTOR");
        slots[at] = ALL[index];
        index += 1;
    }
    slots
};

/// A known name as [`words`] has it.
#[derive(Clone, Copy)]
struct Entry {
    words: [u64; 4],
    /// Of each word, the bits that say whether a letter is small.
    letters: [u64; 4],
    len: u8,
}

static ENTRIES: [Entry; ALL.len()] = {
    let mut entries = [Entry { words: [0; 4], letters: [0; 4], len: 0 }; ALL.len()];
    let mut index = 1;
    while index < ALL.len() {
        let name = NAMES[index].as_bytes();
        assert!(name.len() <= MAX_LEN);
        let words = words(name);
        let letters = [letters(words[0]), letters(words[1]), letters(words[2]), letters(words[3])];
        entries[index] = Entry { words, letters, len: name.len() as u8 };
        index += 1;
    }
    entries
};

/// The longest name that words are made of.
const MAX_LEN: usize = 32;

/// All bytes of a name in words, which overlap: with the length they stand for the name. Zero for a name that is too long
/// to be known.
#[inline(always)]
const fn words(name: &[u8]) -> [u64; 4] {
    match name.len() {
        8..=16 => [first(name), last(name), 0, 0],
        17..=MAX_LEN => {
            let (head, tail) = (name.split_at(8).1, name.split_at(name.len() - 8).0);
            [first(name), last(name), first(head), last(tail)]
        }
        4..=7 => match (name.first_chunk(), name.last_chunk()) {
            (Some(first), Some(last)) => {
                [u32::from_le_bytes(*first) as u64 | (u32::from_le_bytes(*last) as u64) << 32, 0, 0, 0]
            }
            _ => [0; 4],
        },
        2..=3 => match (name.first_chunk(), name.last_chunk()) {
            (Some(first), Some(last)) => {
                [u16::from_le_bytes(*first) as u64 | (u16::from_le_bytes(*last) as u64) << 16, 0, 0, 0]
            }
            _ => [0; 4],
        },
        _ => [0; 4],
    }
}

#[inline(always)]
const fn first(name: &[u8]) -> u64 {
    match name.first_chunk() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => 0,
    }
}

#[inline(always)]
const fn last(name: &[u8]) -> u64 {
    match name.last_chunk() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => 0,
    }
}

/// Folds case and leaves `-` alone.
const FOLD: u64 = 0x2020_2020_2020_2020;
/// Found by trial: it gives every known name a slot of its own.
const FACTOR: u64 = 0x2f42_9ce5_9ff3_078f;

/// A name's slot, from its first and last eight bytes and its length.
#[inline(always)]
const fn slot(words: &[u64; 4], len: usize) -> usize {
    let mixed = ((words[0] | FOLD) ^ (words[1] | FOLD).rotate_left(5)).wrapping_add(len as u64);
    (mixed.wrapping_mul(FACTOR) >> (u64::BITS - SLOT_COUNT.ilog2())) as usize
}

/// The bits of case in a word of small letters and hyphens: only letters have bit 0x40, which shifted is the bit of case.
const fn letters(lower: u64) -> u64 {
    (lower & 0x4040_4040_4040_4040) >> 1
}

/// The bits in which two words differ, but for the case of letters.
#[inline(always)]
fn differ(name: u64, lower: u64, letters: u64) -> u64 {
    (name | letters) ^ lower
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
            "x-kong-request-debug-token-that-is-longer-than-any",
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
