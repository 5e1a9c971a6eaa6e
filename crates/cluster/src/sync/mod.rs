//! Weir's own protocol, without sockets: what a control plane and its data planes say to each other so that all have the
//! same configuration, and only what differs travels.
//!
//! ```text
//! data plane                                    control plane
//! hello: identity of what it serves      ─►     same digest: welcome, and nothing else
//!                                        ◄─     few changes behind: transfer of these changes
//!                                        ◄─     else: compare (digest of each kind)
//! buckets (1,024 digests of each kind    ─►
//!   that differs)                        ◄─     wanted (buckets that differ)
//! members (ids and digests in these)     ─►
//!                                        ◄─     transfer of what differs, in chunks
//! credit for more chunks                 ─►
//! applied, or refused with the errors    ─►
//! frame of analytics                     ─►     if both sides have the capability
//!                                        ◄─     taken, or refused with the reason
//! ```
//! After that, each committed change is one transfer. A data plane has at most one that is not acknowledged; changes that
//! are committed meanwhile are merged into the next one.
mod cohort;
mod cohorts;
mod control_session;
mod follower;
pub mod identity;
pub mod inventory;
mod journal;
pub mod message;
pub mod record;
mod select;
#[cfg(test)]
pub(crate) mod tests;
pub mod transfer;

pub use cohort::{Cohort, Digests, Draft, Next, Replacement, digests};
pub use cohorts::Cohorts;
pub use control_session::{ControlSession, Event, UnexpectedMessage};
pub use follower::{CREDIT, Follower, FollowerError, Step};
pub use select::{Labels, Selector};

use serde::{Deserialize, Serialize};
use std::fmt;
use weir_model::{Change, Document};

/// What a data plane does with what it gets.
#[derive(Debug, Clone, PartialEq)]
pub enum Update {
    /// Everything is replaced.
    Whole(Box<Document>),
    /// These entities change, all at once.
    Changes(Vec<Change>),
}

/// Why a data plane cannot serve an entity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The entity, with its name or id.
    pub entity: String,
    /// The path of the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What is wrong and how to fix it.
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "{}: {field}: {}", self.entity, self.message),
            None => write!(f, "{}: {}", self.entity, self.message),
        }
    }
}
