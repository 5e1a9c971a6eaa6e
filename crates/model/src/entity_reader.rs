//! What is written of one entity → the entity, with what its declaration alone cannot say.
use crate::entity::*;
use crate::node::{Node, Value};
use crate::other_plugins::no_such_plugin;
use crate::plugin_schema::{EntityKinds, PluginSchema, Streams, config_schema, custom_hint, find_plugin};
use crate::schema::{
    ConfigError, FieldError, Json, Reader, Record, RecordContext, References, Step, read_record,
};
use crate::service_url::split_url;
use std::sync::Arc;
use uuid::Uuid;

/// Names that may stand anywhere and mean nothing to the gateway.
pub(crate) const COMMENT_FIELDS: [&str; 2] = ["_comment", "_ignore"];

/// Reads entities one after another, collecting problems.
pub(crate) struct EntityReader<'i> {
    pub(crate) plugins: &'i [PluginSchema],
    /// Whether passwords are still to be hashed.
    transform: bool,
    /// The kinds of entities, where others may be nested in one: not where one is read on its own.
    kinds: Option<&'i EntityKinds>,
    pub(crate) reader: Reader<'i>,
    pub(crate) ignored_fields: Vec<ConfigError>,
}

/// What is written of one entity.
#[derive(Clone, Copy)]
pub(crate) struct RawEntity<'w, 'a> {
    pub(crate) kind: EntityKind,
    pub(crate) node: &'w Node<'a>,
    /// Values that follow from its place.
    pub(crate) given: &'w [(&'static str, Uuid)],
}

/// What reading an entity on its own needs to know.
#[derive(Clone, Copy)]
pub struct ReadOptions<'r> {
    /// The plugins there are.
    pub plugins: &'r [PluginSchema],
    /// Finds the entities that it names.
    pub references: &'r dyn References,
    /// Whether passwords are written in clear, and still to be hashed.
    pub hash_passwords: bool,
}

impl Entity {
    /// Reads one entity. `given`: fields that follow from where it was found, such as its id.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(
        kind: EntityKind,
        written: &Json,
        given: &[(&'static str, Uuid)],
        reading: ReadOptions<'_>,
    ) -> Result<Entity, Vec<FieldError>> {
        let mut node = Node::from(written);
        let mut problems = Vec::new();
        if kind == EntityKind::Services {
            problems.extend(split_url(&mut node).err());
        }
        let mut entities = EntityReader::new(reading.references, reading.plugins, reading.hash_passwords);
        let entity = entities.entity(RawEntity { kind, node: &node, given });
        problems.extend(entities.reader.into_errors());
        match entity {
            Some(entity) if problems.is_empty() => Ok(entity),
            _ => Err(problems
                .into_iter()
                .map(|problem| FieldError { path: problem.path, message: problem.message })
                .collect()),
        }
    }
}

impl<'i> EntityReader<'i> {
    /// A reader of entities that stand alone.
    pub(crate) fn new(references: &'i dyn References, plugins: &'i [PluginSchema], transform: bool) -> Self {
        EntityReader {
            plugins,
            transform,
            kinds: None,
            reader: Reader::new(references),
            ignored_fields: Vec::new(),
        }
    }

    /// The same reader, of entities of these kinds that are nested in each other.
    pub(crate) fn nested(self, kinds: &'i EntityKinds) -> Self {
        EntityReader { kinds: Some(kinds), ..self }
    }

    /// Reads an entity of any kind.
    pub(crate) fn entity(&mut self, item: RawEntity<'_, '_>) -> Option<Entity> {
        use EntityKind::*;
        Some(match item.kind {
            Services => Entity::Services(self.record(item)?),
            Routes => Entity::Routes(self.route(item)?),
            Consumers => Entity::Consumers(self.record(item)?),
            ConsumerGroups => Entity::ConsumerGroups(self.record(item)?),
            ConsumerGroupConsumers => Entity::ConsumerGroupConsumers(self.record(item)?),
            Custom(kind) => Entity::Custom(self.custom(kind, item)?),
            Plugins => Entity::Plugins(self.plugin(item)?),
            Upstreams => Entity::Upstreams(self.upstream(item)?),
            Targets => Entity::Targets(self.target(item)?),
            Certificates => Entity::Certificates(self.record(item)?),
            Snis => Entity::Snis(self.record(item)?),
            CaCertificates => Entity::CaCertificates(self.record(item)?),
            Vaults => Entity::Vaults(self.vault(item)?),
            KeySets => Entity::KeySets(self.record(item)?),
            Keys => Entity::Keys(self.record(item)?),
            ApisixObjects => Entity::ApisixObjects(self.record(item)?),
        })
    }

    fn record<T: Record>(&mut self, item: RawEntity<'_, '_>) -> Option<Arc<T>> {
        self.owned(item).map(Arc::new)
    }

    fn owned<T: Record>(&mut self, item: RawEntity<'_, '_>) -> Option<T> {
        self.in_context(item, |context, reader| read_record(item.node, context, reader))
    }

    /// Reads an entity with what is known about it from where it stands.
    fn in_context<T>(
        &mut self,
        item: RawEntity<'_, '_>,
        read: impl FnOnce(&RecordContext<'_>, &mut Reader<'i>) -> Option<T>,
    ) -> Option<T> {
        let kind = item.kind;
        let children = self.kinds.map(|kinds| kinds.children(kind)).unwrap_or_default();
        let children = children.iter().map(|(kind, _)| kind.as_str());
        // Where a `url` is written, it has been taken apart by now.
        let url = (kind == EntityKind::Services).then_some("url");
        let members = kind.members().filter(|_| self.kinds.is_some()).map(|(members, _)| members);
        let others: Vec<_> = children.chain(members).chain(COMMENT_FIELDS).chain(url).collect();
        let plugins = self.plugins;
        let name = item.node.get("name").and_then(Node::as_str);
        let config = name.and_then(|name| config_schema(plugins, kind, name));
        let hint = |written: &str| custom_hint(plugins, Some(kind), written);
        let context = RecordContext { given: item.given, others: &others, config, hint: Some(&hint) };
        read(&context, &mut self.reader)
    }

    fn custom(&mut self, kind: CustomKind, item: RawEntity<'_, '_>) -> Option<CustomRecord> {
        let hash = self.transform;
        self.in_context(item, |context, reader| kind.schema().read(item.node, context, hash, reader))
    }

    fn plugin(&mut self, item: RawEntity<'_, '_>) -> Option<Arc<Plugin>> {
        let mut written = item.node.entries().iter();
        let nameless = item.node.get("name").is_none();
        if let Some(entry) = written.find(|entry| nameless && find_plugin(self.plugins, &entry.key).is_some())
        {
            let key = &entry.key;
            let message =
                format!("unknown field `{key}`; write `name: {key}`, and its fields below `config`");
            self.reader.report(entry.at, message);
            return None;
        }
        let config = self.plugin_config(item);
        let plugin: Option<Plugin> = self.owned(item);
        let mut plugin = Plugin { config: config?, ..plugin? };
        self.settle_protocols(&mut plugin, item.node);
        self.check_plugin(&plugin, item.node);
        Some(Arc::new(plugin))
    }

    /// Refuses protocols that the plugin does not run for, and fills in those it runs for.
    fn settle_protocols(&mut self, plugin: &mut Plugin, node: &Node<'_>) {
        let Some(schema) = find_plugin(self.plugins, &plugin.name) else { return };
        let written = node.get("protocols").filter(|protocols| !matches!(protocols.value, Value::Null));
        match (written, schema.refuses(&plugin.protocols)) {
            (Some(written), Some(message)) => {
                self.reader.within(Step::Field("protocols"), |reader| reader.report(written.at, message));
            }
            (None, _) if schema.streams == Streams::ByDefault => {
                plugin.protocols.extend([Protocol::Tcp, Protocol::Tls]);
            }
            _ => {}
        }
    }

    /// Reports what the plugin's own rules say of the whole entity.
    fn check_plugin(&mut self, plugin: &Plugin, node: &Node<'_>) {
        let Some(schema) = find_plugin(self.plugins, &plugin.name) else { return };
        for error in schema.violations(plugin) {
            self.reader.report_exactly(&error.path, node.position_of(&error.path), &error.message);
        }
    }

    fn plugin_config(&mut self, item: RawEntity<'_, '_>) -> Option<Json> {
        let name = item.node.get("name")?;
        let written = name.as_str()?;
        let Some(plugin) = find_plugin(self.plugins, written).filter(|plugin| plugin.available) else {
            let message = no_such_plugin(written, self.plugins, self.reader.is_early());
            self.reader.within(Step::Field("name"), |reader| reader.report(name.at, message));
            return None;
        };
        let is_for = |scope: &str| {
            let written = item.node.get(scope).is_some_and(|scope| !matches!(scope.value, Value::Null));
            written || item.given.iter().any(|(field, _)| *field == scope)
        };
        for scope in plugin.refused_scopes.iter().copied().filter(|scope| is_for(scope)) {
            let message =
                format!("value must be null: {written} cannot be for one {scope}; move it to the top level");
            let at = item.node.get(scope).map_or(item.node.at, |scope| scope.at);
            self.reader.within(Step::Field(scope), |reader| reader.report(at, message));
        }
        if !plugin.for_consumers && is_for("consumer") {
            let message = format!(
                "{written} runs for all consumers, so it cannot be for one; move it to a service, a route or the top level"
            );
            self.reader.report(item.node.at, message);
        }
        if !plugin.for_consumer_groups && is_for("consumer_group") {
            let message = format!(
                "value must be null: {written} cannot be for a consumer group; move it to a service, a route or the top level"
            );
            let at = item.node.get("consumer_group").map_or(item.node.at, |group| group.at);
            self.reader.within(Step::Field("consumer_group"), |reader| reader.report(at, message));
        }
        let config = item.node.get("config");
        self.reader.inside(Plugin::SCHEMA, |reader| {
            reader.within(Step::Field("config"), |reader| plugin.read(config, item.node.at, reader))
        })
    }

    fn route(&mut self, item: RawEntity<'_, '_>) -> Option<Arc<Route>> {
        let mut route: Route = self.owned(item)?;
        if item.node.get("strip_path").is_none() {
            route.keep_grpc_path();
        }
        Some(Arc::new(route))
    }

    fn vault(&mut self, item: RawEntity<'_, '_>) -> Option<Arc<Vault>> {
        let config = self.vault_config(item);
        let vault: Option<Vault> = self.owned(item);
        Some(Arc::new(Vault { config: config?, ..vault? }))
    }

    fn vault_config(&mut self, item: RawEntity<'_, '_>) -> Option<Json> {
        let name = item.node.get("name")?;
        let written = name.as_str()?;
        let Some(schema) = find_vault(written) else {
            let message = no_such_vault(written);
            self.reader.within(Step::Field("name"), |reader| reader.report(name.at, message));
            return None;
        };
        let config = item.node.get("config");
        self.reader.inside(Vault::SCHEMA, |reader| {
            reader.within(Step::Field("config"), |reader| schema.read(config, item.node.at, reader))
        })
    }

    fn upstream(&mut self, item: RawEntity<'_, '_>) -> Option<Arc<Upstream>> {
        let mut upstream: Upstream = self.owned(item)?;
        upstream.settle();
        Some(Arc::new(upstream))
    }

    fn target(&mut self, item: RawEntity<'_, '_>) -> Option<Arc<Target>> {
        let mut target: Target = self.owned(item)?;
        target.settle();
        Some(Arc::new(target))
    }
}
