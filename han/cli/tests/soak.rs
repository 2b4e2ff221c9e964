//! A long series of random operations on random groups of ranks, against an independent serial model.
//!
//! All ranks draw the same decisions from the same seed, so each knows what every other contributes
//! and computes the expected results by itself, element by element, in rank order.
#![allow(unsafe_code, clippy::unwrap_used)] // a type of its own promises its layout; in a test a panic is the report

#[path = "run/random.rs"]
mod random;

use std::env;
use std::fmt::Debug;
use std::process::{Command, exit};
use std::time::{SystemTime, UNIX_EPOCH};

use han::{Communicator, Context, Datatype, Element, Op, Operator, Request, UserOperator, wait_all};
use random::{Random, mix};

/// Groups alive at a time, the world included.
const MAX_GROUPS: usize = 6;

const RANK_ROLE: &str = "HAN_TEST_SOAK";
const SEED: &str = "HAN_TEST_SEED";
/// Operations under each of the settings; where the variable is set, so many instead.
const OPERATIONS: &str = "HAN_TEST_OPERATIONS";
const ON_A_NODE: usize = 2_500;
const OVER_NODES: usize = 600;

#[test]
fn random_operations_equal_a_serial_model() {
    let settings = [
        "",
        "chunk_bytes=4096,slice_min_bytes=1000",
        "assume_own_cores=1,tree_min_ranks=2,spins=10",
        "spins=0,yields=0",
    ];
    soak(5, 1, ON_A_NODE, &settings);
}

#[test]
fn so_they_do_over_nodes() {
    let settings = [
        "",
        "segment_bytes=2048,leaders=2",
        "intra_module=solo,segment_bytes=16384,inter_allreduce_algorithm=ir+ib",
        "nodes_form=flat,inter_chunk_bytes=4096",
        "inter_policy=wait_all,segment_bytes=8192",
        "nodes_form=flat,inter_policy=wait_all,inter_chunk_bytes=1000",
    ];
    soak(7, 4, OVER_NODES, &settings);
    soak(8, 4, OVER_NODES, &["inter_allreduce_algorithm=nap"]);
}

#[test]
fn so_they_do_by_allreduces_that_know_nodes() {
    // Three nodes, each of two ranks or more: no power of them.
    let settings = [
        "inter_algorithm=nap",
        "inter_algorithm=nap,inter_policy=wait_all,inter_chunk_bytes=4096",
        "inter_algorithm=smp,inter_policy=blocking,inter_chunk_bytes=4096",
        "inter_algorithm=leaders-2,inter_policy=wait_all,inter_chunk_bytes=1000",
    ];
    soak(8, 3, OVER_NODES, &settings);
}

/// A series of random operations by `ranks` ranks on `nodes` nodes under each of the settings.
fn soak(ranks: usize, nodes: usize, operations: usize, settings: &[&str]) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let seed = env::var(SEED).map_or(now, |seed| seed.parse().unwrap());
    let operations = env::var(OPERATIONS).unwrap_or_else(|_| operations.to_string());
    for (series, settings) in settings.iter().enumerate() {
        let seed = (seed + series as u64).to_string();
        println!("{SEED}={seed} {OPERATIONS}={operations} HAN_SET={settings}");
        let output = Command::new(env!("CARGO_BIN_EXE_han"))
            .args(["run", "-n", &ranks.to_string(), "--nodes", &nodes.to_string(), "--timeout", "1000", "--"])
            .arg(env::current_exe().unwrap())
            .args(["play_a_rank", "--exact", "--ignored", "--nocapture", "--quiet"])
            .envs([(RANK_ROLE, "1"), (SEED, &seed), (OPERATIONS, &operations)])
            .envs([("HAN_SET", settings), ("HAN_WATCHDOG", &"20")])
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "seed {seed}, HAN_SET={settings}: {}\n{stderr}\n{stdout}", output.status);
        let checked = format!("checked {operations} operations");
        assert_eq!(stderr.matches(&checked).count(), ranks, "{stderr}");
    }
}

#[test]
#[ignore = "a rank of the other test, which starts it under the launcher"]
fn play_a_rank() {
    if env::var_os(RANK_ROLE).is_none() {
        return;
    }
    let context = Context::init().unwrap();
    let number = |name: &str| env::var(name).unwrap().parse().unwrap();
    let operations = usize::try_from(number(OPERATIONS)).unwrap();
    let mut soak = Soak::new(&context, number(SEED), operations);
    while soak.number < operations {
        soak.step();
    }
    soak.groups.clear();
    context.finalize().unwrap();
    eprintln!("checked {} operations", soak.number);
    exit(0);
}

/// Of which every bit pattern is a value, so that results are exact.
trait Value: Element + Debug + PartialEq {
    fn of(bits: u64) -> Self;
    fn combine(self, other: Self, how: How) -> Self;

    fn op(how: How) -> Op {
        match how {
            How::Builtin(operator) => operator.into(),
            How::Compose => UserOperator::elementwise::<Self>(false, |a, b| a.combine(b, How::Compose)).into(),
        }
    }
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Value for $type {
            #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // random bits
            fn of(bits: u64) -> Self { bits as $type }

            fn combine(self, other: Self, how: How) -> Self {
                match how {
                    How::Builtin(Operator::Sum) => self.wrapping_add(other),
                    How::Builtin(Operator::Prod) => self.wrapping_mul(other),
                    How::Builtin(Operator::Min) => self.min(other),
                    How::Builtin(Operator::Max) => self.max(other),
                    How::Builtin(Operator::Band) => self & other,
                    How::Builtin(Operator::Bor) => self | other,
                    How::Builtin(Operator::Bxor) => self ^ other,
                    How::Builtin(Operator::Land) => <$type>::from(self != 0 && other != 0),
                    How::Builtin(Operator::Lor) => <$type>::from(self != 0 || other != 0),
                    How::Builtin(Operator::Lxor) => <$type>::from((self != 0) != (other != 0)),
                    How::Builtin(_) => unreachable!("for pairs only"),
                    // As two halves (a, b), the map x -> a x + b modulo 2^half; this is their
                    // composition, which is associative and does not commute.
                    How::Compose => {
                        let half = <$type>::BITS / 2;
                        let low = (1 << half) - 1;
                        let (a, b, c, d) = ((self >> half) & low, self & low, (other >> half) & low, other & low);
                        (a.wrapping_mul(c) & low) << half | (a.wrapping_mul(d).wrapping_add(b) & low)
                    }
                }
            }
        }
    )*};
}
integers!(i8, i16, i32, i64, u8, u16, u32, u64);

/// Bytes of which the first one is the slope of a map and the others what it adds: they belong together.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(transparent)]
struct Record<const BYTES: usize>([u8; BYTES]);

// SAFETY: as many bytes, plain data without padding.
unsafe impl<const BYTES: usize> Element for Record<BYTES> {
    const DATATYPE: Datatype = Datatype::record_of::<Self>();
}

impl<const BYTES: usize> Value for Record<BYTES> {
    fn of(bits: u64) -> Self {
        Self(std::array::from_fn(|at| bits.wrapping_mul(2 * at as u64 + 1).to_le_bytes()[7]))
    }

    /// Records have their own operator alone.
    fn combine(self, other: Self, _: How) -> Self {
        let (left, right) = (self.0, other.0);
        let shift = |at: usize| right[0].wrapping_mul(left[at]).wrapping_add(right[at]);
        Self(std::array::from_fn(|at| if at == 0 { left[0].wrapping_mul(right[0]) } else { shift(at) }))
    }

    fn op(how: How) -> Op {
        UserOperator::elementwise::<Self>(false, move |a, b| a.combine(b, how)).into()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Builtin(Operator),
    Compose,
}

const HOWS: [How; 12] = [
    How::Builtin(Operator::Sum),
    How::Builtin(Operator::Prod),
    How::Builtin(Operator::Min),
    How::Builtin(Operator::Max),
    How::Builtin(Operator::Band),
    How::Builtin(Operator::Bor),
    How::Builtin(Operator::Bxor),
    How::Builtin(Operator::Land),
    How::Builtin(Operator::Lor),
    How::Builtin(Operator::Lxor),
    How::Compose,
    How::Compose,
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Bcast { root: usize },
    Reduce { how: How, root: usize },
    Allreduce { how: How },
}

/// One operation as every rank draws it.
#[derive(Clone, Copy, Debug)]
struct Plan {
    what: What,
    count: usize,
    salt: u64,
}

impl Plan {
    /// What world rank `rank` holds before the operation.
    fn given<T: Value>(self, rank: usize) -> Vec<T> {
        (0..self.count as u64).map(|index| T::of(mix(self.salt ^ (rank as u64) << 48 ^ index << 1))).collect()
    }

    /// What rank `own` of the group `members` holds afterwards, in place.
    fn expected<T: Value>(self, members: &[usize], own: usize) -> Vec<T> {
        let all = || members.iter().map(|&member| self.given::<T>(member));
        let fold = |how: How| {
            let add = |left: Vec<T>, right: Vec<T>| left.iter().zip(right).map(|(&a, b)| a.combine(b, how)).collect();
            all().reduce(add).unwrap()
        };
        match self.what {
            What::Bcast { root } => self.given(members[root]),
            What::Reduce { root, .. } if root != own => self.given(members[own]),
            What::Reduce { how, .. } | What::Allreduce { how } => fold(how),
        }
    }
}

/// A group and the world ranks of its members, in its own order; of groups without this rank, none.
struct Group {
    comm: Option<Communicator>,
    members: Vec<usize>,
}

struct Soak {
    random: Random,
    groups: Vec<Vec<Group>>,
    world_rank: usize,
    number: usize,
    /// So many are to be done.
    operations: usize,
    /// Decisions that each rank takes for itself, such as the order of its waits.
    own: Random,
}

/// A request of any type with what its check needs.
struct Started<T: Value> {
    request: Request<Vec<T>>,
    plan: Plan,
    members: Vec<usize>,
    own: usize,
}

trait Pending {
    fn test(&mut self) -> bool;
    fn wait_and_check(self: Box<Self>);
}

impl<T: Value> Pending for Started<T> {
    fn test(&mut self) -> bool {
        self.request.test().unwrap()
    }

    fn wait_and_check(self: Box<Self>) {
        check(&self.request.wait().unwrap(), self.plan, &self.members, self.own);
    }
}

impl Soak {
    fn new(context: &Context, seed: u64, operations: usize) -> Self {
        let world = context.world();
        let whole = Group { comm: Some(world.clone()), members: (0..world.size()).collect() };
        let own = Random(seed ^ mix(world.rank() as u64 + 1));
        Self { random: Random(seed), groups: vec![vec![whole]], world_rank: world.rank(), number: 0, operations, own }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0 => self.split(),
            1 if self.groups.len() > 1 => {
                let index = 1 + self.random.below(self.groups.len() - 1);
                self.groups.remove(index).into_iter().filter_map(|group| group.comm).for_each(Communicator::free);
            }
            2..10 => self.barrier(),
            10..40 => self.outstanding(),
            _ => self.blocking(),
        }
    }

    /// Splits a random group, or copies it; its parts are one new entry.
    fn split(&mut self) {
        if self.groups.len() == MAX_GROUPS {
            self.groups.remove(1);
        }
        let from = self.random.below(self.groups.len());
        let colors = 1 + self.random.below(3);
        let is_copy = self.random.chance(20);
        let mut parts = Vec::new();
        for group in &self.groups[from] {
            // Each member's colour, or none, and key.
            let mut wish = || {
                let color = (!self.random.chance(10)).then(|| u32::try_from(self.random.below(colors)).unwrap());
                (color, i32::try_from(self.random.below(3)).unwrap() - 1)
            };
            let wishes: Vec<_> = group.members.iter().map(|_| if is_copy { (Some(0), 0) } else { wish() }).collect();
            let made = group.comm.as_ref().map(|comm| {
                let (color, key) = wishes[comm.rank()];
                if is_copy { Some(comm.dup().unwrap()) } else { comm.split(color, key).unwrap() }
            });
            let mut made = made.flatten();
            for color in 0..u32::try_from(colors).unwrap() {
                let mut members: Vec<_> = (0..wishes.len()).filter(|&rank| wishes[rank].0 == Some(color)).collect();
                members.sort_by_key(|&rank| wishes[rank].1);
                let members: Vec<_> = members.into_iter().map(|rank| group.members[rank]).collect();
                let comm = if members.contains(&self.world_rank) { Some(made.take().unwrap()) } else { None };
                if let Some(comm) = &comm {
                    assert_eq!((members[comm.rank()], members.len()), (self.world_rank, comm.size()));
                }
                if !members.is_empty() {
                    parts.push(Group { comm, members });
                }
            }
        }
        if !parts.is_empty() {
            self.groups.push(parts);
        }
    }

    fn count(&mut self, bytes_each: usize) -> usize {
        let boundaries = [0, 8, 56, 57, 120, 121, 1000, 4096, 8192, 16_384, 65_536, 262_144];
        match self.random.below(100) {
            0..60 => self.random.below(40),
            60..90 => {
                let most = if self.random.chance(15) { boundaries.len() } else { boundaries.len() - 3 };
                let bytes = boundaries[self.random.below(most)];
                (bytes / bytes_each + self.random.below(3)).saturating_sub(1)
            }
            90..99 => self.random.below(3000),
            _ => self.random.below(600_000) / bytes_each,
        }
    }

    fn plan(&mut self, size: usize, bytes_each: usize) -> Plan {
        let (root, how) = (self.random.below(size), self.random.pick(&HOWS));
        let what = match self.random.below(3) {
            0 => What::Bcast { root },
            1 => What::Reduce { how, root },
            _ => What::Allreduce { how },
        };
        self.number += 1;
        Plan { what, count: self.count(bytes_each), salt: self.random.next() }
    }

    fn barrier(&mut self) {
        self.number += 1;
        let index = self.random.below(self.groups.len());
        for comm in self.groups[index].iter().filter_map(|group| group.comm.as_ref()) {
            comm.barrier().unwrap();
        }
    }

    /// One operation on each part of a random entry.
    fn blocking(&mut self) {
        let index = self.random.below(self.groups.len());
        let number = self.number;
        for part in 0..self.groups[index].len() {
            let (kind, in_place) = (self.random.below(10), self.random.chance(50));
            let bytes_each = [1, 1, 2, 2, 4, 4, 8, 8, 24, 1000][kind];
            let plan = self.plan(self.groups[index][part].members.len(), bytes_each);
            let group = &self.groups[index][part];
            match kind {
                0 => group.run::<i8>(plan, in_place),
                1 => group.run::<u8>(plan, in_place),
                2 => group.run::<i16>(plan, in_place),
                3 => group.run::<u16>(plan, in_place),
                4 => group.run::<i32>(plan, in_place),
                5 => group.run::<u32>(plan, in_place),
                6 => group.run::<i64>(plan, in_place),
                7 => group.run::<u64>(plan, in_place),
                8 => group.run::<Record<24>>(plan, in_place),
                _ => group.run::<Record<1000>>(plan, in_place),
            }
        }
        self.number = number + 1;
    }

    /// Several operations under way on several groups, completed in an order of this rank's own.
    fn outstanding(&mut self) {
        let mut pending = Vec::new();
        let mut barriers = Vec::new();
        for _ in 0..(2 + self.random.below(5)).min(self.operations - self.number) {
            let index = self.random.below(self.groups.len());
            let is_barrier = self.random.chance(10);
            let number = self.number;
            for part in 0..self.groups[index].len() {
                let kind = self.random.below(4);
                let plan = self.plan(self.groups[index][part].members.len(), [1, 4, 8, 13][kind]);
                let group = &self.groups[index][part];
                match kind {
                    _ if is_barrier => barriers.extend(group.comm.iter().map(|comm| comm.ibarrier().unwrap())),
                    0 => pending.extend(group.start::<u8>(plan)),
                    1 => pending.extend(group.start::<i32>(plan)),
                    2 => pending.extend(group.start::<i64>(plan)),
                    _ => pending.extend(group.start::<Record<13>>(plan)),
                }
            }
            self.number = number + 1;
        }
        if self.own.chance(50) {
            wait_all(barriers.drain(..)).unwrap();
        }
        while !pending.is_empty() {
            let mut next = pending.swap_remove(self.own.below(pending.len()));
            if self.own.chance(50) {
                while !next.test() {
                    std::thread::yield_now();
                }
            }
            next.wait_and_check();
        }
        wait_all(barriers).unwrap();
    }
}

impl Group {
    fn run<T: Value>(&self, plan: Plan, in_place: bool) {
        let Some(comm) = &self.comm else { return };
        let own = comm.rank();
        let send = plan.given::<T>(self.members[own]);
        let mut recv = if in_place { send.clone() } else { vec![T::of(0); plan.count] };
        match plan.what {
            What::Bcast { root } => {
                recv.clone_from(&send);
                comm.bcast(&mut recv, root)
            }
            What::Reduce { how, root } if in_place => comm.reduce_in_place(&mut recv, T::op(how), root),
            What::Reduce { how, root } if root == own => comm.reduce(&send, &mut recv, T::op(how), root),
            What::Reduce { how, root } => {
                recv.clone_from(&send);
                comm.reduce(&send, &mut [], T::op(how), root)
            }
            What::Allreduce { how } if in_place => comm.allreduce_in_place(&mut recv, T::op(how)),
            What::Allreduce { how } => comm.allreduce(&send, &mut recv, T::op(how)),
        }
        .unwrap();
        check(&recv, plan, &self.members, own);
    }

    fn start<T: Value>(&self, plan: Plan) -> Option<Box<dyn Pending>> {
        let comm = self.comm.as_ref()?;
        let (own, members) = (comm.rank(), self.members.clone());
        let buffer = plan.given::<T>(members[own]);
        let request = match plan.what {
            What::Bcast { root } => comm.ibcast(buffer, root),
            What::Reduce { how, root } => comm.ireduce(buffer, T::op(how), root),
            What::Allreduce { how } => comm.iallreduce(buffer, T::op(how)),
        };
        Some(Box::new(Started { request: request.unwrap(), plan, members, own }))
    }
}

fn check<T: Value>(got: &[T], plan: Plan, members: &[usize], own: usize) {
    let expected = plan.expected::<T>(members, own);
    if got != expected {
        let at = got.iter().zip(&expected).position(|(a, b)| a != b);
        panic!("{plan:?} of {:?} on {members:?}, rank {own}: differs from element {at:?} on", T::DATATYPE);
    }
}
