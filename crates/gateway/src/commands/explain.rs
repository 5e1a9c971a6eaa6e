//! `weir explain`: how a declarative file handles a request, as a table for a terminal.
use super::Context;
use crate::cli::ExplainArgs;
use crate::configuration::{Origin, Source, process_environment};
use crate::data_plane::compiled;
use crate::options::options;
use crate::plugins::NodePlugins;
use serde_json::{Map, Value, json};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use weir_proxy::InternalEndpoints;
use weir_proxy::explain::{Answered, Asked, Explained, PluginStep, Upstream, Winner, explain as explain_by};

/// The width of a line.
const WIDTH: usize = 80;
/// The width of the column of labels.
const LABEL: usize = 11;

/// Explains a request by a declarative file, on a node with these settings.
pub(super) fn explain(
    arguments: ExplainArgs,
    context: &Context,
    output: &mut dyn Write,
) -> Result<ExitCode, String> {
    let asked = Asked::read(&question(&arguments)?).map_err(|refusal| refusal.to_string())?;
    let settings = context.load(arguments.settings.into())?.settings;
    let NodePlugins { definitions, schemas: plugins, lua, .. } = context.plugins(&settings)?;
    let origin = Origin::File(arguments.file);
    let source = Source { origin, environment: process_environment(), definitions, plugins, lua };
    let (configuration, snapshot) =
        compiled(&source, &settings).map_err(|invalid| invalid.errors.join("\n"))?;
    let options = options(&settings, InternalEndpoints::default());
    let explained = explain_by(&Arc::new(snapshot), &configuration.document, &asked, &options)
        .map_err(|refusal| refusal.to_string())?;
    let text = if arguments.json {
        serde_json::to_string_pretty(&explained).map_err(|error| error.to_string())? + "\n"
    } else {
        table(&explained)
    };
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(|error| error.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// The question as a body of `POST /explain`. A header `Host` overrides the host of the URL.
fn question(arguments: &ExplainArgs) -> Result<Value, String> {
    let (scheme, rest) = arguments
        .url
        .split_once("://")
        .ok_or_else(|| format!("{}: write the whole URL, as http://host/path", arguments.url))?;
    let (mut host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let authority = host;
    let mut headers: Map<String, Value> = Map::new();
    for (name, value) in &arguments.headers {
        match (name.eq_ignore_ascii_case("host"), headers.get_mut(name).and_then(Value::as_array_mut)) {
            (true, _) => host = value,
            (false, Some(values)) => values.push(value.as_str().into()),
            (false, None) => drop(headers.insert(name.clone(), json!([value]))),
        }
    }
    let port = authority.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    Ok(json!({
        "method": arguments.method, "scheme": scheme, "host": host, "port": port, "path": path,
        "headers": headers, "client_ip": arguments.client_ip,
    }))
}

/// A table of two columns: labels and texts.
#[derive(Default)]
struct Table(String);

impl Table {
    /// Adds a line, wrapped between words.
    fn line(&mut self, label: &str, text: &str) {
        let mut width = LABEL;
        self.0.push_str(&format!("{label:LABEL$}"));
        for (place, word) in text.split(' ').enumerate() {
            let length = word.chars().count();
            if place > 0 && width + 1 + length > WIDTH {
                self.0.push_str(&format!("\n{:indent$}", "", indent = LABEL + 2));
                width = LABEL + 2;
            } else if place > 0 {
                self.0.push(' ');
                width += 1;
            }
            self.0.push_str(word);
            width += length;
        }
        self.0.push('\n');
    }

    /// Adds lines under one label.
    fn lines(&mut self, label: &str, texts: impl IntoIterator<Item = String>) {
        let labels = std::iter::once(label).chain(std::iter::repeat(""));
        labels.zip(texts).for_each(|(label, text)| self.line(label, &text));
    }
}

fn table(explained: &Explained) -> String {
    let mut table = Table::default();
    let request = &explained.request;
    let url = format!("{} {}://{}{}", request.method, request.scheme, request.host, request.path);
    table.line("request", &url);
    let by = request.real_ip_header.as_ref();
    let by = by.map(|header| format!("{}, by {header} of a trusted peer", request.client_ip));
    table.lines("client", by);
    match &explained.route {
        Some(winner) => table.lines("route", route(winner)),
        None => table.line("route", "none"),
    }
    table.lines("others", explained.others.iter().map(|it| format!("{}: {}", it.route.label(), it.reason)));
    if explained.more_others > 0 {
        table.line("", &format!("and {} more", explained.more_others));
    }
    table.lines("consumer", explained.consumer.iter().map(|consumer| consumer.label() + &groups(explained)));
    table.lines("plugins", explained.plugins.iter().map(plugin));
    if let Some(upstream) = &explained.upstream {
        table.lines("upstream", places(upstream));
    }
    table.lines("answer", explained.answer.as_ref().map(answer));
    if !explained.unless.is_empty() {
        table.line("unless", &format!("decided otherwise by {}", explained.unless.join(", ")));
    }
    table.0
}

fn answer(answer: &Answered) -> String {
    let by = answer.plugin.as_deref().unwrap_or("the gateway");
    match (answer.status, &answer.message) {
        (None, _) => format!("decided by {by}"),
        (Some(status), None) => format!("{status}, by {by}"),
        (Some(status), Some(message)) => format!("{status} {message}, by {by}"),
    }
}

/// The groups that the consumer is in.
fn groups(explained: &Explained) -> String {
    let names: Vec<_> = explained.consumer_groups.iter().map(|group| group.label()).collect();
    if names.is_empty() { String::new() } else { format!(", in groups {}", names.join(", ")) }
}

fn route(winner: &Winner) -> Vec<String> {
    let met = if winner.criteria.is_empty() { "anything".to_owned() } else { winner.criteria.join(", ") };
    let path = winner.path.as_ref().map(|path| format!(", by {path}")).unwrap_or_default();
    let parts: Vec<_> =
        winner.priority.parts.iter().map(|share| format!("{} {}", share.part, share.value)).collect();
    let mut lines = vec![winner.route.label(), format!("matches {met}{path}")];
    lines.extend((!parts.is_empty()).then(|| format!("priority: {}", parts.join(", "))));
    lines
}

fn plugin(step: &PluginStep) -> String {
    let off = if step.runs { "" } else { ", left out by its protocols" };
    let scope = step.configured.scope();
    let overrides: Vec<_> = step.overrides.iter().map(|other| other.scope()).collect();
    let overrides =
        if overrides.is_empty() { String::new() } else { format!("; overrides {}", overrides.join(", ")) };
    format!("{} ({scope}{overrides}){off}", step.name)
}

fn places(upstream: &Upstream) -> Vec<String> {
    let place = |target: &weir_proxy::explain::Candidate| {
        let weight = target.weight.map(|weight| format!(", weight {weight}")).unwrap_or_default();
        let priority = match target.priority {
            0 => String::new(),
            priority => format!(", priority {priority}"),
        };
        format!("{}{weight}{priority}, Host: {}", target.target, target.host)
    };
    let service = upstream.service.label();
    let first = match &upstream.decided_by {
        Some(plugin) => format!("decided by {plugin}, in the place of service {service}"),
        None => format!("{}, service {service}", upstream.url.as_deref().unwrap_or_default()),
    };
    std::iter::once(first).chain(upstream.targets.iter().map(place)).collect()
}
