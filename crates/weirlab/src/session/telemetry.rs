//! What a session shows those who watch it: which targets are up, where their metrics are, and what their loads count.
use super::order::BlockPosition;
use super::run::Session;
use super::target_runner::RunningTarget;
use super::{SessionError, assignment::Entry};
use crate::host::Host;
use crate::result::Block;
use crate::telemetry::{Exporter, Kept, LiveBlock, Metrics, Part, Prometheus, Recorder, TelemetryError};
use std::sync::Arc;

/// A Prometheus that scrapes a session.
pub(super) struct Telemetry {
    recorder: Arc<Recorder>,
    /// Declared before what it scrapes.
    prometheus: Prometheus,
    _exporter: Exporter,
}

/// Where the load of a block counts.
#[derive(Clone, Copy)]
pub(crate) struct Recording<'a> {
    recorder: &'a Recorder,
    case: &'a str,
    target: &'a str,
    round: u32,
}

impl<'a> Recording<'a> {
    /// The load begins.
    pub(crate) fn begin(&self, threads: usize) -> LiveBlock<'a> {
        self.recorder.begin(self.case, self.target, self.round, threads)
    }
}

impl Session<'_> {
    /// Starts a Prometheus that scrapes targets and generator from now on; its data stays in the run's folder.
    ///
    /// # Errors
    /// When there is none on this machine, or it does not start.
    pub fn observe(&mut self) -> Result<(), SessionError> {
        let failed = |error: TelemetryError| SessionError::Setup(error.to_string());
        let with_metrics = self.contenders.iter().filter(|contender| contender.target.metrics().is_some());
        let targets: Vec<String> = with_metrics.map(|contender| contender.label.clone()).collect();
        let recorder = Arc::new(Recorder::default());
        let exporter = Exporter::start(Arc::clone(&recorder), targets.clone()).map_err(failed)?;
        let site = &self.runner.site;
        // Beside the generator, where it disturbs the targets least.
        let own_cpus = |layout: &crate::observe::Layout| layout.generator.clone();
        let cpus = self.layouts.first().filter(|_| !site.is_elsewhere()).map(own_cpus).unwrap_or_default();
        let kept = Kept { run: self.folder.path(), working: site.working_folder() };
        let prometheus = kept.scrape(&exporter, &targets, &cpus).map_err(failed)?;
        self.telemetry = Some(Telemetry { recorder, prometheus, _exporter: exporter });
        Ok(())
    }

    /// Where the load of a block counts, if the session is watched.
    pub(super) fn recording(&self, place: BlockPosition) -> Option<Recording<'_>> {
        let telemetry = self.telemetry.as_ref()?;
        let Entry { case, contenders } = &self.entries[place.case];
        Some(Recording {
            recorder: &telemetry.recorder,
            case: &case.case.name,
            target: &self.contenders[contenders[place.target]].label,
            round: place.round,
        })
    }

    /// A target is up.
    pub(super) fn note_up(&self, place: BlockPosition, cell: usize, open: &RunningTarget) {
        let Some(telemetry) = &self.telemetry else { return };
        let entry = &self.entries[place.case];
        let contender = &self.contenders[entry.contenders[place.target]];
        let metrics = contender.target.metrics().zip(open.listeners.status);
        let metrics = metrics.map(|(path, address)| Metrics {
            host: Arc::clone(&open.hosts.generator),
            address,
            path: path.to_owned(),
        });
        telemetry.recorder.up(cell, (&entry.case.case.name, &contender.label), metrics, parts(open));
    }

    /// A target is about to end.
    pub(super) fn note_down(&self, cell: usize) {
        if let Some(telemetry) = &self.telemetry {
            telemetry.recorder.down(cell);
        }
    }

    /// Ends Prometheus; what it wrote stays.
    pub(super) fn end_telemetry(&mut self) {
        let Some(mut telemetry) = self.telemetry.take() else { return };
        if !telemetry.prometheus.alive() {
            let said = crate::driver::last_lines(&telemetry.prometheus.log());
            self.progress.line(&format!("prometheus ended before the run did{said}"));
        } else if let Err(error) = telemetry.prometheus.stop() {
            self.progress.line(&error.to_string());
        }
    }
}

/// The load of a block is over.
pub(super) fn finish(live: Option<LiveBlock<'_>>, block: &Block) {
    if let Some(live) = live {
        live.finish(block);
    }
}

/// The processes of each part; one that cannot be watched is left out.
fn parts(open: &RunningTarget) -> Vec<Part> {
    let control_plane = open.control_plane.as_ref().and_then(|plane| plane.pid().ok());
    let front = open.front.as_ref().map(|front| front.pid());
    let one = |pid: Option<u32>| pid.into_iter().collect::<Vec<u32>>();
    let all: [(&str, &dyn Host, Vec<u32>); 4] = [
        ("gateway", open.target_host(), open.pids().unwrap_or_default()),
        ("upstream", &*open.hosts.upstream, vec![open.upstream_pid]),
        ("front", &*open.hosts.upstream, one(front)),
        ("control plane", &*open.hosts.target, one(control_plane)),
    ];
    let watched = |(name, host, pids): (_, &dyn Host, Vec<u32>)| {
        let trees = (!pids.is_empty()).then(|| host.watch(&pids).ok()).flatten()?;
        Some(Part { name, trees })
    };
    all.into_iter().filter_map(watched).collect()
}
