//! Charts as SVG: classes and attributes alone, so that they follow the theme and need neither script nor inline styles.
//!
//! A chart says in words what it shows, lists its series with their last and highest values, and has its newest points
//! as a table. The script of pages reads `data-plot` for what the pointer is on, and for frames that are dragged.
mod heat;
mod lines;
mod marks;
mod scale;
mod spark;
mod unit;

pub(crate) use heat::HeatMap;
pub(crate) use marks::{Mark, marks};
pub(crate) use spark::sparkline;
pub(crate) use unit::{Unit, bytes, number, share};

use crate::format::{NONE, time};
use crate::texts;
use maud::{Markup, html};
use scale::Scale;
use serde_json::json;
use std::fmt::Display;

/// The size of every chart in its own units: small enough to be read when a phone shrinks it to its screen.
const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 186.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 432.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 160.0;

/// The rows of a chart's table.
const MAX_ROWS: usize = 60;

/// How series are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// As lines that differ by their dashes, too.
    Lines,
    /// As areas upon each other, in the order of the legend from the bottom.
    Stacked,
}

/// A chart over time.
#[derive(Clone, Debug)]
pub(crate) struct Chart<'a> {
    /// Unique in its page.
    pub(crate) id: &'a str,
    pub(crate) title: &'a str,
    pub(crate) unit: Unit,
    pub(crate) shape: Shape,
    /// The frame, in seconds since 1970.
    pub(crate) frame: (u64, u64),
    /// The starts of the points, and how far they are apart.
    pub(crate) times: &'a [u64],
    pub(crate) step: u64,
    /// Where the history begins; before it nothing is known.
    pub(crate) oldest: Option<u64>,
    /// The times of which nothing is known; none if that has to be told from the lines.
    pub(crate) gaps: Option<&'a [(u64, u64)]>,
    pub(crate) lines: Vec<Line>,
    pub(crate) marks: &'a [Mark],
}

/// One series.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// The class that has its colour and dashes.
    pub(crate) class: &'static str,
    /// A number for each time; none where nothing is known.
    pub(crate) values: Vec<Option<f64>>,
}

impl Chart<'_> {
    /// The chart with its legend and its table.
    pub(crate) fn draw(mut self) -> Markup {
        self.forget_before_the_history();
        let is_empty = self.lines.iter().all(|line| line.values.iter().all(Option::is_none));
        html! {
            figure.chart {
                figcaption { (self.title) " " span.help { (self.unit.name()) } }
                (self.svg(is_empty))
                (self.legend())
                @if !is_empty { (self.table()) }
            }
        }
    }

    /// What the answer shows as 0 may have been lost or never recorded.
    fn forget_before_the_history(&mut self) {
        let (times, step, oldest) = (self.times, self.step, self.oldest.unwrap_or(u64::MAX));
        for line in &mut self.lines {
            let known = line.values.iter_mut().zip(times);
            known.filter(|(_, start)| **start + step <= oldest).for_each(|(value, _)| *value = None);
        }
    }

    fn svg(&self, is_empty: bool) -> Markup {
        let time = Scale::linear((self.frame.0 as f64, self.frame.1 as f64), (LEFT, RIGHT));
        let ticks = scale::value_ticks(lines::highest(self), self.unit);
        let top = ticks.last().copied().unwrap_or(1.0);
        let value = Scale::linear((0.0, top), (BOTTOM, TOP));
        html! {
            svg.plot viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="group" aria-label=(self.words())
                data-plot=(self.data()) {
                @for tick in ticks.iter().copied() { (value_tick(&value, tick, &self.tick(tick))) }
                (time_axis(&time, self.frame))
                (unknown(&time, self.frame.0, self.oldest))
                @match self.gaps {
                    Some(gaps) => (all_shaded(&time, (self.frame, self.oldest), gaps)),
                    None => @for gap in lines::gaps(self) { (shaded(&time, gap)) },
                }
                @match self.shape {
                    Shape::Lines => (lines::drawn(self, &time, &value)),
                    Shape::Stacked => (lines::stacked(self, &time, &value)),
                }
                @if is_empty { (nothing()) }
                (marks::drawn(self.marks, &time))
            }
        }
    }

    fn tick(&self, value: f64) -> String {
        if value == 0.0 { "0".to_owned() } else { self.unit.text(value) }
    }

    /// The chart in words: its name, its frame, and of each series the least, the most and the last.
    fn words(&self) -> String {
        let [from, to] = [self.frame.0, self.frame.1].map(|at| time(at as i64));
        let mut words =
            texts::filled("chart.in_words", &[("title", &self.title), ("from", &from), ("to", &to)]);
        for line in &self.lines {
            let known = || line.values.iter().flatten().copied();
            let written = |value: f64| self.unit.text(value);
            match known().next_back() {
                Some(last) => {
                    let (least, most) = (known().fold(last, f64::min), known().fold(last, f64::max));
                    let [least, most, last] = [least, most, last].map(written);
                    let values: [(&str, &dyn Display); 4] =
                        [("name", &line.name), ("least", &least), ("most", &most), ("last", &last)];
                    words += &texts::filled("chart.line_in_words", &values);
                }
                None => words += &texts::filled("chart.line_without_data", &[("name", &line.name)]),
            }
        }
        words
    }

    /// What the script shows where the pointer is.
    fn data(&self) -> String {
        let text = |value: &Option<f64>| value.map_or(String::new(), |value| self.unit.text(value));
        let values = |line: &Line| line.values.iter().map(text).collect::<Vec<_>>().join("|");
        data(
            self.frame,
            (self.times, self.step),
            self.lines.iter().map(|line| (line.name.as_str(), values(line))),
        )
    }

    fn legend(&self) -> Markup {
        let is_area = self.shape == Shape::Stacked;
        html! {
            ul.legend {
                @for line in &self.lines {
                    @let last = line.values.iter().rev().flatten().next();
                    @let most = line.values.iter().flatten().copied().reduce(f64::max);
                    li {
                        svg.key viewBox="0 0 24 12" aria-hidden="true" {
                            @if is_area { rect.area.(line.class) x="2" y="1" width="20" height="10" {} }
                            @else { path.line.(line.class) d="M1 6H23" {} }
                        }
                        bdi { (line.name) } " "
                        @match (last, most) {
                            (Some(last), Some(most)) => { strong { (self.unit.text(*last)) } span.help { (texts::filled("chart.most", &[("value", &self.unit.text(most))])) } }
                            _ => span.help { (NONE) },
                        }
                    }
                }
            }
        }
    }

    fn table(&self) -> Markup {
        let names: Vec<_> = self.lines.iter().map(|line| line.name.as_str()).collect();
        let text = |index: usize, line: &Line| {
            line.values.get(index).copied().flatten().map_or(NONE.to_owned(), |value| self.unit.text(value))
        };
        table((self.id, self.title), &names, self.times, |index| {
            self.lines.iter().map(|line| text(index, line)).collect()
        })
    }
}

/// The newest points of a chart as a table.
fn table(
    (id, title): (&str, &str),
    names: &[&str],
    times: &[u64],
    row: impl Fn(usize) -> Vec<String>,
) -> Markup {
    html! {
        details.points id={ (id) "-points" } {
            summary { (texts::of("chart.as_a_table")) }
            @if times.len() > MAX_ROWS { p.help { (texts::filled("chart.newest_points", &[("count", &MAX_ROWS), ("all", &times.len())])) } }
            div.scroll tabindex="0" role="region" aria-label=(texts::filled("chart.titled_table", &[("title", &title)])) {
                table {
                    caption.unseen { (title) }
                    thead { tr { th scope="col" { (texts::of("words.time")) } @for name in names { th.number scope="col" { (name) } } } }
                    tbody {
                        @for (index, start) in times.iter().enumerate().rev().take(MAX_ROWS) {
                            tr {
                                th scope="row" { (time(*start as i64)) }
                                @for text in row(index) { td.number { (text) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What the script of pages reads: the frame, the points, and the texts of each series divided by bars.
fn data<'a>(
    (from, to): (u64, u64),
    (times, step): (&[u64], u64),
    lines: impl Iterator<Item = (&'a str, String)>,
) -> String {
    let (names, values): (Vec<_>, Vec<_>) = lines.unzip();
    let start = times.first().copied().unwrap_or(from);
    let sides = [LEFT, RIGHT, TOP, BOTTOM];
    json!({ "sides": sides, "from": from, "to": to, "start": start, "step": step, "names": names, "values": values })
        .to_string()
}

fn value_tick(scale: &Scale, value: f64, name: &str) -> Markup {
    let y = scale.place(value);
    html! {
        path.grid d={ "M" (LEFT) " " (y) "H" (RIGHT) } {}
        text.end x=(LEFT - 6.0) y=(y + 4.0) { (name) }
    }
}

fn time_axis(scale: &Scale, frame: (u64, u64)) -> Markup {
    html! {
        path.axis d={ "M" (LEFT) " " (BOTTOM) "H" (RIGHT) } {}
        @for (at, name) in scale::time_ticks(frame) {
            @let x = scale.place(at as f64);
            path.axis d={ "M" (x) " " (BOTTOM) "v4" } {}
            @if x < RIGHT - 16.0 && x > LEFT + 4.0 { text.middle x=(x) y=(BOTTOM + 17.0) { (name) } }
        }
    }
}

/// The part of the frame before the history begins.
fn unknown(scale: &Scale, from: u64, oldest: Option<u64>) -> Markup {
    let end = oldest.map_or(LEFT, |oldest| scale.place(oldest as f64));
    html! {
        @if oldest.is_some_and(|oldest| oldest > from) && end - LEFT > 1.0 {
            rect.unknown x=(LEFT) y=(TOP) width=(end - LEFT) height=(BOTTOM - TOP) {}
            @if end - LEFT > 90.0 {
                text.middle.quiet x=((LEFT + end) / 2.0) y=((TOP + BOTTOM) / 2.0) { (texts::of("chart.not_recorded")) }
            }
        }
    }
}

/// A part of the frame of which nothing is known.
fn shaded(scale: &Scale, (from, to): (u64, u64)) -> Markup {
    let (left, right) = (scale.place(from as f64), scale.place(to as f64));
    html! { rect.unknown x=(left) y=(TOP) width=(format!("{:.1}", right - left)) height=(BOTTOM - TOP) {} }
}

/// The parts of the frame of which nothing is known, since the history begins.
fn all_shaded(scale: &Scale, ((from, to), oldest): ((u64, u64), Option<u64>), gaps: &[(u64, u64)]) -> Markup {
    let begin = from.max(oldest.unwrap_or(u64::MAX));
    let within = gaps.iter().map(|gap| (gap.0.max(begin), gap.1.min(to)));
    html! { @for gap in within.filter(|(from, to)| from < to) { (shaded(scale, gap)) } }
}

fn nothing() -> Markup {
    html! { text.middle.quiet x=((LEFT + RIGHT) / 2.0) y=((TOP + BOTTOM) / 2.0) { (texts::of("chart.no_data_in_this_frame")) } }
}

#[cfg(test)]
mod tests;
