//! The entities with uncommitted changes, which can be undone.
use super::write::Job;
use super::{DataPlane, Op, WriteError};
use crate::depth::{MAX_DEPTH, is_too_deep};
use std::sync::Arc;
use weir_model::check::matches_shared;
use weir_model::entity::Entity;
use weir_model::{Change, Entities, PluginSchema};
use weir_proxy::CompileError;

/// A write that was decided, with its changes or its error.
pub(super) struct Staged {
    pub(super) job: Box<dyn Job>,
    pub(super) outcome: Result<Vec<Change>, WriteError<()>>,
}

/// The entities with uncommitted changes, which can be undone.
#[derive(Default)]
pub(super) struct Draft {
    entities: Entities,
    plugins: Arc<[PluginSchema]>,
    undo: Vec<Change>,
}

impl Draft {
    /// A draft without changes.
    pub(super) fn of(entities: Entities, plugins: Arc<[PluginSchema]>) -> Draft {
        Draft { entities, plugins, undo: Vec::new() }
    }

    /// The plugins whose rules hold.
    pub(super) fn plugins(&self) -> Arc<[PluginSchema]> {
        self.plugins.clone()
    }

    /// Decides writes one after the other, each on the entities as the previous ones leave them.
    pub(super) fn stage(&mut self, jobs: Vec<Box<dyn Job>>, plane: &dyn DataPlane) -> Vec<Staged> {
        let stage = |mut job: Box<dyn Job>| {
            let outcome = self.attempt(&mut *job, plane);
            Staged { job, outcome }
        };
        jobs.into_iter().map(stage).collect()
    }

    /// Whether entities have expired.
    pub(super) fn have_expired(&self, now: i64) -> bool {
        self.entities.have_expired(now)
    }

    /// Deletes expired entities, so that no write finds them.
    pub(super) fn expire(&mut self, now: i64) -> Vec<Change> {
        let gone = self.entities.expire(now);
        let changes = gone.iter().map(|entity| Change::delete(entity.kind(), entity.id())).collect();
        self.undo.extend(gone.into_iter().map(Change::put));
        changes
    }

    fn attempt(&mut self, job: &mut dyn Job, plane: &dyn DataPlane) -> Result<Vec<Change>, WriteError<()>> {
        let (before, mut changes) = (self.undo.len(), Vec::new());
        for op in job.decide(&self.entities)? {
            if let Err(error) = self.perform(op, plane, &mut changes) {
                self.undo_to(before);
                return Err(error);
            }
        }
        if let Err(error) = self.check_groups(&changes) {
            self.undo_to(before);
            return Err(WriteError::Uncompilable(error));
        }
        Ok(changes)
    }

    /// Plugins that share counters must be configured alike after the write, which may change several of them.
    fn check_groups(&self, changes: &[Change]) -> Result<(), CompileError> {
        for change in changes {
            if let Some(Entity::Plugins(plugin)) = self.entities.get(change.kind, change.id) {
                matches_shared(plugin, &self.entities, &self.plugins).map_err(|(field, message)| {
                    CompileError {
                        entity: format!("plugin {}", plugin.name),
                        of: Some((change.kind, change.id)),
                        message: format!("config.{field}: {message}"),
                    }
                })?;
            }
        }
        Ok(())
    }

    fn perform(
        &mut self,
        op: Op,
        plane: &dyn DataPlane,
        changes: &mut Vec<Change>,
    ) -> Result<(), WriteError<()>> {
        match op {
            Op::Put(entity) => {
                check_depth(&entity).map_err(WriteError::Uncompilable)?;
                let before = self.entities.put(entity.clone()).map_err(WriteError::Refused)?;
                let nothing = Change::delete(entity.kind(), entity.id());
                self.undo.push(before.map_or(nothing, Change::put));
                plane.check(&entity, &self.entities).map_err(WriteError::Uncompilable)?;
                changes.push(Change::put(entity));
            }
            Op::Delete(kind, id) => {
                let gone = self.entities.delete(kind, id).map_err(WriteError::Refused)?;
                changes.extend(gone.iter().map(|entity| Change::delete(entity.kind(), entity.id())));
                self.undo.extend(gone.into_iter().map(Change::put));
            }
        }
        Ok(())
    }

    /// Keeps the staged changes, which are committed now.
    pub(super) fn keep(&mut self) {
        self.undo.clear();
    }

    /// Undoes the staged changes.
    pub(super) fn undo(&mut self) {
        self.undo_to(0);
    }

    fn undo_to(&mut self, length: usize) {
        self.undo.drain(length..).rev().for_each(|change| self.entities.restore(change));
    }

    /// Applies what other nodes have committed, while nothing is staged.
    pub(super) fn follow(&mut self, changes: &[Change]) {
        changes.iter().for_each(|change| self.entities.restore(change.clone()));
    }
}

/// Refuses entities that could not be loaded again.
fn check_depth(entity: &Entity) -> Result<(), CompileError> {
    if !is_too_deep(entity) {
        return Ok(());
    }
    let message = format!("it is nested deeper than {MAX_DEPTH} levels");
    let (kind, id) = (entity.kind(), entity.id());
    Err(CompileError { entity: format!("{} {id}", kind.as_str()), of: Some((kind, id)), message })
}
