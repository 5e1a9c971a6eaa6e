//! Lines through points with intervals.
use super::canvas::{Canvas, LINE, fitted, legend_height, text_width};
use super::{Axis, COLOURS, Chart, Estimate, WIDTH};

/// The height of the plot alone.
const PLOT: f64 = 220.0;

/// A line chart.
#[derive(Clone, Debug)]
pub struct Lines {
    /// The stem of the file's name.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// From left to right.
    pub across: Axis,
    /// From the bottom up.
    pub up: Axis,
    /// The lines.
    pub lines: Vec<Line>,
    /// A value to compare with.
    pub level: Option<Level>,
    /// Writes what is measured upwards.
    pub write: fn(f64) -> String,
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Whose; empty for one that continues another of its colour.
    pub label: String,
    /// Its colour.
    pub colour: usize,
    /// From left to right.
    pub points: Vec<Point>,
}

/// One point.
#[derive(Clone, Debug)]
pub struct Point {
    /// Where it lies across.
    pub x: f64,
    /// What lies there, in words.
    pub at: String,
    /// Where it lies upwards.
    pub y: Estimate,
}

/// A horizontal line to compare with.
#[derive(Clone, Debug)]
pub struct Level {
    /// Where.
    pub value: f64,
    /// What it is.
    pub name: String,
}

impl Lines {
    /// Draws it.
    pub fn draw(&self) -> Chart {
        let named = self.lines.iter().filter(|line| !line.label.is_empty());
        let legend: Vec<_> = named.map(|line| (line.colour, line.label.clone())).collect();
        let top = legend_height(&legend) + LINE + 2.0;
        let bottom = top + PLOT;
        let mut canvas = Canvas::new(bottom + 40.0);
        canvas.legend(&legend);
        let widest = self.up.ticks.iter().map(|(_, name)| text_width(name)).fold(20.0, f64::max);
        let (left, right) = (widest + 8.0, WIDTH - 14.0);
        canvas.text(0.0, top - 10.0, "start small faint", &self.up.title);
        for (value, name) in &self.up.ticks {
            let y = bottom - self.up.place(*value) * PLOT;
            canvas.line((left, y), (right, y), "grid");
            canvas.text(left - 6.0, y + 4.0, "end small faint", name);
        }
        canvas.ticks_below(&self.across, (left, right), (top, bottom));
        let place =
            |x: f64, y: f64| (left + self.across.place(x) * (right - left), bottom - self.up.place(y) * PLOT);
        if let Some(level) = &self.level {
            let y = place(0.0, level.value).1;
            canvas.line((left, y), (right, y), "level");
            canvas.text(left + 4.0, y - 4.0, "start small", &level.name);
        }
        for line in &self.lines {
            self.draw_line(&mut canvas, line, &place);
        }
        Chart::new(&self.name, &self.title, self.describe(), canvas)
    }

    fn draw_line(&self, canvas: &mut Canvas, line: &Line, place: &impl Fn(f64, f64) -> (f64, f64)) {
        let places: Vec<_> = line.points.iter().map(|point| place(point.x, point.y.value)).collect();
        canvas.track(&places, line.colour, "track");
        for point in &line.points {
            let (x, y) = place(point.x, point.y.value);
            if let Some((low, high)) = point.y.interval {
                let class = format!("thin s{}", line.colour % COLOURS);
                let (low, high) = (place(point.x, low).1, place(point.x, high).1);
                canvas.line((x, low), (x, high), &class);
                canvas.line((x - 4.0, low), (x + 4.0, low), &class);
                canvas.line((x - 4.0, high), (x + 4.0, high), &class);
            }
            let whose = if line.label.is_empty() { String::new() } else { format!("{}, ", line.label) };
            let hint = format!("{whose}{}: {}", point.at, point.y.said(self.write));
            canvas.point(x, y, line.colour, &hint);
        }
    }

    fn describe(&self) -> String {
        let lines = self.lines.iter().map(|line| {
            let points = line.points.iter().map(|point| format!("{} {}", point.at, point.y.said(self.write)));
            format!("{}: {}", line.label, points.collect::<Vec<_>>().join(", "))
        });
        format!("{} by {}. {}.", self.up.title, self.across.title, lines.collect::<Vec<_>>().join("; "))
    }
}

impl Canvas {
    /// The ticks of an axis below a plot, its grid within, its title beneath.
    pub(super) fn ticks_below(&mut self, axis: &Axis, (left, right): (f64, f64), (top, bottom): (f64, f64)) {
        let mut free_from = f64::NEG_INFINITY;
        let room = (right - left) / axis.ticks.len().max(1) as f64;
        for (value, name) in &axis.ticks {
            let x = left + axis.place(*value) * (right - left);
            self.line((x, top), (x, bottom), "grid");
            let name = fitted(name, room.max(44.0));
            let half = text_width(&name) / 2.0;
            if x - half > free_from {
                self.text(x.min(WIDTH - half), bottom + 17.0, "middle small faint", &name);
                free_from = x + half + 3.0;
            }
        }
        if !axis.title.is_empty() {
            self.text((left + right) / 2.0, bottom + 34.0, "middle small faint", &axis.title);
        }
    }
}
