//! The operations that are about the node.
use super::super::plugin_routes;
use super::{answer, operation, path_parameters, response_ref, schema_ref};
use crate::plugins::Definitions;
use serde_json::{Value, json};
use weir_model::schema::{Direction, JsonMap, Record};
use weir_plugin::{AdminMethod, AdminRoute};
use weir_proxy::explain::Asked;

/// A path, a verb, the operation's name, and what it does.
type Row = (&'static str, &'static str, &'static str, &'static str);

const ASKED: &[Row] = &[
    ("/", "get", "root", "What this node is and can do"),
    ("/analytics/changes", "get", "list-changes", "The changes of the configuration in a frame of time"),
    ("/analytics/errors", "get", "list-errors", "Errors by route, status and cause"),
    (
        "/analytics/nodes",
        "get",
        "list-node-analytics",
        "The data planes of a control plane, and how each of them does",
    ),
    ("/analytics/requests", "get", "list-requests", "Requests that were sampled, newest first"),
    ("/analytics/requests/{request}", "get", "get-request", "One sampled request in full"),
    ("/analytics/series", "get", "get-series", "A metric over time"),
    ("/analytics/top", "get", "list-top", "The entities of a kind, the first ones by a metric"),
    ("/clustering/data-planes", "get", "list-data-planes", "The data planes of a control plane"),
    ("/clustering/data-planes/{data_planes}", "get", "get-data-plane", "One data plane"),
    ("/clustering/in-force", "get", "get-coverage", "Which data planes serve a revision"),
    (
        "/clustering/status",
        "get",
        "clustering-status",
        "The data planes by their ids, as older versions of Kong show them",
    ),
    ("/config", "get", "get-config", "The whole configuration, where it lives in no database"),
    ("/debug/node/log-level", "get", "get-log-level", "How much is logged"),
    ("/endpoints", "get", "list-endpoints", "Every path"),
    ("/openapi.json", "get", "openapi", "This document"),
    ("/plugins/costs", "get", "list-plugin-costs", "What each plugin has cost on each of its routes"),
    ("/plugins/enabled", "get", "list-enabled-plugins", "The plugins that may be configured"),
    ("/plugins/schema/{name}", "get", "get-plugin-config-schema", "The fields of a plugin's configuration"),
    ("/schemas/{entity}", "get", "get-schema", "The fields of a kind of entity"),
    ("/schemas/plugins/{name}", "get", "get-plugin-schema", "The fields of a plugin"),
    ("/schemas/vaults/{name}", "get", "get-vault-schema", "The fields of a kind of vault"),
    ("/status", "get", "status", "How the node fares"),
    ("/status/dns", "get", "dns-status", "What the resolver has done for each name"),
    ("/tags", "get", "list-tags", "Which entities have which tags"),
    ("/tags/{tag}", "get", "list-tag", "Which entities have a tag"),
    ("/timers", "get", "timers", "Kong's own timers, of which there are none"),
    ("/upstreams/{upstreams}/health", "get", "get-upstream-health", "How the targets of an upstream fare"),
    ("/vitals", "get", "list-vitals", "What /vitals/… has, and for how long"),
    ("/vitals/cluster", "get", "get-vitals", "Requests and latencies, as Kong Enterprise gave them"),
    ("/vitals/cluster/status_codes", "get", "get-vitals-status-codes", "Responses by class of status"),
    ("/vitals/consumers/{consumers}/cluster", "get", "get-vitals-consumer", "Requests of a consumer"),
    ("/vitals/nodes", "get", "list-vitals-nodes", "Requests and latencies by node"),
    ("/vitals/nodes/{node}", "get", "get-vitals-node", "Requests and latencies of a node"),
    ("/vitals/status_code_classes", "get", "get-vitals-classes", "Responses by class of status"),
    (
        "/vitals/status_codes/by_consumer",
        "get",
        "get-vitals-by-consumer",
        "Responses to a consumer by status",
    ),
    (
        "/vitals/status_codes/by_consumer_and_route",
        "get",
        "get-vitals-by-consumer-and-route",
        "Responses to a consumer by route and status",
    ),
    ("/vitals/status_codes/by_route", "get", "get-vitals-by-route", "Responses of a route by status"),
    ("/vitals/status_codes/by_service", "get", "get-vitals-by-service", "Responses of a service by status"),
];

/// Paths that answer with a table, too.
const TABLES: &[&str] = &[
    "/analytics/changes",
    "/analytics/errors",
    "/analytics/requests",
    "/analytics/series",
    "/analytics/top",
];

const MARKED: &[&str] = &[
    "/upstreams/{upstreams}/targets/{targets}/healthy",
    "/upstreams/{upstreams}/targets/{targets}/unhealthy",
    "/upstreams/{upstreams}/targets/{targets}/{address}/healthy",
    "/upstreams/{upstreams}/targets/{targets}/{address}/unhealthy",
];

/// Every path that is not about entities.
pub(super) fn paths(plugins: Definitions) -> JsonMap {
    let mut paths = json!({});
    let object = json!({ "type": "object" });
    for (path, verb, id, summary) in ASKED {
        let mut responses = json!({ "200": answer(summary, object.clone()), "400": response_ref("Invalid") });
        if path.contains('{') {
            responses["404"] = response_ref("NotFound");
        }
        if TABLES.contains(path) {
            responses["200"]["content"]["text/csv"] = json!({ "schema": { "type": "string" } });
        }
        add(&mut paths, path, verb, operation(id, summary, responses));
    }
    for path in MARKED {
        let health = path.rsplit('/').next().unwrap_or_default();
        let whose = if path.contains("{address}") { "an-address" } else { "a-target" };
        let responses = json!({
            "204": { "description": "It is so from now on, on this node" },
            "400": answer("The upstream uses no health checks", schema_ref("message")),
            "404": response_ref("NotFound"),
        });
        for verb in ["post", "put"] {
            let id = format!("{verb}-{health}-{whose}");
            add(&mut paths, path, verb, operation(&id, &format!("Call it {health}"), responses.clone()));
        }
    }
    for route in plugin_routes::routes(plugins) {
        add(&mut paths, &plugin_routes::documented_path(route), route.method.name(), of_plugin(route));
    }
    add(&mut paths, "/config", "post", load());
    add(&mut paths, "/explain", "post", explain());
    add(&mut paths, "/schemas/{entity}/validate", "post", validate("validate"));
    add(&mut paths, "/schemas/vaults/validate", "post", validate("validate-vault"));
    add(&mut paths, "/schemas/plugins/validate", "post", validate("validate-plugin"));
    add(&mut paths, "/debug/node/log-level/{log_level}", "put", log_level());
    add(&mut paths, "/metrics", "get", metrics());
    add(&mut paths, "/analytics/requests/tail", "get", tail());
    add(&mut paths, "/explain", "post", explain());
    match paths {
        Value::Object(paths) => paths,
        _ => JsonMap::new(),
    }
}

/// A route that a plugin adds.
fn of_plugin(route: &AdminRoute) -> Value {
    let object = json!({ "type": "object" });
    let mut responses = match route.method {
        AdminMethod::Delete => json!({ "204": { "description": "It is gone, from this node" } }),
        _ => json!({ "200": answer(route.summary, object.clone()), "400": response_ref("Invalid") }),
    };
    // Also of a path without parameters, where no plugin is configured.
    responses["404"] = response_ref("NotFound");
    let mut described = operation(route.operation, route.summary, responses);
    if !matches!(route.method, AdminMethod::Get | AdminMethod::Delete) {
        described["requestBody"] = json!({ "content": { "application/json": { "schema": object } } });
    }
    described
}

fn add(paths: &mut Value, path: &str, verb: &str, operation: Value) {
    let parameters = path_parameters(path);
    if !parameters.is_empty() {
        paths[path]["parameters"] = parameters.into();
    }
    paths[path][verb] = operation;
}

fn load() -> Value {
    let mut load = operation(
        "post-config",
        "Replace the whole configuration, where it lives in no database",
        json!({
            "201": answer("The entities, by kind and id", json!({ "type": "object" })),
            "304": { "description": "With `check_hash`: it is the active configuration" },
            "400": response_ref("Invalid"),
            "408": response_ref("TooSlow"),
            "413": response_ref("TooLarge"),
            "415": response_ref("MediaType"),
            "503": response_ref("Unavailable"),
        }),
    );
    let flag = |name: &str| json!({ "name": name, "in": "query", "schema": { "type": "string", "enum": ["1", "0"] } });
    load["parameters"] = json!([flag("check_hash"), flag("flatten_errors")]);
    let config = json!({
        "type": "object", "properties": { "config": { "type": "string" } }, "required": ["config"],
    });
    load["requestBody"] = json!({
        "required": true,
        "content": { "application/json": { "schema": config }, "application/yaml": { "schema": { "type": "string" } } },
    });
    load
}

fn validate(id: &str) -> Value {
    let mut validate = operation(
        id,
        "Whether an entity would be accepted, whatever else there is",
        json!({
            "200": answer("It would", schema_ref("message")),
            "400": response_ref("Invalid"),
            "404": response_ref("NotFound"),
            "413": response_ref("TooLarge"),
            "415": response_ref("MediaType"),
        }),
    );
    validate["requestBody"] =
        json!({ "required": true, "content": { "application/json": { "schema": { "type": "object" } } } });
    validate
}

fn explain() -> Value {
    let mut explain = operation(
        "explain",
        "What would become of a request, and why",
        json!({
            "200": answer("Its route, plugins and upstream", json!({ "type": "object" })),
            "400": response_ref("Invalid"),
            "413": response_ref("TooLarge"),
            "415": response_ref("MediaType"),
        }),
    );
    let schema = Asked::SCHEMA.to_json_schema(Direction::Request);
    explain["requestBody"] =
        json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    explain
}

fn log_level() -> Value {
    let responses = json!({ "200": answer("It is so from now on", schema_ref("message")), "400": response_ref("Invalid") });
    operation("put-log-level", "Log more or less", responses)
}

fn tail() -> Value {
    let events = json!({ "description": "Events", "content": { "text/event-stream": { "schema": { "type": "string" } } } });
    let responses = json!({
        "200": events,
        "400": response_ref("Invalid"),
        "404": response_ref("NotFound"),
        "503": answer("Too many listen already", schema_ref("message")),
    });
    operation("watch-requests", "Requests as they end, as server-sent events", responses)
}

fn metrics() -> Value {
    let text =
        json!({ "description": "Metrics", "content": { "text/plain": { "schema": { "type": "string" } } } });
    operation("metrics", "Metrics for Prometheus", json!({ "200": text }))
}
