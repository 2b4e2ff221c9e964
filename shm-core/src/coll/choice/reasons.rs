//! Why a form was chosen, in words, and which settings would change it.

use crate::coll::choice::Decision;
use crate::coll::choice::table::{CROWD, short_slices_bytes};
use crate::coll::choice::{Form, Terms};
use crate::segment::layout::INLINE_BYTES;
use reduce_kernels::Collective;

impl Terms {
    /// Why `decision` was taken for `bytes`, and the settings that would change it.
    pub(crate) fn because(&self, decision: Decision, collective: Collective, bytes: usize) -> (String, String) {
        let Self { ranks, cell_bytes, trees_from, .. } = *self;
        let change = |key: &str| format!("{key}, form");
        match decision {
            Decision::OneRank => ("there is one rank: its contribution is the result".to_owned(), String::new()),
            Decision::Forced { asked, form } if asked == form => (format!("form={asked} was set"), "form".to_owned()),
            Decision::Forced { asked, form } => {
                let (why, change) = self.cannot(asked, collective, bytes);
                (format!("form={asked} was set, but {why}; {form} is the next that can carry this"), change.to_owned())
            }
            Decision::FewRanks => {
                let payload = format!("at most a cell of {cell_bytes} bytes goes in one step");
                (format!("{payload}; trees are for {trees_from} ranks and more"), change("tree_min_ranks"))
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
            Decision::NoRoundedSums => {
                ("the partial sums of a tree would be rounded to 16 bits".to_owned(), String::new())
            }
            Decision::ManyRanks => {
                (format!("{ranks} ranks with a core each are {trees_from} or more"), change("tree_min_ranks"))
            }
            Decision::ShortSlices => {
                let least = short_slices_bytes(collective);
                let who = if collective == Collective::Reduce { "the root" } else { "each rank" };
                let much = format!("{ranks} vectors of {bytes} bytes have {least} or more together");
                (format!("{much}, which without slices {who} would read"), change("slice_min_bytes"))
            }
            Decision::Together => {
                let otherwise = self.decide_by_chunks(collective, bytes).form();
                let who = "all ranks have a core and reach all of each other's memory";
                (format!("{who}, and trials decide between that and {otherwise}"), change("single_copy, methods"))
            }
            Decision::ManyLevels => (
                format!(
                    "{ranks} ranks with a core each are {trees_from} or more, and near ones may read from their leaders"
                ),
                change("tree_min_ranks"),
            ),
            Decision::Bcast => {
                (format!("more than a cell of {cell_bytes} bytes is pipelined; a bcast has no slices"), String::new())
            }
            Decision::RootKeepsUp => (
                format!("the root keeps up through cells in {}, and no vectors may be mapped", self.row(collective)),
                change("methods, single_copy"),
            ),
            Decision::TooShortToShare => {
                (format!("{bytes} bytes are less than {}", self.slices_in_words(collective)), change("slice_min_bytes"))
            }
            Decision::Crowd => (
                format!("{CROWD} ranks or more share few cores, where the root is done before all have had a turn"),
                change("slice_min_bytes"),
            ),
            Decision::HandedOn => {
                let row = self.row(collective);
                let pays = format!("from which on it pays to hand sums on in {row}");
                (format!("{bytes} bytes are at least {}, {pays}", row.chains_from), change("slice_min_bytes"))
            }
            Decision::LongEnough => {
                (format!("{bytes} bytes are at least {}", self.slices_in_words(collective)), change("slice_min_bytes"))
            }
        }
    }

    /// Why the form `asked` was refused `bytes`, and the settings that would change it: the conditions of
    /// [`nearest`](Self::nearest) in words.
    fn cannot(&self, asked: Form, collective: Collective, bytes: usize) -> (String, &'static str) {
        let no_partial_sums =
            |what| (format!("HAN_REPRODUCIBLE=1 forbids the partial sums of {what}"), "form, HAN_REPRODUCIBLE");
        match asked {
            Form::Tree if collective.reduces() && self.reproducible => no_partial_sums("a tree"),
            Form::Tree if collective.reduces() && bytes <= INLINE_BYTES => {
                ("the partial sums of a tree would be rounded to 16 bits".to_owned(), "form")
            }
            Form::Tree if collective.reduces() => {
                (format!("trees of reductions carry what fits beside a flag, {INLINE_BYTES} bytes"), "form")
            }
            Form::Tree => {
                let short = format!("trees carry what fits beside a flag, {INLINE_BYTES} bytes");
                (format!("{short}, and longer bcasts only where the machine has several levels"), "form, topology")
            }
            _ if bytes == 0 => ("there is no data to cut into parts".to_owned(), "form"),
            Form::Slice => ("only reductions have slices".to_owned(), "form"),
            Form::Ring if !collective.reduces() => ("only reductions go round a ring".to_owned(), "form"),
            Form::Ring if self.reproducible => no_partial_sums("a ring"),
            Form::Chain if !collective.reduces() => ("only reductions have sums to hand on".to_owned(), "form"),
            Form::Chain if self.reproducible => no_partial_sums("a chain"),
            Form::Chain if !self.hand_on => {
                let needs = "a chain needs a core for each rank, or few cores with several ranks bound to each, and not single_copy=by_kernel";
                (needs.to_owned(), "form, single_copy")
            }
            Form::Ring | Form::Chain => {
                let needs = "partial sums are for operators that commute, and not for sums of floats of 16 bits";
                (needs.to_owned(), "form")
            }
            Form::Joint => {
                let needs = "it works in all ranks' own vectors, which not all ranks can or may reach";
                (needs.to_owned(), "form, methods, single_copy")
            }
            Form::Alone | Form::Flat | Form::Direct => {
                (format!("it carries at most a cell of {} bytes", self.cell_bytes), "form")
            }
        }
    }

    /// From where on the form is `slice`, and who says so.
    fn slices_in_words(&self, collective: Collective) -> String {
        let from = self.slices_from(collective);
        match self.set_slices_from {
            Some(_) => format!("slice_min_bytes={from}"),
            None => format!("{from}, from which on slices pay in {}", self.row(collective)),
        }
    }

    /// Why a vector is too short to be lent.
    pub(crate) fn too_short_to_lend(&self, collective: Collective) -> String {
        let from = self.lent_from(collective);
        match self.set_lent_from {
            Some(_) => format!("fewer bytes than single_copy_min_bytes={from}"),
            None => format!("fewer bytes than {from}, from which on it pays to lend in {}", self.row(collective)),
        }
    }

    /// Why a vector is long enough to be lent.
    pub(crate) fn long_enough_to_lend(&self, collective: Collective) -> String {
        match (self.set_lent_from, self.lent_from(collective)) {
            (Some(from), _) => format!("they have single_copy_min_bytes={from} or more"),
            (None, from) => format!("it pays from {from} bytes on in {}", self.row(collective)),
        }
    }
}
