//! The entities of one kind: the busiest are counted one by one, the rest together.
use crate::aggregate::{Aggregate, Keep};
use crate::entities::{Entity, Kind, NONE, OTHERS};
use crate::record::Record;
use crate::slot::SlotWriter;

/// Stands for an entity without a row.
const NO_ROW: u32 = u32::MAX;

#[derive(Debug)]
struct Row {
    id: u32,
    aggregate: Aggregate,
    is_active: bool,
}

/// Rows for at most [`Kind::limit`] entities.
///
/// Ids are small and dense, so arrays by id find a row and count the requests of every entity, also of those without a
/// row. A ranking by these counts replaces rows when there are more entities than rows. Because the counts are exact, an
/// entity never gets a row by the error of an estimate.
#[derive(Debug)]
pub(super) struct Table {
    kind: Kind,
    keep: Keep,
    /// The row of each id.
    row_of: Vec<u32>,
    /// The requests of each id, halved at each ranking.
    score: Vec<u32>,
    rows: Vec<Row>,
    /// The rows that have counts.
    active: Vec<u32>,
    others: Aggregate,
    has_others: bool,
}

impl Table {
    pub(super) fn new(kind: Kind, keep: Keep) -> Table {
        let mut table = Table {
            kind,
            keep,
            row_of: Vec::new(),
            score: Vec::new(),
            rows: Vec::new(),
            active: Vec::new(),
            others: Aggregate::default(),
            has_others: false,
        };
        table.add_row(NONE);
        table
    }

    /// Counts a request; false if it counts among others.
    #[inline]
    pub(super) fn record(&mut self, id: u32, record: &Record) -> bool {
        let keep = self.keep;
        if let Some(aggregate) = self.row(id) {
            aggregate.record(record, keep);
            return true;
        }
        self.others.record(record, keep);
        false
    }

    /// Counts what another table has counted.
    pub(super) fn merge(&mut self, id: u32, aggregate: &Aggregate) {
        match self.row(id) {
            Some(sum) => sum.merge(aggregate),
            None => self.others.merge(aggregate),
        }
    }

    /// The aggregate of an entity that has a row or gets one.
    #[inline]
    fn row(&mut self, id: u32) -> Option<&mut Aggregate> {
        let mut row = self.row_of.get(id as usize).copied().unwrap_or(NO_ROW);
        if row == NO_ROW {
            row = self.add_row(id);
        }
        if let Some(score) = self.score.get_mut(id as usize) {
            *score = score.saturating_add(1);
        }
        let Some(found) = self.rows.get_mut(row as usize) else {
            self.has_others = true;
            return None;
        };
        if !found.is_active {
            found.is_active = true;
            self.active.push(row);
        }
        Some(&mut found.aggregate)
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
        self.rows.push(Row { id, aggregate: Aggregate::default(), is_active: false });
        self.row_of[id as usize] = row;
        row
    }

    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty() && !self.has_others
    }

    /// The entities that have counts.
    pub(super) fn active(&self) -> impl Iterator<Item = (u32, &Aggregate)> {
        let rows = self.active.iter().map(|row| &self.rows[*row as usize]);
        rows.map(|row| (row.id, &row.aggregate))
    }

    pub(super) fn others(&self) -> &Aggregate {
        &self.others
    }

    /// Moves the counts to a slot, by id.
    pub(super) fn take(&mut self, writer: &mut SlotWriter) {
        let rows = &mut self.rows;
        self.active.sort_unstable_by_key(|row| rows[*row as usize].id);
        for row in self.active.drain(..) {
            let row = &mut rows[row as usize];
            writer.push(Entity::new(self.kind, row.id), &row.aggregate);
            row.aggregate = Aggregate::default();
            row.is_active = false;
        }
        if std::mem::take(&mut self.has_others) {
            let others = std::mem::take(&mut self.others);
            writer.push(Entity::new(self.kind, OTHERS), &others);
        }
    }

    /// Gives the rows to the busiest entities. The table must be empty.
    pub(super) fn rank(&mut self) {
        if self.score.len() > self.kind.limit() + 1 {
            let busiest = self.busiest(self.kind.limit());
            self.rows.clear();
            self.row_of.fill(NO_ROW);
            self.add_row(NONE);
            for id in busiest {
                self.add_row(id);
            }
        }
        self.score.iter_mut().for_each(|score| *score /= 2);
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
        let counted: usize = self.active().map(|(_, aggregate)| aggregate.heap_bytes()).sum();
        arrays + self.rows.capacity() * size_of::<Row>() + counted + self.others.heap_bytes()
    }
}
