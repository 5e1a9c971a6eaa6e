//! What code learns of the node.

use crate::cluster_events::ClusterEvents;
use crate::dicts::Dicts;
use crate::failures::Failures;
use crate::settings::{LuaSettings, NodeConfiguration};
use crate::socket::Network;
use crate::usage::VmSizes;
use crate::worker_events::WorkerEvents;
use std::sync::Arc;
use weir_plugin::{
    Background, BuildContext, EntityDatabase, NodeId, NodeStatistics, RequestRecord, Retained, Vaults,
};

/// What code learns of the node.
#[derive(Clone)]
pub(crate) struct Node {
    /// Its id.
    pub(crate) id: Arc<str>,
    /// The name of its machine.
    pub(crate) hostname: Arc<str>,
    /// Where its entities are.
    pub(crate) database: Arc<EntityDatabase>,
    /// What says that it is about to exit.
    pub(crate) background: Arc<Background>,
    /// What opens connections to other servers.
    pub(crate) network: Network,
    /// Its folder.
    pub(crate) prefix: Arc<str>,
    /// What counts calls that ended early.
    pub(crate) failures: Failures,
    /// Its settings.
    pub(crate) configuration: Arc<NodeConfiguration>,
    /// What writes the record of a request.
    pub(crate) record: Arc<RequestRecord>,
    /// Where secrets are kept.
    pub(crate) vaults: Arc<Vaults>,
    /// What its workers post to each other.
    pub(crate) events: Arc<WorkerEvents>,
    /// What it and the other nodes of its database broadcast.
    pub(crate) cluster_events: ClusterEvents,
    /// What its workers share.
    pub(crate) dicts: Arc<Dicts>,
    /// What the VMs of its workers hold.
    pub(crate) vm_sizes: Arc<VmSizes>,
    /// What it has served.
    pub(crate) statistics: Arc<NodeStatistics>,
    /// Whether it serves requests.
    pub(crate) serves: bool,
}

impl Node {
    /// The node whose state this is, on this machine.
    pub(crate) fn of(retained: &Retained) -> Self {
        let id: Arc<str> = retained.get::<NodeId>().0.to_string().into();
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            cluster_events: ClusterEvents::of(retained, &id),
            id,
            hostname: name.trim().into(),
            prefix: retained.get::<LuaSettings>().prefix.as_str().into(),
            database: retained.get(),
            background: retained.get(),
            network: Network::of(retained),
            failures: Failures::of(retained),
            configuration: retained.get(),
            record: retained.get(),
            vaults: retained.get(),
            events: retained.get(),
            dicts: Dicts::of(retained),
            vm_sizes: retained.get(),
            statistics: retained.get(),
            serves: true,
        }
    }

    /// The node that a plugin is built for.
    pub(crate) fn of_build(build: &BuildContext<'_>) -> Self {
        Network::prepare(build);
        Self::of(build.retained)
    }

    /// A node that serves nothing: what it runs reads plugins.
    pub(crate) fn reading() -> Self {
        Self { serves: false, ..Self::of(&Retained::default()) }
    }
}
