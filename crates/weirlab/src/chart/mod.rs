//! Charts as SVG: text stays text, colours come from a style sheet (so that a page's light and dark themes apply), and
//! every mark has its figures as a tooltip. Scales and layout are ours; the `svg` crate composes and escapes.
mod bars;
mod canvas;
mod figure;
mod forest;
mod lines;
mod scale;
mod waterfall;

pub use bars::{Bar, Bars, Part};
pub use figure::{latency, significant, thousands};
pub use forest::{Forest, Group, Row};
pub use lines::{Level, Line, Lines, Point};
pub use scale::{Axis, Kind};
pub use waterfall::{Added, Waterfall};

use canvas::Canvas;
use svg::Document;
use svg::node::element::{Description, Style, Title};

/// How many colours there are; targets beyond them begin anew.
pub const COLOURS: usize = 8;

/// The style sheet of charts: classes alone, colours as variables.
pub const STYLE: &str = include_str!("style.css");

/// The variables, light and dark.
pub const COLOUR_VARIABLES: &str = include_str!("colours.css");

/// The width of every chart, in its own units: small enough to be read when a phone shrinks it to its screen.
const WIDTH: f64 = 480.0;

/// A figure with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// The interval, where there were samples enough for one.
    pub interval: Option<(f64, f64)>,
}

impl Estimate {
    fn low(self) -> f64 {
        self.interval.map_or(self.value, |(low, _)| low.min(self.value))
    }

    fn high(self) -> f64 {
        self.interval.map_or(self.value, |(_, high)| high.max(self.value))
    }

    /// The figure and its interval, each written by `write`.
    fn said(self, write: impl Fn(f64) -> String) -> String {
        match self.interval {
            Some((low, high)) => format!("{} ({}…{})", write(self.value), write(low), write(high)),
            None => write(self.value),
        }
    }
}

/// A drawn chart.
pub struct Chart {
    /// The stem of its file's name, unique in a run.
    pub name: String,
    /// What it shows.
    pub title: String,
    description: String,
    canvas: Canvas,
}

impl Chart {
    fn new(name: &str, title: &str, description: String, canvas: Canvas) -> Chart {
        Chart { name: name.to_owned(), title: title.to_owned(), description, canvas }
    }

    /// For a page that has the style sheet already.
    pub fn inline(&self) -> String {
        self.document().to_string()
    }

    /// For a file of its own: with a background, so that it can be read wherever it is shown.
    pub fn standalone(&self) -> String {
        let style = format!("{COLOUR_VARIABLES}{STYLE}svg.chart{{background:var(--paper)}}");
        let (width, height) = (WIDTH + 24.0, self.canvas.height() + 24.0);
        self.document()
            .set("viewBox", (-12, -12, width, height))
            .set("width", width * 1.5)
            .set("height", height * 1.5)
            .add(Style::new(style))
            .to_string()
    }

    fn document(&self) -> Document {
        let (title, description) = (format!("{}-title", self.name), format!("{}-about", self.name));
        Document::new()
            .set("class", "chart")
            .set("role", "img")
            .set("viewBox", (0, 0, WIDTH, self.canvas.height()))
            .set("aria-labelledby", format!("{title} {description}"))
            .add(Title::new(self.title.clone()).set("id", title))
            .add(
                Description::new().set("id", description).add(svg::node::Text::new(self.description.clone())),
            )
            .add(self.canvas.group())
    }
}
