//! The node's own log messages, as OTLP logs.

use super::otlp::{AnyValue, LogRecord, Value, attribute};
use prost::Message;
use std::time::SystemTime;
use tracing::Level;
use weir_plugin::{Listener, NodeMessage, Queue};

/// Sends them to a collector.
pub(super) struct Logs(pub(super) Queue<LogRecord>);

impl Listener for Logs {
    fn hear(&self, message: &NodeMessage) {
        let record = record(message);
        let bytes = record.encoded_len();
        self.0.push(record, bytes);
    }
}

fn record(message: &NodeMessage) -> LogRecord {
    let since = message.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let nanoseconds = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
    let (severity_number, severity) = match message.level {
        Level::ERROR => (17, "ERROR"),
        Level::WARN => (13, "WARN"),
        Level::INFO => (9, "INFO"),
        _ => (5, "DEBUG"),
    };
    let named = |(name, value): &(&'static str, String)| {
        attribute(if *name == "request_id" { "request.id" } else { name }, value.clone())
    };
    LogRecord {
        time_unix_nano: nanoseconds,
        severity_number,
        severity_text: severity.to_owned(),
        body: Some(AnyValue { value: Some(Value::StringValue(message.text.clone())) }),
        attributes: message.fields.iter().map(named).collect(),
        observed_time_unix_nano: nanoseconds,
        ..LogRecord::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_severity_and_fields() {
        let fields = vec![("request_id", "r".to_owned()), ("host", "h".to_owned())];
        let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_nanos(7);
        let message = NodeMessage { at, level: Level::WARN, text: "it failed".to_owned(), fields };
        let found = record(&message);
        assert_eq!((found.time_unix_nano, found.severity_number, &*found.severity_text), (7, 13, "WARN"));
        assert_eq!(found.body, attribute("", "it failed").value);
        assert_eq!(found.attributes, [attribute("request.id", "r"), attribute("host", "h")]);
    }
}
