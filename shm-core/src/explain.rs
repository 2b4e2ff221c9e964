//! What the engine would choose for a call, and why, in words that come from the code that decides.

use std::fmt;
use std::ops::Range;

use crate::coll::choice::{CROWD, Cut, CutBecause, Decision, Form, LEAST_CHUNK_BYTES, Terms};
use crate::coll::operands::Lending;
use crate::coll::sm::{Hangs, News, Shares, keeps_order};
use crate::coll::solo::pays_to_hand_on;
use crate::coll::{MAPPED_STEP_BYTES, lends};
use crate::copy::{Method, Methods, loads, stores};
use crate::error::Result;
use crate::job::Load;
use crate::segment::layout::{INLINE_BYTES, annex_bytes, beside_bytes};
use crate::settings::Settings;
use crate::sys::{affinity, cache};
use crate::topo::{Hierarchy, Locality, binding_order};
use reduce_kernels::{Collective, Folding};

/// What choices depend on beside the call, the same on all ranks.
#[derive(Debug, Clone)]
pub struct Circumstances {
    /// The ranks, and who is near whom.
    pub hierarchy: Hierarchy,
    /// Every rank has a core to itself.
    pub own_cores: bool,
    /// All ranks can use the method `shared`.
    pub shared: bool,
    /// All ranks can use the method `cma`.
    pub cma: bool,
    /// All ranks reach all of each other's memory: by `cma`, or as threads of one process.
    pub everywhere: bool,
    /// Size of the last cache.
    pub last_cache_bytes: usize,
    /// The settings.
    pub settings: Settings,
}

/// A call to explain; all ranks' buffers are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// The collective.
    pub collective: Collective,
    /// Length of a rank's vector.
    pub bytes: usize,
    /// The root, from which trees hang.
    pub root: usize,
    /// The buffers lie in memory that peers can map.
    pub mapped: bool,
    /// Results take the place of what is sent.
    pub in_place: bool,
    /// How the contributions may be folded, if it reduces.
    pub folding: Folding,
}

/// The answer: what is chosen, point by point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What was asked.
    pub question: Question,
    /// Number of ranks.
    pub ranks: usize,
    /// Every rank has a core to itself.
    pub own_cores: bool,
    /// Module and form, as [`LocalComm::choice`](crate::LocalComm::choice) gives it.
    pub choice: &'static str,
    /// Form, chunks, copies.
    pub points: Vec<Point>,
}

/// One choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Point {
    /// What is chosen, for instance `chunks`.
    pub what: &'static str,
    /// The choice.
    pub value: String,
    /// What has decided it.
    pub because: String,
    /// What would change it: settings by their keys, or else in words; empty if nothing would.
    pub change: String,
}

impl Point {
    /// One choice, from words.
    pub fn new(
        what: &'static str,
        value: impl Into<String>,
        because: impl Into<String>,
        change: impl Into<String>,
    ) -> Self {
        Self { what, value: value.into(), because: because.into(), change: change.into() }
    }
}

impl Circumstances {
    /// Those of `ranks` on one node, of a job that `han run` would start here, with the methods of another job here.
    ///
    /// # Errors
    /// This process's cores cannot be read, or a topology is set that describes no machine.
    pub fn here(ranks: Range<usize>, settings: Settings, methods: &Methods) -> Result<Self> {
        let cores = binding_order(affinity::allowed_cores()?);
        let bound: Vec<&[usize]> = cores.chunks(1).cycle().skip(ranks.start).take(ranks.len()).collect();
        let load = Load::new(bound.iter().copied(), affinity::cgroup_quota());
        let locality = Locality::agree(&Locality::card(0, ranks.len(), &settings), &bound, &settings)?;
        Ok(Self {
            hierarchy: locality.hierarchy().clone(),
            own_cores: load.gives_own_cores(&settings),
            shared: methods.has(Method::Shared),
            cma: methods.has(Method::Cma),
            everywhere: methods.has(Method::Cma),
            last_cache_bytes: cache::last_level_bytes(),
            settings,
        })
    }

    /// Explains what would be done.
    #[must_use]
    pub fn explain(&self, question: Question) -> Explanation {
        let mut question = question;
        if question.collective == Collective::Barrier {
            question.bytes = 0;
        }
        let reduces = question.collective.reduces();
        question.in_place &= reduces;
        question.folding = if reduces { question.folding } else { Folding::Free };
        let Question { collective, bytes, .. } = question;
        let terms = Terms::new(self);
        let mut decision = terms.decide(collective, bytes, || question.folding);
        let mut points = Vec::new();
        if decision == Decision::Together && !terms.likely_joint(collective, bytes) {
            let (because, change) = terms.because(decision, collective, bytes);
            points.push(Point::new("tried now and then", Form::Joint.name(), because, change));
            decision = terms.decide_by_chunks(collective, bytes);
        }
        let mut form = decision.form();
        let (mut because, change) = terms.because(decision, collective, bytes);
        if form == Form::Chain && question.mapped && self.copies(&terms, form, question).1 {
            form = Form::Slice;
            because =
                format!("if all vectors are mapped, as here, they are reduced where they are; else chain: {because}");
        }
        points.insert(0, Point::new("form", form.name(), because, change));
        let mut lent = false;
        match form {
            Form::Alone => {}
            Form::Flat => points.extend(self.payload(&terms, question)),
            Form::Tree if bytes <= INLINE_BYTES => {
                points.push(self.tree(&terms, question));
                points.push(beside_flag(bytes, INLINE_BYTES));
            }
            Form::Joint => {
                lent = true;
                points.extend(self.jointly(&terms, question));
                points.extend(self.joint_copies(&terms, question));
            }
            Form::Tree | Form::Direct | Form::Slice | Form::Ring | Form::Chain => {
                if form == Form::Tree {
                    points.push(self.tree(&terms, question));
                }
                let cut = Cut::new(&terms, self.settings.chunk_bytes, form, collective, bytes);
                let (copies, reached) = self.copies(&terms, form, question);
                lent = reached;
                if collective == Collective::Bcast && form != Form::Tree && lent {
                    points.push(Point::new("chunks", "none", "the first step tells where the root's vector is", ""));
                } else {
                    points.push(chunks(cut, bytes));
                }
                points.push(copies);
                if !lent {
                    points.push(self.stores("stores into cells", bytes.min(cut.chunk_bytes), None));
                }
                match form {
                    Form::Chain if terms.own_cores => points.push(Point::new(
                        "reduced by",
                        "all ranks, along a tree",
                        "each adds its part to the sums of two others, in cells that its cache holds",
                        "",
                    )),
                    Form::Chain if terms.ranks >= CROWD => points.push(Point::new(
                        "reduced by",
                        "the root",
                        "a sum that is handed on would wait for a turn at each of so many ranks",
                        "",
                    )),
                    Form::Chain => points.push(Point::new(
                        "reduced by",
                        "all ranks, core by core",
                        "the sum of a core stays in its caches while its ranks hand it on; the root adds up those of all cores",
                        "",
                    )),
                    Form::Slice => {
                        points.push(reducers(&terms, question, lent));
                    }
                    Form::Ring => points.push(Point::new(
                        "reduced by",
                        "all ranks, a slice after the other",
                        "each adds its part to the sums of the rank before it",
                        "",
                    )),
                    _ => {}
                }
                points.push(self.stores_of_results(&terms, form, question, lent));
            }
        }
        let (ranks, own_cores) = (terms.ranks, self.own_cores);
        Explanation { question, ranks, own_cores, choice: form.choice(lent), points }
    }

    /// What the tree of a call follows, and from whom it hangs.
    fn tree(&self, terms: &Terms, question: Question) -> Point {
        let Question { collective, root, folding, .. } = question;
        let hangs = Hangs::of(collective, root, terms.levels, folding);
        let follows_levels = terms.levels && (hangs != Hangs::InOrder || keeps_order(&self.hierarchy));
        let follows = if follows_levels { format!("along {}", self.hierarchy) } else { "in eights".to_owned() };
        let value = match hangs {
            Hangs::From(top) => format!("from rank {top} {follows}"),
            Hangs::InOrder => format!("from rank 0 {follows}, in rank order"),
            Hangs::FromNobody => {
                "none: ranks hear of 1, 2, 4 and more others, round by round (dissemination)".to_owned()
            }
        };
        let why = match (follows_levels, terms.levels) {
            (true, _) => "each level is entered once, by its leader or the root",
            (false, true) => "along the machine's levels it would not keep rank order",
            (false, false) => "the machine has one level",
        };
        Point::new("tree", value, why, "topology")
    }

    /// Where a payload of at most a cell travels, and how it comes there.
    fn payload(&self, terms: &Terms, question: Question) -> Vec<Point> {
        let bytes = question.bytes;
        let beside = beside_bytes(terms.ranks, terms.own_cores);
        if bytes <= beside {
            return vec![beside_flag(bytes, beside)];
        }
        let annex_bytes = annex_bytes(terms.ranks);
        if bytes <= annex_bytes {
            let why = format!("more than {beside} bytes, at most {annex_bytes}");
            return vec![Point::new("payload", "in its slot's annex", why, "")];
        }
        let why = format!("more than {} bytes, at most {}", annex_bytes.max(beside), terms.cell_bytes);
        vec![Point::new("payload", "in one cell", why, ""), self.stores("stores into cells", bytes, None)]
    }

    /// How ranks work on each other's vectors at once.
    fn jointly(&self, terms: &Terms, question: Question) -> [Point; 2] {
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
    fn copies(&self, terms: &Terms, form: Form, question: Question) -> (Point, bool) {
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
    fn stores_of_results(&self, terms: &Terms, form: Form, question: Question, lent: bool) -> Point {
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
    fn joint_copies(&self, terms: &Terms, question: Question) -> Vec<Point> {
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
    fn loads(&self, what: &'static str, bytes: usize) -> Option<Point> {
        let (value, because) = loads::in_words(self.settings.string_stores, self.own_cores, bytes)?;
        Some(Point::new(what, value, because, "string_stores"))
    }

    /// The stores by which `bytes` at a time go to where peers read them.
    fn stores(&self, what: &'static str, bytes: usize, abroad: Option<usize>) -> Point {
        let Settings { past_caches, string_stores, .. } = self.settings;
        let (value, because, change) = stores::in_words(past_caches, string_stores, bytes, abroad);
        Point::new(what, value, because, change)
    }
}

fn chunks(cut: Cut, bytes: usize) -> Point {
    if bytes <= cut.chunk_bytes {
        let why = format!("the vector is no longer than a chunk of {} bytes", cut.chunk_bytes);
        return Point::new("chunks", "one", why, "chunk_bytes");
    }
    let number = bytes.div_ceil(cut.chunk_bytes);
    let because = match cut.because {
        CutBecause::Set => "chunk_bytes was set".to_owned(),
        CutBecause::Parts(parts, most) => {
            format!("1/{parts} of the message, within {LEAST_CHUNK_BYTES} and {most}")
        }
        CutBecause::Halves => "two chunks, so that ranks with a core each copy in and out at once".to_owned(),
        CutBecause::Ring => "more would not fit into the cells that may be in flight".to_owned(),
    };
    Point::new("chunks", format!("{number} of {} bytes", cut.chunk_bytes), because, "chunk_bytes")
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

fn reducers(terms: &Terms, question: Question, lent: bool) -> Point {
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

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Question { collective, bytes, mapped, in_place, folding, .. } = self.question;
        write!(f, "{collective}")?;
        if collective != Collective::Barrier {
            let place = if in_place { ", in place" } else { "" };
            let order = if folding == Folding::Free { "" } else { ", in rank order" };
            write!(f, " of {bytes} bytes in {} buffers{place}{order}", if mapped { "shared" } else { "private" })?;
        }
        let cores = if self.own_cores { "a core each" } else { "shared cores" };
        let ranks = if self.ranks == 1 { "rank" } else { "ranks" };
        writeln!(f, ", {} {ranks} with {cores}: {}", self.ranks, self.choice)?;
        let width = self.points.iter().map(|point| point.what.len()).max().unwrap_or(0);
        for Point { what, value, because, change } in &self.points {
            writeln!(f, "{what:width$}  {value}: {because}")?;
            if !change.is_empty() {
                writeln!(f, "{:width$}  (changed by {change})", "")?;
            }
        }
        Ok(())
    }
}

/// A payload in the line of its flag, or the one behind it, where `most` fit.
fn beside_flag(bytes: usize, most: usize) -> Point {
    if bytes == 0 {
        return Point::new("payload", "none", "a flag says all", "");
    }
    Point::new("payload", "beside the flag", format!("at most {most} bytes"), "")
}

#[cfg(test)]
mod tests;
