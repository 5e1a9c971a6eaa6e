//! What a control plane knows about a data plane: its row in `/clustering/data-planes`.
use super::hash::ConfigHash;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use weir_model::Uuid;

/// Whether a data plane gets configurations, and if not, why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncStatus {
    /// It has not been decided yet.
    #[default]
    Unknown,
    /// It does.
    Normal,
    /// Its version of Kong does not go with the control plane's.
    KongVersionIncompatible,
    /// It lacks a plugin that is configured.
    PluginSetIncompatible,
    /// It has a plugin that is configured in another version.
    PluginVersionIncompatible,
    /// It lacks a filter that is configured.
    FilterSetIncompatible,
}

impl SyncStatus {
    /// Kong's name for it.
    pub fn as_str(self) -> &'static str {
        match self {
            SyncStatus::Unknown => "unknown",
            SyncStatus::Normal => "normal",
            SyncStatus::KongVersionIncompatible => "kong_version_incompatible",
            SyncStatus::PluginSetIncompatible => "plugin_set_incompatible",
            SyncStatus::PluginVersionIncompatible => "plugin_version_incompatible",
            SyncStatus::FilterSetIncompatible => "filter_set_incompatible",
        }
    }
}

/// A data plane, with Kong's fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DataPlane {
    /// The id of its node.
    pub id: Uuid,
    /// The address that it connected from.
    pub ip: String,
    /// The name of its host.
    pub hostname: String,
    /// Its version of Kong.
    pub version: Option<String>,
    /// The hash that it reported last.
    pub config_hash: ConfigHash,
    /// Whether it gets configurations.
    pub sync_status: SyncStatus,
    /// When it was last heard of, in seconds since 1970.
    pub last_seen: i64,
    /// When the row was last written, in seconds since 1970.
    pub updated_at: i64,
    /// For how many seconds the row is kept.
    pub ttl: i64,
    /// What it says of itself.
    pub labels: Option<BTreeMap<String, String>>,
    /// Its certificate.
    pub cert_details: Option<CertificateDetails>,
    /// The methods of `/v2/outlet` that it can be called for.
    pub rpc_capabilities: Option<Vec<String>>,
}

/// What is shown of a data plane's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateDetails {
    /// When it ends, in seconds since 1970.
    pub expiry_timestamp: i64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_has_the_fields_of_kong() {
        let row = json!({
            "id": "11111111-1111-4111-8111-111111111111", "ip": "127.0.0.1", "hostname": "dp-1", "version": "3.9.3",
            "config_hash": "3231812278363e4825b8930600471d28", "sync_status": "kong_version_incompatible",
            "last_seen": 1_700_000_000, "updated_at": 1_700_000_000, "ttl": 1_209_600, "labels": { "region": "eu" },
            "cert_details": { "expiry_timestamp": 1_800_000_000 }, "rpc_capabilities": null,
        });
        let read: DataPlane = serde_json::from_value(row.clone()).unwrap();
        assert_eq!(read.sync_status.as_str(), row["sync_status"]);
        assert_eq!(serde_json::to_value(read).unwrap(), row);
    }

    #[test]
    fn statuses_have_the_names_of_kong() {
        for name in [
            "unknown",
            "normal",
            "kong_version_incompatible",
            "plugin_set_incompatible",
            "plugin_version_incompatible",
            "filter_set_incompatible",
        ] {
            let status: SyncStatus = serde_json::from_value(name.into()).unwrap();
            assert_eq!(status.as_str(), name);
        }
    }
}
