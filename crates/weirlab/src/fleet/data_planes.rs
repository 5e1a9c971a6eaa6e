//! Simulated data planes: they follow the control plane as real ones do, and keep no more than when something arrived.
use super::FleetError;
use super::arrivals::{Arrivals, Held};
use super::control_plane::{CHANGE_TAG, ControlPlane};
use super::frames::Frames;
use std::sync::Arc;
use std::thread;
use std::time::Instant;
use tokio::runtime;
use weir_cluster::connect::Connector;
use weir_cluster::data_plane::{About, DataPlane, LinkStatus, Options, Stored};
use weir_cluster::sync::identity::Identity as Version;
use weir_cluster::sync::inventory::Inventory;
use weir_cluster::tls::{ClientTls, Identity, Trust};
use weir_cluster::{Apply, Refusal, Update};

/// The version of Kong that they are compatible with.
const VERSION: &str = "3.9.1";

/// How many plugins they say that they have: about as many as a real one has.
const PLUGINS: u32 = 100;

/// The longest message that they accept: Kong's default.
const MAX_PAYLOAD: usize = 16 * 1024 * 1024;

/// Data planes on one thread, which end with the process.
pub(super) struct DataPlanes {
    statuses: Vec<Arc<LinkStatus>>,
}

/// Where a data plane applies what it gets.
struct Recorder(Arc<Arrivals>);

impl Apply for Recorder {
    async fn apply(&self, update: Update, _hash: String) -> Result<(), Vec<Refusal>> {
        match update {
            Update::Whole(document) => {
                let arrived = Instant::now();
                let inventory = Inventory::of(&document);
                // Its content alone says what it is.
                let identity = Version { digest: inventory.digest(), ..Version::default() };
                self.0.whole(arrived, (identity, inventory));
            }
            Update::Changes(changes) => {
                let entities = changes.iter().filter_map(|change| change.entity.as_ref());
                let tags = entities.flat_map(|entity| entity.tags().iter());
                let numbers = tags.filter_map(|tag| tag.strip_prefix(CHANGE_TAG)?.parse().ok());
                numbers.for_each(|nth| self.0.change(nth));
            }
        }
        Ok(())
    }
}

impl DataPlanes {
    /// Begins to connect so many, which serve something already, or nothing.
    pub(super) fn connect(
        count: u32,
        held: Option<&Held>,
        control_plane: &ControlPlane,
        arrivals: &Arc<Arrivals>,
        frames: Option<&Arc<Frames>>,
    ) -> Result<DataPlanes, FleetError> {
        let refused = |error: String| FleetError::Node(error);
        let (certificate, key) = control_plane.certificate()?;
        let identity = Identity::read(&certificate, &key).map_err(|error| refused(error.to_string()))?;
        let tls = ClientTls::new(&identity, &Trust::Shared).map_err(|error| refused(error.to_string()))?;
        let plane = |nth: u32| DataPlane {
            apply: Arc::new(Recorder(arrivals.clone())),
            connector: Connector { tls: tls.clone(), proxy: None },
            control_planes: vec![control_plane.cluster()],
            about: About {
                id: uuid::Uuid::new_v4(),
                hostname: format!("simulated-{nth}"),
                version: VERSION.to_owned(),
                plugins: (0..PLUGINS).map(|nth| (format!("plugin-of-a-fleet-{nth}"), None)).collect(),
                settings: Default::default(),
                labels: Default::default(),
            },
            options: Options { max_payload: MAX_PAYLOAD, reports_errors: false, incremental_sync: false },
            plugins: [].into(),
            status: Arc::default(),
            analytics: frames.map(|frames| frames.clone() as _),
        };
        let planes: Vec<_> = (0..count).map(plane).collect();
        let statuses: Vec<_> = planes.iter().map(|plane| plane.status.clone()).collect();
        arrivals.expect_from(&statuses);
        let stored = || Stored { cache: None, active: held.cloned() };
        let planes: Vec<_> = planes.into_iter().map(|plane| (plane, stored())).collect();
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| FleetError::System("no runtime for data planes", error))?;
        let work = move || {
            runtime.block_on(async {
                let running: Vec<_> =
                    planes.into_iter().map(|(plane, stored)| tokio::spawn(plane.run(stored))).collect();
                for one in running {
                    let _ = one.await;
                }
            });
        };
        let started = thread::Builder::new().name("data-planes".to_owned()).spawn(work);
        started.map_err(|error| FleetError::System("no thread for data planes", error))?;
        Ok(DataPlanes { statuses })
    }

    pub(super) fn len(&self) -> usize {
        self.statuses.len()
    }

    /// What all of them have received.
    pub(super) fn received_bytes(&self) -> u64 {
        self.statuses.iter().map(|status| status.now().received_bytes).sum()
    }

    /// How many have connected since a moment, in seconds since 1970.
    pub(super) fn connected_since(&self, moment: u64) -> usize {
        let is_back = |status: &&Arc<LinkStatus>| {
            let link = status.now();
            link.connected && link.since >= moment
        };
        self.statuses.iter().filter(is_back).count()
    }
}
