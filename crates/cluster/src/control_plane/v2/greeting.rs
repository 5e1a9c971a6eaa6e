//! The first message of a data plane, which says who it is.
use super::super::bounds;
use super::super::introduction::first_message;
use super::super::payloads::Form;
use super::super::upgrade::{Stream, Visitor};
use crate::wire::compat::KongVersion;
use crate::wire::v1::{max_payload, takes_expressions};
use crate::wire::v2::{Hello, SYNC_CAPABILITY, SyncVersion};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The first minor version whose versions of configurations are texts.
const TEXT_VERSIONS: &str = "3.10.0";

/// What is kept of a data plane's hello.
#[derive(Debug)]
pub(in crate::control_plane) struct Greeting {
    /// What the answer refers to.
    pub(super) id: Value,
    /// What the data plane can be called for.
    pub(super) capabilities: Vec<String>,
    pub(super) terms: Terms,
    visitor: Visitor,
}

/// What a data plane takes.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) labels: BTreeMap<String, String>,
    /// In what form it takes entities. What its version is does not matter otherwise: Kong's second protocol refuses none.
    pub(super) form: Form,
    /// The longest message that it takes.
    pub(super) max_payload: usize,
}

impl Greeting {
    /// Reads it; the error is why the connection must end.
    pub(in crate::control_plane) async fn read(stream: &mut Stream) -> Result<Greeting, String> {
        let (hello, id) = first_message(stream, |bytes| Hello::decode(&bytes)).await?;
        let node_id = hello.kong_node_id.parse().map_err(|_| "kong_node_id: it must be a UUID".to_owned())?;
        let version = KongVersion::parse(&hello.kong_version).unwrap_or(KongVersion::CURRENT);
        let settings = &hello.kong_conf;
        let terms = Terms {
            labels: bounds::labels(labels(settings)),
            form: Form { version, takes_expressions: takes_expressions(settings) },
            max_payload: max_payload(settings),
        };
        Ok(Greeting {
            id,
            capabilities: bounds::capabilities(hello.rpc_capabilities),
            terms,
            visitor: Visitor { id: node_id, hostname: hello.kong_hostname, version: hello.kong_version },
        })
    }

    pub(in crate::control_plane) fn visitor(&self) -> Visitor {
        self.visitor.clone()
    }

    /// Whether the data plane wants the configuration by this protocol.
    pub(super) fn is_synced(&self) -> bool {
        self.capabilities.iter().any(|name| name == SYNC_CAPABILITY)
    }
}

impl Terms {
    /// The version of a data plane that has nothing, in the form that it takes.
    pub(super) fn first_version(&self) -> SyncVersion {
        let has_texts = KongVersion::parse(TEXT_VERSIONS).is_some_and(|first| self.form.version >= first);
        if has_texts { SyncVersion::text(0) } else { SyncVersion::NONE }
    }
}

/// The labels among the settings, in either form that these have: a list of `key:value`, or members.
fn labels(settings: &Map<String, Value>) -> BTreeMap<String, String> {
    match settings.get("cluster_dp_labels") {
        Some(Value::Array(labels)) => labels
            .iter()
            .filter_map(|label| label.as_str()?.split_once(':'))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        Some(Value::Object(labels)) => {
            labels.iter().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
        }
        _ => BTreeMap::new(),
    }
}
