//! How loggers with APISIX's configuration batch their records and send them again.

use weir_plugin::{QueueConfig, Record};

/// The fields of APISIX's batch processor.
#[derive(Debug, Clone, Record)]
pub(crate) struct BatchProcessor {
    /// The most records of a batch.
    #[field(default = 1000, between = [1, 1_000_000])]
    pub batch_max_size: u32,
    /// For how many seconds a record waits for others.
    #[field(default = 5, between = [1, 3600])]
    pub inactive_timeout: u32,
    /// The same: the shorter of the two applies.
    #[field(default = 60, between = [1, 86400])]
    pub buffer_duration: u32,
    /// How often a batch is sent again.
    #[field(default = 0, between = [0, 1_000_000])]
    pub max_retry_count: u32,
    /// How many seconds before a batch is sent again.
    #[field(default = 1, between = [0, 86400])]
    pub retry_delay: u32,
}

impl BatchProcessor {
    /// A queue of such batches.
    pub(crate) fn queue(&self) -> Result<QueueConfig, String> {
        let delay = f64::from(self.retry_delay).max(0.001);
        let retries = match self.max_retry_count {
            0 => -1.0,
            count => f64::from(count) * delay,
        };
        let queue = serde_json::json!({
            "max_batch_size": self.batch_max_size,
            "max_coalescing_delay": self.inactive_timeout.min(self.buffer_duration),
            "max_retry_time": retries,
            "initial_retry_delay": delay,
            "max_retry_delay": delay,
        });
        let read = QueueConfig::from_value(&queue);
        read.map_err(|found| found.iter().map(|error| error.message.as_str()).collect())
    }
}
