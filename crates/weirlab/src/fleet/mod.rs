//! A real control plane with many simulated data planes, which speak its protocol in this process and route nothing: how fast
//! changes reach them, and what they cost the control plane. Then another with one real data plane: how fast that gets
//! everything, and its memory.
//!
//! ```text
//! changes by the Admin API ─► control plane (a process) ─► data planes (one thread) ─► arrivals ─► figures
//! ```
mod arrivals;
mod configuration;
mod control_plane;
mod data_plane;
mod data_planes;
mod figures;
mod frames;
mod node;

pub use data_plane::RealDataPlane;
pub use figures::Figures;

use crate::observe::ProcessTree;
use arrivals::Arrivals;
use configuration::Content;
use control_plane::ControlPlane;
use data_planes::DataPlanes;
use figures::{AnalyticsCost, Spread};
use frames::Frames;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// How long all data planes may take for anything.
const MAX_WAIT: Duration = Duration::from_secs(120);

/// How long analytics are collected before they are measured, and then.
const ANALYTICS_DURATION: Duration = Duration::from_secs(30);

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program of the control planes and of the real data plane.
    pub weir: PathBuf,
    /// How many data planes there are.
    pub data_planes: u32,
    /// How many routes the configuration has.
    pub routes: u32,
    /// How many consumers with a key each the real data plane gets, beside as many services as routes.
    pub consumers: u32,
    /// How many changes are made a second.
    pub rate: u32,
    /// How many routes each data plane hands in analytics of; none if 0.
    pub analytics: u32,
    /// How long changes are made, and how long the idle control plane is watched.
    pub duration: Duration,
}

/// Why nothing was measured.
#[derive(Debug)]
pub enum FleetError {
    /// The system refuses something.
    System(&'static str, io::Error),
    /// A process of `weir` does not do what it should.
    Node(String),
    /// Not all data planes got something in time.
    Late {
        /// What they wait for.
        what: &'static str,
        /// How many have it.
        have: usize,
        /// How many there are.
        of: usize,
        /// Why one of them has no connection, if so.
        why: Option<String>,
    },
}

impl fmt::Display for FleetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FleetError::System(what, error) => write!(f, "{what}: {error}"),
            FleetError::Node(message) => f.write_str(message),
            FleetError::Late { what, have, of, why } => {
                let why = why.as_deref().unwrap_or("try fewer, or fewer routes");
                let seconds = MAX_WAIT.as_secs();
                write!(f, "{have} of {of} data planes have {what} after {seconds} s: {why}")
            }
        }
    }
}

impl std::error::Error for FleetError {}

/// Measures.
///
/// # Errors
/// When a process of `weir` cannot be started, or data planes are not served in time.
pub fn measure(plan: &Plan) -> Result<Figures, FleetError> {
    let mut control_plane =
        ControlPlane::start(&plan.weir, Content::Routes(plan.routes), plan.analytics > 0)?;
    let mut tree = ProcessTree::new(control_plane.pid());
    let arrivals = Arc::new(Arrivals::default());
    let began = Instant::now();
    let frames = if plan.analytics > 0 { Some(Frames::of(plan.analytics)?) } else { None };
    let first = DataPlanes::connect(1, None, &control_plane, &arrivals, frames.as_ref())?;
    let (arrived, held) = arrivals.wait_for_whole()?;
    let full_sync = arrived.duration_since(began);
    let full_sync_bytes = first.received_bytes();
    let (_, alone_kib) = idle(&mut tree, Duration::ZERO);
    let began = Instant::now();
    let others =
        DataPlanes::connect(plan.data_planes - 1, Some(&held), &control_plane, &arrivals, frames.as_ref())?;
    drop(held);
    let all = [first, others];
    wait_for_connections(&all, 0, &arrivals)?;
    let connected = began.elapsed();
    let (idle_cpu_percent, rss_kib) = idle(&mut tree, plan.duration);
    let analytics = frames.map(|frames| collect(&mut tree, &frames, plan.data_planes));
    let (unchanged, before) = (received(&all), tree.sample());
    let changes = change(plan, &control_plane, &arrivals)?;
    let (changed, usage) = (received(&all), tree.sample().since(&before));
    let restart = restart(&mut control_plane, &all, &arrivals)?;
    drop(control_plane);
    let real = data_plane::measure(plan)?;
    let of_each = |sum: f64| sum / f64::from(plan.data_planes);
    let of_each_change = |sum: f64| of_each(sum) / changes.len().max(1) as f64;
    Ok(Figures {
        data_planes: plan.data_planes,
        routes: plan.routes,
        full_sync_s: full_sync.as_secs_f64(),
        full_sync_bytes,
        connected_s: connected.as_secs_f64(),
        idle_cpu_percent,
        rss_kib,
        rss_kib_per_data_plane: of_each(rss_kib.saturating_sub(alone_kib) as f64),
        changes: changes.len(),
        change_cpu_us: of_each_change(usage.cpu_us),
        one_ms: Spread::of(changes.iter().flat_map(|change| change.each.iter().copied())),
        all_ms: Spread::of(changes.iter().map(|change| change.last)),
        bytes_per_change: of_each_change(changed.saturating_sub(unchanged) as f64),
        restart_s: restart.as_secs_f64(),
        bytes_per_return: of_each(received(&all).saturating_sub(changed) as f64),
        analytics,
        real,
    })
}

/// What it costs the control plane to collect analytics, over some intervals of ten seconds.
fn collect(tree: &mut ProcessTree, frames: &Frames, data_planes: u32) -> AnalyticsCost {
    // Names are sent in the first one.
    thread::sleep(ANALYTICS_DURATION);
    let before = frames.handed_in();
    let (cpu_percent, rss_kib) = idle(tree, ANALYTICS_DURATION);
    let after = frames.handed_in();
    let bytes = (after.bytes - before.bytes) as f64 / ANALYTICS_DURATION.as_secs_f64();
    AnalyticsCost {
        frames: after.frames - before.frames,
        bytes_per_second: bytes / f64::from(data_planes),
        cpu_percent,
        rss_kib,
    }
}

fn received(all: &[DataPlanes]) -> u64 {
    all.iter().map(DataPlanes::received_bytes).sum()
}

/// The CPU time of the control plane in percent of a core, and its memory, while nothing happens.
fn idle(tree: &mut ProcessTree, duration: Duration) -> (f64, u64) {
    let (before, began) = (tree.sample(), Instant::now());
    thread::sleep(duration);
    let usage = tree.sample().since(&before);
    (usage.cpu_us / began.elapsed().as_micros() as f64 * 100.0, usage.rss_kib)
}

/// How long a change took, in milliseconds, from the request that makes it.
struct Change {
    /// Until each data plane had it.
    each: Vec<f64>,
    /// Until all had it.
    last: f64,
}

/// Makes changes, and waits until all data planes have them.
fn change(plan: &Plan, control_plane: &ControlPlane, arrivals: &Arrivals) -> Result<Vec<Change>, FleetError> {
    let count = (plan.duration.as_secs_f64() * f64::from(plan.rate)).ceil() as u32;
    let (began, pause) = (Instant::now(), Duration::from_secs(1) / plan.rate);
    let mut sent = Vec::new();
    for nth in 0..count {
        thread::sleep((began + pause * nth).saturating_duration_since(Instant::now()));
        sent.push(Instant::now());
        control_plane.change(nth % plan.routes, nth)?;
    }
    let all = plan.data_planes as usize;
    let mut changes = Vec::new();
    for (nth, sent) in sent.into_iter().enumerate() {
        let times = arrivals.wait_for_change(nth as u32, all)?;
        let each: Vec<_> = times.iter().map(|time| time.duration_since(sent).as_secs_f64() * 1e3).collect();
        let last = each.iter().copied().fold(0.0, f64::max);
        changes.push(Change { each, last });
    }
    Ok(changes)
}

/// Kills the control plane and starts it again; until all data planes are back.
fn restart(
    control_plane: &mut ControlPlane,
    all: &[DataPlanes],
    arrivals: &Arrivals,
) -> Result<Duration, FleetError> {
    let (began, now) = (Instant::now(), SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs());
    control_plane.restart()?;
    wait_for_connections(all, now, arrivals)?;
    Ok(began.elapsed())
}

/// Waits until all data planes have connected since a moment, in seconds since 1970.
fn wait_for_connections(all: &[DataPlanes], since: u64, arrivals: &Arrivals) -> Result<(), FleetError> {
    let (began, of) = (Instant::now(), all.iter().map(DataPlanes::len).sum());
    loop {
        let have: usize = all.iter().map(|some| some.connected_since(since)).sum();
        if have == of {
            return Ok(());
        }
        if began.elapsed() > MAX_WAIT {
            return Err(arrivals.unconnected(have, of));
        }
        thread::sleep(Duration::from_millis(5));
    }
}
