//! Sends a JSON message about each request to the system log.
//!
//! ```yaml
//! plugins:
//!   - name: syslog
//!     config:
//!       server_errors_severity: err
//!       facility: local0
//! ```
//!
//! [file-log](file-log.md#the-record) describes the object. Messages go to the socket `/dev/log` with the identifier
//! `kong`, for filters in rsyslog or journald, and with the severity configured for the response's status: below 400,
//! below 500, or above. Messages less severe than `log_level` are left out. Messages that the system does not accept
//! are dropped: `weir_plugin_dropped_total` in `/metrics` counts them, and the error log says so at most once a minute.
//! A container has no `/dev/log` unless you mount the host's (`-v /dev/log:/dev/log`).

use super::log_record::{LogRecord, lua_code};
use crate::shared::datagrams::{Socket, send_lines};
use crate::shared::severities::{Severities, severity};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use weir_plugin::{BuildContext, Exchange, Hooks, Lines, Phases, Plugin, Record, Session, Streams};

/// The severity and the facility of messages.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
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
    /// Fields to add to the record, to change or to remove: bodies of functions in Lua.
    #[field(check = lua_code)]
    pub custom_fields_by_lua: Option<BTreeMap<String, String>>,
    /// The facility.
    #[field(default = "user", one_of = [
        "auth", "authpriv", "cron", "daemon", "ftp", "kern", "lpr", "mail", "news", "syslog", "user", "uucp",
        "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"
    ])]
    pub facility: String,
}

/// By RFC 5424's numbers.
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "",
    "", "", "", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
];

const SOCKET: &str = "/dev/log";

/// One configured instance.
pub(super) struct Syslog {
    record: LogRecord,
    lines: Lines,
    severities: Severities,
}

impl Plugin for Syslog {
    const NAME: &'static str = "syslog";
    const PRIORITY: i32 = 4;
    const STREAMS: Streams = Streams::IfNamed;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let least = severity(&config.log_level);
        let facility = FACILITIES.iter().position(|known| *known == config.facility).unwrap_or_default();
        let severities = Severities::new(
            [&config.successful_severity, &config.client_errors_severity, &config.server_errors_severity],
            |severity| (severity <= least).then(|| format!("<{}>kong: ", facility * 8 + severity)),
        );
        let lines = build.lines(|text: Vec<u8>| async move {
            let sent = send_lines(&text, socket(Path::new(SOCKET))).await;
            (text, sent)
        });
        let record = LogRecord::new(&config.custom_fields_by_lua, Self::NAME, build)?;
        Ok(Self { record, lines, severities })
    }
}

/// The system's socket, or why it is unavailable and how to fix it.
fn socket(path: &Path) -> io::Result<Socket> {
    let with_hint = |error: io::Error| {
        let path = path.display();
        let advice = "mount the host's socket into the container, or use tcp-log or udp-log";
        io::Error::new(error.kind(), format!("{path}: {error}; run a system log there, {advice}"))
    };
    Socket::unix(path).map_err(with_hint)
}

impl Hooks for Syslog {
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

impl Syslog {
    fn tell(&self, worker: usize, status: u16, write: impl FnOnce(&mut Vec<u8>)) {
        if let Some(beginning) = self.severities.of(status) {
            self.lines.write(worker, |out| {
                out.extend_from_slice(beginning.as_bytes());
                write(out);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PLUGINS;
    use serde_json::json;
    use weir_plugin::testing::Gateway;

    #[tokio::test]
    async fn each_line_is_a_message_and_undelivered_ones_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let refused = send_lines(b"<14>kong: {}\n<14>kong: {}\n", socket(&path)).await.unwrap_err();
        assert_eq!(refused.lines, 2);
        let (place, advice) = (path.display().to_string(), "or use tcp-log or udp-log");
        assert!(refused.why.starts_with(&place) && refused.why.ends_with(advice), "{}", refused.why);
        let system = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        send_lines(b"<14>kong: {\"a\":1}\n<11>kong: {}\n", socket(&path)).await.unwrap();
        let mut message = [0; 100];
        for expected in ["<14>kong: {\"a\":1}", "<11>kong: {}"] {
            let length = system.recv(&mut message).unwrap();
            assert_eq!(std::str::from_utf8(&message[..length]).unwrap(), expected);
        }
    }

    #[test]
    fn severities_follow_the_status_and_the_level_leaves_some_out() {
        let gateway = Gateway::new(PLUGINS);
        let config = json!({
            "log_level": "warning", "successful_severity": "notice", "client_errors_severity": "warning",
            "server_errors_severity": "crit", "facility": "local3"
        });
        let entity =
            weir_plugin::testing::entity(json!({ "name": "syslog", "id": weir_plugin::testing::id(1) }));
        let syslog = gateway
            .build_with(&entity, |build| Syslog::new(Config::from_value(&config).unwrap(), build).unwrap());
        let beginnings = [200, 499, 500].map(|status| syslog.severities.of(status));
        assert_eq!(beginnings, [None, Some("<156>kong: "), Some("<154>kong: ")]);
    }
}
