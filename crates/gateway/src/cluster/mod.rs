//! The node's part in a fleet: what `weir-cluster` needs to know of the node, and a thread that it runs on.
mod applied;
pub(crate) mod cached;
mod metrics;
mod rows;
mod source;
mod tls;

use crate::analytics::Analytics;
use crate::handover::FilesGate;
use crate::registry::Registry;
use crate::settings::{Role, Settings};
use crate::start_error::StartError;
use crate::store;
use applied::Applied;
pub(crate) use rows::Shared;
use rows::Sharing;
use serde_json::{Map, Value as Json};
use source::RegistrySource;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use weir_cluster::connect::Connector;
use weir_cluster::control_plane::{self, ControlPlane, Fleet};
use weir_cluster::data_plane::{self, About, DataPlane, LinkStatus, Stored};
use weir_cluster::sync::Selector;
use weir_model::{PluginSchema, Uuid};
use weir_net::thread::{runtime, spawn_with_runtime};
use weir_plugins::KONG_VERSION;
use weir_proxy::listen::{Bound, Listener};

/// What the node knows of its fleet.
pub(crate) enum Cluster {
    /// It is in none.
    Alone,
    /// The data planes that it knows.
    ControlPlane(Arc<Fleet>),
    /// Its connection to a control plane.
    DataPlane(Arc<LinkStatus>),
}

impl Cluster {
    pub(crate) fn of(settings: &Settings, node_id: Uuid) -> Cluster {
        match settings.role {
            Role::Traditional => Cluster::Alone,
            Role::ControlPlane => Cluster::ControlPlane(Arc::new(Fleet::new(node_id, purge_delay(settings)))),
            Role::DataPlane => Cluster::DataPlane(Arc::default()),
        }
    }
}

/// The parts of a node that take part in its fleet.
pub(crate) struct Parts<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) registry: &'a Arc<Registry>,
    pub(crate) plugins: &'a [PluginSchema],
    pub(crate) analytics: Option<&'a Analytics>,
    pub(crate) shown_settings: &'a Map<String, Json>,
    /// What a data plane has on disk.
    pub(crate) stored: Stored,
    /// When the files of the node are this process's own.
    pub(crate) files: &'a Arc<FilesGate>,
}

/// Begins to share, if there is a store, what a control plane knows of its data planes with the others of its store.
pub(crate) async fn share(settings: &Settings, fleet: Arc<Fleet>) -> Result<Option<Shared>, StartError> {
    let Some(store) = store::fleet::open(settings).await.map_err(StartError::Store)? else { return Ok(None) };
    let mut sharing = Sharing::new(fleet, store);
    sharing.begin().await;
    Ok(Some(sharing.start()))
}

fn purge_delay(settings: &Settings) -> std::time::Duration {
    std::time::Duration::from_secs(settings.cluster_data_plane_purge_delay.into())
}

/// Starts the node's part in its fleet, if it is in one.
pub(crate) fn start(settings: &Settings, parts: Parts<'_>, bound: Vec<Bound>) -> Result<(), StartError> {
    match parts.cluster {
        Cluster::Alone => Ok(()),
        Cluster::ControlPlane(fleet) => start_control_plane(settings, &parts, fleet.clone(), bound),
        Cluster::DataPlane(status) => start_data_plane(settings, status.clone(), parts),
    }
}

fn start_control_plane(
    settings: &Settings,
    parts: &Parts<'_>,
    fleet: Arc<Fleet>,
    bound: Vec<Bound>,
) -> Result<(), StartError> {
    let (identity, trust) = tls::identity_and_trust(settings)?;
    let tls = weir_cluster::tls::ServerTls::new(&identity, &trust).map_err(StartError::Cluster)?;
    let options = control_plane::Options {
        max_payload: settings.cluster_max_payload as usize,
        push_interval: settings.db_update_frequency,
        version: KONG_VERSION.to_owned(),
        plugins: parts.plugins.into(),
        rpc: settings.cluster_rpc,
        incremental_sync: settings.cluster_incremental_sync,
        selector: Selector::new(settings.cluster_select_by_labels.iter().cloned()),
    };
    let source = Arc::new(RegistrySource::new(parts.registry.clone()));
    let incoming = parts.analytics.and_then(Analytics::incoming);
    let plane = ControlPlane::new(source, tls, fleet, options);
    let plane = Arc::new(plane.collecting(incoming.map(|incoming| incoming as _)));
    let mut listeners = Vec::new();
    for bound in bound {
        match bound.listener {
            Listener::Tcp(tcp) => listeners.push(tcp),
            Listener::Unix(_) => {
                let error = io::Error::new(io::ErrorKind::Unsupported, "data planes connect over TCP");
                let value = "unix:".to_owned();
                return Err(StartError::Setting { name: "cluster_listen", value, error });
            }
        }
    }
    let files = parts.files.clone();
    on_thread(async move {
        files.opened().await;
        let mut serving = JoinSet::new();
        for listener in listeners {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => drop(serving.spawn(plane.clone().serve(listener))),
                Err(error) => tracing::error!(%error, "cluster_listen: a listener cannot be used"),
            }
        }
        tokio::select! {
            () = plane.publish() => {}
            Some(Err(ended)) = serving.join_next() => tracing::error!(%ended, "cluster_listen: a listener ended"),
        }
    })
}

fn start_data_plane(
    settings: &Settings,
    status: Arc<LinkStatus>,
    parts: Parts<'_>,
) -> Result<(), StartError> {
    let (identity, trust) = tls::identity_and_trust(settings)?;
    let tls = weir_cluster::tls::ClientTls::new(&identity, &trust).map_err(StartError::Cluster)?;
    let connector = Connector { tls, proxy: tls::proxy(settings)? };
    let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let about = About {
        id: settings.node_id.unwrap_or_default(),
        hostname,
        version: KONG_VERSION.to_owned(),
        plugins: available(parts.plugins),
        settings: parts.shown_settings.clone(),
        labels: settings.cluster_dp_labels.0.clone(),
    };
    let plane = DataPlane {
        apply: Arc::new(Applied::new(parts.registry.clone())),
        connector,
        control_planes: settings.cluster_control_plane.clone(),
        about,
        options: data_plane::Options {
            max_payload: settings.cluster_max_payload as usize,
            reports_errors: settings.konnect_mode,
            incremental_sync: settings.cluster_incremental_sync,
        },
        plugins: parts.plugins.into(),
        status,
        analytics: parts.analytics.and_then(Analytics::outgoing).map(|outgoing| outgoing as _),
    };
    let (files, stored) = (parts.files.clone(), parts.stored);
    on_thread(async move {
        files.opened().await;
        tokio::select! {
            () = plane.run(stored) => {}
            // The process that has taken the node over has a connection of its own.
            () = files.left() => std::future::pending().await,
        }
    })
}

/// The plugins that a configuration may use, with the version of Kong's of the same name.
fn available(plugins: &[PluginSchema]) -> Vec<(String, Option<String>)> {
    let available = plugins.iter().filter(|plugin| plugin.available);
    let mut plugins: Vec<_> =
        available.map(|plugin| (plugin.name.to_owned(), Some(KONG_VERSION.to_owned()))).collect();
    plugins.sort_unstable();
    plugins
}

/// How many tasks run before connections are asked for news. A change is for all of them: data planes are sent it before what
/// the first ones say to it is taken.
const EVENT_INTERVAL: u32 = 1024;

/// Runs on a thread of its own, so that neither the Admin API nor requests wait for it. The work ends with the process: if
/// it ends before, the process does, too, because a node that has silently left its fleet is worse than one that restarts.
fn on_thread(work: impl Future<Output = ()> + Send + 'static) -> Result<(), StartError> {
    let build = || runtime(Builder::new_current_thread().event_interval(EVENT_INTERVAL));
    spawn_with_runtime("weir-cluster", build, |runtime| {
        let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(work)));
        let how = if ended.is_err() { "panicked" } else { "ended" };
        tracing::error!("the connection to the fleet {how}; this is a defect, and the process ends");
        std::process::exit(1);
    })?;
    Ok(())
}
