//! Histograms of durations that merge without loss and travel as text.
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{
    Deserializer as HdrDeserializer, Serializer as HdrSerializer, V2DeflateSerializer,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::time::Duration;

/// The longest duration that the histogram distinguishes; longer ones count as this.
const MAX_NANOSECONDS: u64 = 600_000_000_000;

/// A histogram of durations in nanoseconds with three significant digits, above 128 ns. In JSON it is the text of the
/// HdrHistogram V2 encoding, deflated, in base64: other tools read it.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram(hdrhistogram::Histogram<u64>);

/// Clocks for the same answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latencies {
    /// From the instant the request was scheduled for (in a closed loop: from the instant it was sent).
    pub response: Histogram,
    /// From the instant it was sent.
    pub service: Histogram,
    /// From then to the first byte of the body; empty unless that was asked for.
    #[serde(default, skip_serializing_if = "Histogram::is_empty")]
    pub first_byte: Histogram,
}

impl Latencies {
    /// Response times, or, where the generator does not know when a request was due, service times.
    #[must_use]
    pub fn shown(&self) -> &Histogram {
        if self.is_without_response() { &self.service } else { &self.response }
    }

    /// Whether the generator does not know when a request was due.
    #[must_use]
    pub fn is_without_response(&self) -> bool {
        self.response.count() == 0 && self.service.count() > 0
    }

    /// Adds all of another's samples.
    pub fn merge(&mut self, other: &Latencies) {
        self.response.merge(&other.response);
        self.service.merge(&other.service);
        self.first_byte.merge(&other.first_byte);
    }
}

impl Default for Histogram {
    fn default() -> Self {
        // The bounds are constants that the crate accepts.
        #[allow(clippy::expect_used)]
        let inner =
            hdrhistogram::Histogram::new_with_bounds(128, MAX_NANOSECONDS, 3).expect("bounds are right");
        Histogram(inner)
    }
}

impl Histogram {
    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Records one duration.
    pub fn record(&mut self, duration: Duration) {
        self.record_nanos(u64::try_from(duration.as_nanos()).unwrap_or(MAX_NANOSECONDS));
    }

    /// Records one duration in nanoseconds.
    pub fn record_nanos(&mut self, nanos: u64) {
        self.0.saturating_record(nanos.min(MAX_NANOSECONDS));
    }

    /// Records one duration as often as `count` says.
    pub fn record_many(&mut self, duration: Duration, count: u64) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(MAX_NANOSECONDS);
        self.0.saturating_record_n(nanos.min(MAX_NANOSECONDS), count);
    }

    /// Adds all of another's samples.
    pub fn merge(&mut self, other: &Histogram) {
        // The bounds are the same, so that nothing can be out of range.
        let _ = self.0.add(&other.0);
    }

    /// How many samples there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The q-quantile (0.99 for p99), or nothing where fewer than 10 / (1 - q) samples say too little about it.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let needed = 10.0 / (1.0 - q).max(f64::EPSILON);
        let enough = self.count() > 0 && (self.count() as f64) >= needed.min(1e15).floor();
        enough.then(|| Duration::from_nanos(self.0.value_at_quantile(q)))
    }

    /// The mean, or zero without samples.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.0.mean() as u64)
    }

    /// The standard deviation, or zero without samples.
    pub fn deviation(&self) -> Duration {
        Duration::from_nanos(self.0.stdev() as u64)
    }

    /// The longest.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.0.max())
    }

    /// The histogram itself, for what is not offered here.
    pub fn inner(&self) -> &hdrhistogram::Histogram<u64> {
        &self.0
    }
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&self.0, &mut bytes)
            .map_err(|error| S::Error::custom(format!("{error:?}")))?;
        serializer.serialize_str(&STANDARD.encode(bytes))
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text.as_bytes()).map_err(D::Error::custom)?;
        let inner = HdrDeserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| D::Error::custom(format!("not a histogram: {error:?}")))?;
        Ok(Histogram(inner))
    }
}

impl JsonSchema for Histogram {
    fn schema_name() -> Cow<'static, str> {
        "Histogram".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "contentEncoding": "base64",
            "description": "Nanoseconds. HdrHistogram V2 encoding, deflated, in base64.",
        })
    }
}
