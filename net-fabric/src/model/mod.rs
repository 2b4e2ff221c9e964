//! What collectives take on a machine that is only described: all ranks are simulated, each with the schedule and
//! the engine that it would really have. `docs/models.md` has the formulas.

pub mod closed;

use std::sync::Arc;

use crate::algorithm::{Algorithm, Collective, Shape, Topology};
use crate::engine::{Engine, Fingerprint, Handle, Key, Operands, Policy, Settings, Work};
use crate::error::{Error, Result};
use crate::schedule::Schedule;
use crate::transport::simulated::{Layout, Machine, Noise, Seconds, Simulated, Simulation};

/// Steps of all ranks together, at most: about 100 bytes are needed for each.
const MOST_STEPS: usize = 60_000_000;

/// One collective on one machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    /// Nodes and ranks.
    pub layout: Layout,
    /// What is done.
    pub collective: Collective,
    /// How.
    pub algorithm: Algorithm,
    /// The root of a bcast or reduce.
    pub root: usize,
    /// Bytes of the vector.
    pub bytes: usize,
    /// Bytes of a chunk.
    pub chunk_bytes: usize,
    /// In which order ranks take their steps.
    pub policy: Policy,
    /// Who is delayed.
    pub noise: Noise,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// When each rank was done; all began at 0.
    pub rank_s: Vec<Seconds>,
    /// Messages that were sent.
    pub messages: u64,
}

impl Prediction {
    /// When the last rank was done.
    #[must_use]
    pub fn seconds(&self) -> Seconds {
        self.rank_s.iter().copied().fold(0.0, f64::max)
    }
}

/// Simulates one collective.
///
/// # Errors
/// The algorithm does not apply, there would be too many steps, or the ranks wait for each other for ever.
pub fn simulate(machine: &Machine, case: &Case) -> Result<Prediction> {
    let schedules = schedules(machine, case)?;
    let (mut simulation, doors) = Simulation::new(machine.clone(), case.layout, case.noise)?;
    let mut ranks: Vec<Rank> =
        doors.into_iter().zip(schedules).map(|(door, schedule)| Rank::new(door, schedule)).collect();
    let mut left = ranks.len();
    while let Some(index) = simulation.next_rank() {
        let rank = &mut ranks[index];
        if rank.end_s.is_none() && rank.go_on(case.policy)? {
            rank.end_s = Some(simulation.now(index));
            left -= 1;
        }
    }
    if left > 0 {
        return Err(Error::InvalidArgument(format!("{left} of {} ranks wait for ever", ranks.len())));
    }
    let rank_s = ranks.iter().filter_map(|rank| rank.end_s).collect();
    Ok(Prediction { rank_s, messages: simulation.messages() })
}

/// Everybody's schedules.
fn schedules(machine: &Machine, case: &Case) -> Result<Vec<Arc<Schedule>>> {
    let ranks = case.layout.ranks();
    let nodes: Vec<usize> = (0..ranks).map(|rank| case.layout.node(rank)).collect();
    let sockets: Vec<usize> = (0..ranks).map(|rank| case.layout.socket(machine, rank)).collect();
    let topology = Topology::new(&[&nodes, &sockets]);
    let shape = Shape {
        size: ranks,
        root: case.root,
        bytes: case.bytes,
        element_bytes: if case.bytes.is_multiple_of(8) { 8 } else { 1 },
        chunk_bytes: case.chunk_bytes.max(1),
        topology: Some(&topology),
        ..Shape::default()
    };
    let build = |rank| {
        let schedule = case.algorithm.build(case.collective, &Shape { rank, ..shape });
        schedule.map_err(|reason| {
            let fits = |known: &Algorithm| known.applies(case.collective, &shape).is_ok();
            let fitting: Vec<_> = Algorithm::all().filter(fits).map(|known| known.to_string()).collect();
            let choose = if fitting.is_empty() { String::new() } else { format!("; choose {}", fitting.join(", ")) };
            let what = case.collective.name();
            Error::InvalidArgument(format!("no {what} by {}: {reason}{choose}", case.algorithm))
        })
    };
    // Roots and leaders have more to do than others: the least of three is typical.
    let mut typical = usize::MAX;
    for rank in [0, ranks / 2, ranks - 1] {
        typical = typical.min(build(rank)?.len());
        if rank == 0 && typical <= MOST_STEPS / ranks {
            break;
        }
    }
    if typical > MOST_STEPS / ranks {
        return Err(Error::InvalidArgument(format!(
            "{ranks} ranks with {typical} steps each are too many to simulate: {MOST_STEPS} in all are possible; take \
             larger chunks or fewer ranks"
        )));
    }
    (0..ranks).map(|rank| build(rank).map(Arc::new)).collect()
}

/// A simulated rank.
struct Rank {
    engine: Engine<Simulated>,
    /// What it is to begin with.
    schedule: Arc<Schedule>,
    handle: Option<Handle>,
    end_s: Option<Seconds>,
}

impl Rank {
    fn new(door: Simulated, schedule: Arc<Schedule>) -> Self {
        Self { engine: Engine::new(door, Settings::default()), schedule, handle: None, end_s: None }
    }

    /// Does all that can be done now; true if that was all.
    fn go_on(&mut self, policy: Policy) -> Result<bool> {
        let handle = match self.handle {
            Some(handle) => handle,
            None => self.start(policy)?,
        };
        while self.engine.progress()? {}
        self.engine.test(handle)
    }

    fn start(&mut self, policy: Policy) -> Result<Handle> {
        let work = Work {
            schedule: std::mem::take(&mut self.schedule),
            operands: Operands::null(),
            policy,
            key: Key { communicator: 0, sequence: 0 },
            fingerprint: Fingerprint::default(),
            part_of: None,
            group: None,
        };
        #[allow(unsafe_code)] // The engine wants a promise about memory, and there is none.
        // SAFETY: null operands on a transport that takes null.
        let handle = unsafe { self.engine.start(work) }?;
        self.handle = Some(handle);
        Ok(handle)
    }
}
