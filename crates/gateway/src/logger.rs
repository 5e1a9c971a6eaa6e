//! The node's own messages: `2026-01-02T03:04:05.678Z WARN message key=value`, one line each.
use crate::settings::{LogLevel, LogTarget};
use std::fmt::{self, Write as _};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use weir_proxy::{NodeLog, NodeMessage};

/// Sends every message of the process to a target from now on.
pub(crate) fn start(level: LogLevel, target: &LogTarget) -> io::Result<()> {
    let LogTarget::Path(path) = target else { return Ok(()) };
    set_level(level);
    let logger = Logger { sink: Mutex::new(open(path)?) };
    tracing::subscriber::set_global_default(logger).map_err(io::Error::other)
}

/// The least severe messages that are written; a subscriber is one for the process, and so is its level.
static LEVEL: RwLock<LogLevel> = RwLock::new(LogLevel::Notice);

/// How much is logged.
pub(crate) fn level() -> LogLevel {
    *LEVEL.read().unwrap_or_else(PoisonError::into_inner)
}

/// Logs more or less from now on.
pub(crate) fn set_level(level: LogLevel) {
    *LEVEL.write().unwrap_or_else(PoisonError::into_inner) = level;
    // Places that log remember whether they do.
    tracing::callsite::rebuild_interest_cache();
}

fn most_verbose() -> LevelFilter {
    match level() {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info | LogLevel::Notice => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error | LogLevel::Crit | LogLevel::Alert | LogLevel::Emerg => LevelFilter::ERROR,
    }
}

/// Opens a file of lines to append to.
pub(crate) fn open(path: &Path) -> io::Result<Box<dyn Write + Send>> {
    match path.to_str() {
        // Opening these anew fails when they are sockets, as under systemd.
        Some("/dev/stdout") => Ok(Box::new(io::stdout())),
        Some("/dev/stderr") => Ok(Box::new(io::stderr())),
        _ => Ok(Box::new(OpenOptions::new().create(true).append(true).open(path)?)),
    }
}

/// The target of the lines that tell who wrote what. They are a record rather than messages: no level silences them.
pub(crate) const AUDIT: &str = "audit";

/// The level of these lines.
const AUDIT_LEVEL: LevelFilter = LevelFilter::INFO;

fn is_audit(metadata: &Metadata<'_>) -> bool {
    metadata.target() == AUDIT && *metadata.level() <= AUDIT_LEVEL
}

/// What the HTTP/2 library says, even by warnings, is what any peer can make it say: of use to who looks for a fault.
fn is_of_peers(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with("h2::")
}

/// Those who are told of messages beside the log.
static LISTENERS: OnceLock<Arc<NodeLog>> = OnceLock::new();

/// Has listeners told of what is logged from now on. There are those of one node in a process.
pub(crate) fn tell(listeners: Arc<NodeLog>) {
    let _ = LISTENERS.set(listeners);
}

fn said(event: &Event<'_>, level: Level) -> NodeMessage {
    let mut said =
        Said(NodeMessage { at: SystemTime::now(), level, text: String::new(), fields: Vec::new() });
    event.record(&mut said);
    said.0
}

/// What an event says, piece by piece.
struct Said(NodeMessage);

impl Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.0.text = value.to_owned(),
            name => self.0.fields.push((name, value.to_owned())),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

struct Logger {
    sink: Mutex<Box<dyn Write + Send>>,
}

/// Events are written; spans are not used here, and go unnoticed.
impl Subscriber for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let most = most_verbose();
        is_audit(metadata)
            || (*metadata.level() <= most && (most >= LevelFilter::DEBUG || !is_of_peers(metadata)))
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(most_verbose().max(AUDIT_LEVEL))
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        if let Some(log) = LISTENERS.get() {
            let metadata = event.metadata();
            log.tell(metadata.target(), || said(event, *metadata.level()));
        }
        if let Ok(mut sink) = self.sink.lock() {
            // There is nowhere left to report that a log cannot be written.
            let _ = sink.write_all(line.text(SystemTime::now(), *event.metadata().level()).as_bytes());
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// What an event says.
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

    fn text(&self, now: SystemTime, level: Level) -> String {
        format!("{} {level} {}{}\n", timestamp(now), self.message, self.pairs)
    }
}

/// RFC 3339 in UTC, with milliseconds.
pub(crate) fn timestamp(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        second / 3600,
        second / 60 % 60,
        second % 60,
        since.subsec_millis()
    )
}

/// The Gregorian date of a day counted from 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    // Years are counted from March, so that the leap day is the last of its year.
    let since_0000_03_01 = days + 719_468;
    let (era, day_of_era) = (since_0000_03_01 / 146_097, since_0000_03_01 % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn a_message_is_one_line() {
        let mut line = Line::default();
        for (name, value) in [("path", "/a b"), ("message", "one\ntwo"), ("code", "200")] {
            line.add(name, value);
        }
        let text = line.text(UNIX_EPOCH, Level::WARN);
        assert_eq!(text, "1970-01-01T00:00:00.000Z WARN one\\ntwo path=\"/a b\" code=200\n");
    }
}
