//! The supported plugins of APISIX, and what serves each of them here.
use super::adapted::{
    Adapted, BasicAuth, ForwardAuth, IpRestriction, KeyAuth, OpenTelemetry, Prometheus, Zipkin,
};
use super::ai::{PromptDecorator, PromptGuard, PromptTemplate, Proxy};
use super::azure_functions::AzureFunctions;
use super::grpc_transcode::GrpcTranscode;
use super::known::known_members;
use super::traffic_split::TrafficSplit;
use super::{consumer, refused};
use crate::apisix::object::Invalid;
use crate::apisix::translate::{json_schema, mistakes};
use weir_model::node::Node;
use weir_model::schema::{Direction, Json, Record, RecordSchema};
use weir_model::{ConfigError, PluginSchema};

/// A plugin of APISIX.
pub(super) struct Row {
    /// Its name there.
    pub(super) name: &'static str,
    /// Its priority there: which of two plugins runs first.
    pub(super) priority: i32,
    /// The plugin of Weir that serves it.
    pub(super) ours: &'static str,
    fields: Fields,
    /// What consumers have of it.
    pub(super) credential: Option<Credential>,
}

/// How its configuration is read.
enum Fields {
    /// Weir's plugin has the same fields.
    Same,
    /// Weir's plugin has others.
    Adapted {
        schema: &'static RecordSchema,
        mistakes: fn(&Node<'_>) -> Vec<ConfigError>,
        adapt: fn(&str, &Json, &Json) -> Result<Configuration, Invalid>,
    },
}

/// A consumer's credential.
#[derive(Clone, Copy)]
pub(super) struct Credential {
    pub(super) schema: &'static RecordSchema,
    pub(super) mistakes: fn(&Node<'_>) -> Vec<ConfigError>,
}

/// One plugin's configuration, in APISIX's terms and in ours.
pub(super) struct Configuration {
    pub(super) theirs: Json,
    pub(super) ours: Json,
}

const fn same(name: &'static str, priority: i32, ours: &'static str) -> Row {
    Row { name, priority, ours, fields: Fields::Same, credential: None }
}

const fn adapted<T: Adapted>(name: &'static str, priority: i32, ours: &'static str) -> Row {
    let fields = Fields::Adapted { schema: T::SCHEMA, mistakes: mistakes::fields::<T>, adapt: adapt::<T> };
    Row { name, priority, ours, fields, credential: None }
}

const fn with_credential<C: Record>(row: Row) -> Row {
    Row { credential: Some(Credential { schema: C::SCHEMA, mistakes: mistakes::fields::<C> }), ..row }
}

fn adapt<T: Adapted>(name: &str, written: &Json, metadata: &Json) -> Result<Configuration, Invalid> {
    let theirs = T::from_value(written).map_err(|found| refused(name, &found))?;
    Ok(Configuration { theirs: theirs.to_value(), ours: theirs.ours(metadata)? })
}

/// In the order in which APISIX runs them. Access hooks run in Weir's own order: authentication comes before
/// what depends on it.
static ROWS: [Row; 44] = [
    same("request-id", 12_015, "request-id"),
    adapted::<OpenTelemetry>("opentelemetry", 12_009, "opentelemetry"),
    adapted::<Zipkin>("zipkin", 12_011, "zipkin"),
    same("fault-injection", 11_000, "fault-injection"),
    same("mocking", 10_900, "mocking"),
    same("cors", 4_000, "apisix-cors"),
    adapted::<IpRestriction>("ip-restriction", 3_000, "ip-restriction"),
    same("ua-restriction", 2_999, "ua-restriction"),
    same("referer-restriction", 2_990, "referer-restriction"),
    same("uri-blocker", 2_900, "uri-blocker"),
    same("request-validation", 2_800, "request-validation"),
    same("openid-connect", 2_599, "openid-connect"),
    with_credential::<consumer::HmacAuth>(same("hmac-auth", 2_530, "apisix-hmac-auth")),
    with_credential::<consumer::BasicAuth>(adapted::<BasicAuth>("basic-auth", 2_520, "basic-auth")),
    with_credential::<consumer::JwtAuth>(same("jwt-auth", 2_510, "jwt-auth")),
    with_credential::<consumer::KeyAuth>(adapted::<KeyAuth>("key-auth", 2_500, "key-auth")),
    same("consumer-restriction", 2_400, "consumer-restriction"),
    adapted::<ForwardAuth>("forward-auth", 2_002, "forward-auth"),
    same("proxy-cache", 1_085, "apisix-proxy-cache"),
    adapted::<PromptGuard>("ai-prompt-guard", 1_072, "ai-prompt-guard"),
    adapted::<PromptTemplate>("ai-prompt-template", 1_071, "ai-prompt-template"),
    adapted::<PromptDecorator>("ai-prompt-decorator", 1_070, "ai-prompt-decorator"),
    same("ai-proxy-multi", 1_041, "ai-proxy-multi"),
    adapted::<Proxy>("ai-proxy", 1_040, "ai-proxy-multi"),
    same("ai-rate-limiting", 1_030, "ai-rate-limiting"),
    same("proxy-mirror", 1_010, "proxy-mirror"),
    same("proxy-rewrite", 1_008, "proxy-rewrite"),
    same("api-breaker", 1_005, "api-breaker"),
    same("limit-conn", 1_003, "limit-conn"),
    same("limit-count", 1_002, "limit-count"),
    same("limit-req", 1_001, "limit-req"),
    same("gzip", 995, "gzip"),
    adapted::<TrafficSplit>("traffic-split", 966, "traffic-split"),
    same("redirect", 900, "apisix-redirect"),
    same("response-rewrite", 899, "response-rewrite"),
    adapted::<GrpcTranscode>("grpc-transcode", 506, "grpc-transcode"),
    adapted::<Prometheus>("prometheus", 500, "prometheus"),
    same("http-logger", 410, "http-logger"),
    same("kafka-logger", 403, "kafka-logger"),
    same("file-logger", 399, "file-logger"),
    same("aws-lambda", -1_899, "apisix-aws-lambda"),
    adapted::<AzureFunctions>("azure-functions", -1_900, "azure-functions"),
    same("openwhisk", -1_901, "openwhisk"),
    same("openfunction", -1_902, "openfunction"),
];

/// All of them.
pub(super) fn rows() -> &'static [Row] {
    &ROWS
}

/// The plugin of this name.
pub(super) fn find(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.name == name)
}

impl Row {
    /// The plugin of Weir's, if it is available.
    pub(super) fn plugin<'p>(&self, schemas: &'p [PluginSchema]) -> Option<&'p PluginSchema> {
        weir_model::find_plugin(schemas, self.ours).filter(|schema| schema.available)
    }

    /// What may be configured.
    pub(super) fn fields(&self, plugin: &PluginSchema) -> &'static RecordSchema {
        match self.fields {
            Fields::Same => plugin.config,
            Fields::Adapted { schema, .. } => schema,
        }
    }

    /// The same as a JSON Schema.
    pub(super) fn schema(&self, plugin: &PluginSchema) -> Json {
        match self.fields {
            Fields::Same => plugin.config.to_json_schema(Direction::Request),
            Fields::Adapted { schema, .. } => json_schema::of_record(schema),
        }
    }

    /// Reads a configuration. As in APISIX, members that the plugin does not know have no effect.
    pub(super) fn read(
        &self,
        plugin: &PluginSchema,
        written: &Json,
        metadata: &Json,
    ) -> Result<Configuration, Invalid> {
        let written = known_members(written, self.fields(plugin));
        match self.fields {
            Fields::Same => {
                let config = plugin.check(&written).map_err(|found| refused(self.name, &found))?;
                let mut ours = config.clone();
                // The metadata of a logger has the format of those that have none of their own.
                if ours.get("log_format").is_some_and(Json::is_null) {
                    ours["log_format"] = metadata["log_format"].clone();
                }
                Ok(Configuration { theirs: config, ours })
            }
            Fields::Adapted { adapt, .. } => adapt(self.name, &written, metadata),
        }
    }

    /// Everything that is wrong with a configuration.
    pub(super) fn mistakes(&self, plugin: &PluginSchema, config: &Node<'_>) -> Vec<ConfigError> {
        match self.fields {
            Fields::Same => plugin.problems(config),
            Fields::Adapted { mistakes, .. } => mistakes(config),
        }
    }
}
