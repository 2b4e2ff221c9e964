//! Every collective over every way to reach a vector, between real processes: vectors in shared, registered and
//! ordinary memory, mixed among the ranks, in place on some; every root; counts around every threshold; each
//! result exact, whatever the copy method and the form.
#![allow(clippy::unwrap_used)] // in a test a panic is the report
#![allow(unsafe_code)] // begins operations on vectors that are borrowed for longer than the compiler can see

use std::path::PathBuf;
use std::process::{Command, exit};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{env, fs};

use han::{Call, Communicator, Context, Datatype, Op, Operator, Result, SharedVec, UserOperator};

const ROLE: &str = "HAN_TEST_METHODS";

/// Which methods carry the vectors that are long enough.
const METHODS: [(&str, &str); 4] = [
    ("shared", "single_copy=auto"),
    ("mixed", "single_copy=by_kernel"),
    ("cma", "single_copy=by_kernel,methods=cma"),
    ("cico", "single_copy=never"),
];
/// Which forms they take, and ranks: as a pair with a core each chooses by trial; jointly, with results past the caches and
/// in them; as the engine chooses, with results past the caches and in them; slices, also by the string instruction; none in
/// slices; round a ring; sums handed on core by core, and along a tree; bcasts by leaders, as on a machine with several levels.
const FORMS: [(&str, &[usize]); 12] = [
    ("assume_own_cores=1,spins=1", &[2]),
    ("form=joint,last_cache_bytes=1", &[2, 5]),
    ("form=joint,last_cache_bytes=1000000000", &[4]),
    ("past_caches=1,last_cache_bytes=1", &[2, 5]),
    ("last_cache_bytes=100000000", &[2, 3]),
    ("slice_min_bytes=0,single_copy_min_bytes=0,assume_own_cores=1,spins=1,chunk_bytes=4096", &[2, 3, 4]),
    ("slice_min_bytes=0,string_stores=1", &[2, 3]),
    ("slice_min_bytes=1000000000,past_caches=0", &[3]),
    ("form=ring,single_copy_min_bytes=0,last_cache_bytes=1", &[2, 4]),
    ("form=chain,topology=core:2,chunk_bytes=4096", &[4, 5]),
    ("form=chain,assume_own_cores=1,spins=1,chunk_bytes=4096", &[3, 5]),
    ("form=tree,single_copy_min_bytes=0,topology=pack:2 core:2", &[4, 5]),
];

/// Elements around what the thresholds are: single copies, reductions by slices, all cells in flight, results that stay
/// where they were reduced.
const COUNTS: [usize; 8] = [1023, 2047, 2048, 4096, 32_767, 32_769, 131_071, 140_003];
const MOST: usize = 140_003;
/// Where vectors begin in their memory, so that they are not aligned to lines or pages.
const OFFSET: usize = 3;

/// One job at a time: ranks of several would wait for each other's cores.
static ONE: Mutex<()> = Mutex::new(());

fn run(method: &str) {
    let (_, copies) = METHODS.iter().find(|(name, _)| *name == method).unwrap();
    for (form, &size) in FORMS.iter().flat_map(|(form, sizes)| sizes.iter().map(move |size| (form, size))) {
        play("play_a_rank", size, &format!("{copies},{form}"), "1");
    }
}

/// Starts `size` ranks that are the test `rank` of this program, with `role` in their environment.
fn play(rank: &str, size: usize, settings: &str, role: &str) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let output = Command::new(env!("CARGO_BIN_EXE_han"))
        .args(["run", "-n", &size.to_string(), "--timeout", "1000", "--"])
        .arg(env::current_exe().unwrap())
        .args([rank, "--exact", "--ignored", "--nocapture", "--quiet"])
        .envs([(ROLE, role), ("HAN_SET", settings)])
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{size} ranks, HAN_SET={settings}: {}\n{stderr}\n{stdout}", output.status);
    assert_eq!(stderr.matches("all is exact").count(), size, "{stderr}");
}

#[test]
fn shared_memory_is_exact() {
    run("shared");
}

#[test]
fn shared_memory_and_copies_by_the_kernel_are_exact() {
    run("mixed");
}

#[test]
fn copies_by_the_kernel_are_exact() {
    run("cma");
}

#[test]
fn copies_through_cells_are_exact() {
    run("cico");
}

#[test]
#[ignore = "a rank of the other tests, which start it under the launcher"]
fn play_a_rank() {
    if env::var_os(ROLE).is_none() {
        return;
    }
    let context = Context::init().unwrap();
    let mut ordinary = [pages(), pages()];
    let mut other = [pages(), pages()];
    let [first, second] = other.each_mut().map(|room| whole_pages(room));
    let mut test = |registered: [&mut [u64]; 2]| {
        let mut test = Test::new(&context, &mut ordinary, registered);
        for (number, &count) in COUNTS.iter().enumerate() {
            // All alike, then mixed in all ways in which neighbours differ; not every way at every count.
            for pattern in [number % 3, 3 + number % 3] {
                test.every_collective(count, pattern).unwrap();
            }
        }
        test.overlapping(20_001).unwrap();
    };
    context
        .with_registered(first, |first| context.with_registered(second, |second| test([first, second])))
        .unwrap()
        .unwrap();
    context.finalize().unwrap();
    eprintln!("all is exact");
    exit(0);
}

/// Readers of a bcast that the kernel copies need nobody who does something else meanwhile, be it the root or one of them.
#[test]
fn who_does_something_else_keeps_no_reader_of_a_bcast() {
    let seen = env::temp_dir().join(format!("han-methods-{}", std::process::id()));
    fs::create_dir(&seen).unwrap();
    play(
        "play_one_who_is_away",
        5,
        "form=joint,single_copy=by_kernel,methods=cma,timeout_s=60",
        seen.to_str().unwrap(),
    );
    fs::remove_dir_all(&seen).unwrap();
}

#[test]
#[ignore = "a rank of the test above, which starts it under the launcher"]
fn play_one_who_is_away() {
    let Some(seen) = env::var_os(ROLE).map(PathBuf::from) else { return };
    let context = Context::init().unwrap();
    let world = context.world().clone();
    let (rank, size) = (world.rank(), world.size());
    // The root is away, or a reader; the others wait in the call, or for what they have begun.
    for (round, (away, waits_in_call)) in [(1, true), (1, false), (3, true), (3, false)].into_iter().enumerate() {
        let root = 1;
        let mut vector = vec![0; MOST];
        fill(&mut vector, rank, round);
        world.barrier().unwrap();
        if rank != away && waits_in_call {
            world.bcast(&mut vector, root).unwrap();
        } else {
            let request = world.ibcast(vector, root).unwrap();
            let readers = (0..size).filter(|&one| one != away && one != root);
            let all_have_it = || readers.clone().all(|one| seen.join(format!("{round}-{one}")).exists());
            let patience = Instant::now() + Duration::from_secs(50);
            while rank == away && !all_have_it() {
                assert!(Instant::now() < patience, "a reader waits for rank {away}");
                sleep(Duration::from_millis(1));
            }
            vector = request.wait().unwrap();
        }
        exact(&vector, |index| value(root, index, round), || format!("bcast while rank {away} is away"));
        fs::write(seen.join(format!("{round}-{rank}")), "").unwrap();
    }
    context.finalize().unwrap();
    eprintln!("all is exact");
    exit(0);
}

/// Copies of one rank's ordinary memory take no room for those of all others, whose vectors are mapped.
#[test]
fn one_vector_in_ordinary_memory_takes_little_room() {
    play("play_one_of_many_mapped", 8, "form=joint,timeout_s=60", "1");
}

#[test]
#[ignore = "a rank of the test above, which starts it under the launcher"]
fn play_one_of_many_mapped() {
    const COUNT: usize = 8 << 18;
    if env::var_os(ROLE).is_none() {
        return;
    }
    let context = Context::init().unwrap();
    let world = context.world().clone();
    let (rank, size) = (world.rank(), world.size());
    let mut shared = [(), ()].map(|()| world.alloc::<u64>(if rank == 0 { 1 } else { COUNT }).unwrap());
    let mut ordinary = [(), ()].map(|()| vec![0; if rank == 0 { COUNT } else { 1 }]);
    let [send, recv] = if rank == 0 {
        ordinary.each_mut().map(|vector| &mut vector[..])
    } else {
        shared.each_mut().map(|vector| &mut vector[..])
    };
    fill(send, rank, 0);
    recv.fill(77);
    world.barrier().unwrap();
    let before = private_kib();
    world.allreduce(send, recv, Operator::Sum).unwrap();
    let more = private_kib().saturating_sub(before);
    assert!(more < 1024, "rank {rank} has taken {more} KiB");
    exact(recv, |index| (0..size).map(|rank| value(rank, index, 0)).fold(0, u64::wrapping_add), || "mixed".to_owned());
    context.finalize().unwrap();
    eprintln!("all is exact");
    exit(0);
}

/// This process's memory that no other one has.
fn private_kib() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// Room for a vector in whole pages, as the test harness has several threads.
fn pages() -> Vec<u64> {
    vec![0; MOST + OFFSET + 2 * 512]
}

/// As many of them as a vector takes.
fn whole_pages(room: &mut [u64]) -> &mut [u64] {
    let start = room.as_ptr().align_offset(4096);
    &mut room[start..start + (MOST + OFFSET).next_multiple_of(512)]
}

/// What `rank` contributes at `index` to operation `salt`.
fn value(rank: usize, index: usize, salt: usize) -> u64 {
    ((rank * 7919 + index * 104_729 + salt * 31) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Composition of x -> a x + b modulo 2^32, packed: associative, not commutative.
fn compose(left: u64, right: u64) -> u64 {
    let (a, b, c, d) = (left >> 32, left & 0xffff_ffff, right >> 32, right & 0xffff_ffff);
    (a.wrapping_mul(c) & 0xffff_ffff) << 32 | (a.wrapping_mul(d).wrapping_add(b) & 0xffff_ffff)
}

/// Two vectors of each kind of memory.
struct Test<'a> {
    world: Communicator,
    shared: [SharedVec<u64>; 2],
    registered: [&'a mut [u64]; 2],
    ordinary: &'a mut [Vec<u64>; 2],
    salt: usize,
}

impl<'a> Test<'a> {
    fn new(context: &Context, ordinary: &'a mut [Vec<u64>; 2], registered: [&'a mut [u64]; 2]) -> Self {
        let world = context.world().clone();
        let shared = [(), ()].map(|()| world.alloc(MOST + OFFSET).unwrap());
        Self { shared, registered, ordinary, world, salt: 0 }
    }

    /// This rank's vectors of `count` elements in the memory that `pattern` gives it.
    fn vectors(&mut self, count: usize, pattern: usize) -> [&mut [u64]; 2] {
        let kind = if pattern < 3 { pattern } else { (pattern + self.world.rank()) % 3 };
        let part = OFFSET..OFFSET + count;
        match kind {
            0 => self.shared.each_mut().map(|vector| &mut vector[part.clone()]),
            1 => self.registered.each_mut().map(|vector| &mut vector[part.clone()]),
            _ => self.ordinary.each_mut().map(|vector| &mut vector[part.clone()]),
        }
    }

    fn every_collective(&mut self, count: usize, pattern: usize) -> Result<()> {
        for root in 0..self.world.size() {
            self.bcast(count, pattern, root)?;
            self.reduction(count, pattern, Some(root), false)?;
            self.reduction(count, pattern, Some(root), true)?;
        }
        self.reduction(count, pattern, None, false)?;
        self.reduction(count, pattern, None, true)
    }

    fn bcast(&mut self, count: usize, pattern: usize, root: usize) -> Result<()> {
        self.salt += 1;
        let (world, salt) = (self.world.clone(), self.salt);
        let [buffer, _] = self.vectors(count, pattern);
        fill(buffer, world.rank(), salt);
        world.bcast(buffer, root)?;
        exact(buffer, |index| value(root, index, salt), || format!("bcast {count} {root} {pattern}"));
        Ok(())
    }

    /// A reduce to `root` or an allreduce; in place on every third rank; `ordered` by an operator of the user
    /// that does not commute.
    fn reduction(&mut self, count: usize, pattern: usize, root: Option<usize>, ordered: bool) -> Result<()> {
        self.salt += 1;
        let (world, salt) = (self.world.clone(), self.salt);
        let (rank, size) = (world.rank(), world.size());
        let in_place = (rank + salt) % 3 == 0;
        let receives = root.is_none_or(|root| root == rank);
        let op = if ordered { UserOperator::elementwise(false, compose).into() } else { Op::from(Operator::Sum) };
        let [send, recv] = self.vectors(count, pattern);
        fill(send, rank, salt);
        recv.fill(77);
        match (root, in_place) {
            (Some(root), true) => {
                recv.copy_from_slice(send);
                world.reduce_in_place(recv, op, root)?;
            }
            (Some(root), false) => world.reduce(send, recv, op, root)?,
            (None, true) => {
                recv.copy_from_slice(send);
                world.allreduce_in_place(recv, op)?;
            }
            (None, false) => world.allreduce(send, recv, op)?,
        }
        let what = || format!("reduction {count} to {root:?} pattern {pattern} in place {in_place} ordered {ordered}");
        exact(send, |index| value(rank, index, salt), what);
        exact(
            recv,
            |index| match (receives, in_place) {
                (true, _) if ordered => (0..size).map(|rank| value(rank, index, salt)).reduce(compose).unwrap(),
                (true, _) => (0..size).map(|rank| value(rank, index, salt)).fold(0, u64::wrapping_add),
                (false, true) => value(rank, index, salt),
                (false, false) => 77,
            },
            what,
        );
        Ok(())
    }

    /// Two operations under way at a time, on vectors in different memory.
    fn overlapping(&mut self, count: usize) -> Result<()> {
        let (world, salt) = (self.world.clone(), self.salt + 1);
        let (rank, size) = (world.rank(), world.size());
        for pattern in 0..6 {
            let [send, recv] = self.vectors(count, pattern);
            fill(send, rank, salt);
            let (from, to) = (send.as_ptr().cast(), recv.as_mut_ptr().cast());
            // SAFETY: both are valid for `count` elements, and are left alone until `wait` has returned.
            let sum = unsafe { Call::allreduce_raw(from, to, count, Datatype::Uint64, Operator::Sum.into()) };
            let mut sums = world.start(sum)?;
            let mut copy: Vec<u64> = vec![0; count];
            fill(&mut copy, rank, salt + 1);
            let copies = world.ibcast(copy, size - 1)?;
            let copy = copies.wait()?;
            sums.wait()?;
            exact(&copy, |index| value(size - 1, index, salt + 1), || format!("overlapping bcast {pattern}"));
            let [_, recv] = self.vectors(count, pattern);
            let sum = |index| (0..size).map(|rank| value(rank, index, salt)).fold(0, u64::wrapping_add);
            exact(recv, sum, || format!("overlapping allreduce {pattern}"));
        }
        Ok(())
    }
}

fn fill(vector: &mut [u64], rank: usize, salt: usize) {
    vector.iter_mut().enumerate().for_each(|(index, element)| *element = value(rank, index, salt));
}

#[track_caller]
fn exact(vector: &[u64], expected: impl Fn(usize) -> u64, what: impl Fn() -> String) {
    let wrong = vector.iter().enumerate().position(|(index, &element)| element != expected(index));
    assert_eq!(wrong, None, "{}: first wrong element", what());
}
