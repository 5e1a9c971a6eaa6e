//! How many data planes serve a revision, and how many are to.
use super::member::Member;

/// Which data planes serve a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage {
    /// How many of those that are connected do.
    pub serving: usize,
    /// Those that are connected and do not yet.
    pub behind: Vec<Member>,
    /// How many are not connected.
    pub offline: usize,
}

/// How many data planes are to serve a revision. One at least must.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// All that are known, connected or not.
    All,
    /// So many of a hundred that are connected.
    Percent(usize),
}

impl Coverage {
    /// Whether so many serve the revision.
    pub fn reaches(&self, share: Share) -> bool {
        share.is_reached(self.serving, self.serving + self.behind.len(), self.offline)
    }
}

impl Share {
    pub(super) fn is_reached(self, serving: usize, connected: usize, offline: usize) -> bool {
        let is_reached = match self {
            Share::All => serving == connected + offline,
            Share::Percent(percent) => serving * 100 >= connected * percent,
        };
        serving > 0 && is_reached
    }

    /// Whether too many of those that are connected will not serve the revision.
    pub(super) fn is_out_of_reach(self, failed: usize, connected: usize) -> bool {
        let percent = match self {
            Share::All => 100,
            Share::Percent(percent) => percent,
        };
        (connected - failed) * 100 < connected * percent
    }
}
