//! Runs a session: rounds of blocks over cells; every result is recorded as it comes.
use super::assignment::{Assignment, Entry, SessionError};
use super::certificate;
use super::kept;
use super::order::{BlockPosition, order};
use super::profile::Profile;
use super::progress::Progress;
use super::setup;
use super::target_runner::{Contender, RunningTarget, TargetRunner};
use super::telemetry::Telemetry;
use crate::load::Pace;
use crate::manifest;
use crate::observe::Layout;
use crate::result::store::RunFolder;
use crate::result::{Block, Capacity, ChainCost, Flame, Run};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Blocks longer than this are saved at once, shorter ones after two rounds.
const SAVE_AT_ONCE_S: f64 = 5.0;

/// A running session.
pub struct Session<'a> {
    pub(super) entries: Vec<Entry>,
    pub(super) contenders: Vec<Contender>,
    pub(super) profile: Profile,
    pub(super) workers: usize,
    pub(super) layouts: Vec<Layout>,
    /// Cells that stay up between blocks, where targets are not restarted.
    pub(super) kept: HashMap<usize, RunningTarget>,
    /// Declared before the runner, because its Prometheus runs in the folder of the site.
    pub(super) telemetry: Option<Telemetry>,
    pub(super) runner: TargetRunner,
    pub(super) folder: RunFolder,
    pub(super) run: Run,
    pub(super) begun: Instant,
    random: fastrand::Rng,
    pub(super) sequence: u32,
    rounds: u32,
    /// Replaces the case's pace while a capacity is searched.
    pub(super) pace: Option<Pace>,
    /// How far it is.
    pub progress: Progress,
    pub(super) stop: &'a AtomicBool,
}

impl<'a> Session<'a> {
    /// Prepares the session: its folder, its certificate, its cells. `rounds` is how many are expected.
    ///
    /// # Errors
    /// When the run folder or the certificate cannot be made.
    pub fn open(
        assignment: Assignment,
        rounds: u32,
        stop: &'a AtomicBool,
    ) -> Result<Session<'a>, SessionError> {
        let id = setup::run_id(&assignment);
        let folder = RunFolder::claim(&assignment.out, &id)
            .map_err(|error| SessionError::Folder(error.to_string()))?;
        kept::keep_catalogue(folder.path(), &assignment)
            .map_err(|error| SessionError::Folder(format!("{}: {error}", folder.path().display())))?;
        let id = folder.name();
        let system =
            |error: std::io::Error| SessionError::Setup(format!("cannot make a certificate: {error}"));
        let certificate = certificate::make().map_err(system)?;
        let layouts: Vec<Layout> = setup::layouts(&assignment);
        let mut run = setup::run(&assignment, &id, &layouts);
        let progress = Progress::new(setup::expected(&assignment, &run, rounds));
        setup::note_site(&assignment.site, &mut run, &progress);
        setup::warn_of_workers(&assignment, &layouts, &progress);
        let Assignment { entries, contenders, profile, seed, site, workers, .. } = assignment;
        Ok(Session {
            telemetry: None,
            runner: TargetRunner { upstreams: HashMap::new(), certificate, site, notes: Vec::new() },
            random: fastrand::Rng::with_seed(seed),
            entries,
            contenders,
            profile,
            workers,
            layouts,
            folder,
            run,
            kept: HashMap::new(),
            begun: Instant::now(),
            sequence: 0,
            rounds: 0,
            pace: None,
            progress,
            stop,
        })
    }

    /// What has been measured so far.
    pub fn result(&self) -> &Run {
        &self.run
    }

    /// The run's folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Whether the user asked to stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Measures two more rounds, or `at_most` if that is fewer, and saves the results.
    ///
    /// # Errors
    /// When it cannot be saved.
    pub fn rounds(&mut self, at_most: u32) -> Result<(), SessionError> {
        let sizes: Vec<usize> = self.entries.iter().map(|entry| entry.contenders.len()).collect();
        let wanted = at_most.min(2);
        let mut places = order(&sizes, self.rounds, &mut self.random);
        places.retain(|place| place.round < self.rounds + wanted);
        for side_by_side in places.chunk_by(|a, b| (a.round, a.case) == (b.round, b.case)) {
            if self.stopped() {
                break;
            }
            self.measure(side_by_side)?;
        }
        self.rounds += wanted;
        self.save()
    }

    /// One block of each target of a case.
    fn measure(&mut self, places: &[BlockPosition]) -> Result<(), SessionError> {
        let slices = self.slices(places[0].case);
        if slices > 1 {
            for (cell, block) in self.sliced(places, slices) {
                self.run.cells[cell].blocks.push(block);
            }
            return Ok(());
        }
        for place in places.iter().take_while(|_| !self.stop.load(Ordering::Relaxed)) {
            let Some(block) = self.block(*place) else { continue };
            let cell = self.cell(*place);
            let save_at_once = block.measured_s > SAVE_AT_ONCE_S;
            self.run.cells[cell].blocks.push(block);
            if save_at_once {
                self.save()?;
            }
        }
        Ok(())
    }

    /// How many rounds are done.
    pub fn rounds_done(&self) -> u32 {
        self.rounds
    }

    /// The case's name, the target's label and its workers.
    pub fn cell_names(&self, case: usize, target: usize) -> (String, String, u32) {
        let entry = &self.entries[case];
        let workers = entry.case.gateway.workers.unwrap_or(self.workers);
        (
            entry.case.case.name.clone(),
            self.contenders[entry.contenders[target]].label.clone(),
            workers as u32,
        )
    }

    /// Measures one block at another pace and for another length, and returns it with its CPUs instead of recording it.
    /// Returns none if the cell cannot be measured or the user stopped the session, because a block that was cut short
    /// says nothing.
    pub fn probe(
        &mut self,
        case: usize,
        target: usize,
        pace: Pace,
        window: Duration,
    ) -> Option<(Block, Layout)> {
        self.pace = Some(pace);
        let usual = std::mem::replace(&mut self.profile.measured, window);
        // Each probe draws its own random choices, so that a retry is independent.
        let block = self.block(BlockPosition { round: self.sequence, case, target });
        self.profile.measured = usual;
        self.pace = None;
        block.filter(|_| !self.stopped()).map(|block| (block, self.layouts[case].clone()))
    }

    /// Adds what chains cost to the result.
    ///
    /// # Errors
    /// When it cannot be saved.
    pub fn note_chains(&mut self, chains: Vec<ChainCost>) -> Result<(), SessionError> {
        self.run.chains.extend(chains);
        self.save()
    }

    /// Adds flame graphs to the result.
    ///
    /// # Errors
    /// When it cannot be saved.
    pub fn note_flames(&mut self, flames: Vec<Flame>) -> Result<(), SessionError> {
        self.run.flames.extend(flames);
        self.save()
    }

    /// Adds a capacity to the result.
    ///
    /// # Errors
    /// When it cannot be saved.
    pub fn note_capacity(&mut self, capacity: Capacity) -> Result<(), SessionError> {
        self.run.capacities.push(capacity);
        self.save()
    }

    /// Saves what has been measured so far.
    ///
    /// # Errors
    /// When it cannot be saved.
    pub fn save(&mut self) -> Result<(), SessionError> {
        self.run.interrupted = self.stopped();
        self.run.manifest.ended = manifest::now();
        self.folder.save(&self.run).map_err(|error| SessionError::Folder(error.to_string()))
    }

    /// Stops every target that still runs and returns the run and its folder.
    ///
    /// # Errors
    /// When it cannot be saved.
    pub fn close(mut self) -> Result<(Run, PathBuf), SessionError> {
        for (cell, open) in std::mem::take(&mut self.kept) {
            self.end(cell, open);
        }
        self.end_telemetry();
        self.save()?;
        self.progress.end();
        Ok((self.run, self.folder.path().to_owned()))
    }

    pub(super) fn cell(&self, place: BlockPosition) -> usize {
        setup::cell_index(&self.entries, place.case, place.target)
    }
}
