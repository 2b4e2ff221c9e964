//! A world of engines that are driven from one thread, in random order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use net_fabric::Result;
use net_fabric::algorithm::{Algorithm, Collective, Shape, Topology};
use net_fabric::engine::{Announced, Engine, Fingerprint, Handle, Key, Operands, Policy, Settings, Work};
use net_fabric::schedule::Schedule;
use net_fabric::transport::loopback::Options;
use net_fabric::transport::{Loopback, Transport};
use reduce_kernels::{Datatype, Op, Operator, UserOperator};

pub(crate) const DEADLINE: Duration = Duration::from_secs(300);

/// Numbers that are random enough.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 11) % limit as u64).unwrap()
    }
}

/// A collective operation that all ranks take part in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) collective: Collective,
    pub(crate) algorithm: Algorithm,
    pub(crate) policy: Policy,
    pub(crate) root: usize,
    pub(crate) count: usize,
    pub(crate) in_place: bool,
    pub(crate) commutative: bool,
    pub(crate) chunk_bytes: usize,
    pub(crate) slots: usize,
}

/// x -> a x + b modulo 2^16, as one number: composition does not commute.
pub(crate) fn compose(left: u32, right: u32) -> u32 {
    let (a, b, c, d) = (left >> 16, left & 0xffff, right >> 16, right & 0xffff);
    (a.wrapping_mul(c) & 0xffff) << 16 | (a.wrapping_mul(d).wrapping_add(b) & 0xffff)
}

/// One rank's part of a case: its vectors stay here until it has completed.
#[derive(Debug)]
pub(crate) struct Part {
    case: Case,
    rank: usize,
    size: usize,
    salt: usize,
    input: Vec<u32>,
    output: Vec<u32>,
    pub(crate) handle: Option<Handle>,
}

impl Case {
    fn value(self, rank: usize, index: usize, salt: usize) -> u32 {
        let mixed = (rank * 7919 + index * 104_729 + salt * 31 + 1).wrapping_mul(2_654_435_761);
        u32::try_from(mixed & 0xffff_ffff).unwrap()
    }

    fn vector(self, rank: usize, salt: usize) -> Vec<u32> {
        (0..self.count).map(|index| self.value(rank, index, salt)).collect()
    }

    /// What a rank must have as its output.
    fn expected(self, rank: usize, size: usize, salt: usize) -> Vec<u32> {
        let combine = |a: u32, b: u32| if self.commutative { a.wrapping_add(b) } else { compose(a, b) };
        let all = || {
            let at = |index| (0..size).map(|from| self.value(from, index, salt)).reduce(combine).unwrap();
            (0..self.count).map(at).collect()
        };
        match self.collective {
            Collective::Bcast => self.vector(self.root, salt),
            Collective::Allreduce => all(),
            Collective::Reduce if rank == self.root => all(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn part(self, rank: usize, size: usize, salt: usize) -> Part {
        let own = self.vector(rank, salt);
        let blank = vec![0xdead_beef; self.count];
        let (input, output) = match self.collective {
            Collective::Barrier => (Vec::new(), Vec::new()),
            Collective::Bcast => (Vec::new(), if rank == self.root { own } else { blank }),
            Collective::Allreduce if self.in_place => (Vec::new(), own),
            Collective::Allreduce => (own, blank),
            Collective::Reduce if rank != self.root => (own, Vec::new()),
            Collective::Reduce if self.in_place => (Vec::new(), own),
            Collective::Reduce => (own, blank),
        };
        Part { case: self, rank, size, salt, input, output, handle: None }
    }

    /// With a topology of two nodes, the first being the larger.
    fn with_shape<R>(self, rank: usize, size: usize, then: impl FnOnce(&Shape<'_>) -> R) -> R {
        let nodes: Vec<usize> = (0..size).map(|rank| usize::from(rank > size / 2)).collect();
        let topology = Topology::new(&[&nodes]);
        then(&Shape {
            rank,
            size,
            root: self.root,
            bytes: 4 * self.count,
            element_bytes: 4,
            chunk_bytes: self.chunk_bytes,
            slots: self.slots,
            in_place: self.in_place,
            commutative: self.commutative,
            topology: Some(&topology),
        })
    }

    pub(crate) fn schedule(self, rank: usize, size: usize) -> Schedule {
        self.with_shape(rank, size, |shape| self.algorithm.build(self.collective, shape)).unwrap()
    }

    /// Whether the algorithm does that at all.
    pub(crate) fn exists(self, size: usize) -> bool {
        self.with_shape(0, size, |shape| self.algorithm.applies(self.collective, shape)).is_ok()
    }

    fn operator(self) -> Op {
        if self.commutative { Operator::Sum.into() } else { UserOperator::elementwise::<u32>(false, compose).into() }
    }
}

impl Part {
    pub(crate) fn start<T: Transport>(&mut self, engine: &mut Engine<T>, key: Key) {
        self.handle = Some(self.try_start(engine, key).unwrap());
    }

    pub(crate) fn try_start<T: Transport>(&mut self, engine: &mut Engine<T>, key: Key) -> Result<Handle> {
        self.start_in(engine, key, None)
    }

    /// In a communicator of these ranks of the world.
    pub(crate) fn start_in<T: Transport>(
        &mut self,
        engine: &mut Engine<T>,
        key: Key,
        group: Option<Arc<[u32]>>,
    ) -> Result<Handle> {
        self.start_work(engine, key, group, None)
    }

    /// As a part of a call that was announced.
    pub(crate) fn start_as<T: Transport>(
        &mut self,
        engine: &mut Engine<T>,
        key: Key,
        call: Announced,
    ) -> Result<Handle> {
        self.start_work(engine, key, None, Some(call))
    }

    fn start_work<T: Transport>(
        &mut self,
        engine: &mut Engine<T>,
        key: Key,
        group: Option<Arc<[u32]>>,
        part_of: Option<Announced>,
    ) -> Result<Handle> {
        let Self { case, rank, size, .. } = *self;
        let work = Work {
            schedule: Arc::new(case.schedule(rank, size)),
            operands: self.operands(),
            policy: case.policy,
            key,
            fingerprint: Fingerprint([case.collective as u64 | (case.root as u64) << 8, case.count as u64]),
            part_of,
            group,
        };
        // SAFETY: the vectors stay in this part, which is kept until the operation has completed or failed.
        unsafe { engine.start(work) }
    }

    fn operands(&mut self) -> Operands {
        let (input_bytes, output_bytes) = (4 * self.input.len(), 4 * self.output.len());
        Operands::new(self.input.as_ptr().cast(), input_bytes, self.output.as_mut_ptr().cast(), output_bytes)
            .reduced_by(self.case.operator(), Datatype::Uint32)
    }

    pub(crate) fn check(&self) {
        let Self { case, rank, size, salt, .. } = self;
        assert_eq!(self.output, case.expected(*rank, *size, *salt), "output of rank {rank} of {size}: {case:?}");
        if !self.input.is_empty() {
            assert_eq!(self.input, case.vector(*rank, *salt), "input of rank {rank} of {size}: {case:?}");
        }
    }
}

pub(crate) fn world(size: usize, options: Options, settings: Settings) -> Vec<Engine<Loopback>> {
    Loopback::world(size, options).into_iter().map(|rank| Engine::new(rank, settings)).collect()
}

/// Runs cases on a new world, each rank in the order of the list, all ranks in random order and as many operations
/// outstanding as chance has it.
pub(crate) fn run(cases: &[Case], size: usize, options: Options, settings: Settings, seed: u64) {
    let mut engines = world(size, options, settings);
    let mut random = Random(seed | 1);
    let mut parts: Vec<Vec<Part>> =
        (0..size).map(|rank| (0..).zip(cases).map(|(salt, case)| case.part(rank, size, salt)).collect()).collect();
    let (mut started, mut left) = (vec![0; size], size * cases.len());
    let deadline = Instant::now() + DEADLINE;
    while left > 0 {
        let rank = random.below(size);
        let (engine, own) = (&mut engines[rank], &mut parts[rank]);
        if started[rank] < own.len() && random.below(4) == 0 {
            let index = started[rank];
            // Every other operation is on another communicator.
            let key = Key { communicator: u16::try_from(index % 2).unwrap(), sequence: u32::try_from(index).unwrap() };
            own[index].start(engine, key);
            started[rank] += 1;
        }
        engine.progress().unwrap();
        if random.below(8) == 0 {
            for part in own.iter_mut().filter(|part| part.handle.is_some()) {
                if engine.test(part.handle.unwrap()).unwrap() {
                    part.handle = None;
                    left -= 1;
                    part.check();
                }
            }
        }
        if Instant::now() > deadline {
            let hanging = |part: &&Part| part.handle.is_some();
            let hanging: Vec<_> = parts.iter().flatten().filter(hanging).map(|p| (p.rank, p.salt, p.case)).collect();
            panic!("{left} parts of {size} ranks hang: {hanging:?}");
        }
    }
    assert!(engines.iter().all(|engine| engine.outstanding() == 0));
}
