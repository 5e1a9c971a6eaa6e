//! What a control plane knows of its data planes, kept in its store: other control planes show it too, and it survives
//! restarts. It is written at most once in a second, unless a write waits for data planes.
use crate::store::StoreError;
use crate::store::fleet::{Beat, FleetStore, Stamps};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use weir_cluster::control_plane::{Fleet, Row, Stamped};

/// How often a control plane says that it runs.
const BEAT_INTERVAL: Duration = Duration::from_secs(10);

/// How long changes are collected before they are written.
const COLLECTION_TIME: Duration = Duration::from_millis(20);

/// The shortest time between two writes, unless somebody waits for them.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// For how long nothing is held up after somebody has asked for that.
const HURRY_TIME: Duration = Duration::from_secs(10);

/// How often others are asked to hurry while a write waits.
const HURRY_INTERVAL: Duration = Duration::from_secs(5);

/// How long a control plane that stops waits for its store.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// What a control plane shares until it leaves.
pub(crate) struct Shared {
    /// Takes what is dropped once the others know that it leaves.
    leave: mpsc::Sender<oneshot::Sender<()>>,
}

impl Shared {
    /// Notifies the other control planes that this one is gone, because it stops.
    pub(crate) async fn leave(&self) {
        let (left, has_left) = oneshot::channel();
        let leaves = async {
            if self.leave.send(left).await.is_ok() {
                let _ = has_left.await;
            }
        };
        if tokio::time::timeout(LEAVE_TIMEOUT, leaves).await.is_err() {
            tracing::warn!(
                "the store does not answer: other control planes show this one for some seconds more"
            );
        }
    }
}

/// Shares what a control plane and others of its store know.
pub(super) struct Sharing {
    fleet: Arc<Fleet>,
    store: Arc<dyn FleetStore>,
    beat: Beat,
    known: Stamps,
    /// The number of the last write.
    stamp: u64,
    written_at: Option<Instant>,
    /// When the next write is due.
    due: Option<Instant>,
    hurried_until: Option<Instant>,
    hurried_others_at: Option<Instant>,
    /// The store failed, which is logged.
    failed: bool,
}

impl Sharing {
    pub(super) fn new(fleet: Arc<Fleet>, store: Arc<dyn FleetStore>) -> Sharing {
        // Larger than those before a restart.
        let stamp = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
        Sharing {
            fleet,
            store,
            beat: Beat::default(),
            known: Stamps::new(),
            stamp: stamp.try_into().unwrap_or_default(),
            written_at: None,
            due: None,
            hurried_until: None,
            hurried_others_at: None,
            failed: false,
        }
    }

    /// Reads what is stored, so that it is known as soon as the node answers.
    pub(super) async fn begin(&mut self) {
        let outcome = self.beat().await;
        self.note(outcome);
    }

    /// Shares in the background until the control plane leaves.
    pub(super) fn start(self) -> Shared {
        let (leave, leaving) = mpsc::channel(1);
        tokio::spawn(self.run(leaving));
        Shared { leave }
    }

    async fn run(mut self, mut leaving: mpsc::Receiver<oneshot::Sender<()>>) {
        let (fleet, store) = (self.fleet.clone(), self.store.clone());
        let mut beats = interval(BEAT_INTERVAL);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let due = self.due;
            let outcome = tokio::select! {
                _ = beats.tick() => self.beat().await,
                _ = store.changed() => self.read().await,
                _ = store.hurried() => {
                    self.hurry();
                    Ok(())
                }
                () = fleet.awaited() => self.hurry_others().await,
                () = fleet.unshared(), if due.is_none() => {
                    self.schedule();
                    Ok(())
                }
                () = until(due) => self.write().await,
                Some(left) = leaving.recv() => {
                    let outcome = self.leave().await;
                    self.note(outcome);
                    drop(left);
                    return;
                }
            };
            self.note(outcome);
        }
    }

    async fn beat(&mut self) -> Result<(), StoreError> {
        self.beat = self.store.beat(self.fleet.id(), self.fleet.purge_delay()).await?;
        if self.beat.lapsed {
            self.fleet.share_all();
        }
        self.fleet.note_alive(&self.beat.alive);
        // A notification may have been lost with a connection.
        self.read().await
    }

    async fn read(&mut self) -> Result<(), StoreError> {
        let rows = self.store.read(&self.known).await?;
        if rows.iter().any(|it| !self.beat.alive.contains_key(&it.row.control_plane)) {
            self.beat = self.store.beat(self.fleet.id(), self.fleet.purge_delay()).await?;
        }
        for Stamped { row, stamp } in &rows {
            let known = self.known.entry(row.control_plane).or_default();
            *known = (*known).max(*stamp);
        }
        self.fleet.learn(rows.into_iter().map(|it| it.row).collect(), &self.beat.alive);
        Ok(())
    }

    /// Decides when the next write is due.
    fn schedule(&mut self) {
        let now = Instant::now();
        let is_hurried = self.hurried_until.is_some_and(|until| until > now);
        let earliest = self.written_at.filter(|_| !is_hurried).map(|at| at + WRITE_INTERVAL);
        self.due = Some(earliest.unwrap_or(now).max(now + COLLECTION_TIME));
    }

    fn hurry(&mut self) {
        self.hurried_until = Some(Instant::now() + HURRY_TIME);
        if self.due.is_some() {
            self.schedule();
        }
    }

    async fn hurry_others(&mut self) -> Result<(), StoreError> {
        let is_time = self.hurried_others_at.is_none_or(|at| at.elapsed() > HURRY_INTERVAL);
        if self.beat.alive.len() < 2 || !is_time {
            return Ok(());
        }
        self.hurried_others_at = Some(Instant::now());
        self.store.hurry().await
    }

    async fn write(&mut self) -> Result<(), StoreError> {
        let rows = self.fleet.take_unshared();
        self.due = None;
        self.written_at = Some(Instant::now());
        if rows.is_empty() {
            return Ok(());
        }
        self.stamp += 1;
        let stamp = self.stamp;
        let stamped: Vec<_> = rows.into_iter().map(|row| Stamped { row, stamp }).collect();
        if let Err(error) = self.store.write(&stamped).await {
            let rows: Vec<Row> = stamped.into_iter().map(|it| it.row).collect();
            self.fleet.unwritten(&rows);
            self.schedule();
            return Err(error);
        }
        self.known.insert(self.fleet.id(), stamp);
        Ok(())
    }

    /// Notifies the others that the control plane and its connections are gone.
    async fn leave(&mut self) -> Result<(), StoreError> {
        self.fleet.leave();
        self.write().await?;
        self.store.leave(self.fleet.id()).await
    }

    /// Logs the first of several failures, and that they are over.
    fn note(&mut self, outcome: Result<(), StoreError>) {
        match outcome {
            Ok(()) => self.failed = false,
            Err(error) if !std::mem::replace(&mut self.failed, true) => {
                tracing::warn!("what control planes know of their data planes is not shared now: {error}");
            }
            Err(_) => {}
        }
    }
}

/// Forever without a moment.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
