//! One item of the tree → one entity, with what its declaration alone cannot say.
use super::collect::{Item, Items};
use crate::entity::*;
use crate::schema::{
    Choice, Json, PluginSchema, Problem, Reader, Record, Step, Surroundings, did_you_mean, find_plugin,
    read_record,
};
use sha1::{Digest, Sha1};

/// Names that may stand anywhere and mean nothing to the gateway.
pub(super) const REMARKS: [&str; 2] = ["_comment", "_ignore"];

/// Reads entities one after another, collecting problems.
pub(super) struct EntityReader<'i> {
    items: &'i Items<'i, 'i>,
    pub(super) plugins: &'i [PluginSchema],
    /// Whether passwords are still to be hashed.
    transform: bool,
    pub(super) reader: Reader<'i>,
    pub(super) not_in_force: Vec<Problem>,
}

impl<'i> EntityReader<'i> {
    pub(super) fn new(items: &'i Items<'i, 'i>, plugins: &'i [PluginSchema], transform: bool) -> Self {
        EntityReader { items, plugins, transform, reader: Reader::new(items), not_in_force: Vec::new() }
    }

    pub(super) fn record<T: Record>(&mut self, item: &Item<'_, '_>) -> Option<T> {
        let given = self.items.given(item);
        let children = item.kind.children().iter().map(|(kind, _)| kind.as_str());
        let ordering = (item.kind == EntityKind::Plugins).then_some("ordering");
        // Where a `url` is written, it has been taken apart by now.
        let url = (item.kind == EntityKind::Services).then_some("url");
        let others: Vec<_> = children.chain(REMARKS).chain(ordering).chain(url).collect();
        read_record(item.node, &Surroundings { given: &given, others: &others }, &mut self.reader)
    }

    pub(super) fn basic_auth(&mut self, item: &Item<'_, '_>) -> Option<BasicAuthCredential> {
        let mut credential: BasicAuthCredential = self.record(item)?;
        if self.transform {
            let digest =
                Sha1::new_with_prefix(&credential.password).chain_update(credential.consumer.to_string());
            credential.password = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        }
        Some(credential)
    }

    pub(super) fn plugin(&mut self, item: &Item<'_, '_>) -> Option<Plugin> {
        let config = self.plugin_config(item);
        let plugin: Option<Plugin> = self.record(item);
        if let Some(ordering) = item.node.get("ordering") {
            self.not_in_force.push(Problem {
                at: ordering.at,
                path: self.reader.path_of("ordering"),
                message: "not in force yet: plugins run in their own order".to_owned(),
            });
        }
        Some(Plugin { config: config?, ..plugin? })
    }

    fn plugin_config(&mut self, item: &Item<'_, '_>) -> Option<Json> {
        let name = item.node.get("name")?;
        let written = name.as_str()?;
        let Some(plugin) = find_plugin(self.plugins, written).filter(|plugin| plugin.available) else {
            let message = not_available(written, self.plugins);
            self.reader.within(Step::Field("name"), |reader| reader.report(name.at, message));
            return None;
        };
        let in_consumer = self.items.given(item).iter().any(|(field, _)| *field == "consumer");
        if !plugin.for_consumers && (in_consumer || item.node.get("consumer").is_some()) {
            let message = format!(
                "{written} finds out who the consumer is, so it cannot be for one; move it to a service, a route or the top level"
            );
            self.reader.report(item.node.at, message);
        }
        let config = item.node.get("config");
        self.reader.within(Step::Field("config"), |reader| plugin.read(config, item.node.at, reader))
    }

    pub(super) fn upstream(&mut self, item: &Item<'_, '_>) -> Option<Upstream> {
        let mut upstream: Upstream = self.record(item)?;
        upstream.settle();
        Some(upstream)
    }

    pub(super) fn target(&mut self, item: &Item<'_, '_>) -> Option<Target> {
        let mut target: Target = self.record(item)?;
        target.settle();
        Some(target)
    }
}

/// What Kong brings along beside the plugins that are here; of `ai-` there are many more.
const PLUGINS_OF_KONG: &[&str] = &[
    "acl",
    "acme",
    "aws-lambda",
    "azure-functions",
    "bot-detection",
    "cors",
    "datadog",
    "file-log",
    "grpc-gateway",
    "grpc-web",
    "hmac-auth",
    "http-log",
    "ip-restriction",
    "jwt",
    "ldap-auth",
    "loggly",
    "oauth2",
    "opentelemetry",
    "post-function",
    "pre-function",
    "proxy-cache",
    "redirect",
    "request-size-limiting",
    "request-transformer",
    "response-ratelimiting",
    "response-transformer",
    "session",
    "standard-webhooks",
    "statsd",
    "syslog",
    "tcp-log",
    "udp-log",
    "zipkin",
];

fn not_available(written: &str, plugins: &[PluginSchema]) -> String {
    let mut names: Vec<_> =
        plugins.iter().filter(|plugin| plugin.available).map(|plugin| plugin.name).collect();
    names.sort_unstable();
    let hint = did_you_mean(written, names.iter().copied());
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    if find_plugin(plugins, written).is_some() {
        return format!("plugin `{written}` is switched off: the setting `plugins` names only {names}");
    }
    if PLUGINS_OF_KONG.contains(&written) || written.starts_with("ai-") {
        return format!("Kong's plugin `{written}` is not available yet; available: {names}");
    }
    format!("no such plugin `{written}`; available: {names}{hint}")
}
