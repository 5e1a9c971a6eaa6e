//! `target.toml`, as it is written.
use crate::catalogue::Span;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// All of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TargetFile {
    pub(super) title: String,
    pub(super) homepage: Option<String>,
    #[serde(default)]
    pub(super) built_in: bool,
    #[serde(default)]
    pub(super) find: Vec<String>,
    #[serde(default)]
    pub(super) install: String,
    #[serde(default)]
    pub(super) version: Vec<String>,
    pub(super) features: BTreeSet<String>,
    #[serde(default)]
    pub(super) lacks: BTreeMap<String, String>,
    #[serde(default = "traffic")]
    pub(super) listeners: Vec<ListenerName>,
    #[serde(default)]
    pub(super) file: Vec<TemplateFile>,
    #[serde(default)]
    pub(super) command: Vec<String>,
    /// Commands for cases that need a feature.
    #[serde(default)]
    pub(super) command_for: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    pub(super) environment: BTreeMap<String, String>,
    /// What runs beside the gateways in cases that need `hybrid`.
    pub(super) control_plane: Option<ControlPlaneFile>,
    #[serde(default)]
    pub(super) ready: ReadyFile,
    pub(super) reload: Option<ReloadFile>,
    #[serde(default = "terminate")]
    pub(super) stop: String,
    #[serde(default)]
    pub(super) stop_command: Vec<String>,
    pub(super) pid_file: Option<String>,
    #[serde(default)]
    pub(super) error_logs: Vec<String>,
    pub(super) costs: Option<String>,
    /// Where its Admin API has each metric over time.
    pub(super) analytics: Option<String>,
    /// Where its status listener has metrics for Prometheus.
    pub(super) metrics: Option<String>,
    pub(super) docker: Option<DockerFile>,
    pub(super) unmeasured: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ListenerName {
    Http,
    Https,
    Admin,
    Status,
    Cluster,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TemplateFile {
    pub(super) template: String,
    pub(super) path: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ReadyFile {
    pub(super) path: Option<String>,
    pub(super) status: Option<u16>,
    pub(super) within: Span,
}

impl Default for ReadyFile {
    fn default() -> Self {
        ReadyFile { path: None, status: None, within: Span(std::time::Duration::from_secs(10)) }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReloadFile {
    pub(super) signal: Option<String>,
    #[serde(default)]
    pub(super) command: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DockerFile {
    pub(super) image: String,
    pub(super) command: Vec<String>,
    #[serde(default)]
    pub(super) environment: BTreeMap<String, String>,
}

/// The control plane that sends gateways their configuration.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ControlPlaneFile {
    pub(super) command: Vec<String>,
    /// What a gateway that has its configuration answers with 200, on its status listener.
    pub(super) served: String,
}

fn traffic() -> Vec<ListenerName> {
    vec![ListenerName::Http, ListenerName::Https]
}

fn terminate() -> String {
    "TERM".to_owned()
}
