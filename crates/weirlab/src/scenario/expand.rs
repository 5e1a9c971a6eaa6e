//! A scenario with its variables set becomes a case.
use super::file::{
    ActionFile, Amount, Arrivals, CallFile, DistributionFile, Listener, LoadFile, ParityFile, ProtocolFile,
    RequestFile, ScenarioFile, Scheme, UpstreamFile, VariableFile,
};
use super::{
    Action, ActionKind, CasePlan, ConfigTemplate, GatewayPlan, LoadPlan, Measure, ParityCheck, Scenario,
    ScenarioError, UpstreamPlan, document,
};
use crate::catalogue::render;
use crate::load::{Distribution, Expect, Pace, Protocol, RequestTemplate, Requests, Values, Variable};
use crate::result::{Axis, Case, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

type Variables = BTreeMap<String, serde_json::Value>;

/// A point of a sweep: which variables it sets, and where it lies.
struct Point {
    label: String,
    set: Variables,
    axis: Option<Axis>,
}

pub(super) fn cases(scenario: &Scenario, scheme: Scheme) -> Result<Vec<CasePlan>, ScenarioError> {
    let manifest = scenario.folder.join("scenario.toml");
    if !scenario.file.schemes.contains(&scheme) {
        let allowed: Vec<_> = scenario.file.schemes.iter().map(|scheme| scheme.as_str()).collect();
        let message = format!("is for {} alone", allowed.join(" and "));
        return Err(ScenarioError::Unfit(manifest, message));
    }
    points(&scenario.file, &manifest)?
        .into_iter()
        .map(|point| case(scenario, &manifest, scheme, point))
        .collect()
}

fn points(file: &ScenarioFile, manifest: &Path) -> Result<Vec<Point>, ScenarioError> {
    if file.sweep.is_empty() {
        return Ok(vec![Point { label: String::new(), set: Variables::new(), axis: None }]);
    }
    let mut points = Vec::new();
    for sweep in &file.sweep {
        if let Some((name, values)) = sweep.with.iter().find(|(_, values)| values.len() != sweep.values.len())
        {
            let message = format!(
                "the sweep of {} has {} values, but {name} beside it {}; give each one",
                sweep.variable,
                sweep.values.len(),
                values.len()
            );
            return Err(ScenarioError::Unfit(manifest.to_owned(), message));
        }
        for (index, value) in sweep.values.iter().enumerate() {
            let mut set: Variables =
                sweep.with.iter().map(|(name, all)| (name.clone(), all[index].clone())).collect();
            set.insert(sweep.variable.clone(), value.clone());
            let axis = value.as_f64().map(|value| Axis { name: sweep.variable.clone(), value });
            points.push(Point { label: format!("[{}={}]", sweep.variable, words(value)), set, axis });
        }
    }
    Ok(points)
}

fn words(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn case(
    scenario: &Scenario,
    manifest: &Path,
    scheme: Scheme,
    point: Point,
) -> Result<CasePlan, ScenarioError> {
    let file = &scenario.file;
    let mut variables = file.variables.clone();
    variables.extend(point.set.clone());
    let fill = Fill { manifest, variables: &variables };
    let load = fill.load(&file.load, scheme)?;
    let usual = usual_method(load.protocol);
    let mut plan = CasePlan {
        case: described(scenario, scheme, point, &load),
        measure: file.measure,
        needs: BTreeSet::new(),
        upstream: fill.upstream(&file.upstream)?,
        gateway: GatewayPlan {
            instances: fill.whole::<usize>(&file.gateway.instances)?.max(1),
            workers: file.gateway.workers.as_ref().map(|workers| fill.whole(workers)).transpose()?,
        },
        load,
        parity: file.parity.iter().map(|check| fill.parity(check, usual)).collect::<Result<_, _>>()?,
        actions: file.action.iter().map(|action| fill.action(action)).collect::<Result<_, _>>()?,
        config: ConfigTemplate { path: scenario.folder.join("kong.yml"), variables: variables.clone() },
    };
    fits(&plan).map_err(|message| fill.unfit(message.to_owned()))?;
    plan.needs = needs(file, scheme, &plan)?;
    expect_upstream_bodies(&mut plan);
    Ok(plan)
}

/// Where the parity check says that the upstream's body comes through, each answer of the load must be as long as it.
fn expect_upstream_bodies(plan: &mut CasePlan) {
    let fixed = plan.upstream.arguments.iter().all(|argument| !argument.starts_with("--body"));
    if !fixed || !plan.parity.iter().any(|check| check.upstream_body) {
        return;
    }
    for request in &mut plan.load.requests.templates {
        let plain = request.method != "HEAD" && request.expect.status.iter().all(|status| *status == 200);
        if plain && request.expect.body_contains.is_none() {
            request.expect.body_length.get_or_insert(plan.upstream.body_bytes);
        }
    }
}

/// Whether what is measured goes together with the rest.
fn fits(plan: &CasePlan) -> Result<(), &'static str> {
    if plan.measure == Measure::Load {
        return Ok(());
    }
    if plan.load.protocol != Protocol::Http1 {
        return Err("measures what HTTP/1.1 alone is asked for: take http or https, or measure = \"load\"");
    }
    if !plan.actions.is_empty() {
        return Err("has actions, which happen under load: take them out, or measure = \"load\"");
    }
    if plan.gateway.instances > 1 {
        return Err("measures one gateway and has several: set instances to 1, or measure = \"load\"");
    }
    if plan.parity.is_empty() {
        return Err("has no [[parity]] that says what a right answer is; add one");
    }
    Ok(())
}

/// What results say of the case.
fn described(scenario: &Scenario, scheme: Scheme, point: Point, load: &LoadPlan) -> Case {
    let step = scenario.file.waterfall.as_ref().map(|step| Step {
        waterfall: step.name.clone(),
        index: step.index,
        label: step.label.clone(),
    });
    Case {
        name: format!("{}{} {}", scenario.name, point.label, scheme.as_str()),
        scenario: scenario.name.clone(),
        title: scenario.title.clone(),
        scheme: scheme.as_str().to_owned(),
        variables: point.set.iter().map(|(name, value)| (name.clone(), words(value))).collect(),
        load: match scenario.file.measure {
            Measure::Load => in_words(load),
            Measure::Start => "no load: from the start to the first right answer".to_owned(),
            Measure::Reload => "no load: a changed configuration until it is in force".to_owned(),
            Measure::IdleConnections => format!("{} idle connections", load.connections),
        },
        axis: point.axis,
        step,
        published: scenario.file.published.clone(),
    }
}

fn needs(file: &ScenarioFile, scheme: Scheme, plan: &CasePlan) -> Result<BTreeSet<String>, ScenarioError> {
    let mut needs = file.needs.clone();
    needs.insert(scheme.as_str().to_owned());
    match plan.load.protocol {
        Protocol::Grpc { .. } => needs.extend(["grpc".to_owned()]),
        Protocol::WebSocket => needs.extend(["websocket".to_owned()]),
        Protocol::Http1 | Protocol::Http2 { .. } => {}
    }
    match plan.measure {
        Measure::Start => needs.extend(["process".to_owned()]),
        Measure::Reload => needs.extend(["reload", "reload-confirmed"].map(str::to_owned)),
        Measure::Load | Measure::IdleConnections => {}
    }
    for action in &plan.actions {
        match &action.kind {
            ActionKind::Reload => needs.insert("reload".to_owned()),
            ActionKind::Http { listener, .. } if listener == "status" => needs.insert("status".to_owned()),
            _ => false,
        };
    }
    // Which addresses the upstream gets does not change what the file needs.
    let placeholders: Vec<_> =
        (1..=plan.upstream.listeners).map(|port| ([127, 0, 0, 1], port.min(65535) as u16).into()).collect();
    needs.extend(document::features(&plan.document(&placeholders)?));
    Ok(needs)
}

fn in_words(load: &LoadPlan) -> String {
    let pace = match load.pace {
        Pace::Closed => "closed loop".to_owned(),
        Pace::Constant(rate) => format!("{rate} requests/s"),
        Pace::Poisson(rate) => format!("{rate} requests/s, Poisson arrivals"),
    };
    let kept = if load.keep_alive { "" } else { ", a connection per request" };
    let what = load.protocol.in_words();
    format!("{} connections{what} in {} threads, {pace}{kept}", load.connections, load.threads)
}

/// The method of requests that name none.
fn usual_method(protocol: Protocol) -> &'static str {
    if matches!(protocol, Protocol::Grpc { .. }) { "POST" } else { "GET" }
}

/// What fills templates in `scenario.toml` itself.
struct Fill<'a> {
    manifest: &'a Path,
    variables: &'a Variables,
}

impl Fill<'_> {
    fn unfit(&self, message: String) -> ScenarioError {
        ScenarioError::Unfit(PathBuf::from(self.manifest), message)
    }

    fn text(&self, text: &str) -> Result<String, ScenarioError> {
        if text.contains("{{") || text.contains("{%") {
            render(self.manifest, text, self.variables)
        } else {
            Ok(text.to_owned())
        }
    }

    fn number(&self, amount: &Amount) -> Result<f64, ScenarioError> {
        match amount {
            Amount::Number(number) => Ok(*number),
            Amount::Template(template) => {
                let text = self.text(template)?;
                text.trim()
                    .parse()
                    .map_err(|_| self.unfit(format!("`{template}` makes `{text}`, which is no number")))
            }
        }
    }

    fn whole<T: TryFrom<u64>>(&self, amount: &Amount) -> Result<T, ScenarioError> {
        let number = self.number(amount)?;
        // Above 2^53 a floating point number would no longer be exact.
        let whole = (number >= 0.0 && number.fract() == 0.0 && number < 9e15).then_some(number as u64);
        let wrong = || self.unfit(format!("{number} should be a whole number from 0 on"));
        whole.and_then(|whole| T::try_from(whole).ok()).ok_or_else(wrong)
    }

    fn headers(&self, headers: &BTreeMap<String, String>) -> Result<Vec<(String, String)>, ScenarioError> {
        headers.iter().map(|(name, value)| Ok((name.clone(), self.text(value)?))).collect()
    }

    fn protocol(&self, load: &LoadFile, scheme: Scheme) -> Result<Protocol, ScenarioError> {
        let streams = self.whole::<usize>(&load.streams)?.max(1);
        match (load.protocol, scheme.is_http2()) {
            (ProtocolFile::Http, false) => Ok(Protocol::Http1),
            (ProtocolFile::Http, true) => Ok(Protocol::Http2 { streams }),
            (ProtocolFile::Grpc, true) => Ok(Protocol::Grpc { streams }),
            (ProtocolFile::WebSocket, false) => Ok(Protocol::WebSocket),
            (ProtocolFile::Grpc, false) => {
                Err(self.unfit("has calls of gRPC: give it schemes = [\"h2\", \"h2c\"]".to_owned()))
            }
            (ProtocolFile::WebSocket, true) => {
                let message =
                    "has WebSockets, which HTTP/1.1 carries: give it schemes = [\"https\", \"http\"]";
                Err(self.unfit(message.to_owned()))
            }
        }
    }

    fn load(&self, load: &LoadFile, scheme: Scheme) -> Result<LoadPlan, ScenarioError> {
        if load.request.is_empty() {
            return Err(self.unfit("has no [[load.request]]; add at least one".to_owned()));
        }
        let pace = match (&load.rate, load.arrivals) {
            (None, _) => Pace::Closed,
            (Some(rate), Arrivals::Constant) => Pace::Constant(self.number(rate)?),
            (Some(rate), Arrivals::Poisson) => Pace::Poisson(self.number(rate)?),
        };
        let variables = load.variables.iter().map(|(name, variable)| self.variable(name, variable, load));
        let protocol = self.protocol(load, scheme)?;
        let usual = usual_method(protocol);
        Ok(LoadPlan {
            protocol,
            connections: self.whole(&load.connections)?,
            threads: self.whole(&load.threads)?,
            keep_alive: load.keep_alive,
            pace,
            requests: Requests {
                templates: load
                    .request
                    .iter()
                    .map(|request| self.request(request, usual))
                    .collect::<Result<_, _>>()?,
                variables: variables.collect::<Result<_, _>>()?,
            },
            timeout: load.timeout.0,
        })
    }

    fn upstream(&self, upstream: &UpstreamFile) -> Result<UpstreamPlan, ScenarioError> {
        Ok(UpstreamPlan {
            listeners: self.whole::<usize>(&upstream.listeners)?.max(1),
            body_bytes: self.whole(&upstream.body_bytes)?,
            arguments: upstream.arguments.iter().map(|text| self.text(text)).collect::<Result<_, _>>()?,
        })
    }

    fn request(&self, request: &RequestFile, usual: &str) -> Result<RequestTemplate, ScenarioError> {
        Ok(RequestTemplate {
            weight: request.weight,
            method: request.method.clone().unwrap_or_else(|| usual.to_owned()),
            path: self.text(&request.path)?,
            headers: self.headers(&request.headers)?,
            body: self.text(&request.body)?,
            expect: Expect {
                status: request.status.clone(),
                body_length: request.body_length.as_ref().map(|length| self.whole(length)).transpose()?,
                body_contains: request.body_contains.as_deref().map(|text| self.text(text)).transpose()?,
            },
        })
    }

    fn variable(
        &self,
        name: &str,
        variable: &VariableFile,
        load: &LoadFile,
    ) -> Result<Variable, ScenarioError> {
        let values = self.values(name, variable)?;
        if let Some(other) = variable.with.as_ref().filter(|other| !load.variables.contains_key(*other)) {
            return Err(
                self.unfit(format!("[load.variables.{name}] is drawn with {other}, which is no variable"))
            );
        }
        let distribution = match (variable.distribution, variable.exponent) {
            (DistributionFile::Uniform, None) => Distribution::Uniform,
            (DistributionFile::Kong, None) => Distribution::Kong,
            (DistributionFile::RoundRobin, None) => Distribution::RoundRobin,
            (DistributionFile::Zipf, Some(exponent)) => Distribution::Zipf(exponent),
            _ => {
                return Err(
                    self.unfit(format!("[load.variables.{name}]: zipf, and nothing else, has an exponent"))
                );
            }
        };
        Ok(Variable { name: name.to_owned(), values, distribution, with: variable.with.clone() })
    }

    fn values(&self, name: &str, variable: &VariableFile) -> Result<Values, ScenarioError> {
        match (&variable.values, &variable.count, &variable.each) {
            (Some(words), None, None) => Ok(Values::Words(words.clone())),
            (None, Some(count), None) => {
                Ok(Values::Numbers { first: variable.first, count: self.whole(count)? })
            }
            (None, Some(count), Some(each)) => {
                let numbers = (variable.first..).take(self.whole(count)?);
                let words = numbers.map(|n| render(self.manifest, each, BTreeMap::from([("n", n)])));
                Ok(Values::Words(words.collect::<Result<_, _>>()?))
            }
            _ => {
                Err(self
                    .unfit(format!("[load.variables.{name}] needs either values, or count and perhaps each")))
            }
        }
    }

    fn parity(&self, check: &ParityFile, usual: &str) -> Result<ParityCheck, ScenarioError> {
        Ok(ParityCheck {
            method: check.method.clone().unwrap_or_else(|| usual.to_owned()),
            path: self.text(&check.path)?,
            headers: self.headers(&check.headers)?,
            body: self.text(&check.body)?,
            status: check.status,
            with_headers: check.with_headers.clone(),
            grpc_status: check.grpc_status,
            upstream_body: check.upstream_body,
        })
    }

    fn action(&self, action: &ActionFile) -> Result<Action, ScenarioError> {
        let kind = match (&action.http, action.reload, &action.signal) {
            (Some(call), false, None) => self.call(call)?,
            (None, true, None) => ActionKind::Reload,
            (None, false, Some(signal)) => ActionKind::Signal(signal.clone()),
            _ => {
                let message =
                    format!("the action {} needs one of http, reload = true and signal", action.name);
                return Err(self.unfit(message));
            }
        };
        Ok(Action { name: action.name.clone(), every: action.every.0, kind })
    }

    fn call(&self, call: &CallFile) -> Result<ActionKind, ScenarioError> {
        let listener = match call.listener {
            Listener::Proxy => "proxy",
            Listener::Admin => "admin",
            Listener::Status => "status",
        };
        Ok(ActionKind::Http {
            listener: listener.to_owned(),
            method: call.method.clone(),
            path: self.text(&call.path)?,
            headers: self.headers(&call.headers)?,
            body: self.text(&call.body)?,
            random: call.random.as_ref().map_or(Ok(1), |random| self.whole(random))?,
        })
    }
}
