//! `/plugins/costs`: the cost of each plugin on each of its routes, the most expensive first.
use crate::admin::request::ApiRequest;
use crate::admin::response::{ApiError, json_response};
use crate::listener::message;
use crate::plugins::{Definitions, find};
use crate::threads::spawn_low_priority;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Map, Value, json};
use std::cmp::Ordering;
use std::time::{Duration, UNIX_EPOCH};
use weir_model::Document;
use weir_model::entity::{Plugin, Route, Service};
use weir_model::schema::{did_you_mean, quoted};
use weir_proxy::costs::{Cost, PhaseCost, Spread};

/// What may be asked for.
const ARGUMENTS: [&str; 3] = ["plugin", "route", "service"];

/// With fewer measured runs neither quantiles nor a share are reported, because one slow run would decide them.
const MIN_MEASURED_RUNS: u64 = 50;

pub(super) async fn list(call: ApiRequest) -> Result<Response, ApiError> {
    if let Some(unknown) = call.argument_beside(&ARGUMENTS) {
        let (shown, known) = (quoted(unknown), ARGUMENTS.join(", "));
        let hint = did_you_mean(unknown, ARGUMENTS);
        return Err(ApiError::Malformed(format!("unknown argument `{shown}`; there are: {known}{hint}")));
    }
    match spawn_low_priority("weir-costs", move || report(&call)).await {
        Ok(Ok(report)) => Ok(json_response(StatusCode::OK, &report)),
        Ok(Err(missing)) => Ok(message(StatusCode::NOT_FOUND, &missing)),
        Err(_) => Ok(message(StatusCode::INTERNAL_SERVER_ERROR, "An unexpected error occurred")),
    }
}

/// An error for an argument that names nothing, with a hint at what it may have meant.
fn missing(call: &ApiRequest, document: &Document) -> Option<String> {
    let (plugins, routes, services) = (&document.plugins, &document.routes, &document.services);
    // The name of a plugin is known even if no entity configures it.
    let kinds = call.control.plugin_definitions().iter().map(|it| it.name.to_owned());
    let named = plugins.iter().filter_map(|it| it.instance_name.clone());
    let known = [
        ("plugin", kinds.chain(named).collect::<Vec<_>>(), ids(plugins.iter().map(|it| it.id))),
        (
            "route",
            routes.iter().filter_map(|it| it.name.clone()).collect(),
            ids(routes.iter().map(|it| it.id)),
        ),
        (
            "service",
            services.iter().filter_map(|it| it.name.clone()).collect(),
            ids(services.iter().map(|it| it.id)),
        ),
    ];
    known.into_iter().find_map(|(kind, names, ids)| {
        let asked: &str = call.argument(kind)?;
        let is_there = names.iter().any(|name| name == asked) || ids.iter().any(|id| id == asked);
        let hint = || did_you_mean(asked, names.iter().map(String::as_str));
        (!is_there).then(|| format!("there is no {kind} `{}`{}", quoted(asked), hint()))
    })
}

fn ids(ids: impl Iterator<Item = weir_model::Uuid>) -> Vec<String> {
    ids.map(|id| id.to_string()).collect()
}

fn report(call: &ApiRequest) -> Result<Value, String> {
    let control = &call.control;
    let configuration = control.registry().configuration();
    if let Some(missing) = missing(call, &configuration.document) {
        return Err(missing);
    }
    let definitions = control.plugin_definitions();
    let rows = control.costs().into_iter().filter_map(|cost| Row::of(cost, &configuration.document));
    let (mut plugins, mut routes): (Vec<_>, Vec<_>) =
        rows.filter(|row| row.is_asked_for(call)).partition(|row| row.plugin.is_some());
    // Rows with too few measurements come last.
    plugins.sort_by(|a, b| b.cpu_share().partial_cmp(&a.cpu_share()).unwrap_or(Ordering::Equal));
    routes.sort_by_key(|row| std::cmp::Reverse(row.cost.calls()));
    Ok(json!({
        "data": plugins.iter().filter_map(|row| row.of_plugin(definitions)).collect::<Vec<_>>(),
        "routes": routes.iter().map(Row::of_requests).collect::<Vec<_>>(),
        "sampling": control.settings().cost_sampling,
        "worker_cpu_seconds": control.worker_cpu().as_secs_f64(),
    }))
}

/// The cost of a plugin on a route, or of the route's requests as a whole, with the entities it belongs to.
struct Row<'d> {
    cost: Cost,
    plugin: Option<&'d Plugin>,
    route: Option<&'d Route>,
    service: Option<&'d Service>,
}

impl<'d> Row<'d> {
    fn of(cost: Cost, document: &'d Document) -> Option<Self> {
        let plugin = match cost.plugin {
            Some(id) => Some(&**document.plugins.iter().find(|plugin| plugin.id == id)?),
            None => None,
        };
        let route = cost.route.and_then(|id| document.routes.iter().find(|route| route.id == id));
        let service = route.and_then(|route| route.service);
        let service = service.and_then(|id| document.services.iter().find(|service| service.id == id));
        Some(Self { cost, plugin, route: route.map(|it| &**it), service: service.map(|it| &**it) })
    }

    /// Whether the arguments select it, each by id or by name. Rows of routes are selected whichever plugin is asked
    /// for.
    fn is_asked_for(&self, call: &ApiRequest) -> bool {
        let is_called = |argument, id: Option<weir_model::Uuid>, names: &[Option<&str>]| {
            let asked: Option<&str> = call.argument(argument);
            asked.is_none_or(|asked| {
                names.contains(&Some(asked)) || id.is_some_and(|id| id.to_string() == asked)
            })
        };
        let (route, service, plugin) = (self.route, self.service, self.plugin);
        plugin
            .is_none_or(|it| is_called("plugin", Some(it.id), &[Some(&it.name), it.instance_name.as_deref()]))
            && is_called("route", route.map(|it| it.id), &[route.and_then(|it| it.name.as_deref())])
            && is_called("service", service.map(|it| it.id), &[service.and_then(|it| it.name.as_deref())])
    }

    fn phases(&self) -> Map<String, Value> {
        self.cost.phases.iter().map(|phase| (phase.phase.name().to_owned(), self.phase(phase))).collect()
    }

    fn of_requests(&self) -> Value {
        let mut row =
            json!({ "route": self.route(), "service": self.service(), "requests": self.cost.calls() });
        if let Value::Object(members) = &mut row {
            members.extend(self.phases());
        }
        row
    }

    fn cpu_share(&self) -> Option<f64> {
        let most = self.cost.phases.iter().map(|phase| phase.spread.measured).max()?;
        (most >= MIN_MEASURED_RUNS).then(|| self.cost.cpu_share())
    }

    fn of_plugin(&self, definitions: Definitions) -> Option<Value> {
        let (cost, plugin) = (&self.cost, self.plugin?);
        let spreads = || cost.phases.iter().map(|phase| &phase.spread);
        let ran = || spreads().filter(|spread| spread.measured > 0);
        // Without any run there is nothing to add up.
        let quantile = |share| -> Option<f64> {
            ran().next()?;
            ran().map(|spread| quantile(spread, share)).sum()
        };
        let calls = cost.calls();
        Some(json!({
            "id": plugin.id,
            "name": plugin.name,
            "instance_name": plugin.instance_name,
            "priority": find(definitions, &plugin.name).map(|plugin| plugin.priority),
            "route": self.route(),
            "service": self.service(),
            "consumer": plugin.consumer.map(|id| json!({ "id": id })),
            "cpu_share": self.cpu_share(),
            "calls": calls,
            "us_mean": micros(cost.spent().as_nanos() as f64 / calls.max(1) as f64),
            "us_p50": quantile(0.5),
            "us_p99": quantile(0.99),
            "phases": self.phases(),
            "waits": cost.waits,
            "us_waited_mean": micros(cost.waited.as_nanos() as f64 / cost.waits.max(1) as f64),
            "answers": cost.answers,
            "errors": cost.errors,
            "sampled": spreads().map(|spread| spread.measured).sum::<u64>(),
            "since": cost.since.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs(),
        }))
    }

    fn route(&self) -> Option<Value> {
        self.route.map(|it| json!({ "id": it.id, "name": it.name }))
    }

    fn service(&self) -> Option<Value> {
        self.service.map(|it| json!({ "id": it.id, "name": it.name }))
    }

    fn phase(&self, phase: &PhaseCost) -> Value {
        let spread = &phase.spread;
        json!({
            "calls": spread.calls(),
            "us_mean": micros(spread.nanos as f64 / spread.calls().max(1) as f64),
            "us_p50": quantile(spread, 0.5),
            "us_p99": quantile(spread, 0.99),
            "sampled": spread.measured,
        })
    }
}

/// In microseconds, if enough was measured.
fn quantile(spread: &Spread, share: f64) -> Option<f64> {
    (spread.measured >= MIN_MEASURED_RUNS).then(|| micros(spread.quantile(share)))
}

/// Nanoseconds as microseconds, to the nanosecond.
fn micros(nanos: f64) -> f64 {
    nanos.round() / 1_000.0
}
