//! The charts that several pages have: of the node, or of one entity.
use crate::chart::{Chart, Line, Mark, Shape, Unit, marks};
use crate::frame::Frame;
use crate::history::{Change, Of, Series};
use crate::page::Visit;
use crate::texts;
use crate::url::Address;
use crate::{api::ApiError, history::History};
use maud::{Markup, html};

/// The points of a chart, about.
const POINTS: u64 = 300;
/// The points of a chart of the last minutes: one for each second.
const FINE_POINTS: u64 = 600;
/// A frame up to this many seconds has a point for each.
const FINE_FRAME: u64 = 600;

/// The frame of a page's charts, and what was changed in it.
pub(super) struct Charts<'v> {
    pub(super) history: History<'v>,
    pub(super) marks: Vec<Mark>,
}

/// What a series of a chart is called, and its class.
type Named = (&'static str, &'static str);

const PERCENTILES: [Named; 3] = [("p50", "s1"), ("p90", "s2"), ("p99", "s3")];

impl<'v> Charts<'v> {
    pub(super) async fn of(
        visit: &'v Visit,
        frame: &'v Frame,
    ) -> Result<(Charts<'v>, Vec<Change>), ApiError> {
        let history = History { api: &visit.api, frame };
        let changes = history.changes().await?;
        let link = |from: u64, to: u64| {
            let address = Address::new("changes").with("from", &from.to_string()).with("to", &to.to_string());
            visit.at(&address.to_string())
        };
        let marks = marks(&changes, (frame.from, frame.to), link);
        Ok((Charts { history, marks }, changes))
    }

    fn frame(&self) -> &Frame {
        self.history.frame
    }

    pub(super) fn bounds(&self) -> (u64, u64) {
        (self.frame().from, self.frame().to)
    }

    /// How many points a chart of this frame has.
    pub(super) fn points(&self) -> u64 {
        let (from, to) = self.bounds();
        if to - from <= FINE_FRAME { FINE_POINTS } else { POINTS }
    }

    fn chart<'a>(&'a self, id: &'a str, title: &'a str, unit: Unit, series: &'a Series) -> Chart<'a> {
        Chart {
            id,
            title,
            unit,
            shape: Shape::Lines,
            frame: self.bounds(),
            times: &series.times,
            step: series.step,
            oldest: series.oldest,
            gaps: series.gaps.as_deref(),
            lines: Vec::new(),
            marks: &self.marks,
        }
    }

    /// Requests by class of status, upon each other.
    pub(super) fn statuses(&self, series: &Series) -> Markup {
        let rates = series.clone().per_second(self.frame());
        let line = |(label, values): (&str, &Vec<Option<f64>>)| {
            let (name, class) = class_of(label);
            Line { name: name.to_owned(), class, values: values.clone() }
        };
        let mut chart =
            self.chart("statuses", texts::of("charts.requests_by_status"), Unit::PerSecond, &rates);
        chart.shape = Shape::Stacked;
        chart.lines = rates.columns.iter().map(|column| line((&column.label, &column.values))).collect();
        if chart.lines.is_empty() {
            let none = |start: &u64| (!rates.is_gap(*start)).then_some(0.0);
            chart.lines = vec![line(("none", &rates.times.iter().map(none).collect()))];
        }
        chart.draw()
    }

    /// Percentiles of a latency: of all of it, or of a part such as `_gateway`.
    pub(super) async fn percentiles(
        &self,
        (id, title): (&str, &str),
        part: &str,
        of: Of<'_>,
    ) -> Result<(Markup, [Option<f64>; 3]), ApiError> {
        let ask = |name: &str| {
            let metric = format!("{name}{part}");
            async move { self.history.series(&metric, "", of, self.points()).await }
        };
        let [p50, p90, p99] = PERCENTILES.map(|(name, _)| ask(name));
        let (p50, p90, p99) = tokio::try_join!(p50, p90, p99)?;
        let totals = [&p50, &p90, &p99].map(|series| series.total(""));
        Ok((self.lines((id, title), Unit::Seconds, [p50, p90, p99].into_iter().zip(PERCENTILES)), totals))
    }

    /// Bytes from and to clients.
    pub(super) fn bytes(&self, received: Series, sent: Series) -> Markup {
        let rates = [received, sent].map(|series| series.per_second(self.frame()));
        let named =
            rates.into_iter().zip([(texts::of("charts.received"), "s1"), (texts::of("charts.sent"), "s2")]);
        self.lines(("bytes", texts::of("words.traffic")), Unit::BytesPerSecond, named)
    }

    /// Where the time of a request goes, on average: parts upon each other.
    pub(super) async fn parts(&self, of: Of<'_>) -> Result<Markup, ApiError> {
        let ask = |metric| self.history.series(metric, "", of, POINTS / 2);
        let (all, gateway, upstream) =
            tokio::try_join!(ask("mean"), ask("mean_gateway"), ask("mean_upstream"))?;
        let values = |series: &Series| series.columns.first().map(|it| it.values.clone()).unwrap_or_default();
        let [all_means, gateway, upstream] = [&all, &gateway, &upstream].map(values);
        let rest = (0..all_means.len()).map(|index| {
            let part = |values: &[Option<f64>]| values.get(index).copied().flatten().unwrap_or(0.0);
            all_means[index].map(|all| (all - part(&gateway) - part(&upstream)).max(0.0))
        });
        let rest = rest.collect();
        let mut chart = self.chart("parts", texts::of("charts.where_the_time_goes_on"), Unit::Seconds, &all);
        chart.shape = Shape::Stacked;
        let named = [
            (texts::of("charts.gateway"), "s1", gateway),
            (texts::of("charts.upstreams_head"), "s3", upstream),
            (texts::of("charts.bodies"), "s4", rest),
        ];
        chart.lines = named
            .into_iter()
            .map(|(name, class, values)| Line { name: name.to_owned(), class, values })
            .collect();
        Ok(chart.draw())
    }

    /// A chart of one column of each series. All have the points of the first.
    fn lines(
        &self,
        (id, title): (&str, &str),
        unit: Unit,
        named: impl Iterator<Item = (Series, Named)>,
    ) -> Markup {
        let named: Vec<_> = named.collect();
        let Some((first, _)) = named.first() else { return html! {} };
        let mut chart = self.chart(id, title, unit, first);
        chart.lines = named
            .iter()
            .map(|(series, (name, class))| {
                let values = series.columns.first().map(|column| column.values.clone()).unwrap_or_default();
                Line { name: (*name).to_owned(), class, values }
            })
            .collect();
        chart.draw()
    }
}

/// What a class of statuses is called in charts, and its colour.
fn class_of(label: &str) -> Named {
    match label {
        "0xx" => (texts::of("charts.streams"), "s0"),
        "1xx" => ("1xx", "s0"),
        "2xx" => ("2xx", "s4"),
        "3xx" => ("3xx", "s1"),
        "4xx" => ("4xx", "s3"),
        "5xx" => ("5xx", "s2"),
        _ => (texts::of("chart.requests"), "s0"),
    }
}

/// What is said where a node records nothing.
pub(super) fn off() -> Markup {
    html! {
        section.empty {
            p { (texts::of("messages.analytics_off")) }
            pre.copyable { "weir start --set analytics=on" }
            p.help { (texts::marked_up("charts.or_write", &[("line", html! { code { "analytics = on" } }), ("variable", html! { code { "KONG_ANALYTICS=on" } })])) }
        }
    }
}

/// Notes if requests are missing, or what the node does not remember.
pub(super) fn missing(series: &Series) -> impl Iterator<Item = String> {
    let dropped = (series.dropped > 0).then(|| texts::missing_requests(series.dropped));
    dropped.into_iter().chain(series.source_error.as_deref().map(texts::own_history))
}
