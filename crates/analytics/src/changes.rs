//! What was changed in the configuration, and when: marks on every chart.
use std::collections::VecDeque;

/// The most changes that are kept.
const MAX_CHANGES: usize = 1_024;
/// The longest text of a change, in bytes.
const MAX_TEXT_LEN: usize = 256;

/// One change of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// When it became active, in milliseconds since 1970.
    pub at: u64,
    /// The revision of the configuration since then.
    pub revision: u64,
    /// Who made it, such as a user of the Admin API, a reload or a control plane.
    pub who: String,
    /// What was changed, such as `update routes/orders`.
    pub what: String,
}

/// The latest changes.
#[derive(Debug, Default)]
pub struct Changes {
    changes: VecDeque<Change>,
    forgotten: u64,
}

impl Changes {
    /// Notes a change. The oldest one goes if there are too many.
    pub fn add(&mut self, mut change: Change) {
        for text in [&mut change.who, &mut change.what] {
            text.truncate(text.floor_char_boundary(MAX_TEXT_LEN));
            text.shrink_to_fit();
        }
        if self.changes.len() == MAX_CHANGES {
            self.changes.pop_front();
            self.forgotten += 1;
        }
        self.changes.push_back(change);
    }

    /// The changes in a frame, in milliseconds since 1970, in the order in which they were noted.
    pub fn between(&self, from: u64, to: u64) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(move |change| (from..to).contains(&change.at))
    }

    /// The changes that are not kept any more.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_bounded() {
        let mut changes = Changes::default();
        for at in 0..2_000 {
            let what = "é".repeat(200);
            changes.add(Change { at, revision: at, who: "admin".to_owned(), what });
        }
        assert_eq!(changes.forgotten(), 976);
        assert_eq!(
            changes.between(0, 1_000).map(|change| change.at).collect::<Vec<_>>(),
            (976..1_000).collect::<Vec<_>>()
        );
        assert!(changes.between(0, u64::MAX).all(|change| change.what.len() == 256));
    }
}
