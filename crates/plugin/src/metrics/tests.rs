use super::*;

/// A declaration with a help text.
fn declare(kind: Kind, name: &str, labels: &[&str], bounds: &[f64]) -> Result<Declaration, String> {
    Declaration::new(kind, name, "Questions", labels, bounds)
}

fn metric(metrics: &Metrics, kind: Kind, name: &str, labels: &[&str]) -> Result<Metric, String> {
    let bounds = if kind == Kind::Histogram { [0.1, 1.0].as_slice() } else { &[] };
    metrics.metric(declare(kind, name, labels, bounds)?)
}

fn text(metrics: &Metrics) -> String {
    let mut text = String::new();
    metrics.write(&mut text);
    text
}

#[test]
fn metrics_are_shown_as_prometheus_reads_them() {
    let metrics = Metrics::default();
    let asked = metric(&metrics, Kind::Counter, "asked_total", &["of"]).unwrap();
    asked.with(&["b"]).add(2.0);
    asked.with(&["a \"b\""]).add(2.0);
    asked.with(&["a \"b\""]).add(1.0);
    let open = metric(&metrics, Kind::Gauge, "open", &[]).unwrap().with(&[]);
    open.set(5.0);
    open.add(-1.5);
    assert_eq!(open.get(), 3.5);
    let took = metric(&metrics, Kind::Histogram, "took", &[]).unwrap().with(&[]);
    [0.05, 0.1, 0.5, 3.0].into_iter().for_each(|seconds| took.add(seconds));
    let expected = "# HELP asked_total Questions\n# TYPE asked_total counter\n\
        asked_total{of=\"a \\\"b\\\"\"} 3\nasked_total{of=\"b\"} 2\n\
        # HELP open Questions\n# TYPE open gauge\nopen 3.5\n\
        # HELP took Questions\n# TYPE took histogram\ntook_bucket{le=\"0.1\"} 2\ntook_bucket{le=\"1\"} 3\n\
        took_bucket{le=\"+Inf\"} 4\ntook_sum 3.65\ntook_count 4\n";
    assert_eq!(text(&metrics), expected);
}

#[test]
fn a_name_is_one_metric() {
    let metrics = Metrics::default();
    let first = metric(&metrics, Kind::Counter, "n", &["a"]).unwrap();
    first.with(&["x"]).add(1.0);
    assert_eq!(metric(&metrics, Kind::Counter, "n", &["a"]).unwrap().with(&["x"]).get(), 1.0);
    assert!(metric(&metrics, Kind::Gauge, "n", &["a"]).is_err());
    assert!(metric(&metrics, Kind::Counter, "n", &[]).is_err());
    metric(&metrics, Kind::Histogram, "took", &[]).unwrap();
    assert!(metrics.metric(declare(Kind::Histogram, "took", &[], &[0.2]).unwrap()).is_err());
    assert!(metric(&metrics, Kind::Counter, "took_count", &[]).is_err());
    metric(&metrics, Kind::Counter, "asked_sum", &[]).unwrap();
    assert!(metric(&metrics, Kind::Histogram, "asked", &[]).is_err());
    metric(&metrics, Kind::Counter, "took_counted", &[]).unwrap();
}

#[test]
fn what_prometheus_could_not_read_is_refused() {
    let refusal = |name: &str, labels: &[&str]| declare(Kind::Counter, name, labels, &[]).err().unwrap();
    for name in ["", "a-b", "1a", "ä"] {
        assert!(refusal(name, &[]).contains("is not a name of a metric"), "{name}");
        assert!(refusal("a", &[name]).contains("is not a name of a label"), "{name}");
    }
    for name in ["kong_http_requests_total", "weir_own", "process_open_fds"] {
        assert!(refusal(name, &[]).contains("the gateway's own"), "{name}");
    }
    for label in ["le", "quantile", "__name__"] {
        assert!(refusal("a", &["b", label]).contains("reserved"), "{label}");
    }
    assert!(refusal("a", &["b", "c", "b"]).contains("twice"));
    for bounds in [[].as_slice(), &[1.0, 1.0], &[2.0, 1.0], &[f64::NAN], &[1.0, f64::INFINITY]] {
        assert!(declare(Kind::Histogram, "a", &[], bounds).is_err(), "{bounds:?}");
    }
}

#[test]
fn values_that_are_no_numbers_are_ignored() {
    let metrics = Metrics::default();
    let counter = metric(&metrics, Kind::Counter, "a", &[]).unwrap().with(&[]);
    let gauge = metric(&metrics, Kind::Gauge, "b", &[]).unwrap().with(&[]);
    let histogram = metric(&metrics, Kind::Histogram, "c", &[]).unwrap().with(&[]);
    for sample in [&counter, &gauge, &histogram] {
        for value in [1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            sample.add(value);
        }
        assert_eq!(sample.get(), 1.0);
    }
    counter.add(-1.0);
    gauge.set(f64::NAN);
    counter.set(7.0);
    assert_eq!((counter.get(), gauge.get()), (1.0, 1.0));
    assert!(text(&metrics).contains("c_count 1\n"));
}

#[test]
fn what_has_no_series_of_its_own_is_counted_in_one() {
    let metrics = Metrics::default();
    let asked = metric(&metrics, Kind::Counter, "asked_total", &["a", "b"]).unwrap();
    asked.with(&[&"x".repeat(MAX_LABELS_LEN), "y"]).add(1.0);
    (0..MAX_SERIES + 5).for_each(|n| asked.with(&[&n.to_string()]).add(1.0));
    asked.with(&[OTHER, OTHER]).add(1.0);
    asked.with(&["0", "", "more than there are"]).add(1.0);
    assert_eq!((asked.with(&["never seen"]).get(), asked.with(&["0"]).get()), (7.0, 2.0));
    let text = text(&metrics);
    assert_eq!(text.lines().count(), 2 + MAX_SERIES + 1);
    assert!(text.contains("asked_total{a=\"other\",b=\"other\"} 7\n"));
    let reading = asked.family.series.read().unwrap();
    asked.with(&["never seen"]).add(1.0);
    drop(reading);
}
