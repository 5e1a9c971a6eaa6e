//! How latencies are spread over time: a cell for each interval and range of latency, the darker the more requests.
use super::scale::{self, Scale};
use super::{
    BOTTOM, HEIGHT, LEFT, Mark, RIGHT, TOP, Unit, WIDTH, all_shaded, data, marks, nothing, table, time_axis,
    unknown, value_tick,
};
use crate::format::{NONE, count, time};
use crate::history::Series;
use crate::texts;
use maud::{Markup, html};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Ranges of latency from the bottom to the top.
const ROWS: usize = 24;
/// Shades from a few requests to the most.
const SHADES: usize = 5;

/// The latencies of a frame.
pub(crate) struct HeatMap<'a> {
    pub(crate) title: &'a str,
    pub(crate) frame: (u64, u64),
    /// Requests by bucket: a column's label is the upper boundary in seconds.
    pub(crate) series: &'a Series,
    pub(crate) marks: &'a [Mark],
}

/// What the table says of each interval.
const NAMES: [&str; 2] = ["chart.requests", "chart.latency"];

/// Requests by interval and row.
type Cells = BTreeMap<(usize, usize), f64>;

impl HeatMap<'_> {
    pub(crate) fn draw(&self) -> Markup {
        let latency = self.latencies();
        let cells = self.cells(&latency);
        let most = cells.values().copied().fold(0.0, f64::max);
        html! {
            figure.chart {
                figcaption { (self.title) " " span.help { (texts::of("chart.requests_by_latency")) } }
                (self.svg(&latency, &cells, most))
                ul.legend {
                    @if most > 0.0 {
                        li.help { (texts::of("chart.requests_of_a_cell")) }
                        @for shade in (0..SHADES).filter(|shade| least(*shade, most) <= threshold(*shade, most)) {
                            li {
                                svg.key viewBox="0 0 24 12" aria-hidden="true" { rect class={ "heat h" (shade + 1) } x="2" y="1" width="20" height="10" {} }
                                (texts::filled("chart.to", &[("count", &count(threshold(shade, most)))]))
                            }
                        }
                    }
                }
                @if most > 0.0 {
                    (table(("heat", self.title), &NAMES.map(texts::of), &self.series.times, |interval| self.texts(interval).to_vec()))
                }
            }
        }
    }

    fn svg(&self, latency: &Scale, cells: &Cells, most: f64) -> Markup {
        let time = Scale::linear((self.frame.0 as f64, self.frame.1 as f64), (LEFT, RIGHT));
        html! {
            svg.plot viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="group" aria-label=(self.words()) data-plot=(self.data()) {
                @for tick in scale::log_ticks(self.range()) { (value_tick(latency, tick, &Unit::Seconds.text(tick))) }
                (time_axis(&time, self.frame))
                (unknown(&time, self.frame.0, self.series.oldest))
                (all_shaded(&time, (self.frame, self.series.oldest), self.series.gaps.as_deref().unwrap_or_default()))
                @for shade in 0..SHADES {
                    @let path = self.shade_path(&time, cells, shade, most);
                    @if !path.is_empty() { path class={ "heat h" (shade + 1) } d=(path) {} }
                }
                @if cells.is_empty() { (nothing()) }
                (marks::drawn(self.marks, &time))
            }
        }
    }

    /// The boundaries of buckets, and the requests in each.
    fn buckets(&self) -> impl Iterator<Item = (f64, &[Option<f64>])> {
        let parsed = self.series.columns.iter().filter_map(|it| Some((it.label.parse().ok()?, &*it.values)));
        parsed.filter(|(boundary, _): &(f64, _)| *boundary > 0.0)
    }

    /// The latencies that the axis shows: all that there are, and at least a power of ten.
    fn range(&self) -> (f64, f64) {
        let boundaries = || self.buckets().map(|(boundary, _)| boundary);
        let (low, high) = (boundaries().fold(f64::INFINITY, f64::min), boundaries().fold(0.0, f64::max));
        match low < f64::INFINITY {
            true => (low * 0.7, (high * 1.3).max(low * 7.0)),
            false => (1e-4, 1.0),
        }
    }

    fn latencies(&self) -> Scale {
        Scale::log(self.range(), (BOTTOM, TOP))
    }

    fn cells(&self, latency: &Scale) -> Cells {
        let mut cells = Cells::new();
        for (boundary, values) in self.buckets() {
            let height = (BOTTOM - latency.place(boundary)) / (BOTTOM - TOP);
            let row = ((height * ROWS as f64) as usize).min(ROWS - 1);
            for (interval, requests) in values.iter().enumerate() {
                if let Some(requests) = requests.filter(|requests| *requests > 0.0) {
                    *cells.entry((interval, row)).or_default() += requests;
                }
            }
        }
        cells
    }

    /// All cells of a shade.
    fn shade_path(&self, time: &Scale, cells: &Cells, shade: usize, most: f64) -> String {
        let height = (BOTTOM - TOP) / ROWS as f64;
        let range = least(shade, most)..=threshold(shade, most);
        let mut path = String::new();
        for ((interval, row), _) in cells.iter().filter(|(_, count)| range.contains(&(**count as u64))) {
            let Some(start) = self.series.times.get(*interval) else { continue };
            let (left, right) = (time.place(*start as f64), time.place((start + self.series.step) as f64));
            let bottom = BOTTOM - *row as f64 * height;
            let width = (right - left).max(1.0);
            let _ = write!(path, "M{left} {bottom:.1}v-{height:.1}h{width:.1}v{height:.1}z");
        }
        path
    }

    fn words(&self) -> String {
        let (low, high) = self.range();
        let requests = count(self.series.sum() as u64);
        let [from, to] = [self.frame.0, self.frame.1].map(|at| time(at as i64));
        let frame = texts::filled("frame.from_to", &[("from", &from), ("to", &to)]);
        match self.buckets().next() {
            Some(_) => {
                let [low, high] = [low, high].map(|latency| Unit::Seconds.text(latency));
                texts::filled(
                    "chart.heat_in_words",
                    &[
                        ("title", &self.title),
                        ("frame", &frame),
                        ("requests", &requests),
                        ("low", &low),
                        ("high", &high),
                    ],
                )
            }
            None => texts::filled("chart.heat_without_data", &[("title", &self.title), ("frame", &frame)]),
        }
    }

    /// The requests of an interval, and between which latencies they lie.
    fn texts(&self, interval: usize) -> [String; 2] {
        let requests = |values: &[Option<f64>]| values.get(interval).copied().flatten().unwrap_or(0.0);
        let some: Vec<_> = self.buckets().filter(|(_, values)| requests(values) > 0.0).collect();
        let sum = some.iter().map(|(_, values)| requests(values)).sum::<f64>();
        let least = some.iter().map(|(boundary, _)| *boundary).reduce(f64::min);
        let most = some.iter().map(|(boundary, _)| *boundary).reduce(f64::max);
        let range = least.zip(most).map(|(least, most)| {
            let [least, most] = [least, most].map(|latency| Unit::Seconds.text(latency));
            texts::filled("frame.from_to", &[("from", &least), ("to", &most)])
        });
        [count(sum as u64), range.unwrap_or_else(|| NONE.to_owned())]
    }

    fn data(&self) -> String {
        let texts: Vec<_> = (0..self.series.times.len()).map(|interval| self.texts(interval)).collect();
        let column = |which: usize| texts.iter().map(|texts| &*texts[which]).collect::<Vec<_>>().join("|");
        let lines = NAMES.iter().enumerate().map(|(which, name)| (texts::of(name), column(which)));
        data(self.frame, (&self.series.times, self.series.step), lines)
    }
}

/// The least requests of a cell in a shade.
fn least(shade: usize, most: f64) -> u64 {
    if shade == 0 { 1 } else { threshold(shade - 1, most) + 1 }
}

/// The most requests of a cell in a shade. Each shade stands for the same factor.
fn threshold(shade: usize, most: f64) -> u64 {
    let share = (shade + 1) as f64 / SHADES as f64;
    most.powf(share).round().max((shade + 1) as f64).min(most.max(1.0)) as u64
}
