//! Writes a record of each request to a file. Like APISIX's plugin of this name; Kong's is [file-log](file-log.md).
//!
//! ```yaml
//! plugins:
//!   - name: file-logger
//!     config:
//!       path: /var/log/weir/requests.json
//!       log_format: {host: $host, status: $status, client_ip: $remote_addr}
//! ```
//!
//! A record is one line of JSON. Without `log_format` it has `request` (`url`, `uri`, `method`, `headers`, `querystring`,
//! `size`), `response` (`status`, `headers`, `size`), `server`, `upstream`, `consumer`, `client_ip`, `start_time` in
//! milliseconds, and `latency`, `upstream_latency` and `apisix_latency`. With it, its members are the record: a text
//! that begins with `$` is a [variable](../coming-from-apisix.md#variables), everything else a constant. Both have
//! `route_id` and `service_id`. `Authorization` and `Proxy-Authorization` are `REDACTED`.
//!
//! With `match`, only requests are logged that meet one of the [conditions](../coming-from-apisix.md#conditions).

use crate::file_log::{Target, write};
use crate::shared::apisix_record::ApisixRecord;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_plugin::{BuildContext, Exchange, FieldError, Hooks, Json, Lines, Phases, Plugin, Record};

/// The file, and what is written to it.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// The path of the file.
    pub path: String,
    /// The members of a record.
    pub log_format: Option<BTreeMap<String, Json>>,
    /// Conditions, one of which a request must meet.
    #[field(name = "match", len_min = 1)]
    pub conditions: Option<Vec<Json>>,
}

fn violations(config: &Config) -> Vec<FieldError> {
    let error = ApisixRecord::new(None, config.conditions.as_ref(), String::new()).err();
    error.map(|message| FieldError::new("match", message)).into_iter().collect()
}

/// One configured instance.
pub(super) struct FileLogger {
    record: ApisixRecord,
    lines: Lines,
}

impl Plugin for FileLogger {
    const NAME: &'static str = "file-logger";
    const PRIORITY: i32 = 10;
    const EXTENSION: bool = true;
    type Config = Config;

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let Config { path, log_format, conditions } = config;
        let record = ApisixRecord::new(log_format.as_ref(), conditions.as_ref(), build.hostname())?;
        let target = Arc::new(Target::new(path, false));
        Ok(Self { record, lines: build.lines(move |text| write(target.clone(), text)) })
    }
}

impl Hooks for FileLogger {
    fn phases(&self) -> Phases {
        Phases::LOG
    }

    fn log(&self, exchange: &mut Exchange) {
        if self.record.wants(exchange) {
            self.lines.write(exchange.worker, |out| self.record.write(out, exchange));
        }
    }
}
