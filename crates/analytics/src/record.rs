//! What a worker records of one request: 32 bytes of plain data.
//!
//! ```text
//! word 0: route (32) │ upstream address (32)
//! word 1: consumer (32) │ time (16) │ status (10) │ traits (6)
//! word 2: total, gateway and upstream latency (16 each) │ cause (16)
//! word 3: bytes in (32) │ bytes out (32)
//! ```
use crate::bucket::Bucket;
use crate::cause::Cause;
use std::time::Duration;

/// How the request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Protocol {
    /// HTTP/1.0 and HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
    /// HTTP/3.
    Http3,
    /// gRPC.
    Grpc,
    /// A WebSocket session.
    WebSocket,
    /// A session of a TCP, TLS or UDP stream.
    Stream,
}

impl Protocol {
    const ALL: [Protocol; 6] =
        [Self::Http1, Self::Http2, Self::Http3, Self::Grpc, Self::WebSocket, Self::Stream];

    /// The name in queries and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
            Self::Http2 => "http2",
            Self::Http3 => "http3",
            Self::Grpc => "grpc",
            Self::WebSocket => "websocket",
            Self::Stream => "stream",
        }
    }
}

/// A protocol and three properties of a request, in six bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traits(u8);

impl Traits {
    const RETRIED: u8 = 8;
    const CACHED: u8 = 16;
    const REUSED: u8 = 32;

    /// A request over this protocol.
    pub fn new(protocol: Protocol) -> Traits {
        Traits(protocol as u8)
    }

    /// Sets whether the request was sent upstream more than once.
    pub fn retried(self, on: bool) -> Traits {
        self.with(Self::RETRIED, on)
    }

    /// Sets whether the response came from a cache.
    pub fn cached(self, on: bool) -> Traits {
        self.with(Self::CACHED, on)
    }

    /// Sets whether the upstream connection had served a request before.
    pub fn reused(self, on: bool) -> Traits {
        self.with(Self::REUSED, on)
    }

    fn with(self, bit: u8, on: bool) -> Traits {
        Traits(if on { self.0 | bit } else { self.0 & !bit })
    }

    /// The protocol; none for one that a later release wrote.
    pub fn protocol(self) -> Option<Protocol> {
        Protocol::ALL.get(usize::from(self.0 & 7)).copied()
    }

    /// Whether the request was sent upstream more than once.
    pub fn is_retried(self) -> bool {
        self.0 & Self::RETRIED != 0
    }

    /// Whether the response came from a cache.
    pub fn is_cached(self) -> bool {
        self.0 & Self::CACHED != 0
    }

    /// Whether the upstream connection had served a request before.
    pub fn is_reused(self) -> bool {
        self.0 & Self::REUSED != 0
    }

    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    pub(crate) fn from_bits(bits: u8) -> Traits {
        Traits(bits & 63)
    }
}

/// The milliseconds of a tick: the resolution of a record's time.
const TICK_MILLIS: u64 = 10;

/// The end of a request on a 16-bit clock of 10 ms ticks, which wraps after 11 minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tick(u16);

impl Tick {
    /// How long a tick is.
    pub const LENGTH: Duration = Duration::from_millis(TICK_MILLIS);

    /// The tick of a time in milliseconds.
    pub fn at(millis: u64) -> Tick {
        Tick((millis / TICK_MILLIS) as u16)
    }

    /// The 100 ms that the tick is in.
    pub(crate) fn window(self) -> u16 {
        self.0 / 10
    }
}

/// The end of a second. It shows which records are before it, at most five minutes later.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cutoff {
    /// The tick of now.
    now: u16,
    /// How many ticks ago the second ended, and one; 0 if it has not.
    age: u16,
}

impl Cutoff {
    /// The end of a second since 1970. `now` is in milliseconds.
    pub(crate) fn new(second: u64, now: u64) -> Cutoff {
        let (now, end) = (now / TICK_MILLIS, (second + 1) * (1_000 / TICK_MILLIS));
        let age = (now + 1).saturating_sub(end);
        Cutoff { now: now as u16, age: u16::try_from(age).unwrap_or(u16::MAX) }
    }

    /// Whether a time is before. One from the future counts as now.
    #[inline]
    pub(crate) fn is_after(self, time: Tick) -> bool {
        let age = self.now.wrapping_sub(time.0);
        let age = if age > u16::MAX / 2 { 0 } else { age };
        age >= self.age
    }
}

/// A number of bytes in 32 bits: exact below 128 MiB, within 0.000002 % above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByteCount(u32);

impl ByteCount {
    const MANTISSA_BITS: u32 = 27;

    /// Packs a number of bytes.
    #[inline]
    pub fn new(bytes: u64) -> ByteCount {
        if bytes < 1 << Self::MANTISSA_BITS {
            return ByteCount(bytes as u32);
        }
        let shift = (u64::BITS - bytes.leading_zeros() - Self::MANTISSA_BITS).min(31);
        let mantissa = (bytes >> shift).min((1 << Self::MANTISSA_BITS) - 1);
        ByteCount(shift << Self::MANTISSA_BITS | mantissa as u32)
    }

    /// The number of bytes.
    #[inline]
    pub fn get(self) -> u64 {
        u64::from(self.0 & ((1 << Self::MANTISSA_BITS) - 1)) << (self.0 >> Self::MANTISSA_BITS)
    }
}

/// One request, recorded at its end. Ids are those of [`crate::entities::Entities`]; the service follows from the route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The route; 0 if none matched.
    pub route: u32,
    /// The address of the upstream that was asked last; 0 if none was.
    pub upstream: u32,
    /// The consumer; 0 if there is none.
    pub consumer: u32,
    /// When the request ended.
    pub time: Tick,
    /// The status of the response, at most 1023; 0 for a stream.
    pub status: u16,
    /// The protocol and more.
    pub traits: Traits,
    /// Who decided the outcome, and why.
    pub cause: Cause,
    /// From the first byte of the request to the last of the response.
    pub total: Bucket,
    /// The gateway's part of it.
    pub gateway: Bucket,
    /// What the upstream took until its first byte.
    pub waited: Bucket,
    /// Bytes from the client.
    pub bytes_in: ByteCount,
    /// Bytes to the client.
    pub bytes_out: ByteCount,
}

impl Record {
    /// The record as the ring stores it.
    #[inline(always)]
    pub(crate) fn pack(&self) -> Packed {
        let status = u64::from(self.status.min(1023)) | u64::from(self.traits.bits()) << 10;
        Packed([
            u64::from(self.route) | u64::from(self.upstream) << 32,
            u64::from(self.consumer) | u64::from(self.time.0) << 32 | status << 48,
            u64::from(self.total.0)
                | u64::from(self.gateway.0) << 16
                | u64::from(self.waited.0) << 32
                | u64::from(self.cause.code()) << 48,
            u64::from(self.bytes_in.0) | u64::from(self.bytes_out.0) << 32,
        ])
    }
}

/// A record as the ring stores it.
#[derive(Debug, Clone, Copy)]
pub struct Packed(pub(crate) [u64; 4]);

/// The status, the cause and the traits of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Class(u32);

impl Packed {
    #[inline]
    pub(crate) fn route(&self) -> u32 {
        self.0[0] as u32
    }

    #[inline]
    pub(crate) fn upstream(&self) -> u32 {
        (self.0[0] >> 32) as u32
    }

    #[inline]
    pub(crate) fn consumer(&self) -> u32 {
        self.0[1] as u32
    }

    #[inline]
    pub(crate) fn time(&self) -> Tick {
        Tick((self.0[1] >> 32) as u16)
    }

    #[inline]
    pub(crate) fn class(&self) -> Class {
        Class(((self.0[1] >> 48) as u32) << 16 | (self.0[2] >> 48) as u32)
    }

    /// The total, the gateway's and the upstream's latency.
    #[inline]
    pub(crate) fn latencies(&self) -> [Bucket; 3] {
        [0, 16, 32].map(|shift| Bucket((self.0[2] >> shift) as u16))
    }

    /// Bytes from the client and to it.
    #[inline]
    pub(crate) fn bytes(&self) -> [u64; 2] {
        [0, 32].map(|shift| ByteCount((self.0[3] >> shift) as u32).get())
    }
}

impl Class {
    /// The class of a call that a status alone describes.
    pub(crate) fn of_status(status: u16) -> Class {
        let (traits, cause) = (Traits::new(Protocol::Http1), Cause::Response);
        let status = u32::from(status.min(1023)) | u32::from(traits.bits()) << 10;
        Class(status << 16 | u32::from(cause.code()))
    }

    pub(crate) fn status(self) -> u16 {
        (self.0 >> 16) as u16 & 1023
    }

    pub(crate) fn cause(self) -> Cause {
        Cause::from_code(self.0 as u16)
    }

    pub(crate) fn traits(self) -> Traits {
        Traits((self.0 >> 26) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_record_comes_back() {
        let record = Record {
            route: u32::MAX,
            upstream: 2,
            consumer: 3,
            time: Tick(u16::MAX),
            status: 999,
            traits: Traits::new(Protocol::Stream).retried(true).cached(true).reused(true),
            cause: Cause::Plugin(77),
            total: Bucket::MAX,
            gateway: Bucket(5),
            waited: Bucket::NONE,
            bytes_in: ByteCount::new(1),
            bytes_out: ByteCount::new(1 << 40),
        };
        let packed = record.pack();
        assert_eq!((packed.route(), packed.upstream(), packed.consumer()), (u32::MAX, 2, 3));
        assert_eq!(packed.time(), record.time);
        let class = packed.class();
        assert_eq!((class.status(), class.cause(), class.traits()), (999, record.cause, record.traits));
        let class = Class::of_status(503);
        let traits = Traits::new(Protocol::Http1);
        assert_eq!((class.status(), class.cause(), class.traits()), (503, Cause::Response, traits));
        assert_eq!(packed.latencies(), [Bucket::MAX, Bucket(5), Bucket::NONE]);
        assert_eq!(packed.bytes(), [1, 1 << 40]);
    }

    #[test]
    fn times_survive_the_wrap() {
        for end in [1_000, 656_000, 1_790_000_001_000] {
            for late in [0, 90, 300_000] {
                let cutoff = Cutoff::new(end / 1_000 - 1, end + late);
                assert!(cutoff.is_after(Tick::at(end - 10)), "{late} ms after {end}");
                assert!(!cutoff.is_after(Tick::at(end)), "{late} ms after {end}");
            }
            let before_the_end = Cutoff::new(end / 1_000 - 1, end - 20);
            assert!(before_the_end.is_after(Tick::at(end + 50)), "a time in the future is now");
        }
    }

    proptest! {
        #[test]
        fn bytes_are_exact_or_close(bytes in 0u64..1 << 50) {
            let packed = ByteCount::new(bytes).get();
            prop_assert!(packed <= bytes && bytes - packed <= bytes >> 26);
            prop_assert!(bytes >= 1 << 27 || packed == bytes);
        }
    }
}
