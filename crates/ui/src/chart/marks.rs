//! Changes of the configuration as marks on the axis of time.
use super::scale::{Scale, clock};
use super::{BOTTOM, TOP};
use crate::history::Change;
use crate::texts;
use maud::{Markup, html};

/// Marks that are nearer to each other than this part of the frame are one.
const MAX_MARKS: u64 = 50;
/// The longest text of a mark, in characters.
const MAX_TEXT_LEN: usize = 300;

/// One change or several at almost the same time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mark {
    /// In seconds since 1970.
    pub(crate) at: f64,
    /// The page that says more.
    pub(crate) link: String,
    pub(crate) text: String,
}

/// The marks of changes in a frame; `link` makes the address of what changed between two moments.
pub(crate) fn marks(
    changes: &[Change],
    (from, to): (u64, u64),
    link: impl Fn(u64, u64) -> String,
) -> Vec<Mark> {
    let width = ((to - from) / MAX_MARKS).max(1);
    let mut marks: Vec<Mark> = Vec::new();
    let mut first = None;
    for change in changes.iter().rev() {
        let at = change.at as u64;
        let text: String = format!("{} UTC: {}", clock(at), change.what).chars().take(MAX_TEXT_LEN).collect();
        match (marks.last_mut(), first) {
            (Some(mark), Some(first)) if at < first + width => {
                mark.link = link(first, at + 1);
                if mark.text.chars().count() < MAX_TEXT_LEN {
                    mark.text = format!("{}; {text}", mark.text);
                }
            }
            _ => {
                first = Some(at);
                marks.push(Mark { at: change.at, link: link(at, at + 1), text });
            }
        }
    }
    marks
}

/// A vertical line with a head for each mark.
pub(super) fn drawn(marks: &[Mark], time: &Scale) -> Markup {
    html! {
        @for mark in marks {
            @let x = time.place(mark.at);
            a.mark href=(mark.link) aria-label=(texts::filled("chart.change_at", &[("what", &mark.text)])) {
                title { (mark.text) }
                path d={ "M" (x) " " (TOP) "V" (BOTTOM) } {}
                path.head d={ "M" (x - 5.0) " " (TOP - 10.0) "h10l-5 9z" } {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(at: f64, what: &str) -> Change {
        let (revision, source) = ("1".to_owned(), "database".to_owned());
        Change { at, revision, source, what: what.to_owned() }
    }

    #[test]
    fn changes_that_are_near_to_each_other_are_one_mark() {
        let changes = [change(700.0, "c"), change(105.0, "b"), change(100.5, "a")];
        let link = |from, to| format!("{from}-{to}");
        let mark = |at, link: &str, text: &str| Mark { at, link: link.to_owned(), text: text.to_owned() };
        let expected = [
            mark(100.5, "100-106", "00:01:40 UTC: a; 00:01:45 UTC: b"),
            mark(700.0, "700-701", "00:11:40 UTC: c"),
        ];
        assert_eq!(marks(&changes, (0, 1_000), link), expected);
    }

    #[test]
    fn a_thousand_changes_stay_readable() {
        let changes: Vec<_> = (0..1_000).rev().map(|at| change(f64::from(at), "put routes/a")).collect();
        let marks = marks(&changes, (0, 1_000), |_, _| String::new());
        assert_eq!(marks.len(), 50);
        assert!(marks.iter().all(|mark| mark.text.len() < 2 * MAX_TEXT_LEN));
    }
}
