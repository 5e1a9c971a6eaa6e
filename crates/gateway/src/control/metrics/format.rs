//! The formats of metrics, and which one a client asks for.
use axum::http::{HeaderMap, header};

/// A format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Prometheus' text, which has no native histograms.
    Text,
    /// Prometheus' protobuf, which has.
    Protobuf,
}

const PROTOBUF: &str = "application/vnd.google.protobuf";

impl Format {
    /// What a client accepts; text unless it prefers protobuf.
    pub(crate) fn of(headers: &HeaderMap) -> Format {
        let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let ranges: Vec<_> = accepted.flat_map(|value| value.split(',')).map(Range::of).collect();
        let quality = |is_format: fn(&Range<'_>) -> bool| {
            ranges.iter().filter(|range| is_format(range)).map(|range| range.quality).fold(0.0, f64::max)
        };
        let protobuf = quality(|range| range.is_metric_family());
        let text = quality(|range| matches!(range.media_type, "text/plain" | "text/*" | "*/*"));
        if protobuf > text { Format::Protobuf } else { Format::Text }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; charset=UTF-8",
            Format::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }
}

/// A media type that a client accepts.
struct Range<'v> {
    media_type: &'v str,
    parameters: Vec<(&'v str, &'v str)>,
    quality: f64,
}

impl<'v> Range<'v> {
    fn of(text: &'v str) -> Range<'v> {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        let quality = parameters.iter().find(|(name, _)| *name == "q");
        Range { media_type, quality: quality.and_then(|(_, q)| q.parse().ok()).unwrap_or(1.0), parameters }
    }

    fn is_metric_family(&self) -> bool {
        self.media_type == PROTOBUF
            && self.parameters.contains(&("proto", "io.prometheus.client.MetricFamily"))
            && self.parameters.contains(&("encoding", "delimited"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn protobuf_is_for_those_who_prefer_it() {
        let family =
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        for (accept, format) in [
            (
                format!(
                    "{family},application/openmetrics-text;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
                ),
                Format::Protobuf,
            ),
            (format!("text/plain;version=0.0.4;q=0.6, {family};q=0.5"), Format::Text),
            (format!("{family};q=0"), Format::Text),
            ("application/vnd.google.protobuf;encoding=text".to_owned(), Format::Text),
            ("*/*".to_owned(), Format::Text),
            (String::new(), Format::Text),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_str(&accept).unwrap())]);
            assert_eq!(Format::of(&headers), format, "{accept}");
        }
        assert_eq!(Format::of(&HeaderMap::new()), Format::Text);
    }
}
