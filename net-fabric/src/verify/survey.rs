//! Proves algorithms for many ranks, roots, lengths and chunks, and reports.

use std::fmt;

use super::{Fault, Proof, verify};
use crate::algorithm::{Algorithm, Collective, Shape, Topology, Tree};
use crate::schedule::{Action, Schedule, Step};

/// What is proved of one algorithm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// What is done.
    pub collective: Collective,
    /// How.
    pub algorithm: Algorithm,
    /// Cases that were looked at: a number of ranks, a root, a length, a form of the operands.
    pub cases: usize,
    /// Among them such with operators that do not commute; such an algorithm keeps rank order.
    pub ordered: usize,
    /// Steps and messages of all cases.
    pub proof: Proof,
    /// The first case that failed, in words.
    pub fault: Option<String>,
}

/// What was proved.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// One row for each collective and algorithm.
    pub rows: Vec<Row>,
}

/// Which cases are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Survey {
    /// Numbers of ranks, from 1 to this; all roots of each.
    pub ranks: usize,
    /// Numbers of chunks (of a block, for algorithms that cut the vector into blocks), from 1 to this.
    pub chunks: usize,
    /// Above so many ranks, not all roots are looked at with all numbers of chunks.
    pub many_ranks: usize,
}

impl Survey {
    /// All of 1 to 64 ranks, up to 5 chunks, all roots: half a minute of a core.
    pub const FULL: Self = Self { ranks: 64, chunks: 5, many_ranks: usize::MAX };

    /// The same with fewer cases above 16 ranks.
    pub const QUICK: Self = Self { many_ranks: 16, ..Self::FULL };
}

/// All pairs of a collective and an algorithm for it.
pub fn pairs() -> impl Iterator<Item = (Collective, Algorithm)> {
    let topology = Topology::new(&[&[0]]);
    let applies = move |collective, algorithm: Algorithm| {
        let shape = Shape { topology: Some(&topology), ..Shape::default() };
        algorithm.applies(collective, &shape).is_ok()
    };
    Collective::ALL
        .into_iter()
        .flat_map(|collective| Algorithm::all().map(move |algorithm| (collective, algorithm)))
        .filter(move |&(collective, algorithm)| applies(collective, algorithm))
}

impl Survey {
    /// Proves one algorithm for all cases.
    #[must_use]
    pub fn prove(&self, collective: Collective, algorithm: Algorithm) -> Row {
        let mut row = Row::new(collective, algorithm);
        let rooted = collective.has_root();
        for size in 1..=self.ranks {
            let topology = places(size);
            for chunks in 1..=self.chunks {
                let mut first_roots = Vec::new();
                for root in
                    (0..if rooted { size } else { 1 }).filter(|root| self.covers(algorithm, (size, *root, chunks)))
                {
                    for shape in shapes(collective, algorithm, (size, root, chunks), &topology) {
                        row.look_at_turned(&shape, &mut first_roots);
                        if row.fault.is_some() {
                            return row;
                        }
                    }
                }
            }
        }
        row
    }

    /// Whether a case is looked at. Of many ranks, roots other than 0 have one number of chunks each, in turns;
    /// how many are many, the field says, and half as many for algorithms whose steps grow with the ranks.
    fn covers(&self, algorithm: Algorithm, (size, root, chunks): (usize, usize, usize)) -> bool {
        let long = matches!(algorithm, Algorithm::ScatterRing | Algorithm::ScatterDoubling);
        let many = if long { self.many_ranks / 2 } else { self.many_ranks };
        root == 0 || size <= many || (root + size) % self.chunks + 1 == chunks
    }

    /// Proves all algorithms, two at a time; `progress` hears of each that is done.
    #[must_use]
    pub fn run(&self, progress: impl Fn(&Row) + Sync) -> Report {
        self.run_on(&pairs().collect::<Vec<_>>(), progress)
    }

    /// As [`run`](Self::run), for these algorithms.
    #[must_use]
    pub fn run_on(&self, pairs: &[(Collective, Algorithm)], progress: impl Fn(&Row) + Sync) -> Report {
        let next = std::sync::atomic::AtomicUsize::new(0);
        let rows = std::sync::Mutex::new(vec![None; pairs.len()]);
        let worker = || {
            while let Some((index, &(collective, algorithm))) = {
                let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                pairs.get(index).map(|pair| (index, pair))
            } {
                let row = self.prove(collective, algorithm);
                progress(&row);
                rows.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[index] = Some(row);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(worker);
            worker();
        });
        let rows = rows.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        Report { rows: rows.into_iter().flatten().collect() }
    }
}

/// What was proved for root 0: in place or not, the schedules, and how much.
type FirstRoot = (bool, Vec<Schedule>, Proof);

impl Row {
    /// A row without cases.
    #[must_use]
    pub fn new(collective: Collective, algorithm: Algorithm) -> Self {
        Self { collective, algorithm, cases: 0, ordered: 0, proof: Proof::default(), fault: None }
    }

    /// Proves one case more.
    pub fn look_at(&mut self, shape: &Shape<'_>) {
        let outcome = self.build(shape).and_then(|schedules| verify(self.collective, shape, &schedules));
        self.add(shape, outcome);
    }

    /// As [`look_at`](Self::look_at). Where no rank but the root is special, it is enough that the schedules are those
    /// for root 0 with all ranks renumbered, which are proved when they are needed first.
    fn look_at_turned(&mut self, shape: &Shape<'_>, first_roots: &mut Vec<FirstRoot>) {
        let turns = match (self.collective, self.algorithm) {
            (_, Algorithm::Tree(Tree::Topology(_))) => false,
            (Collective::Bcast, _) => true,
            (Collective::Reduce, Algorithm::Tree(tree)) => shape.commutative && tree != Tree::Linear,
            _ => false,
        };
        if !turns {
            return self.look_at(shape);
        }
        let outcome = self.proof_of_first_root(shape, first_roots).and_then(|at| {
            let (_, firsts, proof) = &first_roots[at];
            let schedules = self.build(shape)?;
            for (rank, schedule) in schedules.iter().enumerate() {
                let first = &firsts[(rank + shape.size - shape.root) % shape.size];
                if !is_turned(first, schedule, shape.root, shape.size) {
                    let reason = "has another schedule than its counterpart with root 0".into();
                    return Err(Fault { rank, step: None, reason });
                }
            }
            Ok(*proof)
        });
        self.add(shape, outcome);
    }

    /// Where the schedules for root 0 are.
    fn proof_of_first_root(&self, shape: &Shape<'_>, known: &mut Vec<FirstRoot>) -> Result<usize, Fault> {
        if let Some(at) = known.iter().position(|(in_place, ..)| *in_place == shape.in_place) {
            return Ok(at);
        }
        let shape = &Shape { root: 0, ..*shape };
        let schedules = self.build(shape)?;
        let proof = verify(self.collective, shape, &schedules)?;
        known.push((shape.in_place, schedules, proof));
        Ok(known.len() - 1)
    }

    fn build(&self, shape: &Shape<'_>) -> Result<Vec<Schedule>, Fault> {
        let build = |rank| {
            let schedule = self.algorithm.build(self.collective, &Shape { rank, ..*shape });
            schedule.map_err(|reason| Fault { rank, step: None, reason: format!("has no schedule: {reason}") })
        };
        (0..shape.size).map(build).collect()
    }

    fn add(&mut self, shape: &Shape<'_>, outcome: Result<Proof, Fault>) {
        match outcome {
            Ok(proof) => {
                self.cases += 1;
                self.ordered += usize::from(!shape.commutative);
                self.proof.steps += proof.steps;
                self.proof.messages += proof.messages;
            }
            Err(fault) => self.fault = Some(format!("{fault} ({shape:?})")),
        }
    }
}

/// Whether a schedule is another one with `by` added to each peer.
fn is_turned(one: &Schedule, other: &Schedule, by: usize, size: usize) -> bool {
    let turned = |peer: u32| u32::try_from((peer as usize + by) % size).expect("a rank");
    one.len() == other.len()
        && one.scratch_bytes() == other.scratch_bytes()
        && one.steps().zip(other.steps()).all(|(one, other)| {
            let action = match one.action {
                Action::Send { peer, message, from } => Action::Send { peer: turned(peer), message, from },
                Action::Receive { peer, message, into } => Action::Receive { peer: turned(peer), message, into },
                local => local,
            };
            other == Step { action, ..one }
        })
}

/// Nodes of 6 ranks with sockets of 4 and 2, the last one smaller, in order.
pub(super) fn places(size: usize) -> Topology {
    let level = |borders: fn(usize) -> usize| (0..size).map(borders).collect::<Vec<_>>();
    Topology::new(&[&level(|rank| rank / 6), &level(|rank| rank % 6 / 4)])
}

const ELEMENT_BYTES: usize = 8;

/// The shapes of one case: with and without an operator that commutes where that makes a difference.
pub(super) fn shapes<'a>(
    collective: Collective,
    algorithm: Algorithm,
    (size, root, chunks): (usize, usize, usize),
    topology: &'a Topology,
) -> impl Iterator<Item = Shape<'a>> {
    let blocks = match algorithm {
        Algorithm::Tree(_)
        | Algorithm::RecursiveDoubling
        | Algorithm::Smp
        | Algorithm::Nap
        | Algorithm::Dissemination => 1,
        // Each slice is cut once more, for the nodes.
        Algorithm::Leaders(leaders) => topology.nodes().len() * topology.least_node().min(leaders as usize),
        Algorithm::ScatterRing | Algorithm::ScatterDoubling | Algorithm::Ring | Algorithm::Rabenseifner => size,
    };
    // Chunks of two elements, of which the last has one. Of blocks, the last ones have an element less.
    let elements = blocks * (2 * chunks - 1) - blocks / 3;
    let elements = if collective == Collective::Barrier { 0 } else { elements };
    let shape = Shape {
        rank: 0,
        size,
        root,
        bytes: elements * ELEMENT_BYTES,
        element_bytes: ELEMENT_BYTES,
        chunk_bytes: 2 * ELEMENT_BYTES,
        slots: 1 + chunks % 3,
        in_place: (root + chunks).is_multiple_of(2),
        commutative: false,
        topology: Some(topology),
    };
    let by_order = collective == Collective::Reduce && algorithm != Algorithm::Tree(Tree::Linear) && root > 0;
    let ordered = algorithm.applies(collective, &shape).is_ok() && collective != Collective::Bcast;
    let commutative = (by_order || !ordered).then_some(Shape { commutative: true, ..shape });
    ordered.then_some(shape).into_iter().chain(commutative)
}

impl Report {
    /// Whether all was proved.
    #[must_use]
    pub fn is_proof(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|row| row.fault.is_none())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<10} {:<20} {:>8} {:>14} {:>12}",
            "collective", "algorithm", "cases", "in rank order", "messages"
        )?;
        for Row { collective, algorithm, cases, ordered, proof, fault } in &self.rows {
            write!(f, "{collective:<10} {algorithm:<20} {cases:>8} {ordered:>14} {:>12}", proof.messages)?;
            match fault {
                Some(fault) => writeln!(f, "  WRONG: {fault}")?,
                None => writeln!(f, "  proved")?,
            }
        }
        Ok(())
    }
}
