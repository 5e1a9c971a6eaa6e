//! What charts are drawn with.
use super::{COLOURS, Estimate, WIDTH};
use svg::node::element::{Circle, Group, Line, Path, Rectangle, Text, Title};

/// The height of a line of text.
pub(super) const LINE: f64 = 18.0;

/// A sheet that marks are put on.
pub(super) struct Canvas {
    height: f64,
    marks: Group,
}

impl Canvas {
    pub(super) fn new(height: f64) -> Canvas {
        Canvas { height, marks: Group::new() }
    }

    pub(super) fn height(&self) -> f64 {
        self.height
    }

    pub(super) fn group(&self) -> Group {
        self.marks.clone()
    }

    fn put(&mut self, node: impl Into<Box<dyn svg::node::Node>>) {
        self.marks = std::mem::take(&mut self.marks).add(node);
    }

    /// Text with its baseline at `y`.
    pub(super) fn text(&mut self, x: f64, y: f64, class: &str, content: &str) {
        self.put(Text::new(content).set("x", round(x)).set("y", round(y)).set("class", class));
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let line = Line::new().set("x1", round(from.0)).set("y1", round(from.1));
        self.put(line.set("x2", round(to.0)).set("y2", round(to.1)).set("class", class));
    }

    /// A box with `hint` as its tooltip.
    pub(super) fn area(&mut self, corner: (f64, f64), size: (f64, f64), class: &str, hint: &str) {
        let area = Rectangle::new().set("x", round(corner.0)).set("y", round(corner.1)).set("class", class);
        let area = area.set("width", round(size.0.max(0.0))).set("height", round(size.1));
        self.put(if hint.is_empty() { area } else { area.add(Title::new(hint)) });
    }

    /// A line through points.
    pub(super) fn track(&mut self, points: &[(f64, f64)], colour: usize, class: &str) {
        let places: Vec<String> =
            points.iter().map(|(x, y)| format!("{} {}", round(*x), round(*y))).collect();
        if !places.is_empty() {
            let class = format!("{class} s{}", colour % COLOURS);
            self.put(Path::new().set("d", format!("M{}", places.join("L"))).set("class", class));
        }
    }

    /// A point; its form goes with its colour, for those who do not see colours.
    pub(super) fn point(&mut self, x: f64, y: f64, colour: usize, hint: &str) {
        let class = format!("halo f{}", colour % COLOURS);
        let hint = Title::new(hint);
        let corners: &[(f64, f64)] = match colour % 4 {
            1 => &[(-4.2, -4.2), (4.2, -4.2), (4.2, 4.2), (-4.2, 4.2)],
            2 => &[(0.0, -5.6), (5.2, 4.0), (-5.2, 4.0)],
            3 => &[(0.0, -6.0), (6.0, 0.0), (0.0, 6.0), (-6.0, 0.0)],
            _ => {
                let circle = Circle::new().set("cx", round(x)).set("cy", round(y)).set("r", 4.8);
                return self.put(circle.set("class", class).add(hint));
            }
        };
        let places: Vec<String> =
            corners.iter().map(|(dx, dy)| format!("{} {}", round(x + dx), round(y + dy))).collect();
        self.put(Path::new().set("d", format!("M{}Z", places.join("L"))).set("class", class).add(hint));
    }

    /// Colours and their names, in as many lines as they need. Gives the height they took.
    pub(super) fn legend(&mut self, entries: &[(usize, String)]) -> f64 {
        let (mut x, mut y) = (6.0, 10.0);
        for (colour, name) in entries {
            let needed = 26.0 + text_width(name);
            if x > 6.0 && x + needed > WIDTH {
                (x, y) = (6.0, y + LINE);
            }
            self.point(x, y - 4.5, *colour, name);
            self.text(x + 10.0, y, "start", name);
            x += needed;
        }
        legend_height(entries)
    }

    /// A horizontal interval with caps.
    pub(super) fn whisker(&mut self, y: f64, place: impl Fn(f64) -> f64, estimate: Estimate) {
        if let Some((low, high)) = estimate.interval {
            let (low, high) = (place(low), place(high));
            self.line((low, y), (high, y), "whisker");
            self.line((low, y - 4.0), (low, y + 4.0), "whisker");
            self.line((high, y - 4.0), (high, y + 4.0), "whisker");
        }
    }
}

/// The height that a legend will take.
pub(super) fn legend_height(entries: &[(usize, String)]) -> f64 {
    let (mut x, mut lines) = (6.0, 1.0);
    for (_, name) in entries {
        let needed = 26.0 + text_width(name);
        if x > 6.0 && x + needed > WIDTH {
            (x, lines) = (6.0, lines + 1.0);
        }
        x += needed;
    }
    lines * LINE + 4.0
}

/// About how wide a text will be: there is no font to ask.
pub(super) fn text_width(text: &str) -> f64 {
    let width = |letter| match letter {
        'i' | 'l' | 'j' | '.' | ',' | ':' | ';' | '|' | '\'' | '(' | ')' | '[' | ']' | 't' | 'f' | 'r'
        | ' ' => 5.2,
        'm' | 'w' | 'M' | 'W' | '%' | '…' | '+' | '<' | '>' | '=' | '@' => 11.2,
        _ => 8.2,
    };
    text.chars().map(width).sum()
}

/// A text cut to a width, with an ellipsis.
pub(super) fn fitted(text: &str, width: f64) -> String {
    if text_width(text) <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    for letter in text.chars() {
        if text_width(&kept) + 15.0 > width {
            break;
        }
        kept.push(letter);
    }
    kept.push('…');
    kept
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
