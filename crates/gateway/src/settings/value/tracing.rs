//! Settings of tracing.

use super::Value;
use serde_json::Value as Json;
use weir_plugin::Instrumentations;

/// Which spans tracing plugins send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TracingInstrumentations(pub(crate) Instrumentations);

impl Value for TracingInstrumentations {
    const KIND: &'static str = "names of instrumentations, `all`, or `off`";
    fn parse(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self(Instrumentations::default()));
        }
        let mut on = Instrumentations::NONE;
        for name in Vec::<String>::parse(text)? {
            match name.as_str() {
                "all" => on = ALL,
                "request" => on.request = true,
                "balancer" => on.balancer = true,
                "router" => on.router = true,
                "dns_query" => on.dns_query = true,
                "plugin_rewrite" => on.plugin_rewrite = true,
                "plugin_access" => on.plugin_access = true,
                "plugin_header_filter" => on.plugin_header_filter = true,
                // There is nothing of the kind to report.
                "http_client" | "db_query" => {}
                _ => {
                    return Err(format!(
                        "`{name}` is not an instrumentation: use request, balancer, router, dns_query, http_client, \
                         db_query, plugin_rewrite, plugin_access, plugin_header_filter, `all`, or `off` alone"
                    ));
                }
            }
        }
        Ok(Self(on))
    }
    fn shown(text: &str) -> Json {
        Vec::<String>::shown(text)
    }
}

const ALL: Instrumentations = Instrumentations {
    request: true,
    balancer: true,
    router: true,
    dns_query: true,
    plugin_rewrite: true,
    plugin_access: true,
    plugin_header_filter: true,
};

/// A number from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Fraction(pub(crate) f64);

impl Value for Fraction {
    const KIND: &'static str = "number from 0 to 1";
    fn parse(text: &str) -> Result<Self, String> {
        let number = text.parse().ok().filter(|number| (0.0..=1.0).contains(number));
        number
            .map(Fraction)
            .ok_or_else(|| format!("`{text}` is not a number from 0 to 1: write `0.01` for one of a hundred"))
    }
    fn shown(text: &str) -> Json {
        text.trim().parse::<f64>().map_or(Json::Null, Json::from)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{reads, refuses};
    use super::*;

    #[test]
    fn instrumentations_are_named_one_by_one() {
        reads("off", TracingInstrumentations(Instrumentations::default()));
        reads("all", TracingInstrumentations(ALL));
        let router = Instrumentations { router: true, ..Instrumentations::NONE };
        reads("router, db_query", TracingInstrumentations(router));
        for text in ["off, router", "routers"] {
            refuses::<TracingInstrumentations>(text);
        }
        reads("0.5", Fraction(0.5));
        for text in ["1.1", "-0.1", "x", "NaN"] {
            refuses::<Fraction>(text);
        }
    }
}
