//! Charts: well-formed, described in words, and safe with any label.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use weirlab::chart::{
    Added, Axis, Bar, Bars, Chart, Estimate, Forest, Group, Kind, Level, Line, Lines, Part, Point, Row,
    Waterfall, latency, significant, thousands,
};

const TARGETS: [&str; 5] = ["weir", "nginx", "haproxy", "direct", "<script>alert(1)</script>"];

fn within(value: f64, share: f64) -> Estimate {
    Estimate { value, interval: Some((value * (1.0 - share), value * (1.0 + share))) }
}

fn micros(value: f64) -> String {
    format!("{} µs", significant(value, 3))
}

fn bars() -> Chart {
    let bars = TARGETS.iter().enumerate().map(|(index, label)| {
        let value = 11.0 + 4.3 * index as f64;
        let parts =
            vec![Part { label: "user", value: value * 0.3 }, Part { label: "system", value: value * 0.7 }];
        Bar { label: (*label).to_owned(), colour: index, estimate: within(value, 0.04), parts }
    });
    let level = Some((9.1, "floor 9.1 µs".to_owned()));
    let (name, title) = ("cpu".to_owned(), "CPU per request".to_owned());
    Bars { name, title, axis: "CPU µs per request".to_owned(), bars: bars.collect(), level, write: micros }
        .draw()
}

fn rates() -> Chart {
    let bars = TARGETS.iter().enumerate().map(|(index, label)| Bar {
        label: (*label).to_owned(),
        colour: index,
        estimate: within(21_000.0 - 3_000.0 * index as f64, 0.03),
        parts: Vec::new(),
    });
    let (name, title) = ("rps".to_owned(), "Requests per second".to_owned());
    let axis = "answers per second".to_owned();
    Bars { name, title, axis, bars: bars.collect(), level: None, write: thousands }.draw()
}

fn forest() -> Chart {
    let groups =
        ["plain-1 http", "plain-100 http", "rate-limiting-key-auth-100 https"].iter().map(|heading| Group {
            heading: (*heading).to_owned(),
            noise: Some((0.975, 1.024)),
            rows: TARGETS
                .iter()
                .enumerate()
                .map(|(index, label)| Row {
                    label: (*label).to_owned(),
                    colour: index,
                    ratio: within(0.62 + 0.21 * index as f64, 0.03),
                })
                .collect(),
        });
    let sides = ("less CPU than nginx".to_owned(), "more".to_owned());
    let (name, title) = ("ratios".to_owned(), "Ratios to nginx".to_owned());
    Forest { name, title, sides, groups: groups.collect() }.draw()
}

fn quantiles() -> Chart {
    let shares = [0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999];
    let place = |share: f64| -(1.0 - share).log10();
    let names = shares.iter().map(|share| (place(*share), format!("{}", share * 100.0))).collect();
    let lines: Vec<Line> = TARGETS
        .iter()
        .enumerate()
        .map(|(index, label)| Line {
            label: (*label).to_owned(),
            colour: index,
            points: shares
                .iter()
                .map(|share| Point {
                    x: place(*share),
                    at: format!("p{}", share * 100.0),
                    y: Estimate {
                        value: 0.4 * (1.0 + index as f64 * 0.4) * place(*share).exp(),
                        interval: None,
                    },
                })
                .collect(),
        })
        .collect();
    let all = lines.iter().flat_map(|line| &line.points).map(|point| point.y.value);
    Lines {
        name: "latency".to_owned(),
        title: "Latency".to_owned(),
        across: Axis::named("quantile, %", Kind::Linear, names),
        up: Axis::around("latency", Kind::Log, all).with_names(latency),
        lines: lines.clone(),
        level: None,
        write: latency,
    }
    .draw()
}

fn versions() -> Chart {
    let points = [14.4, 14.1, 13.9, 15.2].iter().enumerate().map(|(index, value)| Point {
        x: index as f64,
        at: format!("v0.{index}"),
        y: within(*value, 0.02),
    });
    let line = Line { label: "weir".to_owned(), colour: 0, points: points.collect() };
    Lines {
        name: "versions".to_owned(),
        title: "CPU by version".to_owned(),
        across: Axis::categories("version", (0..4).map(|index| format!("v0.{index}"))),
        up: Axis::from_zero("CPU µs per request", [15.6]),
        lines: vec![line],
        level: Some(Level { value: 10.0, name: "goal".to_owned() }),
        write: micros,
    }
    .draw()
}

fn waterfall() -> Chart {
    let steps = [("plain", 14.4, 14.4), ("+ rate-limiting", 15.0, 0.6), ("+ key-auth", 14.9, -0.1)];
    let steps = steps.map(|(label, total, value)| Added {
        label: label.to_owned(),
        total,
        added: Estimate { value, interval: Some((value - 0.4, value + 0.4)) },
    });
    let (name, title) = ("waterfall".to_owned(), "What each plugin adds".to_owned());
    let axis = "CPU µs per request".to_owned();
    Waterfall { name, title, axis, colour: 0, steps: steps.to_vec(), write: micros }.draw()
}

fn all() -> Vec<Chart> {
    vec![bars(), rates(), forest(), quantiles(), versions(), waterfall()]
}

#[test]
fn a_chart_is_well_formed_and_told_in_words() {
    for chart in all() {
        let (name, alone) = (chart.name.clone(), chart.standalone());
        for text in [alone, chart.inline()] {
            let document =
                roxmltree::Document::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
            let root = document.root_element();
            assert_eq!(root.attribute("role"), Some("img"));
            let said = |tag: &str| {
                root.children().find(|node| node.tag_name().name() == tag).and_then(|node| node.text())
            };
            assert!(said("title").is_some_and(|title| !title.trim().is_empty()), "{name} has no title");
            assert!(
                said("desc").is_some_and(|words| words.contains(char::is_numeric)),
                "{name} has no words"
            );
            assert!(
                document.descendants().all(|node| node.tag_name().name() != "script"),
                "{name} runs a script"
            );
        }
    }
}

#[test]
fn no_mark_lies_outside_the_sheet() {
    for chart in all() {
        let (name, text) = (chart.name.clone(), chart.inline());
        let document = roxmltree::Document::parse(&text).unwrap();
        let sheet = document.root_element().attribute("viewBox").unwrap();
        let sheet: Vec<f64> = sheet.split(' ').map(|n| n.parse().unwrap()).collect();
        let limits = ["x", "x1", "x2", "cx"].map(|key| (key, sheet[2]));
        let limits = limits.into_iter().chain(["y", "y1", "y2", "cy"].map(|key| (key, sheet[3])));
        for (key, limit) in limits {
            for node in document.descendants().filter(|node| node.has_attribute(key)) {
                let at: f64 = node.attribute(key).unwrap().parse().unwrap();
                assert!((-0.1..=limit).contains(&at), "{name}: {key} {at} of {node:?}");
            }
        }
    }
}

#[test]
fn what_cannot_be_known_is_not_drawn_as_not_a_number() {
    let estimate = Estimate { value: f64::NAN, interval: None };
    let bar = Bar { label: "weir".to_owned(), colour: 0, estimate, parts: Vec::new() };
    let (name, title, axis) = ("cpu".to_owned(), "CPU".to_owned(), "µs".to_owned());
    let chart = Bars { name, title, axis, bars: vec![bar], level: None, write: micros }.draw().inline();
    assert!(!chart.contains("NaN"), "{chart}");
    let empty = Forest {
        name: "ratios".to_owned(),
        title: "Ratios".to_owned(),
        sides: (String::new(), String::new()),
        groups: Vec::new(),
    };
    assert!(!empty.draw().inline().contains("NaN"));
}

#[test]
fn a_bar_is_as_long_as_its_value() {
    let text = rates().inline();
    let document = roxmltree::Document::parse(&text).unwrap();
    let rectangles = document.descendants().filter(|node| node.tag_name().name() == "rect");
    let lengths: Vec<f64> =
        rectangles.map(|node| node.attribute("width").unwrap().parse().unwrap()).collect();
    assert_eq!(lengths.len(), TARGETS.len());
    assert!((lengths[1] / lengths[0] - 18_000.0 / 21_000.0).abs() < 0.01, "{lengths:?}");
}

#[test]
#[ignore = "draws into $CHARTS, to be looked at"]
fn draw_all() {
    for chart in all() {
        std::fs::write(
            format!("{}/{}.svg", std::env::var("CHARTS").unwrap(), chart.name),
            chart.standalone(),
        )
        .unwrap();
    }
}
