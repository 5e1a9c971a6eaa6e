//! Kong's declarative format, as far as other gateways must understand it: routes with all that they inherit.
use super::{CasePlan, Document, Endpoint, FlatRoute, ScenarioError};
use crate::catalogue::{read_text, render};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

impl CasePlan {
    /// The declarative file in front of the given upstream, as text and as data.
    ///
    /// # Errors
    /// When the template is wrong, what it makes is no YAML, or a service points to nowhere.
    pub fn document(&self, upstream: &[SocketAddr]) -> Result<Document, ScenarioError> {
        let file = &self.config.path;
        let addresses: Vec<String> = upstream.iter().map(ToString::to_string).collect();
        let mut context = self.config.variables.clone();
        context.insert("upstream".to_owned(), addresses.first().cloned().unwrap_or_default().into());
        context.insert("upstreams".to_owned(), addresses.into());
        Document::read(file, render(file, &read_text(file)?, &context)?, upstream)
    }
}

impl Document {
    /// A declarative file's text in front of the given upstream; `file` is its place in errors.
    ///
    /// # Errors
    /// When the text is no YAML, or a service points to nowhere.
    pub fn read(file: &Path, text: String, upstream: &[SocketAddr]) -> Result<Document, ScenarioError> {
        // Files of thousands of entities are ordinary here, and they are our own.
        let options = serde_saphyr::options! { budget: None };
        let data: Value = serde_saphyr::from_str_with_options(&text, options).map_err(|error| {
            ScenarioError::Unfit(file.to_owned(), format!("does not make valid YAML: {error}"))
        })?;
        let routes = Flattening { file, data: &data, upstream }.routes()?;
        Ok(Document { text, data, routes })
    }
}

/// What a target must be able to do to serve the document.
pub(super) fn features(document: &Document) -> BTreeSet<String> {
    let mut features = BTreeSet::new();
    let mut need = |condition: bool, feature: &str| {
        if condition {
            features.insert(feature.to_owned());
        }
    };
    for route in &document.routes {
        need(route.endpoints.len() > 1, "balancer");
        need(route.endpoints.iter().any(|endpoint| endpoint.weight != route.endpoints[0].weight), "weights");
        need(route.paths.iter().any(|path| path.starts_with('~')), "regex-routes");
        need(!route.hosts.is_empty(), "hosts");
        need(!route.methods.is_empty(), "methods");
        need(!route.strip_path && route.paths != ["/"], "keep-path");
        route.plugins.keys().for_each(|plugin| need(true, plugin));
    }
    unflattened(&document.data, need);
    features
}

/// What the flat routes do not say. A target whose templates know nothing of it must not run an easier case.
fn unflattened(data: &Value, mut need: impl FnMut(bool, &str)) {
    let services = list(data, "services");
    let nested = services.iter().flat_map(|service| list(service, "routes"));
    for route in nested.chain(list(data, "routes")) {
        need(route.get("headers").is_some(), "route-headers");
        need(route.get("snis").is_some(), "snis");
    }
    for service in services {
        need(protocol(service) == "https", "https-upstream");
        need(protocol(service) == "grpc", "grpc");
    }
    let consumers = list(data, "consumers");
    let scoped = list(data, "plugins").iter().any(|plugin| plugin.get("consumer").is_some());
    need(scoped || consumers.iter().any(|consumer| consumer.get("plugins").is_some()), "consumer-plugins");
    for upstream in list(data, "upstreams") {
        need(
            text(upstream, "algorithm").is_some_and(|algorithm| algorithm != "round-robin"),
            "balancing-algorithms",
        );
        need(upstream.get("healthchecks").is_some(), "health-checks");
    }
}

struct Flattening<'a> {
    file: &'a Path,
    data: &'a Value,
    upstream: &'a [SocketAddr],
}

impl Flattening<'_> {
    fn routes(&self) -> Result<Vec<FlatRoute>, ScenarioError> {
        let upstreams: BTreeMap<&str, &Value> = list(self.data, "upstreams")
            .iter()
            .filter_map(|upstream| Some((text(upstream, "name")?, upstream)))
            .collect();
        let mut loose: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for route in list(self.data, "routes") {
            loose.entry(reference(route, "service").unwrap_or_default()).or_default().push(route);
        }
        let mut flat = Vec::new();
        let mut pools: BTreeMap<String, usize> = BTreeMap::new();
        let global = self.plugins_for(None, None);
        for service in list(self.data, "services") {
            let name = text(service, "name").unwrap_or_default();
            let (endpoints, service_path) = self.endpoints(service, &upstreams)?;
            let count = pools.len();
            let pool = *pools.entry(format!("{endpoints:?}")).or_insert(count);
            let mut plugins = global.clone();
            plugins.extend(self.plugins_for(Some(("service", name)), Some(service)));
            let pool = format!("pool{pool}");
            let protocol = protocol(service).to_owned();
            let inherited =
                FlatRoute { protocol, service_path, pool, endpoints, plugins, ..FlatRoute::default() };
            for route in list(service, "routes").iter().chain(loose.get(name).into_iter().flatten().copied())
            {
                flat.push(self.route(route, flat.len(), &inherited));
            }
        }
        Ok(flat)
    }

    fn route(&self, route: &Value, index: usize, inherited: &FlatRoute) -> FlatRoute {
        let name = text(route, "name").unwrap_or_default();
        let mut flat = FlatRoute {
            name: format!("r{index}_{}", safe(name)),
            paths: strings(route, "paths"),
            hosts: strings(route, "hosts"),
            methods: strings(route, "methods"),
            strip_path: route["strip_path"].as_bool().unwrap_or(true),
            ..inherited.clone()
        };
        flat.plugins.extend(self.plugins_for(Some(("route", name)), Some(route)));
        flat
    }

    /// Plugins of a scope: those nested in its entity, and those at the top that refer to it; the global ones for none.
    fn plugins_for(&self, scope: Option<(&str, &str)>, entity: Option<&Value>) -> BTreeMap<String, Value> {
        let scopes = ["service", "route", "consumer"];
        let top = list(self.data, "plugins").iter().filter(|plugin| match scope {
            None => scopes.iter().all(|scope| plugin.get(*scope).is_none()),
            Some((kind, name)) => {
                let others =
                    scopes.iter().filter(|other| **other != kind).all(|other| plugin.get(*other).is_none());
                others && reference(plugin, kind) == Some(name)
            }
        });
        let nested = entity.map(|entity| list(entity, "plugins")).unwrap_or_default();
        let enabled = top.chain(nested).filter(|plugin| plugin["enabled"].as_bool().unwrap_or(true));
        enabled
            .filter_map(|plugin| Some((text(plugin, "name")?.to_owned(), plugin["config"].clone())))
            .collect()
    }

    fn endpoints(
        &self,
        service: &Value,
        upstreams: &BTreeMap<&str, &Value>,
    ) -> Result<(Vec<Endpoint>, String), ScenarioError> {
        let (host, port, path) = address(service);
        let path = path.trim_end_matches('/').to_owned();
        let Some(upstream) = upstreams.get(host.as_str()) else {
            return Ok((
                vec![Endpoint { address: self.address(&format!("{host}:{port}"))?, weight: 100 }],
                path,
            ));
        };
        let targets = list(upstream, "targets").iter().map(|target| {
            let weight =
                target["weight"].as_u64().and_then(|weight| u32::try_from(weight).ok()).unwrap_or(100);
            Ok(Endpoint { address: self.address(text(target, "target").unwrap_or_default())?, weight })
        });
        Ok((targets.collect::<Result<_, _>>()?, path))
    }

    fn address(&self, text: &str) -> Result<SocketAddr, ScenarioError> {
        let unfit = |message: String| ScenarioError::Unfit(self.file.to_owned(), message);
        let address: SocketAddr = text.replace("localhost:", "127.0.0.1:").parse().map_err(|_| {
            unfit(format!(
                "{text} is neither an upstream of this file nor an address; use {{{{ upstream }}}}"
            ))
        })?;
        if !address.ip().is_loopback() && !self.upstream.contains(&address) {
            // A load through the gateway would be a load on a stranger.
            return Err(unfit(format!("{text} is not of the laboratory; use {{{{ upstream }}}}")));
        }
        Ok(address)
    }
}

/// What a service speaks, from its URL or from its field.
fn protocol(service: &Value) -> &str {
    let of_url = text(service, "url").and_then(|url| url.split_once("://")).map(|(scheme, _)| scheme);
    of_url.or(text(service, "protocol")).unwrap_or("http")
}

/// Host, port and path of a service, from its URL or from its fields.
fn address(service: &Value) -> (String, u64, String) {
    let Some(url) = text(service, "url") else {
        let host = text(service, "host").unwrap_or_default().to_owned();
        let path = text(service, "path").unwrap_or_default().to_owned();
        return (host, service["port"].as_u64().unwrap_or(80), path);
    };
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "80"));
    (host.to_owned(), port.parse().unwrap_or(80), path.to_owned())
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key)?.as_str()
}

fn strings(value: &Value, key: &str) -> Vec<String> {
    list(value, key).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Another entity, named as text or as `{name: …}`.
fn reference<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    let other = value.get(key)?;
    other.as_str().or_else(|| text(other, "name")).or_else(|| text(other, "id"))
}

fn safe(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}
