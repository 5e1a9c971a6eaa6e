//! The configurations of control planes, as declarative files.
use serde_json::json;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// How many routes a service has, where data planes are simulated.
const ROUTES_OF_SERVICE: u32 = 10;

/// What a configuration has.
#[derive(Debug, Clone, Copy)]
pub(super) enum Content {
    /// So many routes, ten to a service.
    Routes(u32),
    /// So many routes and as many services, and so many consumers with a key each. The first route answers by itself.
    All { routes: u32, consumers: u32 },
}

impl Content {
    /// Writes it into a file. It may be too long for memory.
    pub(super) fn write(self, file: &Path) -> io::Result<()> {
        let mut out = BufWriter::new(File::create(file)?);
        write!(out, r#"{{"_format_version":"3.0","services":["#)?;
        match self {
            Content::Routes(routes) => {
                let services = routes.div_ceil(ROUTES_OF_SERVICE);
                list(&mut out, services, |nth| {
                    let first = nth * ROUTES_OF_SERVICE;
                    service(nth, first..routes.min(first + ROUTES_OF_SERVICE))
                })?;
            }
            Content::All { routes, consumers } => {
                list(&mut out, routes, |nth| service(nth, nth..nth + 1))?;
                write!(out, r#"],"consumers":["#)?;
                list(&mut out, consumers, consumer)?;
                let plugin = json!({ "name": "request-termination", "route": "route-0", "config": { "status_code": 200 } });
                write!(out, r#"],"plugins":[{plugin}"#)?;
            }
        }
        write!(out, "]}}")?;
        out.flush()
    }
}

/// Writes so many entities, with commas in between.
fn list(out: &mut impl Write, count: u32, entity: impl Fn(u32) -> serde_json::Value) -> io::Result<()> {
    (0..count).try_for_each(|nth| {
        let separator = if nth == 0 { "" } else { "," };
        write!(out, "{separator}{}", entity(nth))
    })
}

fn service(nth: u32, routes: std::ops::Range<u32>) -> serde_json::Value {
    let routes =
        routes.map(|nth| json!({ "name": format!("route-{nth}"), "paths": [format!("/path-{nth}")] }));
    let routes: Vec<_> = routes.collect();
    json!({ "name": format!("service-{nth}"), "url": "http://127.0.0.1:9", "routes": routes })
}

fn consumer(nth: u32) -> serde_json::Value {
    json!({ "username": format!("consumer-{nth}"), "keyauth_credentials": [{ "key": format!("key-of-consumer-{nth}") }] })
}
