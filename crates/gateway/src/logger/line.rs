//! The form of a message: `2026-01-02T03:04:05.678Z WARN message key=value`.
use std::fmt::{self, Write};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes an event as one line.
pub(super) struct OneLine;

impl<S, N> FormatEvent<S, N> for OneLine
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = Line::default();
        event.record(&mut line);
        writeln!(writer, "{} {} {}{}", timestamp(), event.metadata().level(), line.message, line.pairs)
    }
}

/// The fields of an event as text.
#[derive(Default)]
struct Line {
    message: String,
    pairs: String,
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field.name(), &format!("{value:?}"));
    }
}

impl Line {
    fn add(&mut self, name: &str, value: &str) {
        let quoted =
            value.is_empty() || value.contains(|c: char| c.is_whitespace() || c == '"' || c.is_control());
        // Writing to a String cannot fail.
        let _ = match name {
            // A message must not be able to forge a second line.
            "message" => value.chars().try_for_each(|c| match c.is_control() {
                true => write!(self.message, "{}", c.escape_default()),
                false => self.message.write_char(c),
            }),
            _ if quoted => write!(self.pairs, " {name}={value:?}"),
            _ => write!(self.pairs, " {name}={value}"),
        };
    }
}

/// The time now: RFC 3339 in UTC, with milliseconds.
pub(crate) fn timestamp() -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    // It ends in microseconds.
    text.truncate("2026-01-02T03:04:05.678".len());
    text.push('Z');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_milliseconds() {
        let text = timestamp();
        let digits = text.replace(|c: char| c.is_ascii_digit(), "0");
        assert_eq!(digits, "0000-00-00T00:00:00.000Z", "{text}");
    }

    #[test]
    fn a_message_is_one_line() {
        let mut line = Line::default();
        for (name, value) in [("path", "/a b"), ("message", "one\ntwo"), ("code", "200")] {
            line.add(name, value);
        }
        assert_eq!(line.message + &line.pairs, "one\\ntwo path=\"/a b\" code=200");
    }
}
