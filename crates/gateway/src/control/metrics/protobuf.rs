//! The metrics as protobuf: every family of the text, and the native histograms that the text cannot have.
use super::MeasuredRoute;
use prost::Message;
use weir_analytics::aggregate::Latency;
use weir_analytics::histogram::export::{NativeHistogram, Unit};

/// The messages of `io.prometheus.client`.
#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    help: String,
    #[prost(enumeration = "MetricType", tag = "3")]
    r#type: i32,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Metric>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
enum MetricType {
    Counter = 0,
    Gauge = 1,
    Untyped = 3,
    Histogram = 4,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Number>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Number>,
    #[prost(message, optional, tag = "5")]
    untyped: Option<Number>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// A gauge, a counter or an untyped value.
#[derive(Clone, PartialEq, Message)]
struct Number {
    #[prost(double, tag = "1")]
    value: f64,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, tag = "1")]
    sample_count: u64,
    #[prost(double, tag = "2")]
    sample_sum: f64,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<Bucket>,
    #[prost(sint32, tag = "5")]
    schema: i32,
    #[prost(double, tag = "6")]
    zero_threshold: f64,
    #[prost(uint64, tag = "7")]
    zero_count: u64,
    #[prost(message, repeated, tag = "12")]
    positive_span: Vec<BucketSpan>,
    #[prost(sint64, repeated, tag = "13")]
    positive_delta: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, tag = "1")]
    cumulative_count: u64,
    #[prost(double, tag = "2")]
    upper_bound: f64,
}

#[derive(Clone, PartialEq, Message)]
struct BucketSpan {
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint32, tag = "2")]
    length: u32,
}

/// How wide the bucket of 0 is said to be; a reader takes a histogram with a width of 0 for one of the other kind.
const ZERO_THRESHOLD: f64 = 1.0 / ((1u128 << 127) as f64 * 2.0);

/// The metrics of a text, and the durations of these routes' requests as native histograms.
pub(super) fn encode(text: &str, routes: &[MeasuredRoute]) -> Vec<u8> {
    let mut families = read(text);
    families.extend(Some(native(routes)).filter(|family| !family.metric.is_empty()));
    let mut bytes = Vec::with_capacity(text.len());
    for family in families {
        bytes.extend(family.encode_length_delimited_to_vec());
    }
    bytes
}

fn native(routes: &[MeasuredRoute]) -> MetricFamily {
    let of_phase = |of: &MeasuredRoute, latency: Latency| {
        let histogram = of.aggregate.latency(latency).to_native(Unit::Duration);
        let labels = [("service", &*of.service), ("route", &of.route), ("phase", latency.name())];
        Metric {
            label: labels.map(|(name, value)| label(name, value)).into(),
            histogram: Some(histogram.into()),
            ..Metric::default()
        }
    };
    let all = routes.iter().flat_map(|route| Latency::ALL.map(|latency| of_phase(route, latency)));
    MetricFamily {
        name: "weir_request_duration_seconds".to_owned(),
        help: "Seconds by phase of a request".to_owned(),
        r#type: MetricType::Histogram.into(),
        metric: all.collect(),
    }
}

impl From<NativeHistogram> for Histogram {
    fn from(native: NativeHistogram) -> Histogram {
        let spans = native.spans.into_iter().map(|(offset, length)| BucketSpan { offset, length });
        Histogram {
            sample_count: native.count,
            sample_sum: native.sum,
            bucket: Vec::new(),
            schema: native.schema,
            zero_threshold: ZERO_THRESHOLD,
            zero_count: native.zero_count,
            positive_span: spans.collect(),
            positive_delta: native.deltas,
        }
    }
}

fn label(name: &str, value: &str) -> LabelPair {
    LabelPair { name: name.to_owned(), value: value.to_owned() }
}

/// The families of a text that this node has written.
fn read(text: &str) -> Vec<MetricFamily> {
    let mut families: Vec<MetricFamily> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            let (name, help) = (name.to_owned(), help.to_owned());
            families.push(MetricFamily {
                name,
                help,
                r#type: MetricType::Untyped.into(),
                metric: Vec::new(),
            });
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let kind = rest.split_once(' ').map(|(_, kind)| kind);
            families
                .iter_mut()
                .next_back()
                .into_iter()
                .for_each(|family| family.r#type = type_of(kind).into());
        } else if let (Some(sample), Some(family)) = (Sample::read(line), families.last_mut()) {
            family.add(sample);
        }
    }
    families
}

fn type_of(kind: Option<&str>) -> MetricType {
    match kind {
        Some("counter") => MetricType::Counter,
        Some("gauge") => MetricType::Gauge,
        Some("histogram") => MetricType::Histogram,
        _ => MetricType::Untyped,
    }
}

impl MetricFamily {
    fn add(&mut self, sample: Sample<'_>) {
        let number = || Some(Number { value: sample.value });
        let metric = Metric { label: sample.labels.clone(), ..Metric::default() };
        match self.r#type() {
            MetricType::Histogram => self.add_part(sample),
            MetricType::Counter => self.metric.push(Metric { counter: number(), ..metric }),
            MetricType::Gauge => self.metric.push(Metric { gauge: number(), ..metric }),
            MetricType::Untyped => self.metric.push(Metric { untyped: number(), ..metric }),
        }
    }

    /// Adds a line of a histogram to the one that has these labels. The lines of a histogram follow each other.
    fn add_part(&mut self, sample: Sample<'_>) {
        let Sample { name, mut labels, value } = sample;
        let at = labels.iter().position(|label| label.name == "le");
        let bound = at.map(|at| labels.remove(at).value).and_then(|bound| bound.parse().ok());
        if self.metric.last().is_none_or(|last| last.label != labels) {
            let histogram = Some(Histogram::default());
            self.metric.push(Metric { label: labels, histogram, ..Metric::default() });
        }
        let Some(histogram) = self.metric.last_mut().and_then(|last| last.histogram.as_mut()) else { return };
        match (bound, name.strip_prefix(&*self.name)) {
            (Some(upper_bound), _) => {
                histogram.bucket.push(Bucket { cumulative_count: value as u64, upper_bound });
            }
            (None, Some("_sum")) => histogram.sample_sum = value,
            _ => histogram.sample_count = value as u64,
        }
    }
}

/// A line with a value.
struct Sample<'t> {
    name: &'t str,
    labels: Vec<LabelPair>,
    value: f64,
}

impl<'t> Sample<'t> {
    fn read(line: &'t str) -> Option<Sample<'t>> {
        let (head, value) = line.rsplit_once(' ')?;
        let (name, labels) = head.split_once('{').unwrap_or((head, ""));
        Some(Sample {
            name,
            labels: labels_of(labels.strip_suffix('}').unwrap_or(labels)),
            value: value.parse().ok()?,
        })
    }
}

/// The labels of `a="b",c="d"`.
fn labels_of(mut text: &str) -> Vec<LabelPair> {
    let mut labels = Vec::new();
    while let Some((name, rest)) = text.split_once("=\"") {
        let (value, rest) = quoted(rest);
        labels.push(LabelPair { name: name.to_owned(), value });
        text = rest.strip_prefix(',').unwrap_or(rest);
    }
    labels
}

/// A value up to its closing quote, and what follows that.
fn quoted(text: &str) -> (String, &str) {
    let (mut value, mut letters) = (String::new(), text.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &text[at + 1..]),
            '\\' => match letters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped)) => value.push(escaped),
                None => break,
            },
            _ => value.push(letter),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests;
