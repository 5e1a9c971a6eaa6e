//! What is wrong with a regular expression: where in it, and how to fix that.
use regex_syntax::ast::{self, Span};
use regex_syntax::{Error, hir};

/// As much of an expression as a message repeats.
const SHOWN: usize = 12;

/// A regular expression.
pub fn regex(text: &str) -> Result<(), String> {
    marked_regex("", text)
}

/// A regular expression that is written behind a mark, such as `~`.
pub fn marked_regex(mark: &str, text: &str) -> Result<(), String> {
    let Err(error) = regex_syntax::parse(text) else { return Ok(()) };
    Err(match &error {
        Error::Parse(error) => {
            let fix = fix(error.kind());
            describe(mark, text, error.span(), &error.kind().to_string(), fix)
        }
        Error::Translate(error) => {
            describe(mark, text, error.span(), &error.kind().to_string(), fix_of_meaning(error.kind()))
        }
        _ => format!("the regex does not compile; {OTHERWISE}"),
    })
}

fn describe(mark: &str, text: &str, span: &Span, what: &str, fix: &str) -> String {
    let (before, from) = text.split_at(text.floor_char_boundary(span.start.offset));
    let place = mark.chars().count() + before.chars().count() + 1;
    let shown: String = from.chars().take(SHOWN).collect();
    let shown = if shown.is_empty() { String::new() } else { format!(" `{shown}`") };
    format!("the regex does not compile: {what}, at character {place}{shown}; {fix}")
}

const OTHERWISE: &str = "write \\ before a character that stands for itself";

fn fix(kind: &ast::ErrorKind) -> &'static str {
    use ast::ErrorKind::*;
    match kind {
        GroupUnclosed => "close it with `)`, or write `\\(` for the character itself",
        GroupUnopened => "leave it out, or write `\\)` for the character itself",
        ClassUnclosed => "close it with `]`, or write `\\[` for the character itself",
        ClassRangeInvalid => "begin with the lesser of the two",
        ClassRangeLiteral => "write `\\-` for the character itself",
        RepetitionMissing => "write what is repeated before it, or \\ for the character itself",
        RepetitionCountUnclosed | RepetitionCountInvalid | RepetitionCountDecimalEmpty => {
            "write it as {2}, {2,} or {2,5}, or `\\{` for the character itself"
        }
        EscapeUnrecognized => "write the character without the `\\`",
        EscapeUnexpectedEof => "write `\\\\` for the character itself",
        UnsupportedBackreference | UnsupportedLookAround => {
            "write it without: regexes run in linear time here, which rules that out"
        }
        _ => OTHERWISE,
    }
}

fn fix_of_meaning(kind: &hir::ErrorKind) -> &'static str {
    match kind {
        hir::ErrorKind::UnicodePropertyNotFound | hir::ErrorKind::UnicodePropertyValueNotFound => {
            "name a class such as \\p{L}"
        }
        _ => OTHERWISE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_position_is_counted_in_characters() {
        for (mark, text, expected) in [
            ("", "a(b", "unclosed group, at character 2 `(b`; close it with `)`"),
            ("~", "/ä/[a-z", "unclosed character class, at character 5 `[a-z`; close it with `]`"),
            ("", "*.example.com", "at character 1 `*.example.co`; write what is repeated before it"),
            ("", r"/\", "at character 2 `\\`"),
            (
                "",
                "(?=a)b",
                "look-around, including look-ahead and look-behind, is not supported, at character 1",
            ),
            ("", "[z-a]", "at character 2 `z-a]`; begin with the lesser"),
            ("", r"\p{Nonesuch}", "Unicode property not found, at character 1"),
        ] {
            let message = marked_regex(mark, text).unwrap_err();
            assert!(message.contains(expected) && message.lines().count() == 1, "{text}: {message}");
        }
    }
}
