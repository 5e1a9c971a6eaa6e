//! The first message of a data plane, which says who it is.
use super::super::introduction::first_message;
use super::super::payloads::Form;
use super::super::upgrade::{Stream, Visitor};
use crate::wire::compat::KongVersion;
use crate::wire::v1::{max_payload, takes_expressions};
use crate::wire::v2::{Hello, SYNC_CAPABILITY, SyncVersion};
use serde_json::Value;
use std::collections::BTreeMap;
use uuid::Uuid;

/// The first minor version whose versions of configurations are texts.
const TEXT_VERSIONS: &str = "3.10.0";

/// A data plane's hello.
#[derive(Debug)]
pub(in crate::control_plane) struct Greeting {
    pub(super) hello: Hello,
    /// What the answer refers to.
    pub(super) id: Value,
    node_id: Uuid,
}

impl Greeting {
    /// Reads it; the error is why the connection must end.
    pub(in crate::control_plane) async fn read(stream: &mut Stream) -> Result<Greeting, String> {
        let (hello, id) = first_message(stream, |bytes| Hello::decode(&bytes)).await?;
        let node_id = hello.kong_node_id.parse().map_err(|_| "kong_node_id: it must be a UUID".to_owned())?;
        Ok(Greeting { hello, id, node_id })
    }

    pub(in crate::control_plane) fn visitor(&self) -> Visitor {
        let Hello { kong_hostname, kong_version, .. } = &self.hello;
        Visitor { id: self.node_id, hostname: kong_hostname.clone(), version: kong_version.clone() }
    }

    /// Whether the data plane wants the configuration by this protocol.
    pub(super) fn is_synced(&self) -> bool {
        self.hello.rpc_capabilities.iter().any(|name| name == SYNC_CAPABILITY)
    }

    /// Its labels, in either form that settings have: a list of `key:value`, or members.
    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        match self.hello.kong_conf.get("cluster_dp_labels") {
            Some(Value::Array(labels)) => labels
                .iter()
                .filter_map(|label| label.as_str()?.split_once(':'))
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            Some(Value::Object(labels)) => labels
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect(),
            _ => BTreeMap::new(),
        }
    }

    /// The longest message that it takes.
    pub(super) fn max_payload(&self) -> usize {
        max_payload(&self.hello.kong_conf)
    }

    /// In what form it takes entities. What its version is does not matter otherwise: Kong's second protocol refuses none.
    pub(super) fn form(&self) -> Form {
        let version = KongVersion::parse(&self.hello.kong_version).unwrap_or(KongVersion::CURRENT);
        Form { version, takes_expressions: takes_expressions(&self.hello.kong_conf) }
    }

    /// The version of a data plane that has nothing, in the form that it takes.
    pub(super) fn first_version(&self) -> SyncVersion {
        let has_texts = KongVersion::parse(TEXT_VERSIONS).is_some_and(|first| self.form().version >= first);
        if has_texts { SyncVersion::text(0) } else { SyncVersion::NONE }
    }
}
