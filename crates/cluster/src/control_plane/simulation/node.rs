//! A data plane, as far as it applies what it gets, and what must hold of that.
use super::store::Store;
use crate::connect::Connector;
use crate::data_plane::{About, DataPlane, Options};
use crate::tls::{ClientTls, Identity, ServerTls, Trust, generate};
use crate::{Apply, Refusal, Update};
use fastrand::Rng;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use weir_model::{Document, Uuid};

/// What happened, of the whole fleet.
pub(super) struct History {
    pub(super) start: Instant,
    pub(super) events: Mutex<Vec<String>>,
    pub(super) broken: Mutex<Vec<String>>,
}

impl History {
    pub(super) fn note(&self, what: String) {
        let now = self.start.elapsed().as_millis();
        self.events.lock().unwrap().push(format!("{now:>7} ms  {what}"));
    }

    pub(super) fn breaks(&self, what: String) {
        self.note(what.clone());
        self.broken.lock().unwrap().push(what);
    }
}

/// What a data plane serves.
pub(super) struct Served {
    pub(super) number: usize,
    pub(super) history: Arc<History>,
    store: Arc<Mutex<Store>>,
    random: Mutex<Rng>,
    pub(super) document: Mutex<Document>,
    /// The newest revision that it has served.
    pub(super) revision: Mutex<u64>,
    /// Whether it refuses something now and then.
    pub(super) refuses: Mutex<bool>,
}

impl Served {
    pub(super) fn new(number: usize, history: Arc<History>, store: Arc<Mutex<Store>>, random: Rng) -> Served {
        Served {
            number,
            history,
            store,
            random: Mutex::new(random),
            document: Mutex::default(),
            revision: Mutex::default(),
            refuses: Mutex::new(true),
        }
    }

    /// No revision is served after a newer one, and what is served is what was committed.
    fn check(&self, revision: Option<u64>) {
        let Some(revision) = revision else {
            return self
                .history
                .breaks(format!("data plane {} serves what no commit has led to", self.number));
        };
        let before = std::mem::replace(&mut *self.revision.lock().unwrap(), revision);
        if revision < before {
            self.history.breaks(format!(
                "a data plane never serves an older revision after a newer one: {} serves {revision} after {before}",
                self.number
            ));
        }
        if *self.document.lock().unwrap() != **self.store.lock().unwrap().document(revision) {
            self.history.breaks(format!(
                "a data plane serves exactly what a revision has: {} at {revision} does not",
                self.number
            ));
        }
    }
}

impl Apply for Served {
    async fn apply(&self, update: Update, hash: String) -> Result<(), Vec<Refusal>> {
        let (takes, refuses) = {
            let mut random = self.random.lock().unwrap();
            (random.u64(..300), *self.refuses.lock().unwrap() && random.u8(..10) == 0)
        };
        sleep(Duration::from_millis(takes)).await;
        if refuses {
            self.history.note(format!("data plane {} refuses", self.number));
            return Err(vec![Refusal { entity: "service `a`".into(), field: None, message: "no".into() }]);
        }
        {
            let mut document = self.document.lock().unwrap();
            match update {
                Update::Whole(whole) => *document = *whole,
                Update::Changes(changes) => changes.iter().for_each(|change| document.apply(change)),
            }
        }
        let revision = self.store.lock().unwrap().revision_of(&hash);
        self.history.note(format!("data plane {} serves revision {revision:?}", self.number));
        self.check(revision);
        Ok(())
    }
}

static TLS: LazyLock<Identity> = LazyLock::new(|| {
    let generated = generate(Duration::from_secs(86_400)).unwrap();
    Identity::read(&generated.certificate, &generated.key).unwrap()
});

/// TLS that no connection in memory uses.
pub(super) fn server_tls() -> ServerTls {
    ServerTls::new(&TLS, &Trust::Shared).unwrap()
}

/// A data plane that serves nothing yet.
pub(super) fn data_plane(served: Arc<Served>) -> DataPlane<Served> {
    static CLIENT: LazyLock<ClientTls> = LazyLock::new(|| ClientTls::new(&TLS, &Trust::Shared).unwrap());
    DataPlane {
        connector: Connector { tls: CLIENT.clone(), proxy: None },
        control_planes: Vec::new(),
        about: About {
            id: Uuid::from_u128(served.number as u128 + 1),
            hostname: format!("dp-{}", served.number),
            version: "3.9.1".to_owned(),
            plugins: Vec::new(),
            settings: Default::default(),
            labels: Default::default(),
        },
        options: Options { max_payload: 1 << 24, reports_errors: false, incremental_sync: false },
        plugins: Arc::new([]),
        status: Arc::default(),
        analytics: None,
        apply: served,
    }
}
