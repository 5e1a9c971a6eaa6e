//! Writes a line of JSON about each request to a file.
//!
//! ```yaml
//! plugins:
//!   - name: file-log
//!     config:
//!       path: /var/log/weir/requests.json
//! ```
//!
//! The file is created if it is missing, and appended to. `/dev/stdout` and `/dev/stderr` are the node's own. Lines are
//! written within 50 ms, many at a time, off the threads that serve requests. If the file cannot be written, or not as
//! fast as requests arrive, lines are dropped: `weir_plugin_dropped_total` in `/metrics` counts them, and the error log
//! says why. If a full disk cuts a line short, the next line still starts on a line of its own.
//!
//! ## The record
//!
//! Every log plugin writes the same record, with Kong's names:
//!
//! | member | |
//! |---|---|
//! | `request` | `id`, `method`, `uri`, `url`, `querystring`, `headers`, `size`; over TLS `tls` with `version` and `cipher` |
//! | `response` | `status`, `headers`, `size` |
//! | `latencies` | milliseconds: `request` in all, `kong`, `proxy` (-1 if the upstream did not answer), `receive` |
//! | `tries` | `ip`, `port`, `balancer_start`, `balancer_start_ns`, `balancer_latency`, `balancer_latency_ns` of each attempt to reach the upstream; those that another attempt followed have `state` (`failed`) and `code`, and the last one has what `error` says |
//! | `upstream_uri`, `upstream_status` | what the upstream was asked for and answered; empty if it did not |
//! | `route`, `service`, `consumer` | the entities; the first two with `ws_id`, the workspace's id |
//! | `authenticated_entity` | `id` of the credential, and `consumer_id` |
//! | `client_ip`, `started_at` | the client, and Unix time in milliseconds |
//! | `source` | who made the response: `upstream`, `exit` (a plugin) or `error` |
//! | `error` | why the client got no response of the upstream's, or only its beginning; absent if there was no error |
//! | `workspace`, `workspace_name` | always those of the one workspace |
//!
//! `status` and `size` of `response` are what the client got. `error` is one of `upstream_closed`, `upstream_timeout`,
//! `upstream_invalid_response`, `upstream_connect_failed`, `upstream_connect_timeout`, `name_resolution_failed`,
//! `no_healthy_target`, `deadline_exceeded`, `client_closed` and `client_timeout`.
//!
//! Header names are in lower case. Several headers or arguments of one name are a list; an argument without a value is
//! `true`. The record has at most a hundred of each. `Authorization` and `Proxy-Authorization` are `REDACTED`; other
//! secrets that clients send, such as keys in query strings and cookies, are in the record.
//!
//! With stream protocols, the record describes a session: `session` (`received`, `sent`, `status`, `server_port`; over
//! TLS that ends here, `tls` with `version`, `cipher` and `client_verify`), `upstream`, `latencies`, `tries`, `route`,
//! `service`, `client_ip`, `started_at`.
//!
//! ## Fields of your own
//!
//! `custom_fields_by_lua` adds fields, or changes and removes existing ones; dots lead into objects. Each value is the body of
//! a function in [Lua](../lua.md), which sees `kong` and `ngx` as in the phase `log`. `nil` removes the field.
//!
//! ```yaml
//! custom_fields_by_lua:
//!   environment: return "production"
//!   request.headers.cookie: return nil
//!   tenant: return kong.request.get_header("x-tenant") or "none"
//! ```
//!
//! Constants cost nothing; for other code the worker's Lua runs once per request. A field whose code fails stays as it was, and
//! the node's log says why. For sessions of streams the code sees no request.

use super::log_record::{LogRecord, lua_code};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use weir_plugin::{
    BuildContext, Delivered, Exchange, Hooks, Lines, Phases, Plugin, Record, Session, Streams, Undelivered,
    append,
};

/// The file, and what is written to it.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// The path of the file.
    #[field(check = file_name)]
    pub path: String,
    /// Opens the file again for each write, for log rotation.
    #[field(default = false)]
    pub reopen: bool,
    /// Fields to add to the record, to change or to remove: bodies of functions in Lua.
    #[field(check = lua_code)]
    pub custom_fields_by_lua: Option<BTreeMap<String, String>>,
}

fn file_name(path: &str) -> Result<(), String> {
    match path.contains(['*', '&', '%', '`', '\0']) {
        true => Err("not a valid filename; leave out *, &, %, ` and NUL".to_owned()),
        false => Ok(()),
    }
}

/// One configured instance.
pub(super) struct FileLog {
    record: LogRecord,
    lines: Lines,
}

impl Plugin for FileLog {
    const NAME: &'static str = "file-log";
    const PRIORITY: i32 = 9;
    const STREAMS: Streams = Streams::IfNamed;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let record = LogRecord::new(&config.custom_fields_by_lua, Self::NAME, build)?;
        let target = Arc::new(Target::new(config.path, config.reopen));
        let lines = build.lines(move |text| write(target.clone(), text));
        Ok(Self { record, lines })
    }
}

impl Hooks for FileLog {
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

/// The file that lines are written to.
pub(crate) struct Target {
    path: PathBuf,
    reopen: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Opened when it is first needed.
    file: Option<File>,
    /// Whether the last write ended within a line.
    torn: bool,
}

/// File access blocks, so it must not run on a thread that does other work.
pub(crate) async fn write(target: Arc<Target>, text: Vec<u8>) -> Delivered {
    let written = tokio::task::spawn_blocking(move || {
        let lost = target.write(&text);
        (text, lost)
    });
    written.await.unwrap_or_else(|error| (Vec::new(), Err(Undelivered { lines: 0, why: error.to_string() })))
}

impl Target {
    pub(crate) fn new(path: String, reopen: bool) -> Self {
        Self { path: path.into(), reopen, state: Mutex::default() }
    }

    fn write(&self, text: &[u8]) -> Result<(), Undelivered> {
        let mut left = text;
        let result = match self.path.to_str() {
            Some("/dev/stdout") => io::stdout().lock().write_all(text),
            Some("/dev/stderr") => io::stderr().lock().write_all(text),
            _ => self.append(&mut left),
        };
        result.map_err(|error| Undelivered::all(left, format_args!("{}: {error}", self.path.display())))
    }

    fn append(&self, left: &mut &[u8]) -> io::Result<()> {
        let State { file: kept, torn } = &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = match kept.take().filter(|_| !self.reopen) {
            Some(file) => file,
            None => {
                let file = OpenOptions::new().create(true).append(true).mode(0o644).open(&self.path)?;
                // The path may name another file by now.
                *torn &= file.metadata()?.len() > 0;
                file
            }
        };
        append(&mut file, left, torn)?;
        *kept = Some(file);
        Ok(())
    }
}
