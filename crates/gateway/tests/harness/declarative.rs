//! Declarative files of several services, each with one route.
use std::fmt::Display;

/// A declarative file with these services, and more top-level entities behind them.
pub fn document(services: &[String], more: &str) -> String {
    format!("_format_version: \"3.0\"\nservices:\n{}{more}", services.concat())
}

/// A service to an address and its route, both named after the route's path; fields of the service and of the route
/// are given as YAML, `a: 1, b: 2`.
pub fn service(path: &str, upstream: impl Display, fields: &str, route_fields: &str) -> String {
    let name = path.trim_matches('/').replace('/', "-");
    format!(
        "- {{name: \"s-{name}\", url: \"http://{upstream}\", {fields}{} routes: \
         [{{name: \"r-{name}\", paths: [\"{path}\"]{}{route_fields}}}]}}\n",
        comma(fields),
        comma(route_fields)
    )
}

fn comma(fields: &str) -> &'static str {
    if fields.is_empty() { "" } else { "," }
}
