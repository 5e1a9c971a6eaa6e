//! A plugin entity: one configuration of one plugin, at one scope.
use super::Protocol;
use crate::schema::{FieldError, Record};
use uuid::Uuid;

/// One configuration of one plugin, at one scope. Its `Debug` leaves out the configuration, which may hold secrets.
#[derive(Clone, PartialEq, Record)]
#[record(check = one_kind_of_caller)]
#[record(hint("ordering", "priority", "plugins run in Kong's order, which is fixed; leave it out"))]
#[record(hint("run_on", "Kong has it no more; leave it out"))]
pub struct Plugin {
    #[field(auto)]
    pub id: Uuid,
    /// Which plugin.
    pub name: String,
    /// A name of its own, where several configurations of one plugin are in use.
    #[field(unique, matches = name)]
    pub instance_name: Option<String>,
    /// Validated against the plugin's schema, defaults filled in.
    #[field(nullable, default = {})]
    pub config: serde_json::Value,
    /// Whether the plugin runs.
    #[field(default = true)]
    pub enabled: bool,
    /// The protocols of the requests that the plugin runs for.
    #[field(set, default = ["grpc", "grpcs", "http", "https"])]
    pub protocols: Vec<Protocol>,
    /// Runs for requests of this route only.
    #[field(foreign = "routes")]
    pub route: Option<Uuid>,
    /// Runs for requests of this service only.
    #[field(foreign = "services")]
    pub service: Option<Uuid>,
    /// Runs for requests of this consumer only.
    #[field(foreign = "consumers")]
    pub consumer: Option<Uuid>,
    /// Runs for requests of consumers in this group only.
    #[field(foreign = "consumer_groups")]
    pub consumer_group: Option<Uuid>,
    #[field(set, matches = tag)]
    pub tags: Option<Vec<String>>,
    #[field(auto)]
    pub created_at: Option<i64>,
    #[field(auto)]
    pub updated_at: Option<i64>,
}

fn one_kind_of_caller(plugin: &Plugin) -> Vec<FieldError> {
    match (plugin.consumer, plugin.consumer_group) {
        (Some(_), Some(_)) => {
            let message = "only one or none of these fields must be set: 'consumer', 'consumer_group'";
            vec![FieldError::new("", message)]
        }
        _ => Vec::new(),
    }
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Plugin({} {})", self.name, self.id)
    }
}
