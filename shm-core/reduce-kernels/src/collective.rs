//! The collectives by name, what they are called for, and in which order they may combine what ranks contribute.

use std::fmt;

/// How the contributions of a reduction may be folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Folding {
    /// In any order, and partial results with each other.
    Free,
    /// In rank order, which partial results of neighbours keep: the operator does not commute.
    InOrder,
    /// In rank order at one go: partial results would be rounded to 16 bits, or others who fold the same contributions would
    /// come to other bits.
    AtOnce,
}

/// The collectives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Collective {
    /// Nobody leaves before all have come.
    Barrier = 1,
    /// The root's buffer on every rank.
    Bcast = 2,
    /// The reduction of all ranks' vectors at the root.
    Reduce = 3,
    /// The reduction of all ranks' vectors on every rank.
    Allreduce = 4,
}

impl Collective {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Barrier, Self::Bcast, Self::Reduce, Self::Allreduce];

    /// The name in lower case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Bcast => "bcast",
            Self::Reduce => "reduce",
            Self::Allreduce => "allreduce",
        }
    }

    /// The collective of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|collective| collective.name() == name)
    }

    /// Its place in [`ALL`](Self::ALL).
    #[must_use]
    #[inline]
    pub const fn index(self) -> usize {
        self as usize - 1
    }

    /// True if it has vectors.
    #[must_use]
    #[inline]
    pub const fn has_data(self) -> bool {
        !matches!(self, Self::Barrier)
    }

    /// True if it has a root.
    #[must_use]
    #[inline]
    pub const fn has_root(self) -> bool {
        matches!(self, Self::Bcast | Self::Reduce)
    }

    /// True if it has an operator.
    #[must_use]
    #[inline]
    pub const fn reduces(self) -> bool {
        matches!(self, Self::Reduce | Self::Allreduce)
    }

    /// True if `rank` gets a result of it, where it has a root that is `root`.
    #[must_use]
    #[inline]
    pub const fn gives_result(self, rank: usize, root: usize) -> bool {
        match self {
            Self::Barrier => false,
            Self::Reduce => rank == root,
            Self::Bcast | Self::Allreduce => true,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|c| *c as u8 == code)
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a collective is called for: ranks that call it for different things disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Purpose {
    /// The caller's own data.
    Data = 0,
    /// Nothing follows: ranks that make this call leave.
    Finalize = 1,
    /// A communicator of the same ranks.
    Dup = 2,
    /// Communicators of some ranks each.
    Split = 3,
    /// A part of an allreduce that other groups of ranks do as well, with the same contributions: all must come to the same
    /// bits, whatever form suits each of them.
    Everywhere = 4,
}
