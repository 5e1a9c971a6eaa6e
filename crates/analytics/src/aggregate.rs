//! Everything counted of one entity in one interval.
use crate::bucket::Bucket;
use crate::cause::Cause;
use crate::counts::Counts;
use crate::histogram::Histogram;
use crate::pairs;
use crate::record::{Class, Traits};
use crate::varint::{self, DecodeError, Reader};

/// Which of a request's durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Latency {
    /// From the first byte of the request to the last of the response.
    Total,
    /// The gateway's part.
    Gateway,
    /// What the upstream took until its first byte.
    Upstream,
}

impl Latency {
    /// All of them.
    pub const ALL: [Latency; 3] = [Self::Total, Self::Gateway, Self::Upstream];

    /// The name in queries and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Gateway => "gateway",
            Self::Upstream => "upstream",
        }
    }
}

/// The latencies that are kept of a kind of entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    All,
    Total,
    Upstream,
}

/// A status and the cause of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// The status of the response; 0 for a stream.
    pub status: u16,
    /// Who decided it, and why.
    pub cause: Cause,
}

/// The outcomes that are not counted one by one.
const OTHER_OUTCOMES: Outcome = Outcome { status: 0, cause: Cause::Unknown(0x7fff) };
/// The largest status of a record.
const MAX_STATUS: u16 = 1_023;
/// All bits of [`Traits`].
const MAX_TRAITS: u32 = 63;

impl Outcome {
    pub(crate) fn key(self) -> u32 {
        u32::from(self.status) << 16 | u32::from(self.cause.code())
    }

    pub(crate) fn from_key(key: u32) -> Outcome {
        Outcome { status: (key >> 16) as u16, cause: Cause::from_code(key as u16) }
    }

    /// Whether this is an error: a status from 400, or a cause that is a failure.
    pub fn is_error(self) -> bool {
        match self.cause {
            Cause::Response | Cause::Plugin(_) | Cause::Local | Cause::Unknown(_) => self.status >= 400,
            _ => true,
        }
    }
}

/// Counts and histograms of one entity. Every request is in `outcomes` once and in `traits` once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Aggregate {
    outcomes: Counts,
    traits: Counts,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
    latencies: [Histogram; 3],
}

impl Aggregate {
    /// Counts requests of a class.
    pub(crate) fn add_requests(&mut self, class: Class, count: u64) {
        self.outcomes.add(Outcome { status: class.status(), cause: class.cause() }.key(), count);
        self.traits.add(u32::from(class.traits().bits()), count);
    }

    /// Counts the bytes of a request, and those of its latencies that are kept.
    #[inline]
    pub(crate) fn add_measures(&mut self, bytes: [u64; 2], latencies: [Bucket; 3], keep: Keep) {
        // The tokens of models are whatever a provider says.
        self.bytes_in = self.bytes_in.saturating_add(bytes[0]);
        self.bytes_out = self.bytes_out.saturating_add(bytes[1]);
        let [total, gateway, upstream] = &mut self.latencies;
        if keep != Keep::Upstream {
            total.record(latencies[0]);
        }
        if keep == Keep::All {
            gateway.record(latencies[1]);
        }
        if keep != Keep::Total {
            upstream.record(latencies[2]);
        }
    }

    /// Removes all counts, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.outcomes.clear();
        self.traits.clear();
        (self.bytes_in, self.bytes_out) = (0, 0);
        self.latencies.iter_mut().for_each(Histogram::clear);
    }

    /// Adds another.
    pub fn merge(&mut self, other: &Aggregate) {
        self.outcomes.merge(&other.outcomes);
        self.traits.merge(&other.traits);
        self.bytes_in = self.bytes_in.saturating_add(other.bytes_in);
        self.bytes_out = self.bytes_out.saturating_add(other.bytes_out);
        for (mine, theirs) in self.latencies.iter_mut().zip(&other.latencies) {
            mine.merge(theirs);
        }
    }

    /// What has been added since this was the aggregate.
    pub(crate) fn since(&self, earlier: &Aggregate) -> Aggregate {
        let latency = |at: usize| self.latencies[at].since(&earlier.latencies[at]);
        Aggregate {
            outcomes: self.outcomes.since(&earlier.outcomes),
            traits: self.traits.since(&earlier.traits),
            bytes_in: self.bytes_in.saturating_sub(earlier.bytes_in),
            bytes_out: self.bytes_out.saturating_sub(earlier.bytes_out),
            latencies: [latency(0), latency(1), latency(2)],
        }
    }

    /// The number of requests.
    pub fn requests(&self) -> u64 {
        self.outcomes.total()
    }

    /// The number of requests whose outcome fulfils a condition.
    pub fn requests_with(&self, condition: impl Fn(Outcome) -> bool) -> u64 {
        self.outcomes.sum(|key| condition(Outcome::from_key(key)))
    }

    /// The number of requests whose traits fulfil a condition.
    pub fn requests_of(&self, condition: impl Fn(Traits) -> bool) -> u64 {
        self.traits.sum(|key| condition(Traits::from_bits(key as u8)))
    }

    /// Whether requests can have these statuses and traits.
    pub(crate) fn is_countable(&self) -> bool {
        let has_status = |(outcome, _): (Outcome, u64)| outcome.status <= MAX_STATUS;
        self.outcomes().all(has_status) && self.traits.iter().all(|(key, _)| key <= MAX_TRAITS)
    }

    /// Keeps the most frequent outcomes, so many at most. The last of these stands for all others.
    pub(crate) fn fold_outcomes(&mut self, limit: usize) {
        self.outcomes.fold(limit, OTHER_OUTCOMES.key());
    }

    /// Whether an outcome stands for others.
    pub(crate) fn is_folded(&self) -> bool {
        self.outcomes().any(|(outcome, _)| outcome == OTHER_OUTCOMES)
    }

    /// Each outcome and how often it was.
    pub fn outcomes(&self) -> impl Iterator<Item = (Outcome, u64)> + '_ {
        self.outcomes.iter().map(|(key, count)| (Outcome::from_key(key), count))
    }

    /// Each combination of traits and how often it was.
    pub fn traits(&self) -> impl Iterator<Item = (Traits, u64)> + '_ {
        self.traits.iter().map(|(key, count)| (Traits::from_bits(key as u8), count))
    }

    /// The histogram of a latency, in units of 2^-30 s. Of a consumer only the total is kept, of an upstream's address
    /// only its own.
    pub fn latency(&self, latency: Latency) -> &Histogram {
        &self.latencies[latency as usize]
    }

    /// Counts a value of a latency.
    pub fn add_latency(&mut self, latency: Latency, bucket: Bucket, count: u64) {
        self.latencies[latency as usize].add(bucket, count);
    }

    /// The same without the latencies of the parts.
    pub(crate) fn totals(self) -> Aggregate {
        let [total, ..] = self.latencies;
        Aggregate { latencies: [total, Histogram::default(), Histogram::default()], ..self }
    }

    /// The memory beyond the struct itself, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        let histograms: usize = self.latencies.iter().map(Histogram::heap_bytes).sum();
        self.outcomes.heap_bytes() + self.traits.heap_bytes() + histograms
    }

    /// Appends the aggregate as bytes.
    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        self.outcomes.encode(bytes);
        self.traits.encode(bytes);
        varint::put(bytes, self.bytes_in);
        varint::put(bytes, self.bytes_out);
        for latency in &self.latencies {
            latency.encode(bytes);
        }
    }

    /// Appends the sum of two aggregates that were encoded, without building either.
    pub(crate) fn merge_bytes(
        mine: &[u8],
        theirs: &[u8],
        bytes: &mut Vec<u8>,
        scratch: &mut Vec<(u32, u64)>,
    ) -> Result<(), DecodeError> {
        let (mut mine, mut theirs) = (Reader::new(mine), Reader::new(theirs));
        for _outcomes_then_traits in 0..2 {
            pairs::merge(&mut mine, &mut theirs, bytes, scratch)?;
        }
        for _bytes_in_then_out in 0..2 {
            varint::put(bytes, mine.number()?.saturating_add(theirs.number()?));
        }
        for _latency in 0..3 {
            pairs::merge(&mut mine, &mut theirs, bytes, scratch)?;
        }
        Ok(())
    }

    /// An aggregate that was encoded.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Aggregate, DecodeError> {
        let mut aggregate = Aggregate::default();
        aggregate.merge_encoded(bytes, &mut Ok)?;
        Ok(aggregate)
    }

    /// Adds an aggregate that was encoded. `translate` may give the codes of causes other numbers.
    pub(crate) fn merge_encoded(
        &mut self,
        bytes: &[u8],
        translate: &mut dyn FnMut(u16) -> Result<u16, DecodeError>,
    ) -> Result<(), DecodeError> {
        let mut reader = Reader::new(bytes);
        let mut outcome = |key: u32| Ok(key & 0xffff_0000 | u32::from(translate(key as u16)?));
        self.outcomes.merge_encoded(&mut reader, &mut outcome)?;
        self.traits.merge_encoded(&mut reader, &mut Ok)?;
        self.bytes_in = self.bytes_in.saturating_add(reader.number()?);
        self.bytes_out = self.bytes_out.saturating_add(reader.number()?);
        for latency in &mut self.latencies {
            latency.merge_encoded(&mut reader)?;
        }
        if reader.is_empty() { Ok(()) } else { Err(DecodeError::OutOfRange) }
    }
}
