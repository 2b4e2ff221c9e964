//! What the engine would choose for a call, and why, in words that come from the code that decides.

mod copies;

use std::fmt;
use std::ops::Range;

use crate::coll::choice::{CROWD, Cut, CutBecause, Decision, Form, LEAST_CHUNK_BYTES, Terms};
use crate::coll::sm::{Hangs, keeps_order};
use crate::copy::{Method, Methods};
use crate::error::Result;
use crate::job::Load;
use crate::segment::layout::{INLINE_BYTES, annex_bytes, beside_bytes};
use crate::settings::Settings;
use crate::sys::{affinity, cache};
use crate::topo::{Hierarchy, Locality, binding_order};
use copies::reducers;
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
