//! A run in Prometheus and Grafana: a real Prometheus scrapes the targets and the generator while they are measured, its
//! data stays in the run's folder, and results can be written to a Prometheus of the user's.
//!
//! ```text
//! session ─► Recorder ─► Exporter ◄─ scrapes ─ Prometheus ─► RUN/prometheus/data ─► weirlab observe: Prometheus, Grafana
//! data.json ─► samples ─► remote write ─► the user's Prometheus
//! ```
mod error;
mod exporter;
mod exposition;
mod grafana;
mod prometheus;
mod queries;
mod recorder;
mod remote_write;
mod samples;

pub use error::TelemetryError;
pub use exporter::Exporter;
pub use grafana::{Grafana, start as start_grafana};
pub use prometheus::{FOLDER, Kept, Prometheus};
pub use queries::{Query, Span, queries};
pub use recorder::{LiveBlock, Metrics, Part, Recorder};
pub use remote_write::{Endpoint, write};
pub use samples::{Series, of_run};
