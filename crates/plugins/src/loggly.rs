//! Sends a JSON message about each request to Loggly.
//!
//! ```yaml
//! plugins:
//!   - name: loggly
//!     config:
//!       key: 0aa00aa0-a0aa-000a-a0aa-a0000000aaa0
//!       tags: [gateway, production]
//!       server_errors_severity: err
//! ```
//!
//! [file-log](file-log.md#the-record) describes the object. Each message is a datagram in the form of RFC 5424, as in
//! `<14>1 2026-11-22T20:00:00Z HOST kong - - [KEY@41058 tag="kong"] {…}`, with the facility `user` and with the severity configured
//! for the response's status: below 400, below 500, or above. Messages less severe than `log_level` are left out.
//!
//! The datagrams are not encrypted, so the key and the records can be read on their way: have a relay near the node, such as
//! rsyslog, send them on over TLS, or use [http-log](http-log.md) with Loggly's HTTPS endpoint. A record that does not fit into a
//! datagram of 65,507 bytes, or that cannot be sent to the server, is dropped: `weir_plugin_dropped_total` in `/metrics`
//! counts it. Weir does not notice datagrams that the network loses.

use super::log_record::{LogRecord, lua_code};
use crate::shared::datagrams::{Peer, send_lines};
use crate::shared::severities::{Severities, severity};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use time::OffsetDateTime;
use weir_plugin::{BuildContext, Exchange, Hooks, Lines, Phases, Plugin, Record, Secret, Session, Streams};

/// The server, the severities, and what messages hold.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// The server's name or address.
    #[field(nullable, default = "logs-01.loggly.com", matches = host)]
    pub host: String,
    /// Its port.
    #[field(nullable, default = 514)]
    pub port: u16,
    /// The customer token of Loggly.
    #[field(secret, check = token)]
    pub key: Secret,
    /// The tags of messages.
    #[field(nullable, set, default = ["kong"])]
    pub tags: Vec<String>,
    /// The lowest severity that is sent.
    #[field(nullable, default = "info", one_of = [
        "debug", "info", "notice", "warning", "err", "crit", "alert", "emerg",
    ])]
    pub log_level: String,
    /// The severity of responses below 400.
    #[field(nullable, default = "info", one_of = [
        "debug", "info", "notice", "warning", "err", "crit", "alert", "emerg",
    ])]
    pub successful_severity: String,
    /// The severity of responses from 400 to 499.
    #[field(nullable, default = "info", one_of = [
        "debug", "info", "notice", "warning", "err", "crit", "alert", "emerg",
    ])]
    pub client_errors_severity: String,
    /// The severity of responses from 500 on.
    #[field(nullable, default = "info", one_of = [
        "debug", "info", "notice", "warning", "err", "crit", "alert", "emerg",
    ])]
    pub server_errors_severity: String,
    /// The timeout for resolving the server's name, in milliseconds.
    #[field(nullable, default = 10_000)]
    pub timeout: f64,
    /// Fields to add to the record, to change or to remove: bodies of functions in Lua.
    #[field(check = lua_code)]
    pub custom_fields_by_lua: Option<BTreeMap<String, String>>,
}

/// A token that does not end the element of the message that it stands in.
fn token(text: &str) -> Result<(), String> {
    match text.bytes().all(|byte| byte.is_ascii_graphic() && !b"=]\"@".contains(&byte)) {
        true => Ok(()),
        false => Err("expected a customer token of Loggly; copy it from its page of source setup".to_owned()),
    }
}

/// One configured instance.
pub(super) struct Loggly {
    record: LogRecord,
    lines: Lines,
    /// What stands before the time, for each severity that is sent.
    severities: Severities,
    /// What stands between the time and the record.
    middle: String,
}

impl Plugin for Loggly {
    const NAME: &'static str = "loggly";
    const PRIORITY: i32 = 6;
    const STREAMS: Streams = Streams::IfNamed;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        // A vault's value is checked here.
        token(config.key.expose()).map_err(|why| format!("config.key: {why}"))?;
        let peer = Arc::new(Peer::new(&config.host, config.port, config.timeout, build.dialer()));
        let lines = build.lines(move |text: Vec<u8>| {
            let peer = peer.clone();
            async move {
                let sent = send_lines(&text, peer.socket().await).await;
                (text, sent)
            }
        });
        let least = severity(&config.log_level);
        let severities = Severities::new(
            [&config.successful_severity, &config.client_errors_severity, &config.server_errors_severity],
            // 8 is the facility user.
            |severity| (severity <= least).then(|| format!("<{}>1 ", 8 + severity)),
        );
        let record = LogRecord::new(&config.custom_fields_by_lua, Self::NAME, build)?;
        Ok(Self { record, lines, severities, middle: middle(&config, &build.hostname()) })
    }
}

fn middle(config: &Config, host: &str) -> String {
    let tags: Vec<_> = config.tags.iter().map(|tag| format!("tag=\"{}\"", escaped(tag))).collect();
    let host = if host.is_empty() { "-" } else { host };
    format!(" {host} kong - - [{}@41058 {}] ", config.key.expose(), tags.join(" "))
}

/// A value of an element: RFC 5424 escapes what would end it, and a line is a message.
fn escaped(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for character in value.chars() {
        match character {
            '"' | '\\' | ']' => out.extend(['\\', character]),
            character if character.is_control() => out.push(' '),
            character => out.push(character),
        }
    }
    out
}

impl Hooks for Loggly {
    fn phases(&self) -> Phases {
        Phases::LOG | Phases::LOG_STREAM
    }

    fn log(&self, exchange: &mut Exchange) {
        let scripted = self.record.evaluate(exchange);
        let (worker, status) = (exchange.worker, exchange.response.status);
        self.tell(worker, status, |out| self.record.write(out, exchange, &scripted));
    }

    fn log_stream(&self, session: &Session) {
        let worker = session.client.port().into();
        let scripted = self.record.evaluate_session();
        self.tell(worker, session.status, |out| self.record.write_session(out, session, &scripted));
    }
}

impl Loggly {
    fn tell(&self, worker: usize, status: u16, write: impl FnOnce(&mut Vec<u8>)) {
        if let Some(beginning) = self.severities.of(status) {
            self.lines.write(worker, |out| {
                out.extend_from_slice(beginning.as_bytes());
                put_time(out, OffsetDateTime::now_utc());
                out.extend_from_slice(self.middle.as_bytes());
                write(out);
            });
        }
    }
}

/// Appends the time to the second.
fn put_time(out: &mut Vec<u8>, at: OffsetDateTime) {
    let (date, time) = (at.date(), at.time());
    // Writing to a vector cannot fail.
    let _ = write!(
        out,
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        time.hour(),
        time.minute(),
        time.second()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn no_tag_ends_its_element() {
        let config = json!({ "key": "a-key", "tags": ["kong", "a\"]b\\c\nd"] });
        let config = Config::from_value(&config).unwrap();
        let expected = " host.test kong - - [a-key@41058 tag=\"kong\" tag=\"a\\\"\\]b\\\\c d\"] ";
        assert_eq!(middle(&config, "host.test"), expected);
        let without = Config::from_value(&json!({ "key": "k", "tags": [] })).unwrap();
        assert_eq!(middle(&without, ""), " - kong - - [k@41058 ] ");
    }

    #[test]
    fn times_are_to_the_second() {
        let mut out = Vec::new();
        put_time(&mut out, OffsetDateTime::from_unix_timestamp(1_795_000_009).unwrap());
        assert_eq!(String::from_utf8(out).unwrap(), "2026-11-18T11:06:49Z");
    }
}
