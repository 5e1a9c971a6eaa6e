//! One block of a cell: its target is started, checked, measured and stopped, with a second try.
use super::block::{self, Setting};
use super::kept;
use super::order::BlockPosition;
use super::parity;
use super::run::Session;
use super::setup;
use super::target_runner::RunningTarget;
use crate::load;
use crate::result::{Block, Status};
use crate::scenario::Measure;

impl Session<'_> {
    /// One block, if its cell is still to be measured.
    pub(super) fn block(&mut self, place: BlockPosition) -> Option<Block> {
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

    /// Stops measuring a cell, unless the user stopped the session.
    pub(super) fn give_up(&mut self, cell: usize, status: Status) {
        if !self.stopped() {
            self.progress.line(&setup::not_measured(&self.run.cells[cell], &status));
            setup::end(&mut self.run.cells[cell], status);
        }
    }

    fn attempt(&mut self, place: BlockPosition, cell: usize) -> Result<Block, Status> {
        let open = match self.kept.remove(&cell) {
            Some(open) => open,
            None => self.start(place, cell)?,
        };
        let at_s = self.begun.elapsed().as_secs_f64();
        let measured = block::measure(&self.setting(place), &open);
        let seconds = self.seconds(place, &open, at_s);
        // The next probe would find this target warm.
        let probed = self.entries[place.case].case.measure != Measure::Load;
        if self.profile.restart || probed || measured.is_err() {
            self.end(cell, open);
        } else {
            self.kept.insert(cell, open);
        }
        match measured {
            Ok(block) if self.cut(place, &block) => Err(Status::Failed("it was cut short".to_owned())),
            Ok(block) => Ok(Block { round: place.round, at_s, seconds, ..block }),
            Err(why) => Err(Status::Failed(why)),
        }
    }

    /// Whether the user's request to stop cut the block's window short.
    fn cut(&self, place: BlockPosition, block: &Block) -> bool {
        let window = self.profile.window(&self.entries[place.case].case);
        self.stopped() && block.measured_s < 0.99 * window.as_secs_f64()
    }

    /// Starts the cell's target and, the first time, checks its responses against the case.
    pub(super) fn start(&mut self, place: BlockPosition, cell: usize) -> Result<RunningTarget, Status> {
        let entry = &self.entries[place.case];
        let contender = &self.contenders[entry.contenders[place.target]];
        let workers = entry.case.gateway.workers.unwrap_or(self.workers);
        let layout = &self.layouts[place.case];
        // The target inherits the limit.
        load::allow_gateway_files(entry.case.load.connections)
            .map_err(|error| Status::Unmeasured(error.to_string()))?;
        let open = self.runner.open(cell, &entry.case, contender, layout, workers);
        self.runner.notes.drain(..).for_each(|note| self.progress.line(&note));
        let rendered = self.runner.rendered_files(cell, &entry.case);
        let open = open.map_err(|why| {
            let (run, folder) = (&self.run, self.folder.path());
            Status::Failed(kept::with_own_file(run, folder, cell, &entry.case, &rendered, why))
        })?;
        if let Err(error) = kept::keep_rendered(&self.run, self.folder.path(), cell, &entry.case, &open) {
            self.progress.line(&format!("the configuration of {} is not kept: {error}", contender.label));
        }
        self.note_up(place, cell, &open);
        if !self.run.cells[cell].parity.is_empty() || entry.case.parity.is_empty() {
            return Ok(open);
        }
        kept::note_configuration(&mut self.run, self.folder.path(), cell, &entry.case);
        let parity = parity::check(&*open.hosts.generator, &open.subject(&entry.case), &entry.case.parity);
        let failed = parity.iter().find(|parity| !parity.agrees).cloned();
        self.run.cells[cell].parity = parity;
        match failed {
            None => Ok(open),
            Some(failed) => {
                self.end(cell, open);
                let why = format!("{}: expected {}, got {}", failed.request, failed.expected, failed.got);
                Err(Status::Different(why))
            }
        }
    }

    pub(super) fn setting(&mut self, place: BlockPosition) -> Setting<'_> {
        Setting {
            case: &self.entries[place.case].case,
            profile: &self.profile,
            layout: &self.layouts[place.case],
            generator: &self.contenders[self.entries[place.case].contenders[place.target]].generator,
            // The same requests for every target of a round.
            seed: u64::from(place.round) + 1,
            pace: self.pace,
            recording: self.recording(place),
            stop: self.stop,
        }
    }

    /// Stops a target and keeps its log.
    pub(super) fn end(&mut self, cell: usize, open: RunningTarget) {
        self.note_down(cell);
        let (log, outcome) = open.close();
        if let Err(error) = setup::append_log(self.folder.path(), &self.run.cells[cell], &log) {
            self.progress.line(&format!("the log of {}: {error}", self.run.cells[cell].target));
        }
        if let Err(error) = outcome {
            self.progress.line(&format!("{}: {error}", self.run.cells[cell].target));
        }
    }
}
