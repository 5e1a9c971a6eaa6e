//! The phases in which plugins run.

use std::ops::BitOr;

/// A set of phases, each named after its hook of [`Hooks`](crate::Hooks).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Phases(u16);

impl Phases {
    /// No phase.
    pub const NONE: Self = Self(0);
    /// Before the route is found.
    pub const REWRITE: Self = Self(1);
    /// Before the upstream is asked.
    pub const ACCESS: Self = Self(1 << 1);
    /// Before the response's head goes to the client.
    pub const RESPONSE: Self = Self(1 << 2);
    /// Then, with the whole body.
    pub const RESPONSE_BODY: Self = Self(1 << 3);
    /// After the last byte.
    pub const LOG: Self = Self(1 << 4);
    /// Before a session of a stream listener reaches its upstream.
    pub const PREREAD: Self = Self(1 << 5);
    /// After the last byte of a session.
    pub const LOG_STREAM: Self = Self(1 << 6);
    /// As a client's TLS handshake begins.
    pub const CERTIFICATE: Self = Self(1 << 7);
    /// Every phase, also those that later versions add.
    pub const ALL: Self = Self(u16::MAX);
    /// How many phases there are.
    pub const COUNT: usize = 8;

    /// Whether the sets have a phase in common.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// These phases, or none of them.
    #[must_use]
    pub const fn only_if(self, condition: bool) -> Self {
        if condition { self } else { Self::NONE }
    }

    /// The place of a single phase among all.
    #[inline]
    pub const fn index(self) -> usize {
        self.0.trailing_zeros() as usize
    }

    /// The single phases of the set.
    pub fn each(self) -> impl Iterator<Item = Self> {
        (0..Self::COUNT).map(|index| Self(1 << index)).filter(move |phase| self.intersects(*phase))
    }
}

impl BitOr for Phases {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_phases_that_it_was_made_of() {
        let set = Phases::ACCESS | Phases::LOG.only_if(true) | Phases::RESPONSE.only_if(false);
        assert_eq!(set.each().collect::<Vec<_>>(), [Phases::ACCESS, Phases::LOG]);
        assert!(set.intersects(Phases::LOG) && !set.intersects(Phases::RESPONSE));
        assert!(Phases::ALL.each().map(Phases::index).eq(0..Phases::COUNT), "one place for each phase");
        assert!(!Phases::NONE.intersects(Phases::ALL));
    }
}
