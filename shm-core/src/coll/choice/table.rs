//! Which form pays from which length on: a table of what was measured, for vectors of more than a cell.
//! `shm-core/docs/choice.md` says why, with the numbers that decide.

use std::fmt;
use std::ops::RangeInclusive;

use reduce_kernels::Collective;

/// From so many ranks on small messages travel along trees, if every rank has a core; and where trees follow
/// several levels of the machine. Neither was measured: with 16 ranks on one level trees are slower.
pub(crate) const TREES_FROM: usize = 32;
pub(crate) const LEVELS_FROM: usize = 16;

/// Fewest bytes of a chunk: hides a flag's way.
pub(crate) const LEAST_CHUNK_BYTES: usize = 16 * KIB;
/// Most that may be set.
pub(crate) const MOST_SET_BYTES: usize = 128 * KIB;
/// Parts of a bcast that leaders hand on: the more there are, the earlier the last ranks begin.
pub(crate) const RELAYED_PARTS: usize = 16;
/// From so many bytes on a bcast that would be a single chunk goes in two, where ranks have a core each.
pub(crate) const LEAST_HALVED_BYTES: usize = 12 * KIB;

/// Shorter reductions than the table says go by slices from so many ranks on, if these have a core each, from so many bytes of all
/// ranks together on, and if there is a line of the vector for each: in an allreduce everybody would read as many, in a
/// reduce the root.
pub(crate) const SHORT_SLICES_RANKS: usize = 5;
pub(crate) const fn short_slices_bytes(collective: Collective) -> usize {
    match collective {
        Allreduce => 16 * KIB,
        Reduce => 72 * KIB,
        Bcast | Collective::Barrier => NEVER,
    }
}

/// From so many ranks on, if they share few cores, a root reduces alone, in chains, too: a sum that is handed on waits for a turn at
/// each rank. Of 24 ranks on 2 cores both took as long.
pub(crate) const CROWD: usize = 33;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
const NEVER: usize = usize::MAX;

/// What pays for some ranks in one collective.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) collective: Collective,
    pub(crate) ranks: RangeInclusive<usize>,
    pub(crate) cores: Cores,
    /// Vectors that peers map are worked on where they are from this length on; shorter ones go through cells.
    pub(crate) lent_from: usize,
    /// The form is `slice` from this length on, else `direct`.
    pub(crate) slices_from: usize,
    /// The form is `chain` from this length on where sums can be handed on.
    pub(crate) chains_from: usize,
    /// Who reduces in the form `slice`.
    pub(crate) reducers: Reducers,
    /// A message has so many chunks, within the bounds above.
    pub(crate) chunks: usize,
    /// To work jointly probably pays from this length on, where no trial has told yet.
    pub(crate) joint_from: usize,
}

/// Where the ranks run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cores {
    /// A core for each.
    Own,
    /// Several ranks on a core.
    Shared,
    Either,
}

/// Who reduces in the form `slice`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reducers {
    /// Every rank its slice.
    Each,
    /// Every rank its slice where all vectors are mapped, else the root everything.
    RootThroughCells,
    /// Every rank everything, while the last cache holds what all send and receive, unless a vector is in place and
    /// mapped; else its slice.
    Everybody,
}

use Collective::{Allreduce, Bcast, Reduce};
use Cores::{Either, Own, Shared};
use Reducers::{Each, Everybody, RootThroughCells};

#[rustfmt::skip]
const ROWS: [Row; 18] = [
    //                              lent_from  slices_from chains_from reducers          chunks  joint_from
    row(Bcast,     2..=2,   Own,    4 * KIB,   NEVER,      NEVER,      Each,             16,     32 * KIB),
    row(Bcast,     3..=4,   Own,    4 * KIB,   NEVER,      NEVER,      Each,             16,     NEVER),
    row(Bcast,     5..=256, Own,    4 * KIB,   NEVER,      NEVER,      Each,             2,      32 * MIB),
    row(Bcast,     2..=3,   Shared, 64 * KIB,  NEVER,      NEVER,      Each,             16,     NEVER),
    row(Bcast,     4..=4,   Shared, 256 * KIB, NEVER,      NEVER,      Each,             16,     NEVER),
    row(Bcast,     5..=256, Shared, 512 * KIB, NEVER,      NEVER,      Each,             16,     NEVER),
    row(Reduce,    2..=2,   Own,    4 * KIB,   32 * KIB,   NEVER,      RootThroughCells, 2,      32 * KIB),
    row(Reduce,    3..=3,   Own,    4 * KIB,   32 * KIB,   NEVER,      RootThroughCells, 2,      128 * KIB),
    row(Reduce,    4..=4,   Own,    4 * KIB,   8 * KIB,    NEVER,      Each,             2,      128 * KIB),
    row(Reduce,    5..=256, Own,    4 * KIB,   8 * KIB,    NEVER,      Each,             2,      512 * KIB),
    row(Reduce,    2..=4,   Shared, 128 * KIB, 256 * KIB,  4 * MIB,    RootThroughCells, 2,      NEVER),
    row(Reduce,    5..=5,   Shared, 128 * KIB, 128 * KIB,  4 * MIB,    RootThroughCells, 2,      NEVER),
    row(Reduce,    6..=256, Shared, 128 * KIB, 128 * KIB,  256 * KIB,  RootThroughCells, 2,      NEVER),
    row(Allreduce, 2..=2,   Either, 4 * KIB,   64 * KIB,   NEVER,      Everybody,        2,      32 * KIB),
    row(Allreduce, 3..=4,   Own,    4 * KIB,   8 * KIB,    NEVER,      Each,             2,      128 * KIB),
    row(Allreduce, 5..=256, Own,    8 * KIB,   8 * KIB,    NEVER,      Each,             2,      4 * MIB),
    row(Allreduce, 3..=4,   Shared, 16 * KIB,  32 * KIB,   2 * MIB,    Each,             2,      NEVER),
    row(Allreduce, 5..=256, Shared, 32 * KIB,  32 * KIB,   512 * KIB,  Each,             2,      NEVER),
];

#[allow(clippy::too_many_arguments)] // the columns
const fn row(
    collective: Collective,
    ranks: RangeInclusive<usize>,
    cores: Cores,
    lent_from: usize,
    slices_from: usize,
    chains_from: usize,
    reducers: Reducers,
    chunks: usize,
    joint_from: usize,
) -> Row {
    Row { collective, ranks, cores, lent_from, slices_from, chains_from, reducers, chunks, joint_from }
}

impl Row {
    /// Most bytes of a chunk: what the first caches hold. Of an allreduce all ranks write and all read, so that longer ones, for which
    /// they wait for each other less often, leave nobody idle.
    pub(crate) const fn most_chunk_bytes(&self) -> usize {
        match self.collective {
            Allreduce => 128 * KIB,
            _ => 64 * KIB,
        }
    }

    /// The row for `ranks`; a barrier, which has no vectors, goes as bcast does.
    pub(crate) fn of(collective: Collective, ranks: usize, own_cores: bool) -> &'static Self {
        let collective = if collective == Collective::Barrier { Bcast } else { collective };
        let fits = |row: &&Self| {
            row.collective == collective
                // A single rank has nothing to choose.
                && row.ranks.contains(&ranks.max(2))
                && row.cores != if own_cores { Shared } else { Own }
        };
        ROWS.iter().find(fits).unwrap_or_else(|| unreachable!("every rank count up to 256 has a row"))
    }
}

impl fmt::Display for Row {
    /// `reduce of 2 to 4 ranks on shared cores`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of ", self.collective)?;
        match (*self.ranks.start(), *self.ranks.end()) {
            (only, end) if only == end => write!(f, "{only} ranks")?,
            (least, 256) => write!(f, "{least} ranks or more")?,
            (least, most) => write!(f, "{least} to {most} ranks")?,
        }
        f.write_str(match self.cores {
            Own => " with a core each",
            Shared => " on shared cores",
            Either => "",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_row_and_no_other_is_for_every_number_of_ranks() {
        for collective in [Bcast, Reduce, Allreduce] {
            for ranks in 2..=256 {
                for cores in [Own, Shared] {
                    let fits = |row: &&Row| {
                        row.collective == collective
                            && row.ranks.contains(&ranks)
                            && [Either, cores].contains(&row.cores)
                    };
                    assert_eq!(ROWS.iter().filter(fits).count(), 1, "{collective} {ranks} {cores:?}");
                    assert_eq!(Row::of(collective, ranks, cores == Own).collective, collective);
                }
            }
        }
        assert_eq!(Row::of(Reduce, 3, false).to_string(), "reduce of 2 to 4 ranks on shared cores");
        assert_eq!(Row::of(Allreduce, 2, true).to_string(), "allreduce of 2 ranks");
        assert_eq!(Row::of(Bcast, 5, true).to_string(), "bcast of 5 ranks or more with a core each");
    }

    #[test]
    fn no_vector_is_lent_to_a_form_that_does_not_pay() {
        for row in &ROWS {
            // What is in slices for the sake of mapped vectors is so only where these are lent.
            assert!(row.reducers != RootThroughCells || row.slices_from >= row.lent_from, "{row}");
            assert!(row.collective != Bcast || row.slices_from == NEVER, "{row}");
        }
    }
}
