//! The entities of one kind: the busiest are counted one by one, the rest together.
use super::classes::Classes;
use super::row::{Request, Row};
use crate::aggregate::{Aggregate, Keep};
use crate::entities::{Entity, Kind, NONE, OTHERS};
use crate::slot::SlotWriter;

/// Stands for an entity without a row.
const NO_ROW: u32 = u32::MAX;

/// The most memory that rows keep from slot to slot, in bytes. Growing it anew costs more than counting.
const MAX_KEPT_BYTES: usize = 256 << 10;

/// Rows for at most [`Kind::limit`] entities.
///
/// Ids are small and dense, so arrays by id find a row and count the requests of every entity, also of those without a
/// row. A ranking by these counts replaces rows when there are more entities than rows. Because the counts are exact, an
/// entity never gets a row by the error of an estimate.
#[derive(Debug)]
pub(super) struct Table {
    kind: Kind,
    /// The row of each id.
    row_of: Vec<u32>,
    /// The requests of each id, halved at each ranking.
    score: Vec<u32>,
    rows: Vec<Row>,
    /// The rows that have counts.
    active: Vec<u32>,
    others: Row,
    /// What rows keep, in bytes.
    kept: usize,
}

impl Table {
    pub(super) fn new(kind: Kind) -> Table {
        let mut table = Table {
            kind,
            row_of: Vec::new(),
            score: Vec::new(),
            rows: Vec::new(),
            active: Vec::new(),
            others: Row::new(OTHERS),
            kept: 0,
        };
        table.add_row(NONE);
        table
    }

    /// Counts a request; false if it counts among others.
    #[inline]
    pub(super) fn record(&mut self, id: u32, request: &Request, keep: Keep) -> bool {
        let found = self.find(id);
        let (is_other, row) = (found == NO_ROW, self.row(found));
        row.record(request, keep);
        if is_other {
            self.add_score(id, 1);
        }
        !is_other
    }

    /// Counts what another table has counted.
    pub(super) fn merge(&mut self, id: u32, aggregate: &Aggregate) {
        let found = self.find(id);
        self.row(found).aggregate.merge(aggregate);
        self.add_score(id, aggregate.requests());
    }

    /// Where the row of an entity is, which has one or gets one.
    #[inline]
    fn find(&mut self, id: u32) -> u32 {
        match self.row_of.get(id as usize) {
            Some(row) if *row != NO_ROW => *row,
            _ => self.add_row(id),
        }
    }

    /// A row that something is counted in now, or that of others.
    #[inline]
    fn row(&mut self, place: u32) -> &mut Row {
        let Some(row) = self.rows.get_mut(place as usize) else {
            self.others.is_active = true;
            return &mut self.others;
        };
        if !row.is_active {
            row.is_active = true;
            self.active.push(place);
        }
        row
    }

    /// Gives an entity a row, if there is room.
    #[cold]
    fn add_row(&mut self, id: u32) -> u32 {
        if id == OTHERS {
            return NO_ROW;
        }
        let needed = self.row_of.len().max(id as usize + 1);
        self.row_of.resize(needed, NO_ROW);
        self.score.resize(needed, 0);
        if self.rows.len() > self.kind.limit() {
            return NO_ROW;
        }
        let row = self.rows.len() as u32;
        self.rows.push(Row::new(id));
        self.row_of[id as usize] = row;
        row
    }

    fn add_score(&mut self, id: u32, requests: u64) {
        if let Some(score) = self.score.get_mut(id as usize) {
            *score = score.saturating_add(u32::try_from(requests).unwrap_or(u32::MAX));
        }
    }

    /// Moves counts by class into the aggregates and the scores.
    pub(super) fn settle(&mut self, classes: &Classes) {
        self.others.settle(classes);
        for at in 0..self.active.len() {
            let row = &mut self.rows[self.active[at] as usize];
            let (id, requests) = (row.id, row.settle(classes));
            self.add_score(id, requests);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty() && !self.others.is_active
    }

    /// The entities that have counts.
    pub(super) fn active(&self) -> impl Iterator<Item = (u32, &Aggregate)> {
        let rows = self.active.iter().map(|row| &self.rows[*row as usize]);
        rows.map(|row| (row.id, &row.aggregate))
    }

    /// What an entity has counted that has a row.
    pub(super) fn get(&self, id: u32) -> Option<&Aggregate> {
        let row = *self.row_of.get(id as usize)?;
        self.rows.get(row as usize).map(|row| &row.aggregate)
    }

    pub(super) fn others(&self) -> &Aggregate {
        &self.others.aggregate
    }

    /// Moves the counts to a slot, by id.
    pub(super) fn take(&mut self, writer: &mut SlotWriter) {
        let rows = &mut self.rows;
        self.active.sort_unstable_by_key(|row| rows[*row as usize].id);
        for row in self.active.drain(..) {
            let row = &mut rows[row as usize];
            writer.push(Entity::new(self.kind, row.id), &row.aggregate);
            let others = self.kept - row.kept;
            row.clear(MAX_KEPT_BYTES.saturating_sub(others));
            self.kept = others + row.kept;
        }
        if self.others.is_active {
            writer.push(Entity::new(self.kind, OTHERS), &self.others.aggregate);
            self.others.clear(0);
        }
    }

    /// Gives the rows to the busiest entities. The table must be empty.
    pub(super) fn rank(&mut self) {
        if self.score.len() > self.kind.limit() + 1 {
            let busiest = self.busiest(self.kind.limit());
            self.rows.clear();
            self.kept = 0;
            self.row_of.fill(NO_ROW);
            self.add_row(NONE);
            for id in busiest {
                self.add_row(id);
            }
        }
        self.score.iter_mut().for_each(|score| *score /= 2);
        for row in self.rows.iter_mut().filter(|row| row.kept > 0 && self.score[row.id as usize] == 0) {
            self.kept -= row.kept;
            row.clear(0);
        }
    }

    /// The ids with the highest scores; among equals, those that have a row.
    pub(super) fn busiest(&self, count: usize) -> Vec<u32> {
        let has_row = |id: u32| self.row_of[id as usize] != NO_ROW;
        let rank = |id: &u32| std::cmp::Reverse((self.score[*id as usize], has_row(*id)));
        let mut ids: Vec<u32> =
            (1..self.score.len() as u32).filter(|id| self.score[*id as usize] > 0).collect();
        if ids.len() > count {
            ids.select_nth_unstable_by_key(count, rank);
            ids.truncate(count);
        }
        ids
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let arrays =
            (self.row_of.capacity() + self.score.capacity() + self.active.capacity()) * size_of::<u32>();
        let counted: usize = self.rows.iter().map(|row| row.aggregate.heap_bytes()).sum();
        arrays + self.rows.capacity() * size_of::<Row>() + counted + self.others.aggregate.heap_bytes()
    }
}
