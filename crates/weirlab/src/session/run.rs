//! Carrying a session out: rounds of blocks over cells, with everything noted as it comes.
use super::block::{self, Setting};
use super::certificate;
use super::exchange::Client;
use super::failures;
use super::guard::Guard;
use super::order::{Place, order};
use super::parity;
use super::profile::Profile;
use super::progress::Progress;
use super::setup;
use super::target_runner::{Contender, Open, Stand};
use super::working_folder::Work;
use crate::driver::Driver;
use crate::load::{self, Pace};
use crate::manifest;
use crate::observe::Layout;
use crate::result::store::RunFolder;
use crate::result::{Block, Capacity, ChainCost, Flame, Run, Status};
use crate::scenario::{CasePlan, Measure};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What a session is to do.
pub struct Assignment {
    /// `run`, `gate`, `capacity`.
    pub kind: &'static str,
    /// The cases, each with the contenders that take part in it.
    pub entries: Vec<Entry>,
    /// The contenders; the first is the baseline.
    pub contenders: Vec<Contender>,
    /// How long and how often.
    pub profile: Profile,
    /// The seed of every random choice.
    pub seed: u64,
    /// Where run folders go.
    pub out: PathBuf,
    /// What starts targets.
    pub driver: Box<dyn Driver>,
    /// Workers of each target, unless the case says.
    pub workers: usize,
}

/// A case and who takes part in it.
pub struct Entry {
    /// The case.
    pub case: CasePlan,
    /// Indices of contenders.
    pub contenders: Vec<usize>,
}

/// Why a session could not begin or go on.
#[derive(Debug)]
pub enum SessionError {
    /// The run folder cannot be written.
    Folder(String),
    /// Something of the laboratory's own could not be had.
    Stand(String),
}

impl fmt::Display for SessionError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionError::Folder(text) | SessionError::Stand(text) => formatter.write_str(text),
        }
    }
}

impl std::error::Error for SessionError {}

/// How long a load runs before anyone looks at what it does to a target.
const SETTLED: Duration = Duration::from_millis(500);

/// Blocks longer than this are saved at once, shorter ones after two rounds.
const PRECIOUS_S: f64 = 5.0;

/// A session under way.
pub struct Session<'a> {
    pub(super) entries: Vec<Entry>,
    contenders: Vec<Contender>,
    pub(super) profile: Profile,
    workers: usize,
    pub(super) layouts: Vec<Layout>,
    /// Cells that stay up between blocks, where targets are not restarted.
    kept: HashMap<usize, Open>,
    stand: Stand,
    _work: Work,
    /// Behind the working folder, which is to be gone first.
    _guard: Guard,
    folder: RunFolder,
    pub(super) run: Run,
    client: Client,
    pub(super) begun: Instant,
    random: fastrand::Rng,
    pub(super) sequence: u32,
    rounds: u32,
    /// Instead of the case's, while a capacity is searched.
    pace: Option<Pace>,
    /// How far it is.
    pub progress: Progress,
    pub(super) stop: &'a AtomicBool,
}

impl<'a> Session<'a> {
    /// Prepares the session: its folder, its certificate, its cells. `rounds` is how many are expected.
    ///
    /// # Errors
    /// When the run folder or the working folder cannot be made.
    pub fn open(
        assignment: Assignment,
        rounds: u32,
        stop: &'a AtomicBool,
    ) -> Result<Session<'a>, SessionError> {
        let id = setup::run_id(&assignment);
        let folder = RunFolder::claim(&assignment.out, &id)
            .map_err(|error| SessionError::Folder(error.to_string()))?;
        let id = folder.name();
        let system = |error: std::io::Error| SessionError::Stand(format!("a working folder: {error}"));
        let work = Work::begin(&std::env::temp_dir(), &*assignment.driver).map_err(system)?;
        let certificate = certificate::write(work.path()).map_err(system)?;
        let program = std::env::current_exe().map_err(system)?;
        let guard = Guard::start(&program, work.path(), assignment.driver.name()).map_err(system)?;
        let layouts: Vec<Layout> = setup::layouts(&assignment);
        let mut run = setup::run(&assignment, &id, &layouts);
        let progress = Progress::new(setup::expected(&assignment, &run, rounds));
        if work.in_company {
            setup::note_company(&mut run, &progress);
        }
        let Assignment { entries, contenders, profile, seed, driver, workers, .. } = assignment;
        Ok(Session {
            stand: Stand {
                driver,
                program,
                folder: work.path().join("t"),
                certificate,
                upstreams: HashMap::new(),
                notes: Vec::new(),
            },
            random: fastrand::Rng::with_seed(seed),
            entries,
            contenders,
            profile,
            workers,
            layouts,
            _work: work,
            _guard: guard,
            folder,
            run,
            kept: HashMap::new(),
            client: Client::new(),
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

    /// Whether the user has asked for the end.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Two more rounds, or fewer if that many are not wanted; then what was measured is saved.
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
    fn measure(&mut self, places: &[Place]) -> Result<(), SessionError> {
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
            let precious = block.measured_s > PRECIOUS_S;
            self.run.cells[cell].blocks.push(block);
            if precious {
                self.save()?;
            }
        }
        Ok(())
    }

    /// How many rounds are behind.
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

    /// One block at another pace and of another length, which the caller keeps, and the CPUs it was measured on; none
    /// where the cell cannot be measured or the user has asked for the end: what was cut short says nothing.
    pub fn probe(
        &mut self,
        case: usize,
        target: usize,
        pace: Pace,
        window: Duration,
    ) -> Option<(Block, Layout)> {
        self.pace = Some(pace);
        let usual = std::mem::replace(&mut self.profile.measured, window);
        // Each has random choices of its own, so that asking again is asking anew.
        let block = self.block(Place { round: self.sequence, case, target });
        self.profile.measured = usual;
        self.pace = None;
        block.filter(|_| !self.stopped()).map(|block| (block, self.layouts[case].clone()))
    }

    /// Starts a cell, puts load on it, calls `watch` with its processes, and ends both.
    ///
    /// # Errors
    /// When the cell cannot be measured, or what `watch` says.
    pub fn under_load(
        &mut self,
        case: usize,
        target: usize,
        watched: Duration,
        watch: &mut dyn FnMut(&[u32]) -> Result<(), String>,
    ) -> Result<(), String> {
        self.loaded(case, target, watched, &mut |open| watch(&block::family(&open.pids()?)))
    }

    /// Starts a cell, puts load on it for so long, and has its gateway tell what its plugins cost.
    ///
    /// # Errors
    /// When the cell cannot be measured, or tells nothing.
    pub fn costs(&mut self, case: usize, target: usize, watched: Duration) -> Result<Value, String> {
        let contender = &self.contenders[self.entries[case].contenders[target]];
        let path = contender.target.costs().unwrap_or_default().to_owned();
        let client = Client::new();
        let mut told = Value::Null;
        self.loaded(case, target, watched, &mut |open| {
            thread::sleep(watched);
            told = client.json(open.listeners.admin.ok_or("it has no Admin API")?, &path)?;
            Ok(())
        })?;
        Ok(told)
    }

    fn loaded(
        &mut self,
        case: usize,
        target: usize,
        watched: Duration,
        watch: &mut dyn FnMut(&Open) -> Result<(), String>,
    ) -> Result<(), String> {
        let place = Place { round: 0, case, target };
        let cell = self.cell(place);
        self.progress.say(format!("{} under load for {} s", self.run.cells[cell].target, watched.as_secs()));
        let open = self.start(place, cell).map_err(|status| {
            let cell = &self.run.cells[cell];
            format!("{}{}", setup::told(cell, &status), failures::mend_parity(&cell.parity))
        })?;
        let plan = block::plan(&self.setting(place), &open);
        let over = AtomicBool::new(false);
        let (outcome, load) = thread::scope(|scope| {
            let load = scope.spawn(|| load::run(&plan, &mut |_| (), &over));
            thread::sleep(SETTLED);
            let outcome = watch(&open);
            over.store(true, Ordering::Relaxed);
            (outcome, load.join())
        });
        self.end(cell, open);
        outcome?;
        match load {
            Ok(Ok(load)) if load.good > 0 && load.errors.is_empty() => Ok(()),
            Ok(Ok(load)) => Err(failures::answers(&load, &plan.requests.templates)),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the load generator panicked".to_owned()),
        }
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

    /// Writes down what has been measured so far.
    ///
    /// # Errors
    /// When it cannot be saved.
    pub fn save(&mut self) -> Result<(), SessionError> {
        self.run.interrupted = self.stopped();
        self.run.manifest.ended = manifest::now();
        self.folder.save(&self.run).map_err(|error| SessionError::Folder(error.to_string()))
    }

    /// Ends every target that still runs and returns the run and its folder.
    ///
    /// # Errors
    /// When it cannot be saved.
    pub fn close(mut self) -> Result<(Run, PathBuf), SessionError> {
        for (cell, open) in std::mem::take(&mut self.kept) {
            self.end(cell, open);
        }
        self.save()?;
        self.progress.end();
        Ok((self.run, self.folder.path().to_owned()))
    }

    pub(super) fn cell(&self, place: Place) -> usize {
        setup::cell_index(&self.entries, place.case, place.target)
    }

    /// One block, if its cell is still to be measured.
    fn block(&mut self, place: Place) -> Option<Block> {
        let cell = self.cell(place);
        if !self.goes_on(cell) {
            return None;
        }
        self.progress.say(format!("{} on {}", self.run.cells[cell].case, self.run.cells[cell].target));
        let mut outcome = self.attempt(place, cell);
        if matches!(&outcome, Err(Status::Failed(_))) && !self.stopped() {
            outcome = self.attempt(place, cell);
        }
        self.progress.advance(setup::block_time(&self.profile, &self.entries[place.case].case));
        match outcome {
            Ok(block) => {
                self.sequence += 1;
                Some(Block { sequence: self.sequence - 1, ..block })
            }
            Err(status) => {
                self.give_up(cell, status);
                None
            }
        }
    }

    /// Whether a cell is still to be measured.
    pub(super) fn goes_on(&self, cell: usize) -> bool {
        self.run.cells[cell].status == Status::Measured && self.run.cells[cell].cut_short.is_none()
    }

    /// Measures a cell no further, unless it is the user who wanted the end.
    pub(super) fn give_up(&mut self, cell: usize, status: Status) {
        if !self.stopped() {
            self.progress.line(&setup::told(&self.run.cells[cell], &status));
            setup::end(&mut self.run.cells[cell], status);
        }
    }

    fn attempt(&mut self, place: Place, cell: usize) -> Result<Block, Status> {
        let open = match self.kept.remove(&cell) {
            Some(open) => open,
            None => self.start(place, cell)?,
        };
        let at_s = self.begun.elapsed().as_secs_f64();
        let measured = block::measure(&self.setting(place), &open);
        // A probe leaves a target behind that the next one would find warm.
        let probed = self.entries[place.case].case.measure != Measure::Load;
        if self.profile.restart || probed || measured.is_err() {
            self.end(cell, open);
        } else {
            self.kept.insert(cell, open);
        }
        match measured {
            Ok(block) if self.cut(place, &block) => Err(Status::Failed("it was cut short".to_owned())),
            Ok(block) => Ok(Block { round: place.round, at_s, ..block }),
            Err(why) => Err(Status::Failed(why)),
        }
    }

    /// Whether the user's wish to end has cut the block's window short.
    fn cut(&self, place: Place, block: &Block) -> bool {
        let window = self.profile.window(&self.entries[place.case].case);
        self.stopped() && block.measured_s < 0.99 * window.as_secs_f64()
    }

    /// Starts the cell's target and, the first time, checks that it does what the case asks.
    pub(super) fn start(&mut self, place: Place, cell: usize) -> Result<Open, Status> {
        let entry = &self.entries[place.case];
        let contender = &self.contenders[entry.contenders[place.target]];
        let workers = entry.case.gateway.workers.unwrap_or(self.workers);
        let layout = &self.layouts[place.case];
        // The target inherits the limit.
        load::allow_gateway_files(entry.case.load.connections)
            .map_err(|error| Status::Unmeasured(error.to_string()))?;
        let open = self.stand.open(cell, &entry.case, contender, layout, workers);
        self.stand.notes.drain(..).for_each(|note| self.progress.line(&note));
        let open = open.map_err(Status::Failed)?;
        if !self.run.cells[cell].parity.is_empty() || entry.case.parity.is_empty() {
            return Ok(open);
        }
        setup::note_configuration(&mut self.run, self.folder.path(), cell, &entry.case);
        let parity = parity::check(&self.client, &open.subject(&entry.case), &entry.case.parity);
        let wrong = parity.iter().find(|parity| !parity.agrees).cloned();
        self.run.cells[cell].parity = parity;
        match wrong {
            None => Ok(open),
            Some(wrong) => {
                self.end(cell, open);
                let why = format!("{}: expected {}, got {}", wrong.request, wrong.expected, wrong.got);
                Err(Status::Different(why))
            }
        }
    }

    fn setting(&mut self, place: Place) -> Setting<'_> {
        Setting {
            case: &self.entries[place.case].case,
            profile: &self.profile,
            layout: &self.layouts[place.case],
            // The same requests for every target of a round.
            seed: u64::from(place.round) + 1,
            pace: self.pace,
            stop: self.stop,
        }
    }

    /// Ends a target and keeps what it had to say.
    pub(super) fn end(&mut self, cell: usize, open: Open) {
        let (log, outcome) = open.close();
        if let Err(error) = setup::append_log(self.folder.path(), &self.run.cells[cell], &log) {
            self.progress.line(&format!("the log of {}: {error}", self.run.cells[cell].target));
        }
        if let Err(error) = outcome {
            self.progress.line(&format!("{}: {error}", self.run.cells[cell].target));
        }
    }
}
