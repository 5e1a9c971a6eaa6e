//! Evaluates an expression, and records what of the path it matched.
use super::Test;
use super::check::{Check, TextCheck};
use super::field::Field;
use super::subject::Subject;
use crate::pattern::{Captures, Pattern};

/// Longer texts are lower-cased on the heap, shorter ones on the stack.
const STACK_TEXT: usize = 256;

/// What an evaluation leaves beside its outcome.
pub(super) trait Record {
    /// The path, or its beginning, matched: this many bytes.
    fn matched_path(&mut self, length: usize);

    /// A regex matched this text.
    fn matched_regex(&mut self, pattern: &Pattern, text: &str);
}

/// Records how much of the path matched, by the last check of the path that held.
#[derive(Default)]
pub(super) struct MatchedPath(pub(super) Option<usize>);

impl Record for MatchedPath {
    fn matched_path(&mut self, length: usize) {
        self.0 = Some(length);
    }

    fn matched_regex(&mut self, _: &Pattern, _: &str) {}
}

/// Records what the groups of regexes captured.
#[derive(Default)]
pub(super) struct Groups(pub(super) Option<Box<Captures>>);

impl Record for Groups {
    fn matched_path(&mut self, _: usize) {}

    fn matched_regex(&mut self, pattern: &Pattern, text: &str) {
        if let Some(mut captures) = pattern.captures(text) {
            captures.shadow(self.0.take());
            self.0 = Some(captures);
        }
    }
}

impl Test {
    /// Whether an evaluation leaves something beside its outcome.
    pub(super) fn records(&self) -> bool {
        match &self.check {
            Check::Text(TextCheck::Regex(_)) => true,
            Check::Text(check) => self.field == Field::Path && check.sets_matched_path(),
            Check::Integer(..) | Check::Address(..) => false,
        }
    }

    pub(super) fn holds(&self, subject: &impl Subject, record: &mut impl Record) -> bool {
        match &self.check {
            Check::Text(check) => match &self.field {
                Field::Path => self.text_holds(check, subject.path(), record),
                field @ (Field::Header(_) | Field::Query(_)) => {
                    self.values_hold(check, |visit| subject.values(field, visit), record)
                }
                field => subject.text(field).is_some_and(|text| self.text_holds(check, text, record)),
            },
            Check::Integer(check, than) => {
                subject.integer(&self.field).is_some_and(|value| check.holds(value, *than))
            }
            Check::Address(network, inside) => {
                let inside_it = subject.address(&self.field).map(|address| network.contains(address));
                inside_it == Some(*inside)
            }
        }
    }

    /// Whether one of the values holds, with `any()`, or else all of them, of which there must be one.
    #[inline(never)]
    fn values_hold(
        &self,
        check: &TextCheck,
        values: impl FnOnce(&mut dyn FnMut(&[u8]) -> bool) -> bool,
        record: &mut impl Record,
    ) -> bool {
        let mut holds =
            |value: &[u8]| std::str::from_utf8(value).is_ok_and(|text| self.text_holds(check, text, record));
        if self.any {
            return values(&mut holds);
        }
        let mut some = false;
        let one_fails = values(&mut |value| {
            some = true;
            !holds(value)
        });
        some && !one_fails
    }

    #[inline]
    fn text_holds(&self, check: &TextCheck, text: &str, record: &mut impl Record) -> bool {
        if self.lower { self.lower_holds(check, text, record) } else { self.holds_as_is(check, text, record) }
    }

    /// Apart, so that checking texts as they are stays small.
    #[inline(never)]
    fn lower_holds(&self, check: &TextCheck, text: &str, record: &mut impl Record) -> bool {
        lower_case(text, |text| self.holds_as_is(check, text, record))
    }

    #[inline]
    fn holds_as_is(&self, check: &TextCheck, text: &str, record: &mut impl Record) -> bool {
        let Some(length) = check.matches(text) else { return false };
        if matches!(self.field, Field::Path) && check.sets_matched_path() {
            record.matched_path(length);
        }
        if let TextCheck::Regex(regex) = check {
            record.matched_regex(&regex.pattern, text);
        }
        true
    }
}

/// Calls `f` with a text in lower case.
fn lower_case<T>(text: &str, f: impl FnOnce(&str) -> T) -> T {
    if !text.is_ascii() {
        return f(&text.to_lowercase());
    }
    if !text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return f(text);
    }
    let mut room = [0; STACK_TEXT];
    match room.get_mut(..text.len()) {
        Some(room) => {
            room.copy_from_slice(text.as_bytes());
            room.make_ascii_lowercase();
            f(std::str::from_utf8(room).unwrap_or_default())
        }
        None => f(&text.to_ascii_lowercase()),
    }
}
