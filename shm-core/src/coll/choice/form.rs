//! The ways in which a collective can be carried out, by name.

use std::fmt;

use crate::coll::sm::chain::WINDOW;

/// How a collective is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A single rank: at most a copy.
    Alone,
    /// One step: all read the root, or the root reads all, or all read all.
    Flat,
    /// Along trees, for many ranks: what is small, and bcasts of any length where the machine has several levels.
    Tree,
    /// As flat, pipelined by chunks.
    Direct,
    /// Reductions by chunks, of which each rank reduces its slice.
    Slice,
    /// The same round a ring: each rank adds its part of a slice to the sums of the one before it.
    Ring,
    /// Reductions whose sums are handed on to a root: from rank to rank on a core that several share, or along a tree.
    Chain,
    /// Each rank does its part in all ranks' own vectors.
    Joint,
}

impl Form {
    /// Those that `HAN_SET=form=...` takes, beside `auto`.
    pub(crate) const SETTABLE: [Self; 7] =
        [Self::Flat, Self::Tree, Self::Direct, Self::Slice, Self::Ring, Self::Chain, Self::Joint];

    /// As settings and messages call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Flat => "flat",
            Self::Tree => "tree",
            Self::Direct => "direct",
            Self::Slice => "slice",
            Self::Ring => "ring",
            Self::Chain => "chain",
            Self::Joint => "joint",
        }
    }

    /// Module and form: `solo` where it works on a rank's own buffers, else `sm`.
    pub(crate) const fn choice(self, lent: bool) -> &'static str {
        match (self, lent) {
            (Self::Alone, _) => "alone",
            (Self::Flat, _) => "sm/flat",
            (Self::Tree, false) => "sm/tree",
            (Self::Tree, true) => "solo/tree",
            (Self::Direct, false) => "sm/direct",
            (Self::Slice, false) => "sm/slice",
            (Self::Direct, true) => "solo/direct",
            (Self::Slice, true) => "solo/slice",
            (Self::Ring, false) => "sm/ring",
            (Self::Ring, true) => "solo/ring",
            (Self::Chain, false) => "sm/chain",
            // What is mapped is reduced where it is.
            (Self::Chain, true) => "solo/slice",
            (Self::Joint, _) => "solo/joint",
        }
    }

    /// Chunks and slices that must fit into the ring at a time; none for forms without chunks, or whose chunks no
    /// setting cuts and fit into every ring.
    pub(crate) const fn spans(self) -> Option<usize> {
        match self {
            Self::Alone | Self::Flat | Self::Joint => None,
            Self::Tree | Self::Direct => Some(2),
            // Chunks of which the parts are awaited and chunks of which the results are; of two chunks the sums of two rounds.
            Self::Slice | Self::Ring => Some(4),
            // Twice, so that the next operation need not wait for the last reader of this one.
            Self::Chain => Some(2 * WINDOW),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
