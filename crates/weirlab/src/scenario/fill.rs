//! Fills the templates in `scenario.toml` itself, and turns its parts into those of a case.
use super::expand::Variables;
use super::file::{
    ActionFile, Amount, Arrivals, CallFile, DistributionFile, Listener, LoadFile, ParityFile, ProtocolFile,
    RequestFile, Scheme, UpstreamFile, VariableFile,
};
use super::{Action, ActionKind, LoadPlan, ParityCheck, ScenarioError, UpstreamPlan};
use crate::catalogue::{position, read_text, render};
use crate::generator::Script;
use crate::load::{Distribution, Expect, Pace, Protocol, RequestTemplate, Requests, Values, Variable};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The method of requests that name none.
pub(super) fn usual_method(protocol: Protocol) -> &'static str {
    if matches!(protocol, Protocol::Grpc { .. }) { "POST" } else { "GET" }
}

/// What fills templates in `scenario.toml` itself.
pub(super) struct Fill<'a> {
    pub(super) manifest: &'a Path,
    pub(super) variables: &'a Variables,
}

impl Fill<'_> {
    pub(super) fn unfit(&self, message: String) -> ScenarioError {
        ScenarioError::Unfit(PathBuf::from(self.manifest), message)
    }

    pub(super) fn text(&self, text: &str) -> Result<String, ScenarioError> {
        if text.contains("{{") || text.contains("{%") {
            render(self.manifest, text, self.variables).map_err(|error| self.placed(text, error))
        } else {
            Ok(text.to_owned())
        }
    }

    /// A template's error, which knows its line within the template alone, at its place in the file.
    fn placed(&self, template: &str, error: ScenarioError) -> ScenarioError {
        match error {
            ScenarioError::Invalid { message, .. } => self.invalid(template, message),
            other => other,
        }
    }

    /// The error for a text of the file, at its place where it is written there as it is.
    fn invalid(&self, text: &str, message: String) -> ScenarioError {
        let written = read_text(self.manifest).unwrap_or_default();
        match written.find(&format!("\"{text}\"")).or_else(|| written.find(text)) {
            None => self.unfit(message),
            Some(offset) => {
                let (line, column) = position(&written, offset);
                ScenarioError::Invalid { file: self.manifest.to_owned(), line, column, message }
            }
        }
    }

    /// A count of `[load]` that must not be 0.
    fn some(&self, key: &str, amount: &Amount) -> Result<usize, ScenarioError> {
        let count = self.whole(amount)?;
        let wrong = || self.invalid(&format!("{key} = {count}"), format!("{key} = {count}: write 1 or more"));
        (count > 0).then_some(count).ok_or_else(wrong)
    }

    pub(super) fn number(&self, amount: &Amount) -> Result<f64, ScenarioError> {
        match amount {
            Amount::Number(number) => Ok(*number),
            Amount::Template(template) => {
                let text = self.text(template)?;
                let wrong = || match text == *template {
                    true => format!("`{text}` is no number, nor a template such as \"{{{{ n }}}}\""),
                    false => format!("`{template}` makes `{text}`, which is no number"),
                };
                text.trim().parse().map_err(|_| self.invalid(template, wrong()))
            }
        }
    }

    pub(super) fn whole<T: TryFrom<u64>>(&self, amount: &Amount) -> Result<T, ScenarioError> {
        let number = self.number(amount)?;
        // Above 2^53 a floating point number would no longer be exact.
        let whole = (number >= 0.0 && number.fract() == 0.0 && number < 9e15).then_some(number as u64);
        let wrong = || self.unfit(format!("{number} should be a whole number from 0 on"));
        whole.and_then(|whole| T::try_from(whole).ok()).ok_or_else(wrong)
    }

    pub(super) fn headers(
        &self,
        headers: &BTreeMap<String, String>,
    ) -> Result<Vec<(String, String)>, ScenarioError> {
        headers.iter().map(|(name, value)| Ok((name.clone(), self.text(value)?))).collect()
    }

    pub(super) fn protocol(&self, load: &LoadFile, scheme: Scheme) -> Result<Protocol, ScenarioError> {
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

    pub(super) fn load(&self, load: &LoadFile, scheme: Scheme) -> Result<LoadPlan, ScenarioError> {
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
        if load.first_byte && protocol == Protocol::WebSocket {
            let message =
                "times the first byte of bodies, of which WebSockets have none: leave load.first_byte out";
            return Err(self.unfit(message.to_owned()));
        }
        Ok(LoadPlan {
            protocol,
            connections: self.some("connections", &load.connections)?,
            threads: self.some("threads", &load.threads)?,
            keep_alive: load.keep_alive,
            first_byte: load.first_byte,
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
            script: self.script(load)?,
        })
    }

    fn script(&self, load: &LoadFile) -> Result<Option<Script>, ScenarioError> {
        let Some(name) = &load.script else {
            return match load.environment.is_empty() {
                true => Ok(None),
                false => {
                    Err(self.unfit("has load.environment, which a load.script reads; add one".to_owned()))
                }
            };
        };
        let missing = |error| {
            let message = format!("the script {name} cannot be read from the scenario's folder: {error}");
            self.invalid(name, message)
        };
        let file = self.manifest.with_file_name(name).canonicalize().map_err(missing)?;
        let environment = load.environment.iter().map(|(name, value)| Ok((name.clone(), self.text(value)?)));
        let environment = environment.collect::<Result<_, _>>()?;
        Ok(Some(Script { file, environment, text: None }))
    }

    pub(super) fn upstream(&self, upstream: &UpstreamFile) -> Result<UpstreamPlan, ScenarioError> {
        Ok(UpstreamPlan {
            listeners: self.whole::<usize>(&upstream.listeners)?.max(1),
            body_bytes: self.whole(&upstream.body_bytes)?,
            arguments: upstream.arguments.iter().map(|text| self.text(text)).collect::<Result<_, _>>()?,
        })
    }

    pub(super) fn request(
        &self,
        request: &RequestFile,
        usual: &str,
    ) -> Result<RequestTemplate, ScenarioError> {
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

    pub(super) fn variable(
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

    pub(super) fn values(&self, name: &str, variable: &VariableFile) -> Result<Values, ScenarioError> {
        match (&variable.values, &variable.count, &variable.each) {
            (Some(words), None, None) => Ok(Values::Words(words.clone())),
            (None, Some(count), None) => {
                Ok(Values::Numbers { first: variable.first, count: self.whole(count)? })
            }
            (None, Some(count), Some(each)) => {
                let numbers = (variable.first..).take(self.whole(count)?);
                let words = numbers.map(|n| {
                    render(self.manifest, each, BTreeMap::from([("n", n)]))
                        .map_err(|error| self.placed(each, error))
                });
                Ok(Values::Words(words.collect::<Result<_, _>>()?))
            }
            _ => {
                Err(self
                    .unfit(format!("[load.variables.{name}] needs either values, or count and perhaps each")))
            }
        }
    }

    pub(super) fn parity(&self, check: &ParityFile, usual: &str) -> Result<ParityCheck, ScenarioError> {
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

    pub(super) fn action(&self, action: &ActionFile) -> Result<Action, ScenarioError> {
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

    pub(super) fn call(&self, call: &CallFile) -> Result<ActionKind, ScenarioError> {
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
