//! A plugin that says which version of the configuration serves a request, to both sides.

use weir_plugin::*;

/// Marks requests and responses.
struct Marker(String);

#[derive(Debug, Clone, Record)]
struct Config {
    version: i64,
}

impl Plugin for Marker {
    const NAME: &'static str = "version";
    const PRIORITY: i32 = 10;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self(config.version.to_string()))
    }
}

impl Hooks for Marker {
    fn access(&self, exchange: &mut Exchange) -> Flow {
        exchange.request.headers.set("X-Version", self.0.as_bytes());
        Flow::Continue
    }

    fn response(&self, exchange: &mut Exchange) {
        exchange.response.headers.set("X-Own-Version", self.0.as_bytes());
    }
}

pub(super) static PLUGINS: &[Definition] = &[define::<Marker>()];
