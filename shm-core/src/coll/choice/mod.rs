//! Which form a collective takes: one decision from what all ranks know alike, by the measured [`table`].
//!
//! [`Terms::decide`] gives the branch that was taken, which maps to a form for those who carry the operation
//! out, and to a sentence for those who ask ([`reasons`]).

mod chunks;
mod form;
mod reasons;
mod table;
mod trials;

use crate::coll::operands::Lending;
use crate::coll::sm::{HandOn, has_levels};
use crate::copy::cico::LINE;
use crate::explain::Circumstances;
use crate::segment::layout::{INLINE_BYTES, cell_bytes, cells_in_ring, gap_bytes};
use crate::settings::Single;
pub(crate) use chunks::{Chunks, Cut, CutBecause, uncut_bytes, whole_elements};
pub use form::Form;
use reduce_kernels::{Collective, Folding};
pub(crate) use table::{CROWD, LEAST_CHUNK_BYTES, MOST_SET_BYTES, Reducers};
use table::{LEVELS_FROM, Row, SHORT_SLICES_RANKS, TREES_FROM, short_slices_bytes};
pub(crate) use trials::{Kind, Stay, Times, Took, Trials, Turn, Way, times};

/// What the form depends on beside the call: the same on all ranks of a communicator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) ranks: usize,
    /// Every rank has a core to itself.
    pub(crate) own_cores: bool,
    /// Ranks may hand sums on: those of each of few cores that several share, or all along a tree.
    pub(crate) hand_on: bool,
    /// The machine has several levels for trees to follow.
    pub(crate) levels: bool,
    /// Vectors may be mapped by peers, if they lie in memory that allows it.
    pub(crate) may_map: bool,
    /// All ranks can reach all of each other's memory, and may do so.
    pub(crate) everywhere: bool,
    pub(crate) cell_bytes: usize,
    /// Cells that each rank has.
    pub(crate) cells: usize,
    pub(crate) last_cache_bytes: usize,
    /// Small messages travel along trees from so many ranks on.
    pub(crate) trees_from: usize,
    /// A reduce of so many bytes has more in all vectors together than one rank had better read, and an allreduce than each.
    short_slices_from: [usize; 2],
    /// What the setting says, if it does.
    pub(crate) set_slices_from: Option<usize>,
    pub(crate) set_lent_from: Option<usize>,
    for_all_max_bytes: Option<usize>,
    forced: Option<Form>,
    reproducible: bool,
    bcast: &'static Row,
    reduce: &'static Row,
    allreduce: &'static Row,
}

/// Ranks whose parts are shorter do not work jointly: each call of the kernel costs as much as copying so many bytes.
const LEAST_PART_BYTES: usize = 4096;

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
    NoRoundedSums,
    ManyRanks,
    ShortSlices,
    // More than one cell.
    Together,
    ManyLevels,
    Bcast,
    RootKeepsUp,
    TooShortToShare,
    LongEnough,
    HandedOn,
    Crowd,
}

impl Decision {
    #[inline]
    pub(crate) const fn form(self) -> Form {
        match self {
            Self::OneRank => Form::Alone,
            Self::Forced { form, .. } => form,
            Self::FewRanks | Self::SharedCores | Self::TooLongForTrees | Self::NoPartialSums | Self::NoRoundedSums => {
                Form::Flat
            }
            Self::ManyRanks | Self::ManyLevels => Form::Tree,
            Self::Bcast | Self::RootKeepsUp | Self::TooShortToShare | Self::Crowd => Form::Direct,
            Self::LongEnough | Self::ShortSlices => Form::Slice,
            Self::HandedOn => Form::Chain,
            Self::Together => Form::Joint,
        }
    }
}

impl Terms {
    pub(crate) fn new(circumstances: &Circumstances) -> Self {
        let Circumstances { hierarchy, settings, .. } = circumstances;
        let &Circumstances { own_cores, shared, everywhere, last_cache_bytes, .. } = circumstances;
        let (ranks, levels) = (hierarchy.size(), has_levels(hierarchy));
        let row = |collective| Row::of(collective, ranks, own_cores);
        let is_shared_out = own_cores && ranks >= SHORT_SLICES_RANKS;
        let least = (LINE * ranks).max(settings.slice_min_bytes.unwrap_or(0));
        let much = |collective| short_slices_bytes(collective).div_ceil(ranks).max(least);
        let short_slices_from = |collective| if is_shared_out { much(collective) } else { usize::MAX };
        Self {
            ranks,
            own_cores,
            hand_on: HandOn::of(hierarchy, own_cores).is_some() && settings.single_copy != Single::ByKernel,
            levels,
            may_map: Lending::may_map(settings, shared),
            everywhere: everywhere && Lending::may_reach(settings),
            cell_bytes: cell_bytes(ranks),
            cells: cells_in_ring(ranks),
            last_cache_bytes,
            trees_from: settings.tree_min_ranks.unwrap_or(if levels { LEVELS_FROM } else { TREES_FROM }),
            short_slices_from: [Collective::Reduce, Collective::Allreduce].map(short_slices_from),
            set_slices_from: settings.slice_min_bytes,
            set_lent_from: settings.single_copy_min_bytes,
            for_all_max_bytes: settings.for_all_max_bytes,
            forced: settings.form,
            reproducible: settings.reproducible,
            bcast: row(Collective::Bcast),
            reduce: row(Collective::Reduce),
            allreduce: row(Collective::Allreduce),
        }
    }

    /// What was measured for `collective`.
    #[inline]
    pub(crate) fn row(&self, collective: Collective) -> &'static Row {
        match collective {
            Collective::Barrier | Collective::Bcast => self.bcast,
            Collective::Reduce => self.reduce,
            Collective::Allreduce => self.allreduce,
        }
    }

    /// Decides for `bytes` on each rank, which a reduction folds as `folding` says.
    #[inline]
    pub(crate) fn decide(&self, collective: Collective, bytes: usize, folding: impl FnOnce() -> Folding) -> Decision {
        if self.ranks == 1 {
            return Decision::OneRank;
        }
        if let Some(asked) = self.forced {
            return Decision::Forced { asked, form: self.nearest(asked, collective, bytes, folding()) };
        }
        if bytes > self.cell_bytes {
            return if self.may_join(bytes) {
                Decision::Together
            } else if self.is_crowd(collective) {
                Decision::Crowd
            } else if self.hands_on(collective, bytes) && folding() == Folding::Free {
                Decision::HandedOn
            } else {
                self.decide_by_chunks(collective, bytes)
            };
        }
        // Where ranks share cores each level of a tree costs switches.
        if self.goes_by_short_slices(collective, bytes) {
            Decision::ShortSlices
        } else if self.ranks < self.trees_from {
            Decision::FewRanks
        } else if !self.own_cores {
            Decision::SharedCores
        } else if bytes > INLINE_BYTES {
            Decision::TooLongForTrees
        } else if self.reproducible && collective.reduces() {
            Decision::NoPartialSums
        } else if folding() == Folding::AtOnce {
            Decision::NoRoundedSums
        } else {
            Decision::ManyRanks
        }
    }

    /// True if without slices each rank, or the root, would read more than it had better.
    #[inline]
    fn goes_by_short_slices(&self, collective: Collective, bytes: usize) -> bool {
        let [reduce, allreduce] = self.short_slices_from;
        match collective {
            Collective::Allreduce => bytes >= allreduce,
            Collective::Reduce => bytes >= reduce,
            Collective::Barrier | Collective::Bcast => false,
        }
    }

    /// True if ranks may work jointly on `bytes` each, and no setting says how else: with a core each, where the kernel's
    /// calls do not keep other ranks from theirs, and a part of at least a page.
    fn may_join(&self, bytes: usize) -> bool {
        let nothing_set = self.set_slices_from.is_none() && self.set_lent_from.is_none_or(|from| bytes >= from);
        self.everywhere && self.own_cores && nothing_set && bytes / self.ranks >= LEAST_PART_BYTES
    }

    /// True if so many ranks share few cores that a root reduces alone before all have had their turn, and no setting says
    /// how else.
    fn is_crowd(&self, collective: Collective) -> bool {
        let is_set = self.set_slices_from.is_some();
        collective == Collective::Reduce && self.ranks >= CROWD && self.hand_on && !self.own_cores && !is_set
    }

    /// True if sums of `bytes` are handed on, and no setting says how else.
    fn hands_on(&self, collective: Collective, bytes: usize) -> bool {
        let is_long = collective.reduces() && bytes >= self.row(collective).chains_from;
        is_long && self.hand_on && !self.reproducible && self.set_slices_from.is_none()
    }

    /// True if to work jointly on `bytes` each probably pays, where no trial has told yet.
    pub(crate) fn likely_joint(&self, collective: Collective, bytes: usize) -> bool {
        bytes >= self.row(collective).joint_from
    }

    /// As [`decide`](Self::decide) for more than a cell, if ranks did not work jointly.
    pub(crate) fn decide_by_chunks(&self, collective: Collective, bytes: usize) -> Decision {
        match collective {
            Collective::Bcast if self.levels && self.own_cores && self.ranks >= self.trees_from => Decision::ManyLevels,
            Collective::Barrier | Collective::Bcast => Decision::Bcast,
            Collective::Reduce | Collective::Allreduce if bytes < self.slices_from(collective) => {
                if self.goes_by_short_slices(collective, bytes) {
                    Decision::ShortSlices
                } else {
                    Decision::TooShortToShare
                }
            }
            // Without mapped vectors the root would reduce alone in either form.
            Collective::Reduce if self.reducers(collective) == Reducers::RootThroughCells && !self.may_map => {
                Decision::RootKeepsUp
            }
            Collective::Reduce | Collective::Allreduce => Decision::LongEnough,
        }
    }

    /// The form itself, or the next that can carry the call: of `tree`, `flat`, `direct`, or of `joint`, `ring` or `chain`,
    /// `slice`, `direct`, where the last but one are for reductions only; what has no data is always `flat` or `tree`.
    /// [`cannot`](Self::cannot) has the reasons.
    #[cold]
    fn nearest(&self, asked: Form, collective: Collective, bytes: usize, folding: Folding) -> Form {
        let reduces = collective.reduces();
        let at_once = reduces && (self.reproducible || folding == Folding::AtOnce);
        let in_any_order = reduces && !self.reproducible && folding == Folding::Free;
        match asked {
            Form::Tree if bytes <= INLINE_BYTES && !at_once || collective == Collective::Bcast && self.levels => {
                Form::Tree
            }
            _ if bytes == 0 => Form::Flat,
            Form::Tree | Form::Flat if bytes <= self.cell_bytes => Form::Flat,
            Form::Ring if in_any_order => Form::Ring,
            Form::Chain if self.hand_on && in_any_order => Form::Chain,
            Form::Joint if self.everywhere => Form::Joint,
            Form::Slice | Form::Ring | Form::Chain | Form::Joint if reduces => Form::Slice,
            _ => Form::Direct,
        }
    }

    /// Reductions take the form `slice` from here on.
    pub(crate) fn slices_from(&self, collective: Collective) -> usize {
        self.set_slices_from.unwrap_or(self.row(collective).slices_from)
    }

    /// Vectors that peers reach are worked on where they are from here on.
    pub(crate) fn lent_from(&self, collective: Collective) -> usize {
        self.set_lent_from.unwrap_or(self.row(collective).lent_from)
    }

    /// Who reduces in the form `slice`: every rank its slice, if that form or its length is set.
    pub(crate) fn reducers(&self, collective: Collective) -> Reducers {
        if self.slices_are_set() { Reducers::Each } else { self.row(collective).reducers }
    }

    /// True if each rank writes its results to all ranks' vectors, if these are mapped.
    pub(crate) fn writes_for_all(&self, collective: Collective, bytes: usize) -> bool {
        let pays = || !self.slices_are_set();
        collective == Collective::Allreduce && self.for_all_max_bytes.map_or_else(pays, |most| bytes <= most)
    }

    fn slices_are_set(&self) -> bool {
        self.forced.is_some() || self.set_slices_from.is_some()
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

    /// True if the last cache holds so many `vectors` of all ranks.
    pub(crate) fn keep_in_cache(&self, vectors: usize, bytes: usize) -> bool {
        bytes < self.beyond_caches_from().div_ceil(vectors)
    }

    /// Largest payload of which `spans` can be in flight at a time.
    pub(crate) fn largest(&self, spans: usize) -> usize {
        (self.cells / spans) * self.cell_bytes - gap_bytes(self.own_cores)
    }
}

#[cfg(test)]
mod tests;
