//! Which form a collective takes, and why: one decision from what all ranks know alike.
//!
//! [`Terms::decide`] gives the branch that was taken, which maps to a form for those who carry the operation
//! out, and to a sentence for those who ask.

use std::fmt;

use crate::call::Collective;
use crate::coll::operands::Lending;
use crate::segment::layout::{INLINE_BYTES, cell_bytes, cells_in_ring};
use crate::settings::Settings;

/// How a collective is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A single rank: at most a copy.
    Alone,
    /// One step: all read the root, or the root reads all, or all read all.
    Flat,
    /// Along trees, for many ranks.
    Tree,
    /// As flat, pipelined by chunks.
    Direct,
    /// Reductions by chunks, of which each rank reduces its slice.
    Slice,
}

impl Form {
    /// Those that `HAN_SET=form=...` takes, beside `auto`.
    pub(crate) const SETTABLE: [Self; 4] = [Self::Flat, Self::Tree, Self::Direct, Self::Slice];

    /// As settings and messages call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Flat => "flat",
            Self::Tree => "tree",
            Self::Direct => "direct",
            Self::Slice => "slice",
        }
    }

    /// Module and form: `solo` where it works on a rank's own buffers, else `sm`.
    pub(crate) const fn choice(self, lent: bool) -> &'static str {
        match (self, lent) {
            (Self::Alone, _) => "alone",
            (Self::Flat, _) => "sm/flat",
            (Self::Tree, _) => "sm/tree",
            (Self::Direct, false) => "sm/direct",
            (Self::Slice, false) => "sm/slice",
            (Self::Direct, true) => "solo/direct",
            (Self::Slice, true) => "solo/slice",
        }
    }

    /// Chunks and slices that must fit into the ring at a time; none for forms without chunks.
    pub(crate) const fn spans(self) -> Option<usize> {
        match self {
            Self::Alone | Self::Flat | Self::Tree => None,
            Self::Direct => Some(2),
            // Of two chunks the parts and the results.
            Self::Slice => Some(4),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the form depends on beside the call: the same on all ranks of a communicator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) ranks: usize,
    /// Every rank has a core to itself.
    pub(crate) own_cores: bool,
    /// Vectors may be mapped by peers, if they lie in memory that allows it.
    pub(crate) may_map: bool,
    pub(crate) cell_bytes: usize,
    pub(crate) last_cache_bytes: usize,
    forced: Option<Form>,
    reproducible: bool,
    tree_min_ranks: usize,
    slice_min_bytes: usize,
}

/// The branch that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    OneRank,
    /// A setting asks for `asked`, and `form` is the nearest that can carry the call.
    Forced {
        asked: Form,
        form: Form,
    },
    // At most one cell.
    FewRanks,
    SharedCores,
    TooLongForTrees,
    NoPartialSums,
    ManyRanks,
    // More than one cell.
    Bcast,
    RootKeepsUp,
    TooShortToReach,
    AllMayReach,
    TooShortToShare,
    AllShare,
}

impl Decision {
    #[inline]
    pub(crate) const fn form(self) -> Form {
        match self {
            Self::OneRank => Form::Alone,
            Self::Forced { form, .. } => form,
            Self::FewRanks | Self::SharedCores | Self::TooLongForTrees | Self::NoPartialSums => Form::Flat,
            Self::ManyRanks => Form::Tree,
            Self::Bcast | Self::RootKeepsUp | Self::TooShortToReach | Self::TooShortToShare => Form::Direct,
            Self::AllMayReach | Self::AllShare => Form::Slice,
        }
    }
}

impl Terms {
    /// Why `decision` was taken for `bytes`, and the settings that would change it.
    pub(crate) fn because(&self, decision: Decision, bytes: usize) -> (String, String) {
        let Self { ranks, cell_bytes, tree_min_ranks, .. } = *self;
        let from = format!("{}, 4 times slice_min_bytes={},", self.reached_from(), self.slice_min_bytes);
        let change = |key: &str| format!("{key}, form");
        match decision {
            Decision::OneRank => ("there is one rank: its contribution is the result".to_owned(), String::new()),
            Decision::Forced { asked, form } if asked == form => (format!("form={asked} was set"), "form".to_owned()),
            Decision::Forced { asked, form } => {
                (format!("form={asked} was set, but cannot carry this: {form} is the next that can"), "form".to_owned())
            }
            Decision::FewRanks => {
                let payload = format!("at most a cell of {cell_bytes} bytes goes in one step");
                (
                    format!("{payload}; trees are for tree_min_ranks={tree_min_ranks} ranks and more"),
                    change("tree_min_ranks"),
                )
            }
            Decision::SharedCores => {
                ("ranks share cores, where each level of a tree costs switches".to_owned(), change("assume_own_cores"))
            }
            Decision::TooLongForTrees => {
                (format!("trees carry what fits beside a flag, {INLINE_BYTES} bytes"), String::new())
            }
            Decision::NoPartialSums => {
                ("HAN_REPRODUCIBLE=1 forbids the partial sums of trees".to_owned(), "HAN_REPRODUCIBLE".to_owned())
            }
            Decision::ManyRanks => (
                format!("{ranks} ranks with a core each are tree_min_ranks={tree_min_ranks} or more"),
                change("tree_min_ranks"),
            ),
            Decision::Bcast => {
                (format!("more than a cell of {cell_bytes} bytes is pipelined; a bcast has no slices"), String::new())
            }
            Decision::RootKeepsUp => {
                let keeps_up = self.keeps_up_in_words();
                (format!("{keeps_up}, and no vectors may be mapped"), change("methods, single_copy"))
            }
            Decision::TooShortToReach => {
                let keeps_up = self.keeps_up_in_words();
                (format!("{keeps_up}; from {from} on mapped vectors are shared out"), change("slice_min_bytes"))
            }
            Decision::AllMayReach => {
                (format!("from {from} on vectors that peers map are shared out"), change("slice_min_bytes"))
            }
            Decision::TooShortToShare => {
                (format!("{bytes} bytes are less than {}", self.shared_from_in_words()), change("slice_min_bytes"))
            }
            Decision::AllShare => {
                (format!("{bytes} bytes are at least {}", self.shared_from_in_words()), change("slice_min_bytes"))
            }
        }
    }

    pub(crate) fn keeps_up_in_words(&self) -> &'static str {
        if self.own_cores {
            "the root keeps up with 3 ranks or fewer"
        } else {
            "the root keeps up where ranks share cores"
        }
    }

    fn shared_from_in_words(&self) -> String {
        let Self { slice_min_bytes, ranks, .. } = *self;
        if ranks == 2 {
            format!("{}, for two ranks 32 times slice_min_bytes={slice_min_bytes}", self.shared_from())
        } else {
            format!("slice_min_bytes={slice_min_bytes}")
        }
    }
}

/// A tree adds partial sums, whose rounding differs from that of all other forms.
#[inline]
const fn adds(collective: Collective) -> bool {
    matches!(collective, Collective::Reduce | Collective::Allreduce)
}

impl Terms {
    /// `shared`: all ranks can map each other's memory.
    pub(crate) fn new(
        settings: &Settings,
        ranks: usize,
        own_cores: bool,
        shared: bool,
        last_cache_bytes: usize,
    ) -> Self {
        Self {
            ranks,
            own_cores,
            may_map: Lending::may_map(settings, shared),
            cell_bytes: cell_bytes(ranks),
            last_cache_bytes,
            forced: settings.form,
            reproducible: settings.reproducible,
            tree_min_ranks: settings.tree_min_ranks,
            slice_min_bytes: settings.slice_min_bytes,
        }
    }

    /// Decides for `bytes` on each rank.
    #[inline]
    pub(crate) fn decide(&self, collective: Collective, bytes: usize) -> Decision {
        if self.ranks == 1 {
            return Decision::OneRank;
        }
        if let Some(asked) = self.forced {
            return Decision::Forced { asked, form: self.nearest(asked, collective, bytes) };
        }
        if bytes > self.cell_bytes {
            return self.decide_by_chunks(collective, bytes);
        }
        // Where ranks share cores each level of a tree costs switches.
        if self.ranks < self.tree_min_ranks {
            Decision::FewRanks
        } else if !self.own_cores {
            Decision::SharedCores
        } else if bytes > INLINE_BYTES {
            Decision::TooLongForTrees
        } else if self.reproducible && adds(collective) {
            Decision::NoPartialSums
        } else {
            Decision::ManyRanks
        }
    }

    fn decide_by_chunks(&self, collective: Collective, bytes: usize) -> Decision {
        match collective {
            Collective::Barrier | Collective::Bcast => Decision::Bcast,
            // Slices are worth it only for vectors that may all be reached where they are.
            Collective::Reduce if self.root_keeps_up() => match self.may_map {
                false => Decision::RootKeepsUp,
                true if bytes < self.reached_from() => Decision::TooShortToReach,
                true => Decision::AllMayReach,
            },
            Collective::Reduce | Collective::Allreduce if bytes < self.shared_from() => Decision::TooShortToShare,
            Collective::Reduce | Collective::Allreduce => Decision::AllShare,
        }
    }

    /// The form itself, or the next that can carry the call: `tree`, `flat`, `direct` in this order, where
    /// `slice` is for reductions only, and what has no data is always `flat` or `tree`.
    #[cold]
    fn nearest(&self, asked: Form, collective: Collective, bytes: usize) -> Form {
        let fits_tree = bytes <= INLINE_BYTES && !(self.reproducible && adds(collective));
        match asked {
            Form::Tree if fits_tree => Form::Tree,
            _ if bytes == 0 => Form::Flat,
            Form::Tree | Form::Flat if bytes <= self.cell_bytes => Form::Flat,
            Form::Slice if adds(collective) => Form::Slice,
            _ => Form::Direct,
        }
    }

    /// True where the root alone reduces as fast as all together, through cells: it keeps up with a few ranks;
    /// and where ranks share cores, its own reading of all vectors costs less than the switches of slices.
    pub(crate) fn root_keeps_up(&self) -> bool {
        self.ranks <= 3 || !self.own_cores
    }

    /// From here on a reduce is shared out if all vectors are reached, though the root keeps up.
    fn reached_from(&self) -> usize {
        self.slice_min_bytes.saturating_mul(4)
    }

    /// From here on a reduction is shared out: slices save reading only from three ranks on; two gain from them
    /// when chunks leave the cache.
    fn shared_from(&self) -> usize {
        if self.ranks == 2 { self.slice_min_bytes.saturating_mul(32) } else { self.slice_min_bytes }
    }

    /// A vector on every rank of this many bytes is more than the last cache holds.
    pub(crate) fn beyond_caches_from(&self) -> usize {
        self.last_cache_bytes / self.ranks
    }

    /// True if results had better go past the last cache.
    #[inline]
    pub(crate) fn is_beyond_caches(&self, bytes: usize) -> bool {
        bytes >= self.beyond_caches_from()
    }

    /// Largest payload of which `spans` can be in flight at a time.
    pub(crate) fn largest(&self, spans: usize) -> usize {
        (cells_in_ring(self.ranks) / spans) * self.cell_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Collective::{Allreduce, Barrier, Bcast, Reduce};

    fn terms(ranks: usize, own_cores: bool, set: impl FnOnce(&mut Settings)) -> Terms {
        let mut settings = Settings::default();
        set(&mut settings);
        Terms::new(&settings, ranks, own_cores, true, 32 << 20)
    }

    #[test]
    fn forms_follow_ranks_sizes_and_cores() {
        let own = |ranks| terms(ranks, true, |_| {});
        for (terms, collective, bytes, decision) in [
            (own(1), Allreduce, 1 << 20, Decision::OneRank),
            (own(2), Barrier, 0, Decision::FewRanks),
            (own(2), Bcast, 4096, Decision::FewRanks),
            (own(2), Bcast, 4097, Decision::Bcast),
            (own(32), Allreduce, 120, Decision::ManyRanks),
            (own(32), Allreduce, 121, Decision::TooLongForTrees),
            (terms(32, false, |_| {}), Allreduce, 8, Decision::SharedCores),
            (terms(32, true, |s| s.reproducible = true), Reduce, 8, Decision::NoPartialSums),
            (terms(32, true, |s| s.reproducible = true), Bcast, 8, Decision::ManyRanks),
            (own(2), Allreduce, 256 * 1024 - 1, Decision::TooShortToShare),
            (own(2), Allreduce, 256 * 1024, Decision::AllShare),
            (own(3), Allreduce, 8192, Decision::AllShare),
            (own(3), Reduce, 32 * 1024 - 1, Decision::TooShortToReach),
            (own(3), Reduce, 32 * 1024, Decision::AllMayReach),
            (terms(3, true, |s| s.single_copy = crate::Single::Never), Reduce, 1 << 20, Decision::RootKeepsUp),
            (own(4), Reduce, 8192, Decision::AllShare),
            (terms(4, false, |_| {}), Reduce, 8192, Decision::TooShortToReach),
        ] {
            assert_eq!(terms.decide(collective, bytes), decision, "{terms:?} {collective} {bytes}");
        }
    }

    #[test]
    fn a_form_that_is_set_is_taken_or_the_next_that_can_carry_the_call() {
        for (asked, collective, bytes, form) in [
            (Form::Flat, Barrier, 0, Form::Flat),
            (Form::Flat, Allreduce, 4096, Form::Flat),
            (Form::Flat, Allreduce, 4097, Form::Direct),
            (Form::Tree, Barrier, 0, Form::Tree),
            (Form::Tree, Bcast, 120, Form::Tree),
            (Form::Tree, Bcast, 121, Form::Flat),
            (Form::Tree, Bcast, 5000, Form::Direct),
            (Form::Direct, Barrier, 0, Form::Flat),
            (Form::Direct, Reduce, 0, Form::Flat),
            (Form::Direct, Reduce, 1, Form::Direct),
            (Form::Slice, Barrier, 0, Form::Flat),
            (Form::Slice, Bcast, 1 << 20, Form::Direct),
            (Form::Slice, Allreduce, 1, Form::Slice),
        ] {
            let terms = terms(3, false, |s| s.form = Some(asked));
            assert_eq!(
                terms.decide(collective, bytes),
                Decision::Forced { asked, form },
                "{asked} {collective} {bytes}"
            );
        }
        let alone = terms(1, true, |s| s.form = Some(Form::Slice));
        assert_eq!(alone.decide(Allreduce, 8).form(), Form::Alone);
        let reproducible = terms(40, true, |s| (s.form, s.reproducible) = (Some(Form::Tree), true));
        assert_eq!(reproducible.decide(Reduce, 8).form(), Form::Flat);
        assert_eq!(reproducible.decide(Bcast, 8).form(), Form::Tree);
    }
}
