//! The measurement: every rank runs the same loop, the slowest rank's time counts.
//!
//! For each size the result is checked before the clock starts, and after every timed repeat the
//! very buffers that were timed are checked again, on every rank; between repeats the contents
//! change and the receive buffers are made wrong, so that nothing can pass by standing still.

use std::time::{Duration, Instant};

use han::{Collective, Communicator, Datatype, Operator};
use reduce_kernels::say;
use shm_core::sys::clock::now_ns;
use shm_core::topo::binding_order;

use super::vectors::{self, SEEDS, Vectors};
use super::{Memory, Result, Style};
use crate::limits;
use crate::numbers::median;

/// Fewest iterations in a repeat, however long one takes.
const LEAST_ITERATIONS: f64 = 3.0;
/// Most iterations in a repeat.
const MOST_ITERATIONS: f64 = 1e6;
/// Words of the core mask: 1024 cores, as in the kernel's own.
const MASK_WORDS: usize = 16;
/// How late a rank comes to a barrier that is checked, and how far clocks of two cores may differ.
const LATE: Duration = Duration::from_micros(100);
/// See [`LATE`].
const CLOCK_SKEW_NS: u64 = 1_000;

/// What to measure, and how.
pub(super) struct Plan {
    pub(super) collective: Collective,
    pub(super) datatype: Datatype,
    pub(super) operator: Operator,
    pub(super) root: usize,
    pub(super) style: Style,
    pub(super) cold: bool,
    pub(super) buffers: usize,
    pub(super) memory: Memory,
    pub(super) repeats: u32,
    pub(super) repeat_time: Duration,
    pub(super) counts: Vec<usize>,
}

/// The result for one size.
pub(super) struct Point {
    pub(super) bytes: usize,
    pub(super) choice: String,
    pub(super) iterations: u32,
    pub(super) us_min: f64,
    pub(super) us_median: f64,
    pub(super) us_max: f64,
    pub(super) verified: bool,
}

/// The cores that any rank may use, ascending; the same list on every rank.
pub(super) fn common_cores(communicator: &Communicator) -> Result<Vec<usize>> {
    let mut mask = [0u64; MASK_WORDS];
    for core in shm_core::sys::affinity::allowed_cores()? {
        if let Some(word) = mask.get_mut(core / 64) {
            *word |= 1 << (core % 64);
        }
    }
    communicator.allreduce_in_place(&mut mask, Operator::Bor)?;
    Ok((0..MASK_WORDS * 64).filter(|core| mask[core / 64] >> (core % 64) & 1 == 1).collect())
}

/// One-way latency in nanoseconds between the cores of ranks 0 and 1, if it can be measured; known to rank 0 only. The
/// other ranks sleep meanwhile, so that they do not take part in what they wait for.
pub(super) fn probe(communicator: &Communicator, cores: &[usize]) -> Result<Option<f64>> {
    quiet_barrier(communicator)?;
    let mut found = None;
    if communicator.rank() == 0
        && let [first, second, ..] = *binding_order(cores.to_vec())
    {
        let note = |error: &_| say(&format!("han bench: the distance of the cores is not known: {error}"));
        found = limits::one_way_ns((first, second)).inspect_err(note).ok();
    }
    quiet_barrier(communicator)?;
    Ok(found)
}

fn quiet_barrier(communicator: &Communicator) -> Result<()> {
    let mut request = communicator.ibarrier()?;
    while !request.test()? {
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// Measures all sizes of the plan.
pub(super) fn run(communicator: &Communicator, plan: &Plan) -> Result<Vec<Point>> {
    let largest = plan.counts.iter().copied().max().unwrap_or(0);
    let mut vectors = vectors::new(communicator, plan, largest)?;
    let size = |&count: &usize| Size::new(communicator, plan, &mut *vectors, count).measure();
    plan.counts.iter().map(size).collect()
}

/// What happens while single operations are timed.
pub(super) trait Around {
    /// The clock of the operation with this number has just started.
    fn begun(&mut self, number: usize, at: Instant);
    /// It has stopped.
    fn ended(&mut self);
}

/// Times so many operations of the plan's first size, one by one, each after a barrier. This rank's seconds, what is
/// chosen, and whether all results were right, on all ranks.
pub(super) fn singly(
    communicator: &Communicator,
    plan: &Plan,
    operations: usize,
    around: &mut impl Around,
) -> Result<(Vec<f64>, String, bool)> {
    let count = plan.counts.first().copied().unwrap_or(0);
    let mut vectors = vectors::new(communicator, plan, count)?;
    let mut size = Size::new(communicator, plan, &mut *vectors, count);
    let (mut seconds, mut right) = (Vec::new(), true);
    for number in 0..operations {
        let seed = number % SEEDS.len();
        size.prepare(seed);
        communicator.barrier()?;
        let start = Instant::now();
        around.begun(number, start);
        size.call(0)?;
        seconds.push(start.elapsed().as_secs_f64());
        around.ended();
        right &= size.is_right(0, seed);
    }
    Ok((seconds, size.choice()?, size.all(right)?))
}

/// The measurement of one size.
struct Size<'a> {
    communicator: &'a Communicator,
    plan: &'a Plan,
    vectors: &'a mut dyn Vectors,
    bytes: usize,
}

impl<'a> Size<'a> {
    fn new(communicator: &'a Communicator, plan: &'a Plan, vectors: &'a mut dyn Vectors, count: usize) -> Self {
        vectors.set_count(count);
        Self { communicator, plan, vectors, bytes: count * plan.datatype.size() }
    }

    fn measure(&mut self) -> Result<Point> {
        let mut right = self.barrier_holds()?;
        for seed in 0..SEEDS.len() {
            self.prepare(seed);
            for slot in 0..self.plan.buffers {
                self.call(slot)?;
                right &= self.is_right(slot, seed);
            }
        }
        let iterations = self.calibrate()?;
        let mut times_us = Vec::new();
        for repeat in 0..self.plan.repeats as usize {
            let seed = repeat % SEEDS.len();
            self.prepare(seed);
            let seconds = self.repeat(iterations)?;
            times_us.push(self.slowest(seconds / f64::from(iterations))? * 1e6);
            right &= self.last_are_right(iterations, seed);
        }
        right &= self.barrier_holds()?;
        times_us.sort_by(f64::total_cmp);
        Ok(Point {
            bytes: self.bytes,
            choice: self.choice()?,
            iterations,
            us_min: times_us.first().copied().unwrap_or(0.0),
            us_median: median(&times_us),
            us_max: times_us.last().copied().unwrap_or(0.0),
            verified: self.all(right)?,
        })
    }

    /// How many iterations make a repeat of the planned time; the same number on every rank. A stall may make the first few
    /// long: they count only where as many as are returned took about that long, or a few took much longer.
    fn calibrate(&mut self) -> Result<u32> {
        let target = self.plan.repeat_time.as_secs_f64();
        let mut iterations = 1.0f64;
        loop {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within the bounds
            let number = iterations as u32;
            // The better of two, so that one disturbance does not end the search.
            let seconds = self.whole_repeat(number)?.min(self.whole_repeat(number)?);
            let fitting = (target / seconds * iterations).clamp(LEAST_ITERATIONS, MOST_ITERATIONS);
            let is_near = seconds > target / 2.0 && fitting < 2.0 * iterations;
            if is_near || seconds > 4.0 * target || iterations >= MOST_ITERATIONS {
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within the bounds
                return Ok(fitting as u32);
            }
            iterations = fitting.ceil().min(4.0 * iterations);
        }
    }

    /// Seconds that a repeat takes with all its barriers and rewriting, on the slowest rank.
    fn whole_repeat(&mut self, iterations: u32) -> Result<f64> {
        let start = Instant::now();
        self.repeat(iterations)?;
        self.slowest(start.elapsed().as_secs_f64())
    }

    /// Seconds that this rank spent in `iterations` operations.
    fn repeat(&mut self, iterations: u32) -> Result<f64> {
        let one_by_one = self.plan.style == Style::Osu;
        let mut slot = 0;
        let mut seconds = 0.0;
        self.communicator.barrier()?;
        let start = Instant::now();
        for iteration in 0..iterations {
            if one_by_one {
                if self.plan.cold {
                    self.rewrite(slot, iteration as usize % SEEDS.len());
                }
                self.communicator.barrier()?;
                let start = Instant::now();
                self.call(slot)?;
                seconds += start.elapsed().as_secs_f64();
            } else {
                self.call(slot)?;
            }
            slot += 1;
            if slot == self.plan.buffers {
                slot = 0;
            }
        }
        Ok(if one_by_one { seconds } else { start.elapsed().as_secs_f64() })
    }

    /// The operation itself.
    #[inline]
    fn call(&mut self, slot: usize) -> han::Result<()> {
        let communicator = self.communicator;
        self.vectors.call(slot, &mut |call| communicator.run(call))
    }

    /// What the library chooses for it.
    fn choice(&mut self) -> Result<String> {
        let mut choice = String::new();
        self.vectors.call(0, &mut |call| {
            choice = self.communicator.choice(call);
            Ok(())
        })?;
        Ok(choice)
    }

    /// Writes what this rank gives into every slot, and what is certainly wrong where it receives.
    fn prepare(&mut self, seed: usize) {
        for slot in 0..self.plan.buffers {
            self.vectors.spoil(slot, seed);
            self.rewrite(slot, seed);
        }
    }

    /// Writes what this rank gives, if it gives anything.
    fn rewrite(&mut self, slot: usize, seed: usize) {
        if self.plan.collective != Collective::Bcast || self.communicator.rank() == self.plan.root {
            self.vectors.give(slot, seed);
        }
    }

    /// Whether the slots that the last repeat used hold what they must.
    fn last_are_right(&self, iterations: u32, seed: usize) -> bool {
        let used = (iterations as usize).min(self.plan.buffers);
        if !self.plan.cold {
            return (0..used).all(|slot| self.is_right(slot, seed));
        }
        // Rewritten slots hold the contents of their own last iteration.
        let last = iterations as usize - 1;
        (0..used).all(|back| {
            let iteration = last - back;
            self.is_right(iteration % self.plan.buffers, iteration % SEEDS.len())
        })
    }

    /// Whether this rank received in `slot` what the model says.
    fn is_right(&self, slot: usize, seed: usize) -> bool {
        let receives = self.plan.collective.gives_result(self.communicator.rank(), self.plan.root);
        !receives || self.vectors.are_right(slot, seed)
    }

    /// Whether no rank leaves a barrier before the last one has come, each being the late one once.
    fn barrier_holds(&self) -> Result<bool> {
        let mut holds = true;
        if self.plan.collective == Collective::Barrier {
            for late in 0..self.communicator.size() {
                if late == self.communicator.rank() {
                    std::thread::sleep(LATE);
                }
                let mut came = [now_ns()];
                self.communicator.barrier()?;
                let mut left = [now_ns()];
                self.communicator.allreduce_in_place(&mut came, Operator::Max)?;
                self.communicator.allreduce_in_place(&mut left, Operator::Min)?;
                holds &= left[0] + CLOCK_SKEW_NS > came[0];
            }
        }
        Ok(holds)
    }

    /// The greatest of all ranks' values, on every rank.
    fn slowest(&self, seconds: f64) -> Result<f64> {
        let mut value = [seconds];
        self.communicator.allreduce_in_place(&mut value, Operator::Max)?;
        Ok(value[0])
    }

    /// Whether it holds on all ranks, on every rank.
    fn all(&self, holds: bool) -> Result<bool> {
        let mut value = [u8::from(holds)];
        self.communicator.allreduce_in_place(&mut value, Operator::Min)?;
        Ok(value[0] == 1)
    }
}
