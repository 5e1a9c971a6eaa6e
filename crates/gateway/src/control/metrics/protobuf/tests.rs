use super::*;
use std::time::Duration;
use weir_analytics::aggregate::Aggregate;
use weir_analytics::bucket::Bucket as AnalyticsBucket;

const TEXT: &str = r#"# HELP a_total Things
# TYPE a_total counter
a_total{who="x\"y\\z\n{,}"} 3
a_total 4.5
# HELP b Other things
# TYPE b gauge
b{at="1",of="2"} -1
# HELP c_ms How long
# TYPE c_ms histogram
c_ms_bucket{route="r",le="1"} 2
c_ms_bucket{route="r",le="+Inf"} 5
c_ms_count{route="r"} 5
c_ms_sum{route="r"} 12.5
c_ms_bucket{route="s",le="1"} 0
c_ms_bucket{route="s",le="+Inf"} 1
c_ms_count{route="s"} 1
c_ms_sum{route="s"} 9
"#;

fn decoded(mut bytes: &[u8]) -> Vec<MetricFamily> {
    let mut families = Vec::new();
    while !bytes.is_empty() {
        families.push(MetricFamily::decode_length_delimited(&mut bytes).unwrap());
    }
    families
}

#[test]
fn every_line_of_the_text_is_there() {
    let families = decoded(&encode(TEXT, &[]));
    let [a, b, c] = &families[..] else { panic!("{families:?}") };
    assert_eq!((&*a.name, &*a.help, a.r#type()), ("a_total", "Things", MetricType::Counter));
    assert_eq!(a.metric[0].label, [label("who", "x\"y\\z\n{,}")]);
    assert_eq!([&a.metric[0], &a.metric[1]].map(|metric| metric.counter.as_ref().unwrap().value), [3.0, 4.5]);
    assert_eq!(b.metric[0].label, [label("at", "1"), label("of", "2")]);
    assert_eq!(b.metric[0].gauge, Some(Number { value: -1.0 }));
    let [r, s] = [0, 1].map(|at: usize| c.metric[at].histogram.clone().unwrap());
    assert_eq!((r.sample_count, r.sample_sum, s.sample_count, s.sample_sum), (5, 12.5, 1, 9.0));
    let bounds: Vec<_> =
        r.bucket.iter().map(|bucket| (bucket.upper_bound, bucket.cumulative_count)).collect();
    assert_eq!(bounds, [(1.0, 2), (f64::INFINITY, 5)]);
    assert_eq!(c.metric[1].label, [label("route", "s")]);
}

#[test]
fn durations_are_native_histograms() {
    let mut aggregate = Aggregate::default();
    aggregate.add_latency(Latency::Total, AnalyticsBucket::of_duration(Duration::from_secs(1)), 7);
    let route = MeasuredRoute { service: "s".to_owned(), route: "r".to_owned(), aggregate };
    let families = decoded(&encode("", &[route]));
    let metric = &families[0].metric[0];
    assert_eq!(metric.label, [label("service", "s"), label("route", "r"), label("phase", "total")]);
    let histogram = metric.histogram.as_ref().unwrap();
    assert_eq!((histogram.schema, histogram.sample_count), (5, 7));
    assert_eq!(histogram.positive_span, [BucketSpan { offset: 0, length: 1 }]);
    assert_eq!(histogram.positive_delta, [7]);
    assert!(histogram.zero_threshold > 0.0 && histogram.bucket.is_empty());
}
