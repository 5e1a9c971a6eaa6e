//! Ratios with intervals, against the noise.
use super::canvas::{Canvas, LINE, fitted, text_width};
use super::{Axis, COLOURS, Chart, Estimate, Kind, WIDTH, significant};

/// The height of a row, and of a group's heading.
const ROW: f64 = 22.0;
const HEADING: f64 = 25.0;

/// Ratios to a baseline, on an axis on which equal factors are equally far apart.
#[derive(Clone, Debug)]
pub struct Forest {
    /// The stem of the file's name.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// What is left and right of 1, such as `less CPU` and `more CPU`.
    pub sides: (String, String),
    /// From top to bottom.
    pub groups: Vec<Group>,
}

/// Ratios that share a baseline and its noise.
#[derive(Clone, Debug)]
pub struct Group {
    /// The case.
    pub heading: String,
    /// Ratios within it do not differ from 1.
    pub noise: Option<(f64, f64)>,
    /// The ratios.
    pub rows: Vec<Row>,
}

/// One ratio.
#[derive(Clone, Debug)]
pub struct Row {
    /// Whose.
    pub label: String,
    /// Its colour.
    pub colour: usize,
    /// The ratio.
    pub ratio: Estimate,
}

impl Forest {
    /// Draws it.
    pub fn draw(&self) -> Chart {
        let rows = || self.groups.iter().flat_map(|group| &group.rows);
        let label_width = rows().map(|row| text_width(&row.label)).fold(40.0, f64::max).min(140.0);
        let value_width = rows().map(|row| text_width(&said(row.ratio))).fold(60.0, f64::max);
        let (left, right) = (label_width + 14.0, WIDTH - value_width - 14.0);
        let ends = rows().flat_map(|row| [row.ratio.low(), row.ratio.high()]);
        let noise = self.groups.iter().filter_map(|group| group.noise).flat_map(|(low, high)| [low, high]);
        let axis = Axis::around("", Kind::Log, ends.chain(noise).chain([1.0]));
        let height: f64 = self.groups.iter().map(|group| HEADING + ROW * group.rows.len() as f64).sum();
        let (top, bottom) = (LINE + 4.0, LINE + 8.0 + height);
        let mut canvas = Canvas::new(bottom + 22.0);
        canvas.ticks_below(&axis, (left, right), (top, bottom));
        let place = |value: f64| left + axis.place(value) * (right - left);
        self.name_the_sides(&mut canvas, place(1.0));
        canvas.line((place(1.0), top), (place(1.0), bottom), "axis");
        let mut y = top;
        for group in &self.groups {
            if let Some((low, high)) = group.noise {
                let size = (place(high) - place(low), ROW * group.rows.len() as f64);
                let hint = format!("noise of this run: {}…{}", significant(low, 3), significant(high, 3));
                canvas.area((place(low), y + HEADING), size, "band", &hint);
            }
            canvas.text(0.0, y + 17.0, "start small heading", &fitted(&group.heading, WIDTH));
            y += HEADING;
            for row in &group.rows {
                draw_row(&mut canvas, row, y + ROW / 2.0, left, &place);
                y += ROW;
            }
        }
        Chart::new(&self.name, &self.title, self.describe(), canvas)
    }

    /// Beside the line at 1, where the sheet has room for them.
    fn name_the_sides(&self, canvas: &mut Canvas, one: f64) {
        let (less, more) = (format!("← {}", self.sides.0), format!("{} →", self.sides.1));
        if one - 8.0 > text_width(&less) {
            canvas.text(one - 8.0, 13.0, "end small faint", &less);
        }
        if WIDTH - one - 8.0 > text_width(&more) {
            canvas.text(one + 8.0, 13.0, "start small faint", &more);
        }
    }

    fn describe(&self) -> String {
        let groups = self.groups.iter().map(|group| {
            let rows: Vec<String> =
                group.rows.iter().map(|row| format!("{} {}", row.label, said(row.ratio))).collect();
            format!("{}: {}", group.heading, rows.join(", "))
        });
        format!("Ratios with 95 % confidence intervals. {}.", groups.collect::<Vec<_>>().join("; "))
    }
}

/// With as many decimals as the interval bears.
fn said(ratio: Estimate) -> String {
    let narrow = ratio.interval.is_some_and(|(low, high)| high - low < 0.02);
    ratio.said(|value| if narrow { format!("{value:.3}") } else { format!("{value:.2}") })
}

fn draw_row(canvas: &mut Canvas, row: &Row, y: f64, left: f64, place: &impl Fn(f64) -> f64) {
    let hint = format!("{}: {} ×", row.label, row.ratio.said(|value| significant(value, 3)));
    canvas.text(left - 12.0, y + 4.5, "end", &fitted(&row.label, left - 14.0));
    if let Some((low, high)) = row.ratio.interval {
        let class = format!("range s{}", row.colour % COLOURS);
        canvas.line((place(low), y), (place(high), y), &class);
    }
    canvas.point(place(row.ratio.value), y, row.colour, &hint);
    canvas.text(WIDTH - 2.0, y + 4.5, "end", &said(row.ratio));
}
