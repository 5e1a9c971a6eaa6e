//! Sends a datagram of JSON about each request to a UDP server.
//!
//! ```yaml
//! plugins:
//!   - name: udp-log
//!     config:
//!       host: logs.example.com
//!       port: 9999
//! ```
//!
//! [file-log](file-log.md#the-record) describes the object. Datagrams are sent within 50 ms. A record that does not fit
//! into a datagram of 65,507 bytes, or that cannot be sent to the server, is dropped: `weir_plugin_dropped_total` in
//! `/metrics` counts it. Weir does not notice datagrams that the network loses.

use super::log_record::{LogRecord, lua_code};
use crate::shared::datagrams::{Peer, send_lines};
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_plugin::{BuildContext, Exchange, Hooks, Lines, Phases, Plugin, Record, Session, Streams};

/// The server.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// Its name or address.
    #[field(matches = host)]
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The timeout for resolving the server's name, in milliseconds.
    #[field(nullable, default = 10_000)]
    pub timeout: f64,
    /// Fields to add to the record, to change or to remove: bodies of functions in Lua.
    #[field(check = lua_code)]
    pub custom_fields_by_lua: Option<BTreeMap<String, String>>,
}

/// One configured instance.
pub(super) struct UdpLog {
    record: LogRecord,
    lines: Lines,
}

impl Plugin for UdpLog {
    const NAME: &'static str = "udp-log";
    const PRIORITY: i32 = 8;
    const STREAMS: Streams = Streams::IfNamed;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let peer = Arc::new(Peer::new(&config.host, config.port, config.timeout, build.dialer()));
        let lines = build.lines(move |text: Vec<u8>| {
            let peer = peer.clone();
            async move {
                let sent = send_lines(&text, peer.socket().await).await;
                (text, sent)
            }
        });
        let record = LogRecord::new(&config.custom_fields_by_lua, Self::NAME, build)?;
        Ok(Self { record, lines })
    }
}

impl Hooks for UdpLog {
    fn phases(&self) -> Phases {
        Phases::LOG | Phases::LOG_STREAM
    }

    fn log(&self, exchange: &mut Exchange) {
        let scripted = self.record.evaluate(exchange);
        self.lines.write(exchange.worker, |out| self.record.write(out, exchange, &scripted));
    }

    fn log_stream(&self, session: &Session) {
        let scripted = self.record.evaluate_session();
        let worker = session.client.port().into();
        self.lines.write(worker, |out| self.record.write_session(out, session, &scripted));
    }
}
