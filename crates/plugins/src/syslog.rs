//! Sends a message of JSON about each request to the system's log.
//!
//! ```yaml
//! plugins:
//!   - name: syslog
//!     config:
//!       server_errors_severity: err
//!       facility: local0
//! ```
//!
//! [file-log](file-log.md#the-record) tells what is in the object. Messages go to the socket `/dev/log` as those of
//! `kong`, which rules for them may know, with the severity that the response's status asks for: below 400, below 500,
//! or above. Those less severe than `log_level` are left out. Messages that the system does not take are dropped:
//! `weir_plugin_dropped_total` in `/metrics` counts them, and the error log says so once a minute at most. In a container
//! there is no `/dev/log` unless the host's is mounted (`-v /dev/log:/dev/log`).

use super::datagrams::{Socket, send_lines};
use super::log_record::{LogRecord, constant};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use weir_plugin::{BuildContext, Exchange, Hooks, Lines, Phases, Plugin, Record, Session, Streams};

/// How severe a request is, and for whom.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// The least severity that is told.
    #[field(default = "info", one_of = ["debug", "info", "notice", "warning", "err", "crit", "alert", "emerg"])]
    pub log_level: String,
    /// The severity of responses below 400.
    #[field(default = "info", one_of = ["debug", "info", "notice", "warning", "err", "crit", "alert", "emerg"])]
    pub successful_severity: String,
    /// The severity of responses from 400 to 499.
    #[field(default = "info", one_of = ["debug", "info", "notice", "warning", "err", "crit", "alert", "emerg"])]
    pub client_errors_severity: String,
    /// The severity of responses from 500 on.
    #[field(default = "info", one_of = ["debug", "info", "notice", "warning", "err", "crit", "alert", "emerg"])]
    pub server_errors_severity: String,
    /// Fields to add to the record, to change or to remove: constants.
    #[field(check = constant)]
    pub custom_fields_by_lua: Option<BTreeMap<String, String>>,
    /// The kind of program that says so.
    #[field(default = "user", one_of = [
        "auth", "authpriv", "cron", "daemon", "ftp", "kern", "lpr", "mail", "news", "syslog", "user", "uucp",
        "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"
    ])]
    pub facility: String,
}

/// By their numbers, RFC 5424's.
const SEVERITIES: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "",
    "", "", "", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
];

const SOCKET: &str = "/dev/log";

/// One configured instance.
pub(super) struct Syslog {
    record: LogRecord,
    lines: Lines,
    /// What messages of successes, the clients' errors and the servers' begin with; nothing where they are left out.
    beginnings: [Option<String>; 3],
}

impl Plugin for Syslog {
    const NAME: &'static str = "syslog";
    const PRIORITY: i32 = 4;
    const STREAMS: Streams = Streams::IfNamed;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let number =
            |names: &[&str], name: &str| names.iter().position(|known| *known == name).unwrap_or_default();
        let (least, facility) =
            (number(&SEVERITIES, &config.log_level), number(&FACILITIES, &config.facility));
        let severities =
            [&config.successful_severity, &config.client_errors_severity, &config.server_errors_severity];
        let beginnings = severities.map(|severity| {
            let severity = number(&SEVERITIES, severity);
            (severity <= least).then(|| format!("<{}>kong: ", facility * 8 + severity))
        });
        let lines = build.lines(|text: Vec<u8>| async move {
            let sent = send_lines(&text, socket(Path::new(SOCKET))).await;
            (text, sent)
        });
        Ok(Self { record: LogRecord::new(&config.custom_fields_by_lua), lines, beginnings })
    }
}

/// The system's socket, or why there is none and what to do about it.
fn socket(path: &Path) -> io::Result<Socket> {
    let told = |error: io::Error| {
        let path = path.display();
        let advice = "mount the host's socket into the container, or use tcp-log or udp-log";
        io::Error::new(error.kind(), format!("{path}: {error}; run a system log there, {advice}"))
    };
    Socket::unix(path).map_err(told)
}

impl Hooks for Syslog {
    fn phases(&self) -> Phases {
        Phases::LOG | Phases::LOG_STREAM
    }

    fn log(&self, exchange: &Exchange) {
        self.tell(exchange.worker, exchange.response.status, |out| self.record.write(out, exchange));
    }

    fn log_stream(&self, session: &Session) {
        let worker = session.client.port().into();
        self.tell(worker, session.status, |out| self.record.write_session(out, session));
    }
}

impl Syslog {
    fn tell(&self, worker: usize, status: u16, write: impl FnOnce(&mut Vec<u8>)) {
        let [success, client, server] = &self.beginnings;
        let beginning = match status {
            ..400 => success,
            400..500 => client,
            500.. => server,
        };
        if let Some(beginning) = beginning {
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
    async fn each_line_is_a_message_and_what_nobody_takes_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let nobody = send_lines(b"<14>kong: {}\n<14>kong: {}\n", socket(&path)).await.unwrap_err();
        assert_eq!(nobody.lines, 2);
        let (place, advice) = (path.display().to_string(), "or use tcp-log or udp-log");
        assert!(nobody.why.starts_with(&place) && nobody.why.ends_with(advice), "{}", nobody.why);
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
        let beginnings = syslog.beginnings.each_ref().map(Option::as_deref);
        assert_eq!(beginnings, [None, Some("<156>kong: "), Some("<154>kong: ")]);
    }
}
