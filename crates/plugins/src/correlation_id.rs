//! Gives each request an id that the upstream and, with `echo_downstream`, the client receive.
//!
//! A request that already has the header keeps its value.
//!
//! ```yaml
//! plugins:
//!   - name: correlation-id
//!     config:
//!       header_name: Kong-Request-ID
//!       generator: uuid#counter
//!       echo_downstream: true
//! ```
//!
//! | `generator` | ids |
//! |---|---|
//! | `uuid` | a random UUID for each request |
//! | `uuid#counter` | the worker's UUID, `#`, and a number that grows |
//! | `tracker` | address, port, process, connection, request of the connection and Unix time: `10.0.0.1-8000-4711-82-3-1700000000.250` |
//!
//! With `echo_downstream`, every response has the same header and value, also one that the gateway makes. Log plugins write the
//! id as `correlation_id`.

use crate::shared::random_id;
use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_plugin::{BuildContext, Exchange, Flow, Hooks, Phases, Plugin, Record};

/// The header, and what is put into it.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// The header that holds the id.
    #[field(nullable, default = "Kong-Request-ID", matches = header_name)]
    pub header_name: String,
    /// How ids are made.
    #[field(default = "uuid#counter", one_of = ["uuid", "uuid#counter", "tracker"])]
    pub generator: String,
    /// Sends the id to the client too.
    #[field(default = false)]
    pub echo_downstream: bool,
}

#[derive(Clone, Copy)]
enum Generator {
    Uuid,
    Counter,
    Tracker,
}

/// One configured instance.
pub(super) struct CorrelationId {
    header_name: String,
    generator: Generator,
    echo_downstream: bool,
}

impl Plugin for CorrelationId {
    const NAME: &'static str = "correlation-id";
    const PRIORITY: i32 = 100_001;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        let generator = match config.generator.as_str() {
            "uuid" => Generator::Uuid,
            "tracker" => Generator::Tracker,
            _ => Generator::Counter,
        };
        Ok(Self { header_name: config.header_name, generator, echo_downstream: config.echo_downstream })
    }
}

/// The id of the request, even if another plugin changes the header. Log plugins record it.
pub(super) struct CorrelationIdOf(pub(super) Vec<u8>);

impl Hooks for CorrelationId {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::RESPONSE.only_if(self.echo_downstream)
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let sent = exchange.request.headers.get(&self.header_name).filter(|value| !value.is_empty());
        let id = match sent {
            Some(value) => value.to_vec(),
            None => {
                let id = self.generator.make(exchange).into_bytes();
                exchange.request.headers.set(&self.header_name, &id);
                id
            }
        };
        exchange.extensions.insert(CorrelationIdOf(id));
        Flow::Continue
    }

    fn response(&self, exchange: &mut Exchange) {
        if !self.echo_downstream {
            return;
        }
        let id = match exchange.extensions.get::<CorrelationIdOf>() {
            Some(CorrelationIdOf(id)) => id.clone(),
            // The request was answered before the access hook ran.
            None => self.generator.make(exchange).into_bytes(),
        };
        exchange.response.headers.set(&self.header_name, &id);
    }
}

impl Generator {
    fn make(self, exchange: &Exchange) -> String {
        thread_local! {
            static WORKER: String = format!("{}#", random_id::uuid());
            static COUNTER: Cell<u64> = const { Cell::new(0) };
        }
        match self {
            Generator::Uuid => random_id::uuid().to_string(),
            Generator::Counter => {
                let count = COUNTER.get() + 1;
                COUNTER.set(count);
                WORKER.with(|worker| [worker.as_str(), itoa::Buffer::new().format(count)].concat())
            }
            Generator::Tracker => tracker(exchange),
        }
    }
}

fn tracker(exchange: &Exchange) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (local, process) = (exchange.local(), std::process::id());
    let (connection, request) = (exchange.connection_number(), exchange.request_number());
    format!("{}-{}-{process}-{connection}-{request}-{:.3}", local.ip(), local.port(), since.as_secs_f64())
}

#[cfg(test)]
mod tests;
