//! How vectors are worked on: where they are or through cells, by whom, and by which stores and loads.

use super::{Circumstances, Point, Question};
use crate::coll::choice::{Cut, Form, Terms};
use crate::coll::operands::Lending;
use crate::coll::sm::{News, Shares};
use crate::coll::solo::pays_to_hand_on;
use crate::coll::{MAPPED_STEP_BYTES, lends};
use crate::copy::{Method, loads, stores};
use crate::settings::Settings;
use reduce_kernels::Collective;

impl Circumstances {
    /// How ranks work on each other's vectors at once.
    pub(super) fn jointly(&self, terms: &Terms, question: Question) -> [Point; 2] {
        let (parts, why) = match question.collective {
            Collective::Reduce => (
                "every rank reduces one, the root a longer one",
                "the root has its results where they belong, the others copy theirs there",
            ),
            Collective::Bcast if is_handed_on(terms, question) => (
                "every rank has one copied, and hands it on through its cells",
                "the kernel lets many ranks copy from one only in turn",
            ),
            Collective::Allreduce if is_handed_on(terms, question) => (
                "every rank reduces one, and hands it on through its cells",
                "from there results go past the caches, which do not hold all vectors; what the kernel writes does not",
            ),
            Collective::Bcast => (
                "the root writes one to all, who read the rest",
                "all copy at once; a root that goes on to something else writes none",
            ),
            _ => ("every rank reduces one, and writes it to all", "each vector is read once in all"),
        };
        let (how, because) = if question.mapped && self.shared {
            ("mapped", "peers can map them")
        } else {
            ("copied by the kernel", "peers cannot map private buffers")
        };
        let vectors = Point::new("vectors", format!("where they are, {how}"), because, "single_copy, methods");
        [Point::new("parts", parts, why, ""), vectors]
    }

    /// Whether vectors are worked on where they are.
    pub(super) fn copies(&self, terms: &Terms, form: Form, question: Question) -> (Point, bool) {
        let Question { collective, bytes, mapped, in_place, .. } = question;
        let what = "vectors";
        let cells = |why: String, change: &str| (Point::new(what, "through cells", why, change), false);
        if !lends(form, collective, bytes, in_place) {
            return cells("in place, a result would overwrite what peers have yet to read".to_owned(), "form=slice");
        }
        let set = self.settings.get("single_copy").unwrap_or_default();
        let long_enough = terms.long_enough_to_lend(collective);
        let has = |method| match method {
            Method::Shared => self.shared,
            Method::Cma => self.cma,
            Method::Cico => true,
        };
        match Lending::of(&self.settings, terms.lent_from(collective), has, bytes) {
            Lending::TooShort => cells(terms.too_short_to_lend(collective), "single_copy_min_bytes"),
            Lending::Never => cells("single_copy=never was set".to_owned(), "single_copy"),
            Lending::MethodOff(method) => {
                cells(format!("single_copy={set} needs the method {method}, which is off"), "methods, single_copy")
            }
            Lending::IfMapped if !mapped => cells(
                format!("single_copy={set}, and peers cannot map private buffers"),
                "buffers of alloc or han_malloc, or registered ones; single_copy",
            ),
            Lending::IfMapped => {
                let why = format!("single_copy={set}, peers map them, and {long_enough}");
                (Point::new(what, "where they are, mapped", why, "single_copy, single_copy_min_bytes"), true)
            }
            Lending::Wherever => {
                let how = if mapped && self.shared { "mapped" } else { "copied by the kernel" };
                let why = format!("single_copy={set}, and {long_enough}");
                (Point::new(what, format!("where they are, {how}"), why, "single_copy, single_copy_min_bytes"), true)
            }
        }
    }

    /// Which stores bring results to where they are wanted.
    pub(super) fn stores_of_results(&self, terms: &Terms, form: Form, question: Question, lent: bool) -> Point {
        let Question { collective, bytes, in_place, .. } = question;
        let what = "stores of results";
        let copied = match form {
            Form::Slice => match shares(terms, question, lent) {
                Shares::Slices => !(collective == Collective::Reduce && lent),
                Shares::ForAll => true,
                _ => false,
            },
            Form::Ring => !(collective == Collective::Reduce && lent),
            Form::Chain | Form::Joint => collective != Collective::Reduce,
            _ => collective == Collective::Bcast,
        };
        let is_joint = form == Form::Joint;
        if lent
            && !(question.mapped && terms.may_map)
            && (collective == Collective::Bcast || is_joint)
            && !(is_joint && is_handed_on(terms, question))
        {
            return Point::new(what, "the kernel's", "it copies", "");
        }
        if !copied {
            return Point::new(what, "no extra ones", "results are reduced into their place", "");
        }
        // What is in place was just read, and is in the caches.
        if goes_abroad(terms, form, question, lent) && (in_place || !terms.is_beyond_caches(bytes)) {
            // Of a bcast the root writes its part at once, of a reduction each what it has just reduced.
            let is_bcast = collective == Collective::Bcast;
            let what = if is_bcast { "the root's stores" } else { what };
            let most = if is_bcast { bytes } else { MAPPED_STEP_BYTES };
            return self.stores(what, most.min(bytes / terms.ranks), Some(terms.ranks - 1));
        }
        let is_out_of_cells = collective == Collective::Bcast && form == Form::Direct && !lent;
        if is_out_of_cells && !terms.is_beyond_caches(bytes) {
            let cut = Cut::new(terms, self.settings.chunk_bytes, form, collective, bytes);
            if let Some(point) = self.loads(what, bytes.min(cut.chunk_bytes)) {
                return point;
            }
        }
        let share = format!(
            "{} bytes, the last cache of {} shared by {} ranks",
            terms.beyond_caches_from(),
            terms.last_cache_bytes,
            terms.ranks
        );
        if terms.is_beyond_caches(bytes) {
            let value = match form {
                Form::Tree => "non-temporal, past the last cache, by ranks that hand nothing on",
                _ => "non-temporal, past the last cache",
            };
            Point::new(what, value, format!("at least {share}"), "last_cache_bytes")
        } else {
            Point::new(what, "ordinary", format!("fewer than {share}"), "last_cache_bytes")
        }
    }

    /// By which instructions what is worked on jointly comes to where it is wanted.
    pub(super) fn joint_copies(&self, terms: &Terms, question: Question) -> Vec<Point> {
        let Question { collective, bytes, .. } = question;
        let is_told = collective == Collective::Allreduce && is_handed_on(terms, question);
        if collective == Collective::Reduce || is_told {
            return Vec::new();
        }
        let mut points = vec![self.stores_of_results(terms, Form::Joint, question, true)];
        let is_read = collective == Collective::Bcast && goes_abroad(terms, Form::Joint, question, true);
        if is_read && !terms.is_beyond_caches(bytes) {
            points.extend(self.loads("the others' copies", bytes - bytes / terms.ranks));
        }
        points
    }

    /// How `bytes` of a bcast at a time are copied from where the root has them, if not always by vector loads.
    pub(super) fn loads(&self, what: &'static str, bytes: usize) -> Option<Point> {
        let (value, because) = loads::in_words(self.settings.string_stores, self.own_cores, bytes)?;
        Some(Point::new(what, value, because, "string_stores"))
    }

    /// The stores by which `bytes` at a time go to where peers read them.
    pub(super) fn stores(&self, what: &'static str, bytes: usize, abroad: Option<usize>) -> Point {
        let Settings { past_caches, string_stores, .. } = self.settings;
        let (value, because, change) = stores::in_words(past_caches, string_stores, bytes, abroad);
        Point::new(what, value, because, change)
    }
}

/// True if ranks that work jointly hand on their parts.
fn is_handed_on(terms: &Terms, question: Question) -> bool {
    let is_by_kernel = !(question.mapped && terms.may_map);
    is_by_kernel && pays_to_hand_on(terms, question.collective, question.bytes)
}

/// Who reduces in the form `slice` if all ranks' vectors are as in `question`.
fn shares(terms: &Terms, question: Question, lent: bool) -> Shares {
    let Question { collective, bytes, mapped, in_place, .. } = question;
    let news = News {
        all_are_reached: lent,
        all_are_mapped: lent && mapped && terms.may_map,
        any_is_lent_in_place: lent && in_place,
    };
    Shares::where_alike(terms, collective, bytes, news)
}

pub(super) fn reducers(terms: &Terms, question: Question, lent: bool) -> Point {
    let row = terms.row(question.collective);
    let (value, because) = match shares(terms, question, lent) {
        Shares::Slices | Shares::Unknown => {
            ("every rank a slice of each chunk", "each vector is read once in all".to_owned())
        }
        Shares::ForAll => (
            "every rank a slice of each chunk, which it writes to all",
            format!("all vectors are mapped, so that nothing is left to gather, which pays in {row}"),
        ),
        Shares::Root => ("the root", format!("it keeps up through cells in {row}")),
        Shares::Everybody => (
            "every rank all of it",
            format!("no line of a result is read by one and written by another, which pays in {row}"),
        ),
    };
    Point::new("reduced by", value, because, "for_all_max_bytes, slice_min_bytes, form")
}

/// True if ranks write results to peers' vectors, which are mapped.
fn goes_abroad(terms: &Terms, form: Form, question: Question, lent: bool) -> bool {
    match form {
        Form::Joint => question.mapped && terms.may_map,
        Form::Slice => shares(terms, question, lent) == Shares::ForAll,
        _ => false,
    }
}
