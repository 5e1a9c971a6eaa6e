//! The node's own messages, as `tracing-subscriber` writes them: one line each, in the form that [`mod@line`] gives it.
mod file;
mod line;

pub(crate) use file::{follow_standard_error, reopen};
pub(crate) use line::timestamp;

use crate::settings::{LogLevel, LogTarget};
use file::LogFile;
use line::OneLine;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::SystemTime;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{Layer, Registry, reload};
use weir_guests::INFO_TARGET;
use weir_proxy::{NodeLog, NodeMessage};

/// The target of audit lines: who wrote what. They are a record rather than messages, so no level silences them.
pub(crate) const AUDIT: &str = "audit";

/// The level of audit lines.
const AUDIT_LEVEL: LevelFilter = LevelFilter::INFO;

/// The least severe messages that are written; a subscriber is one for the process, and so is its level.
static LEVEL: RwLock<LogLevel> = RwLock::new(LogLevel::Notice);

/// Changes which messages are written, once the log is open.
static FILTER: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Plugins that receive the node's messages. There is one node in a process.
static PLUGINS: OnceLock<Arc<NodeLog>> = OnceLock::new();

/// Sends every message of the process to a target from now on.
pub(crate) fn start(level: LogLevel, target: &LogTarget) -> io::Result<()> {
    let LogTarget::Path(path) = target else { return Ok(()) };
    let (filter, handle) = reload::Layer::new(filter(level));
    // An error of the log has nowhere left to go.
    let lines = tracing_subscriber::fmt::layer().event_format(OneLine).log_internal_errors(false);
    let log = Registry::default()
        .with(filter)
        .with(ToPlugins)
        .with(lines.with_writer(open("proxy_error_log", path)?));
    tracing::subscriber::set_global_default(log).map_err(io::Error::other)?;
    let _ = FILTER.set(handle);
    set_level(level);
    Ok(())
}

/// How much is logged.
pub(crate) fn level() -> LogLevel {
    *LEVEL.read().unwrap_or_else(PoisonError::into_inner)
}

/// Logs more or less from now on.
pub(crate) fn set_level(level: LogLevel) {
    *LEVEL.write().unwrap_or_else(PoisonError::into_inner) = level;
    if let Some(handle) = FILTER.get() {
        // Fails only once the log is gone, which lasts as long as the process.
        let _ = handle.reload(filter(level));
    }
}

fn filter(level: LogLevel) -> Targets {
    let most_verbose = match level {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info | LogLevel::Notice => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error | LogLevel::Crit | LogLevel::Alert | LogLevel::Emerg => LevelFilter::ERROR,
    };
    // Only Lua code has a level between these two.
    let of_lua_info = if level == LogLevel::Notice { LevelFilter::WARN } else { most_verbose };
    // Any client can make the HTTP/2 library warn, so its messages are written only at the level debug.
    let of_http2 = if most_verbose >= LevelFilter::DEBUG { most_verbose } else { LevelFilter::OFF };
    Targets::new()
        .with_default(most_verbose)
        .with_target("h2::", of_http2)
        .with_target(INFO_TARGET, of_lua_info)
        .with_target(AUDIT, most_verbose.max(AUDIT_LEVEL))
}

/// Opens the log that a setting names, to append lines to it.
pub(crate) fn open(name: &'static str, path: &Path) -> io::Result<BoxMakeWriter> {
    Ok(match path.to_str() {
        // Opening these anew fails when they are sockets, as under systemd.
        Some("/dev/stdout") => BoxMakeWriter::new(io::stdout),
        Some("/dev/stderr") => BoxMakeWriter::new(io::stderr),
        _ => BoxMakeWriter::new(LogFile::open(name, path)?),
    })
}

/// Passes what is logged from now on to plugins, too.
pub(crate) fn send_to_plugins(log: Arc<NodeLog>) {
    let _ = PLUGINS.set(log);
}

struct ToPlugins;

impl<S: Subscriber> Layer<S> for ToPlugins {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if let Some(log) = PLUGINS.get() {
            log.tell(event.metadata().target(), || message(event));
        }
    }
}

fn message(event: &Event<'_>) -> NodeMessage {
    let level = *event.metadata().level();
    let message = NodeMessage { at: SystemTime::now(), level, text: String::new(), fields: Vec::new() };
    let mut fields = MessageFields(message);
    event.record(&mut fields);
    fields.0
}

/// Collects the fields of an event.
struct MessageFields(NodeMessage);

impl Visit for MessageFields {
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

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn no_level_silences_the_audit_log_and_clients_cannot_fill_the_log() {
        for (level, message, of_http2) in [
            (LogLevel::Debug, Level::DEBUG, true),
            (LogLevel::Notice, Level::INFO, false),
            (LogLevel::Emerg, Level::ERROR, false),
        ] {
            let filter = filter(level);
            assert!(filter.would_enable("weir_proxy::serve", &message), "{level}");
            assert_eq!(filter.would_enable("h2::proto::streams", &Level::WARN), of_http2, "{level}");
            assert!(filter.would_enable(AUDIT, &Level::INFO), "{level}");
        }
        assert!(!filter(LogLevel::Notice).would_enable("weir_proxy::serve", &Level::DEBUG));
        for (level, of_lua) in [(LogLevel::Debug, true), (LogLevel::Info, true), (LogLevel::Notice, false)] {
            assert_eq!(filter(level).would_enable(INFO_TARGET, &Level::INFO), of_lua, "{level}");
            assert!(filter(level).would_enable("weir_guests::host", &Level::INFO), "{level}");
        }
        assert!(!filter(LogLevel::Error).would_enable("weir_proxy::serve", &Level::WARN));
    }
}
