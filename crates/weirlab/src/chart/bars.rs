//! Bars with intervals, possibly in parts.
use super::canvas::{Canvas, LINE, fitted, text_width};
use super::{Axis, COLOURS, Chart, Estimate, WIDTH};

/// The height of a row.
const ROW: f64 = 32.0;

/// A bar chart.
#[derive(Clone, Debug)]
pub struct Bars {
    /// The stem of the file's name.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// What the axis shows.
    pub axis: String,
    /// From top to bottom.
    pub bars: Vec<Bar>,
    /// A value to compare with, and its name.
    pub level: Option<(f64, String)>,
    /// Writes values.
    pub write: fn(f64) -> String,
}

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Whose.
    pub label: String,
    /// Its colour.
    pub colour: usize,
    /// How long it is.
    pub estimate: Estimate,
    /// What it consists of; nothing for a plain bar.
    pub parts: Vec<Part>,
}

/// A part of a bar.
#[derive(Clone, Debug)]
pub struct Part {
    /// Such as `user`.
    pub label: &'static str,
    /// How long it is.
    pub value: f64,
}

impl Bars {
    /// Draws it.
    pub fn draw(&self) -> Chart {
        let parts = self.bars.iter().find(|bar| bar.parts.len() > 1).map(|bar| bar.parts.as_slice());
        let top = if parts.is_some() || self.level.is_some() { LINE + 6.0 } else { 4.0 };
        let bottom = top + ROW * self.bars.len() as f64;
        let mut canvas = Canvas::new(bottom + 40.0);
        let texts: Vec<String> = self.bars.iter().map(|bar| (self.write)(bar.estimate.value)).collect();
        let label_width = self.bars.iter().map(|bar| text_width(&bar.label)).fold(40.0, f64::max).min(150.0);
        let value_width = texts.iter().map(|text| text_width(text)).fold(30.0, f64::max);
        let (left, right) = (label_width + 10.0, WIDTH - value_width - 12.0);
        let highest = self.bars.iter().map(|bar| bar.estimate.high());
        let axis = Axis::from_zero(&self.axis, highest.chain(self.level.iter().map(|level| level.0)));
        let place = |value: f64| left + axis.place(value) * (right - left);
        canvas.ticks_below(&axis, (left, right), (top, bottom));
        if let Some(parts) = parts {
            legend_of_parts(&mut canvas, parts);
        }
        for (index, (bar, text)) in self.bars.iter().zip(&texts).enumerate() {
            let middle = top + ROW * (index as f64 + 0.5);
            canvas.text(left - 8.0, middle + 4.5, "end", &fitted(&bar.label, label_width));
            self.draw_bar(&mut canvas, bar, middle, &place);
            canvas.text(WIDTH - 2.0, middle + 4.5, "end", text);
        }
        if let Some((value, name)) = &self.level {
            let x = place(*value);
            canvas.line((x, top - 4.0), (x, bottom), "level");
            canvas.text(x, top - 8.0, "middle small faint", name);
        }
        Chart::new(&self.name, &self.title, self.describe(), canvas)
    }

    fn draw_bar(&self, canvas: &mut Canvas, bar: &Bar, middle: f64, place: &impl Fn(f64) -> f64) {
        let colour = bar.colour % COLOURS;
        let hint = format!("{}: {}", bar.label, bar.estimate.said(self.write));
        let corner = |from: f64| (place(from), middle - 9.0);
        if bar.parts.is_empty() {
            let size = (place(bar.estimate.value) - place(0.0), 18.0);
            canvas.area(corner(0.0), size, &format!("f{colour}"), &hint);
        }
        let mut from = 0.0;
        for (index, part) in bar.parts.iter().enumerate() {
            let class = if index == 0 { format!("f{colour}") } else { format!("f{colour} pale") };
            let hint = format!("{hint}; {} {}", part.label, (self.write)(part.value));
            canvas.area(corner(from), (place(from + part.value) - place(from), 18.0), &class, &hint);
            from += part.value;
        }
        canvas.whisker(middle, place, bar.estimate);
    }

    fn describe(&self) -> String {
        let said = self.bars.iter().map(|bar| format!("{} {}", bar.label, bar.estimate.said(self.write)));
        format!(
            "{}: {}. In brackets 95 % confidence intervals.",
            self.axis,
            said.collect::<Vec<_>>().join("; ")
        )
    }
}

fn legend_of_parts(canvas: &mut Canvas, parts: &[Part]) {
    let mut x = 0.0;
    for (index, part) in parts.iter().enumerate() {
        canvas.area((x, 3.0), (11.0, 11.0), if index == 0 { "f6" } else { "f6 pale" }, "");
        canvas.text(x + 16.0, 13.0, "start small faint", part.label);
        x += text_width(part.label) + 34.0;
    }
}
