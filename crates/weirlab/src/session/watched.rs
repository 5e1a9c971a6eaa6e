//! Targets under a load that others observe: profilers, and the report of what plugins cost.
use super::block;
use super::failures;
use super::order::BlockPosition;
use super::run::Session;
use super::setup;
use super::target_runner::RunningTarget;
use crate::generator::{Generator, Task};
use crate::host::Host;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How long a load runs before the target is observed.
const SETTLED: Duration = Duration::from_millis(500);

/// How much longer the load runs than the target is observed, so that perf has time to begin and to end.
const AROUND: Duration = Duration::from_secs(30);

/// Gets the machine of a target and its processes there.
pub type Watching<'a> = dyn FnMut(&dyn Host, &[u32]) -> Result<(), String> + 'a;

impl Session<'_> {
    /// Starts a cell, puts load on it, calls `watch` with its machine and its processes there, and ends both.
    ///
    /// # Errors
    /// When the cell cannot be measured, or what `watch` says.
    pub fn under_load(
        &mut self,
        case: usize,
        target: usize,
        watched: Duration,
        watch: &mut Watching<'_>,
    ) -> Result<(), String> {
        self.loaded(case, target, watched, &mut |open| {
            let host = open.target_host();
            watch(host, &host.family(&open.pids()?))
        })
    }

    /// Starts a cell, puts load on it for as long as `watched` says, and asks its gateway what its plugins cost.
    ///
    /// # Errors
    /// When the cell cannot be measured, or its gateway does not report costs.
    pub fn costs(&mut self, case: usize, target: usize, watched: Duration) -> Result<Value, String> {
        let contender = &self.contenders[self.entries[case].contenders[target]];
        let path = contender.target.costs().unwrap_or_default().to_owned();
        let mut costs = Value::Null;
        self.loaded(case, target, watched, &mut |open| {
            thread::sleep(watched);
            costs = open.hosts.generator.json(open.listeners.admin.ok_or("it has no Admin API")?, &path)?;
            Ok(())
        })?;
        Ok(costs)
    }

    fn loaded(
        &mut self,
        case: usize,
        target: usize,
        watched: Duration,
        watch: &mut dyn FnMut(&RunningTarget) -> Result<(), String>,
    ) -> Result<(), String> {
        let place = BlockPosition { round: 0, case, target };
        let cell = self.cell(place);
        self.progress.say(format!("{} under load for {} s", self.run.cells[cell].target, watched.as_secs()));
        let open = self.start(place, cell).map_err(|status| {
            let cell = &self.run.cells[cell];
            format!("{}{}", setup::not_measured(cell, &status), failures::parity_hint(&cell.parity))
        })?;
        let mut plan = block::plan(&self.setting(place), &open);
        plan.duration = plan.duration.max(watched + AROUND);
        let (over, own) = (AtomicBool::new(false), Generator::own());
        let task = Task { plan: &plan, generator: &own, script: None };
        let (outcome, load) = thread::scope(|scope| {
            let load = scope.spawn(|| open.hosts.generator.load(&task, &mut |_| (), &over));
            thread::sleep(SETTLED);
            let outcome = watch(&open);
            over.store(true, Ordering::Relaxed);
            (outcome, load.join())
        });
        self.end(cell, open);
        outcome?;
        match load {
            Ok(Ok(load)) if load.good > 0 && load.errors.is_empty() => Ok(()),
            Ok(Ok(load)) => Err(failures::describe(&load, &plan.requests.templates)),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the load generator panicked".to_owned()),
        }
    }
}
