//! What the model knows about a plugin: its name and the schema of its configuration.
use crate::document::Document;
use crate::entity::{CustomEntitySchema, CustomKind, EntityKind, Plugin, Protocol, find_vault};
use crate::entity_error::EntityWarning;
use crate::node::{Node, Position, Value};
use crate::schema::{
    ConfigError, FieldError, FieldSchema, FieldWarning, Json, Kind, Reader, Record, RecordContext,
    RecordSchema, json, read_record,
};
use std::fmt;

/// Whether a plugin runs for sessions of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// It runs for requests alone, and may name no other protocols.
    Never,
    /// It runs for requests alone; others may be named all the same, as in Kong, without effect.
    Accepted,
    /// Where its `protocols` name one of the streams'.
    IfNamed,
    /// Also for TCP and TLS where no `protocols` are written.
    ByDefault,
}

/// The protocols of requests.
const HTTP: [&str; 4] = ["grpc", "grpcs", "http", "https"];

/// Reads a configuration: what is wrong goes to the reader, defaults are filled in.
pub type ReadConfig = dyn Fn(&Node<'_>, &mut Reader<'_>) -> Option<Json> + Send + Sync;

/// A function without a name in `Debug`.
#[derive(Clone, Copy)]
struct Read(&'static ReadConfig);

impl fmt::Debug for Read {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Read")
    }
}

/// Says what is wrong with a plugin entity whose fields are each valid.
pub type CheckPlugin = dyn Fn(&Plugin) -> Vec<FieldError> + Send + Sync;

/// The same without a name in `Debug`.
#[derive(Clone, Copy)]
struct Check(&'static CheckPlugin);

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Check")
    }
}

/// A plugin that can be configured.
#[derive(Debug, Clone, Copy)]
pub struct PluginSchema {
    /// The plugin's name.
    pub name: &'static str,
    /// The declaration of its configuration.
    pub config: &'static RecordSchema,
    /// Whether it may be configured for one consumer: not if it is what finds out who the consumer is, or asks about that.
    pub for_consumers: bool,
    /// Whether it may be configured for a consumer group.
    pub for_consumer_groups: bool,
    /// The fields of the entity that must be null, such as `route`: it is for no route in particular.
    pub refused_scopes: &'static [&'static str],
    /// Whether it runs for sessions of streams too.
    pub streams: Streams,
    /// Whether configurations may use it.
    pub available: bool,
    /// Whether it is there, but cannot be loaded.
    pub broken: bool,
    /// Whether Kong 3.9 does not have it.
    pub extension: bool,
    /// Which fields of a valid configuration are accepted but without effect.
    pub ignored_fields: fn(&Json) -> Vec<FieldWarning>,
    /// What of a valid configuration is probably a mistake all the same.
    pub warnings: fn(&Json) -> Vec<FieldWarning>,
    /// What of a whole document is probably a mistake, as far as it concerns this plugin.
    pub document_warnings: fn(&Document) -> Vec<EntityWarning>,
    /// The upstreams that a valid configuration names, besides the hosts of services.
    pub upstreams: fn(&Json) -> Vec<&str>,
    /// A field of the configuration: plugins with the same value of it share their counters, so that they must be
    /// configured alike.
    pub shared_by: Option<&'static str>,
    /// First segments of its paths in the Admin API whose second one may be a secret.
    pub secret_paths: &'static [&'static str],
    /// The kinds of entities that it declares.
    pub entities: &'static [&'static CustomEntitySchema],
    /// What `/schemas/plugins/NAME` answers, where a schema of Kong's describes the plugin. What is wrong is said in Kong's words then.
    pub described: Option<&'static Json>,
    read: Read,
    check: Option<Check>,
}

impl PluginSchema {
    /// The plugin of this name, whose configuration is a `C`.
    pub const fn of<C: Record + 'static>(name: &'static str) -> Self {
        Self::read_by(name, C::SCHEMA, &read::<C>)
    }

    /// The plugin of this name, whose configurations are declared by data and read by a function.
    pub const fn read_by(
        name: &'static str,
        config: &'static RecordSchema,
        read: &'static ReadConfig,
    ) -> Self {
        PluginSchema {
            name,
            config,
            for_consumers: true,
            for_consumer_groups: false,
            refused_scopes: &[],
            streams: Streams::Never,
            available: true,
            broken: false,
            extension: false,
            ignored_fields: |_| Vec::new(),
            warnings: |_| Vec::new(),
            document_warnings: |_| Vec::new(),
            upstreams: |_| Vec::new(),
            shared_by: None,
            secret_paths: &[],
            entities: &[],
            described: None,
            read: Read(read),
            check: None,
        }
    }

    /// A plugin that cannot be loaded, so that no configuration may use it.
    pub const fn broken(name: &'static str) -> Self {
        const EMPTY: &RecordSchema = &RecordSchema { doc: "", fields: &[], old_names: &[], hints: &[] };
        let schema = Self::read_by(name, EMPTY, &|_: &Node<'_>, _: &mut Reader<'_>| None);
        PluginSchema { broken: true, available: false, ..schema }
    }

    /// The same plugin, which a schema of Kong's describes.
    pub const fn with_description(mut self, described: &'static Json) -> Self {
        self.described = Some(described);
        self
    }

    /// The same plugin, whose configurations are read by this function.
    pub const fn with_reader(mut self, read: &'static ReadConfig) -> Self {
        self.read = Read(read);
        self
    }

    /// The same plugin, whose entities are checked by this function.
    pub const fn with_check(mut self, check: &'static CheckPlugin) -> Self {
        self.check = Some(Check(check));
        self
    }

    /// What is wrong with an entity whose fields are each valid.
    pub(crate) fn violations(&self, plugin: &Plugin) -> Vec<FieldError> {
        self.check.map(|check| check.0(plugin)).unwrap_or_default()
    }

    /// The same plugin, which may not be configured for one consumer.
    pub const fn without_consumer(mut self) -> Self {
        self.for_consumers = false;
        self
    }

    /// The same plugin, which may be configured for a consumer group.
    pub const fn with_consumer_groups(mut self) -> Self {
        self.for_consumer_groups = true;
        self
    }

    /// The same plugin, which may not be configured for one of these: `service`, `route`, `consumer`.
    pub const fn with_refused_scopes(mut self, scopes: &'static [&'static str]) -> Self {
        self.refused_scopes = scopes;
        self
    }

    /// The same plugin, which runs for sessions of streams as well.
    pub const fn with_streams(mut self, streams: Streams) -> Self {
        self.streams = streams;
        self
    }

    /// Why an entity of this plugin may not have these protocols, if it may not.
    pub(crate) fn refuses(&self, protocols: &[Protocol]) -> Option<String> {
        let refused = self.streams == Streams::Never && protocols.iter().any(|it| it.is_stream());
        refused.then(|| {
            let name = self.name;
            let expected = HTTP.join(", ");
            format!("{name} runs for requests alone: expected one of: {expected}; it cannot protect streams")
        })
    }

    /// The same plugin, which Kong 3.9 has or lacks.
    pub const fn with_extension(mut self, extension: bool) -> Self {
        self.extension = extension;
        self
    }

    /// The same plugin, which no configuration may use.
    pub const fn switched_off(mut self) -> Self {
        self.available = false;
        self
    }

    /// The same plugin, some of whose fields are accepted but without effect.
    pub const fn with_ignored_fields(mut self, find: fn(&Json) -> Vec<FieldWarning>) -> Self {
        self.ignored_fields = find;
        self
    }

    /// The same plugin, some of whose configurations are probably a mistake.
    pub const fn with_warnings(mut self, find: fn(&Json) -> Vec<FieldWarning>) -> Self {
        self.warnings = find;
        self
    }

    /// The same plugin, with warnings about whole documents.
    pub const fn with_document_warnings(mut self, find: fn(&Document) -> Vec<EntityWarning>) -> Self {
        self.document_warnings = find;
        self
    }

    /// The same plugin, whose configurations name upstreams.
    pub const fn with_upstreams(mut self, find: fn(&Json) -> Vec<&str>) -> Self {
        self.upstreams = find;
        self
    }

    /// The same plugin, whose configurations with the same value of a field must be alike.
    pub const fn with_shared_by(mut self, field: Option<&'static str>) -> Self {
        self.shared_by = field;
        self
    }

    /// The same plugin, which adds these paths to the Admin API, below which secrets are.
    pub const fn with_secret_paths(mut self, paths: &'static [&'static str]) -> Self {
        self.secret_paths = paths;
        self
    }

    /// The same plugin, which declares these kinds of entities.
    pub const fn with_entities(mut self, entities: &'static [&'static CustomEntitySchema]) -> Self {
        let mut rest = entities;
        while let [entity, others @ ..] = rest {
            entity.check_references();
            rest = others;
        }
        self.entities = entities;
        self
    }

    /// Checks a configuration and fills in its defaults.
    pub fn check(&self, config: &Json) -> Result<Json, Vec<FieldError>> {
        let mut reader = Reader::new(&());
        let config = (self.read.0)(&Node::from(config), &mut reader);
        reader.finish(config)
    }

    /// Everything that is wrong with a configuration, each where it stands; paths start at the configuration.
    pub fn problems(&self, config: &Node<'_>) -> Vec<ConfigError> {
        let mut reader = Reader::new(&());
        (self.read.0)(config, &mut reader);
        reader.into_errors()
    }

    /// Reads the `config` of a plugin entity, or the defaults when there is none.
    pub(crate) fn read(
        &self,
        node: Option<&Node<'_>>,
        at: Position,
        reader: &mut Reader<'_>,
    ) -> Option<Json> {
        let empty = Node::new(Value::Map(Vec::new()), at);
        (self.read.0)(node.unwrap_or(&empty), reader)
    }

    /// What `/schemas/plugins/NAME` answers.
    pub fn to_json(&self) -> Json {
        if let Some(described) = self.described {
            return described.clone();
        }
        let config = Kind::Record(self.config);
        let shown = |field: &&FieldSchema| match field.name {
            "protocols" | "consumer" | "consumer_group" => true,
            name => self.refused_scopes.contains(&name),
        };
        let mut fields: Vec<Json> = Plugin::SCHEMA.fields.iter().filter(shown).map(json::field).collect();
        let consumer = (!self.for_consumers).then_some("consumer");
        let group = (!self.for_consumer_groups).then_some("consumer_group");
        for scope in self.refused_scopes.iter().copied().chain(consumer).chain(group) {
            // Kong's way to say that a field must be null.
            let field = fields.iter_mut().find_map(|field| field.get_mut(scope));
            field.into_iter().for_each(|field| field["eq"] = Json::Null);
        }
        if self.streams == Streams::Never {
            let protocols = fields.iter_mut().find_map(|field| field.get_mut("protocols"));
            let names = protocols.and_then(|field| field.get_mut("elements")?.get_mut("one_of"));
            let names = names.and_then(Json::as_array_mut);
            names.into_iter().for_each(|names| names.retain(|name| HTTP.iter().any(|it| name == it)));
        }
        if self.streams == Streams::ByDefault {
            let protocols = fields.iter_mut().find_map(|field| field.get_mut("protocols"));
            let default = protocols.and_then(|field| field.get_mut("default")).and_then(Json::as_array_mut);
            default.into_iter().for_each(|default| default.extend(["tcp".into(), "tls".into()]));
        }
        let mut description = json::kind(&config);
        description["required"] = true.into();
        fields.push(serde_json::json!({ "config": description }));
        serde_json::json!({ "fields": fields })
    }
}

fn read<C: Record>(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Json> {
    read_record::<C>(node, &RecordContext::NONE, reader).map(|config| config.to_value())
}

/// The plugin of this name.
pub fn find_plugin<'p>(plugins: &'p [PluginSchema], name: &str) -> Option<&'p PluginSchema> {
    plugins.iter().find(|plugin| plugin.name == name)
}

/// The schema of `config` of an entity of a kind and a name, where the name decides on it.
pub fn config_schema(
    plugins: &[PluginSchema],
    kind: EntityKind,
    name: &str,
) -> Option<&'static RecordSchema> {
    match kind {
        EntityKind::Plugins => find_plugin(plugins, name).map(|plugin| plugin.config),
        EntityKind::Vaults => find_vault(name).map(|vault| vault.config),
        _ => None,
    }
}

/// The kind of entity of this name, built-in or declared by a plugin.
pub fn find_kind(plugins: &[PluginSchema], name: &str) -> Option<EntityKind> {
    EntityKind::from_name(name).or_else(|| custom_kinds(plugins).find(|kind| kind.as_str() == name))
}

fn custom_kinds(plugins: &[PluginSchema]) -> impl Iterator<Item = EntityKind> {
    let schemas = plugins.iter().flat_map(|plugin| plugin.entities);
    schemas.map(|schema| EntityKind::Custom(CustomKind::new(schema)))
}

/// Every kind of entity there is, and what may be nested in what.
#[derive(Debug)]
pub struct EntityKinds(Vec<(EntityKind, Vec<(EntityKind, &'static str)>)>);

impl EntityKinds {
    /// The built-in kinds, and those that these plugins declare.
    pub fn of(plugins: &[PluginSchema]) -> Self {
        let (with_names, others) = EntityKind::BUILT_IN.split_at(
            EntityKind::BUILT_IN.iter().position(|kind| *kind == EntityKind::Plugins).unwrap_or_default(),
        );
        let mut schemas: Vec<_> = plugins.iter().flat_map(|plugin| plugin.entities).copied().collect();
        schemas.sort_unstable_by_key(|schema| (schema.depth(), schema.name));
        let custom: Vec<_> =
            schemas.into_iter().map(|schema| EntityKind::Custom(CustomKind::new(schema))).collect();
        let kinds = with_names.iter().chain(&custom).chain(others);
        let children = |parent: EntityKind| {
            let nested = custom.iter().flat_map(|kind| match kind {
                EntityKind::Custom(of) => of.schema().references().map(|to| (*kind, to)).collect(),
                _ => Vec::new(),
            });
            let nested =
                nested.filter(|(_, (_, kind))| *kind == parent).map(|(kind, (field, _))| (kind, field));
            nested.chain(parent.children().iter().copied()).collect()
        };
        EntityKinds(kinds.map(|kind| (*kind, children(*kind))).collect())
    }

    /// Every kind.
    pub fn iter(&self) -> impl Iterator<Item = EntityKind> {
        self.0.iter().map(|(kind, _)| *kind)
    }

    /// The kind of this name.
    pub fn find(&self, name: &str) -> Option<EntityKind> {
        self.iter().find(|kind| kind.as_str() == name)
    }

    /// What may be nested in an entity of a kind: each kind, and its field that names the parent.
    pub fn children(&self, kind: EntityKind) -> &[(EntityKind, &'static str)] {
        self.0.iter().find(|(of, _)| *of == kind).map(|(_, children)| children.as_slice()).unwrap_or_default()
    }

    /// The place of a kind among all.
    pub(crate) fn index(&self, kind: EntityKind) -> usize {
        self.iter().position(|of| of == kind).unwrap_or_default()
    }
}

/// What to write in place of a name that is no field of an entity of this kind, or of a whole file: what plugins say of
/// names that people give to their entities.
pub(crate) fn custom_hint(
    plugins: &[PluginSchema],
    parent: Option<EntityKind>,
    written: &str,
) -> Option<String> {
    let schemas = || plugins.iter().flat_map(|plugin| plugin.entities);
    let is_child = |schema: &&&CustomEntitySchema| {
        parent.is_none_or(|parent| schema.references().any(|(_, kind)| kind == parent))
    };
    let called = schemas().filter(is_child).find(|schema| schema.other_names.contains(&written));
    if let Some(schema) = called {
        return Some(format!("did you mean `{}`?", schema.name));
    }
    let hints = schemas()
        .filter(|schema| parent.is_some() && is_child(schema))
        .flat_map(|schema| schema.parent_hints);
    hints.into_iter().find(|(names, _)| names.contains(&written)).map(|(_, hint)| (*hint).to_owned())
}
