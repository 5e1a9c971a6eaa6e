//! Why a run is not observed, or its results were not written elsewhere.
use crate::driver::DriverError;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// What failed.
#[derive(Debug)]
pub enum TelemetryError {
    /// A program is not on this machine; the text names its package.
    Missing(String),
    /// A program did not start, or could not be ended.
    Program(DriverError),
    /// A file could not be written or read.
    File(PathBuf, io::Error),
    /// The folder of the run has no data of Prometheus.
    NotObserved(PathBuf),
    /// Nothing can be scraped here.
    Listen(io::Error),
    /// The address of a remote write cannot be used.
    Address(String, String),
    /// The receiver could not be reached.
    Unreachable(String, String),
    /// The receiver refused the samples: its address, its status and its body.
    Refused(String, u16, String),
}

impl fmt::Display for TelemetryError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TelemetryError::Missing(text) => formatter.write_str(text),
            TelemetryError::Program(error) => error.fmt(formatter),
            TelemetryError::File(path, error) => write!(formatter, "{}: {error}", path.display()),
            TelemetryError::NotObserved(path) => write!(
                formatter,
                "{} has no data of Prometheus: make a run with `weirlab run … --observe`",
                path.display()
            ),
            TelemetryError::Listen(error) => {
                write!(formatter, "the generator's metrics cannot be served on loopback: {error}")
            }
            TelemetryError::Address(url, why) => {
                write!(formatter, "--remote-write {url}: {why}; write it as http://HOST:9090/api/v1/write")
            }
            TelemetryError::Unreachable(url, why) => write!(formatter, "--remote-write {url}: {why}"),
            TelemetryError::Refused(url, status, body) => {
                write!(
                    formatter,
                    "--remote-write {url}: refused with status {status}: {body}{}",
                    hint(*status, body)
                )
            }
        }
    }
}

/// What to do about a refusal.
fn hint(status: u16, body: &str) -> &'static str {
    match status {
        404 if body.contains("remote write receiver") => {
            "; start Prometheus with --web.enable-remote-write-receiver"
        }
        404 => "; the path of Prometheus is /api/v1/write, and it needs --web.enable-remote-write-receiver",
        400 if body.contains("out of") || body.contains("too old") => {
            "; the run is older than what the receiver still takes: raise storage.tsdb.out_of_order_time_window there"
        }
        401 | 403 => "; name a user in the address, as http://USER:PASSWORD@HOST/…",
        _ => "",
    }
}

impl std::error::Error for TelemetryError {}

impl From<DriverError> for TelemetryError {
    fn from(error: DriverError) -> TelemetryError {
        TelemetryError::Program(error)
    }
}
