use super::*;
use crate::history::{Column, Series};

const FROM: u64 = 1_795_456_800;

fn line(name: &str, values: &[Option<f64>]) -> Line {
    Line { name: name.to_owned(), class: "s1", values: values.to_vec() }
}

fn drawn(shape: Shape, oldest: Option<u64>, lines: Vec<Line>, marks: &[Mark]) -> String {
    with_gaps(shape, oldest, None, lines, marks)
}

fn with_gaps(
    shape: Shape,
    oldest: Option<u64>,
    gaps: Option<&[(u64, u64)]>,
    lines: Vec<Line>,
    marks: &[Mark],
) -> String {
    let times: Vec<_> = (0..6).map(|index| FROM + index * 10).collect();
    let (id, title, unit, frame) = ("id", "Requests", Unit::PerSecond, (FROM, FROM + 60));
    let chart = Chart { id, title, unit, shape, frame, times: &times, step: 10, oldest, gaps, lines, marks };
    chart.draw().into_string()
}

/// The geometry of each path of a class.
fn paths<'a>(svg: &'a str, class: &str) -> Vec<&'a str> {
    let begin = format!("<path class=\"{class}\" d=\"");
    svg.split(&*begin).skip(1).map(|rest| rest.split('"').next().unwrap_or_default()).collect()
}

#[test]
fn a_gap_breaks_a_line_and_a_zero_does_not() {
    let values = [Some(1.0), Some(0.0), None, Some(2.0), None, None];
    let svg = drawn(Shape::Lines, Some(FROM), vec![line("a", &values)], &[]);
    assert_eq!(paths(&svg, "line s1"), ["M92.8 87L154.5 160M247.0 14H308.7", "M1 6H23"]);
}

#[test]
fn areas_lie_upon_each_other() {
    let lines = vec![line("a", &[Some(1.0); 6]), line("b", &[None, Some(1.0), None, None, None, None])];
    let svg = drawn(Shape::Stacked, Some(FROM), lines, &[]);
    let areas = paths(&svg, "area s1");
    assert!(areas[0].starts_with("M62 160V87H123.7V87") && areas[0].ends_with('Z'), "{areas:?}");
    assert_eq!(areas[1], "M123.7 87V14H185.3V87H123.7Z");
}

#[test]
fn what_was_not_recorded_is_no_zero() {
    let svg = drawn(Shape::Lines, Some(FROM + 30), vec![line("a", &[Some(0.0); 6])], &[]);
    assert!(svg.contains("class=\"unknown\"") && svg.contains("not recorded"), "{svg}");
    assert_eq!(paths(&svg, "line s1")[0], "M277.9 160L339.5 160L401.1 160");
    let empty = drawn(Shape::Lines, None, vec![line("a", &[Some(0.0); 6])], &[]);
    assert!(empty.contains("no data in this frame") && empty.contains("a: no data"), "{empty}");
}

#[test]
fn what_is_unknown_between_what_is_known_is_shaded_and_a_zero_is_not() {
    let counts = [Some(1.0), None, None, Some(0.0), Some(2.0), None];
    for shape in [Shape::Lines, Shape::Stacked] {
        let svg = drawn(shape, Some(FROM), vec![line("a", &counts)], &[]);
        let shaded: Vec<_> = svg.split("<rect class=\"unknown\" ").skip(1).collect();
        assert_eq!(shaded.len(), 1, "{svg}");
        assert!(shaded[0].starts_with("x=\"123.7\" y=\"14\" width=\"123.3\""), "{}", shaded[0]);
    }
}

#[test]
fn what_the_source_says_is_unknown_is_shaded_since_the_history_begins() {
    let gaps = [(FROM - 60, FROM + 20), (FROM + 40, FROM + 90)];
    let lines = || vec![line("a", &[None, None, Some(0.0), Some(0.0), None, None])];
    let svg = with_gaps(Shape::Stacked, Some(FROM + 10), Some(&gaps), lines(), &[]);
    let shaded: Vec<_> = svg.split("<rect class=\"unknown\" ").skip(1).collect();
    assert_eq!(shaded.len(), 3, "{svg}");
    for (shape, expected) in shaded.iter().zip(["x=\"62\"", "x=\"123.7\"", "x=\"308.7\""]) {
        assert!(shape.starts_with(expected), "{shape}");
    }
    let known = with_gaps(Shape::Stacked, Some(FROM), Some(&[]), lines(), &[]);
    assert!(!known.contains("unknown"), "{known}");
}

#[test]
fn a_chart_is_told_in_words_and_as_a_table() {
    let values = [None, Some(1.0), Some(4.0), Some(2.5), None, None];
    let svg = drawn(Shape::Lines, Some(FROM), vec![line("p99", &values)], &[]);
    let words =
        "Requests, 2026-11-23 18:00:00 UTC to 2026-11-23 18:01:00 UTC; p99: least 1/s, most 4/s, last 2.5/s";
    assert!(svg.contains(words), "{svg}");
    assert!(
        svg.contains("<th scope=\"row\">2026-11-23 18:00:20 UTC</th><td class=\"number\">4/s</td>"),
        "{svg}"
    );
}

#[test]
fn names_are_text_wherever_they_stand() {
    let name = "\"><img src=x onerror=alert(1)>|\u{202e}";
    let mark = Mark { at: FROM as f64 + 5.0, link: "changes?a=\"".to_owned(), text: name.to_owned() };
    let svg = drawn(Shape::Lines, Some(FROM), vec![line(name, &[Some(1.0); 6])], &[mark]);
    assert!(!svg.contains("<img") && !svg.contains(" style="), "{svg}");
    assert!(svg.contains("<a class=\"mark\" href=\"changes?a=&quot;\""), "{svg}");
}

#[test]
fn a_heat_map_has_a_shade_for_each_share() {
    let column = |label: &str, values: [f64; 2]| Column {
        label: label.to_owned(),
        values: values.map(Some).to_vec(),
        total: Some(values.iter().sum()),
    };
    let columns = vec![column("0.001", [1.0, 0.0]), column("0.1", [0.0, 100.0])];
    let series =
        Series { times: vec![FROM, FROM + 30], step: 30, columns, oldest: Some(FROM), ..Series::default() };
    let map = HeatMap { title: "Latency", frame: (FROM, FROM + 60), series: &series, marks: &[] };
    let svg = map.draw().into_string();
    assert_eq!((paths(&svg, "heat h1").len(), paths(&svg, "heat h5").len()), (1, 1));
    assert_eq!(svg.matches("class=\"heat").count(), 2 + 5);
    assert!(svg.contains("101 requests between"), "{svg}");
    let nothing = HeatMap { series: &Series::default(), ..map };
    assert!(nothing.draw().into_string().contains("no data in this frame"));
}

#[test]
fn a_sparkline_shows_every_part_that_has_any() {
    let svg = sparkline(&serde_json::json!([0, 1, 1_000]), "errors").into_string();
    assert!(svg.contains("errors over the frame in 3 parts: most 1\u{202f}000, last 1\u{202f}000"), "{svg}");
    assert_eq!(paths(&svg, "bars")[0].matches('z').count(), 2);
    assert!(sparkline(&serde_json::Value::Null, "errors").into_string().contains("most 0"));
}

#[test]
fn a_sparkline_tells_what_is_not_known_from_nothing() {
    let svg = sparkline(&serde_json::json!([null, null, 0, 2, null, 0]), "requests").into_string();
    assert!(svg.contains("most 2, last 0, of which 3 are not known"), "{svg}");
    assert_eq!(paths(&svg, "unknown"), ["M0.0 0H30.0V22H0.0zM60.0 0H75.0V22H60.0z"]);
    let known = sparkline(&serde_json::json!([0, 0]), "requests").into_string();
    assert!(!known.contains("unknown") && !known.contains("not known"), "{known}");
}
