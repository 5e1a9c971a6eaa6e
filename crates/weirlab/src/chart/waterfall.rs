//! What each step adds.
use super::canvas::{Canvas, fitted, text_width};
use super::{Axis, COLOURS, Chart, Estimate, WIDTH};

/// The height of a row.
const ROW: f64 = 32.0;

/// Steps that each begin where the one before ended.
#[derive(Clone, Debug)]
pub struct Waterfall {
    /// The stem of the file's name.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// What the axis shows.
    pub axis: String,
    /// The colour.
    pub colour: usize,
    /// From top to bottom; the first from zero.
    pub steps: Vec<Added>,
    /// Writes values.
    pub write: fn(f64) -> String,
}

/// One step.
#[derive(Clone, Debug)]
pub struct Added {
    /// Such as `+ key-auth`.
    pub label: String,
    /// Where it ends.
    pub total: f64,
    /// What it adds to the step before.
    pub added: Estimate,
}

impl Waterfall {
    /// Draws it.
    pub fn draw(&self) -> Chart {
        let bottom = 4.0 + ROW * self.steps.len() as f64;
        let mut canvas = Canvas::new(bottom + 40.0);
        let texts: Vec<String> =
            self.steps.iter().enumerate().map(|(index, step)| self.said(index, step)).collect();
        let label_width =
            self.steps.iter().map(|step| text_width(&step.label)).fold(40.0, f64::max).min(190.0);
        let value_width = texts.iter().map(|text| text_width(text)).fold(30.0, f64::max);
        let (left, right) = (label_width + 10.0, WIDTH - value_width - 12.0);
        let ends = self.steps.iter().map(|step| step.total + step.added.high() - step.added.value);
        let axis = Axis::from_zero(&self.axis, ends);
        let place = |value: f64| left + axis.place(value) * (right - left);
        canvas.ticks_below(&axis, (left, right), (4.0, bottom));
        for (index, (step, text)) in self.steps.iter().zip(&texts).enumerate() {
            let middle = 4.0 + ROW * (index as f64 + 0.5);
            canvas.text(left - 8.0, middle + 4.5, "end", &fitted(&step.label, label_width));
            let before = step.total - step.added.value;
            let (low, high) = (place(before.min(step.total)), place(before.max(step.total)));
            let hint = format!("{}: {}", step.label, step.added.said(self.write));
            let class = format!("f{}{}", self.colour % COLOURS, if index == 0 { " pale" } else { "" });
            canvas.area((low, middle - 9.0), ((high - low).max(1.5), 18.0), &class, &hint);
            canvas.whisker(middle, |value| place(before + value), step.added);
            if index + 1 < self.steps.len() {
                canvas.line(
                    (place(step.total), middle + 9.0),
                    (place(step.total), middle + ROW - 9.0),
                    "axis",
                );
            }
            canvas.text(WIDTH - 2.0, middle + 4.5, "end", text);
        }
        let said: Vec<String> =
            self.steps.iter().zip(&texts).map(|(step, text)| format!("{} {text}", step.label)).collect();
        Chart::new(&self.name, &self.title, format!("{}: {}.", self.axis, said.join("; ")), canvas)
    }

    fn said(&self, index: usize, step: &Added) -> String {
        let sign = if index > 0 && step.added.value >= 0.0 { "+" } else { "" };
        format!("{sign}{}", (self.write)(step.added.value))
    }
}
