//! The ranks of these tests: this test binary, started again by the launcher to play a role.

use std::env;
use std::io;
use std::process;
use std::thread;
use std::time::Duration;

use han::{Communicator, Context, Operator, Result, UserOperator};
use nix::errno::Errno;
use nix::sys::signal::{Signal, raise};

use crate::harness::Job;

const ROLE: &str = "HAN_TEST_ROLE";

/// The command line of a rank, whose role is in [`ROLE`].
pub(crate) fn program() -> Vec<String> {
    let own = env::current_exe().unwrap().to_str().unwrap().to_owned();
    let words = ["roles::play_a_role", "--exact", "--ignored", "--nocapture", "--quiet"];
    std::iter::once(own).chain(words.map(str::to_owned)).collect()
}

/// `han run -n SIZE` of ranks that play `role`; however slow they are, they report what became of the others.
pub(crate) fn job(size: usize, role: &str) -> Job {
    job_with_grace(size, role, "120")
}

/// The same with each rank on a node of its own, over loopback.
pub(crate) fn job_over_nodes(size: usize, role: &str) -> Job {
    let (size, program) = (size.to_string(), program());
    let words = ["-n", &size, "--nodes", &size, "--grace", "120", "--"];
    Job::new(&words.into_iter().chain(program.iter().map(String::as_str)).collect::<Vec<_>>()).env(ROLE, role)
}

/// The same where a rank does not end by itself: `han run` ends it after `grace` seconds.
pub(crate) fn job_with_grace(size: usize, role: &str, grace: &str) -> Job {
    let (size, program) = (size.to_string(), program());
    let words = ["-n", &size, "--grace", grace, "--"].into_iter().chain(program.iter().map(String::as_str));
    Job::new(&words.collect::<Vec<_>>()).env(ROLE, role)
}

/// Tells the test what happened on this rank.
pub(crate) fn report(text: &str) {
    // The launcher's rank: a role may report before, or because, the engine does not know its own.
    let rank = env::var("PMI_RANK").unwrap();
    eprintln!("report of rank {rank} (pid {}): {text}", process::id());
}

/// Ends this rank: with a report and code 3 after an error, else well.
fn end(result: Result<()>) -> ! {
    if let Err(e) = result {
        report(&e.to_string());
        process::exit(3);
    }
    process::exit(0);
}

#[test]
#[ignore = "a rank of other tests: they start it under the launcher"]
fn play_a_role() {
    let Ok(role) = env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    match words[..] {
        ["die", how, when] => end(die(how, when)),
        ["mismatch", difference, place] => end(mismatch(difference, place)),
        ["two-roots"] => end(two_roots()),
        ["dup"] => end(dup_for_ever()),
        ["allreduce"] => end(allreduce_for_ever(100)),
        ["allreduce-long"] => end(allreduce_for_ever(200_000)),
        ["bcast"] => end(bcast_for_ever()),
        ["stop"] => end(stop()),
        ["stop-within"] => end(stop_within()),
        ["work-long"] => end(work_long()),
        ["deadlock"] => end(deadlock()),
        ["abort"] => end(abort()),
        ["finalize-early", place] => end(finalize_early(place)),
        ["free-early"] => end(free_early()),
        ["late"] => end(late()),
        ["leave"] => end(leave()),
        ["leave-after-a-death"] => end(leave_after_a_death()),
        ["hello"] => end(hello()),
        ["join-twice"] => end(join_twice()),
        ["fork"] => end(crate::forks::rank()),
        ["tidy-child"] => end(crate::forks::tidy_child()),
        ["no-streams"] => end(no_streams()),
        ["memory"] => end(memory()),
        ["communicators"] => end(communicators()),
        ["every", memory] => end(crate::every::rank(memory)),
        ["perish-in", method, collective, victim, looks] => {
            end(crate::copies::perish(method, collective, victim, looks))
        }
        ["unmap", collective] => end(crate::copies::unmap(collective)),
        ["refuse", how, collective] => end(crate::copies::refuse(how, collective)),
        ["outlast", method, collective] => end(crate::operators::outlast(method, collective)),
        ["large"] => end(crate::large::rank()),
        _ => panic!("no such role: {role}"),
    }
}

/// What the tests rely on that ask for a good end alone: a rank that plays no role has none.
#[test]
fn a_role_that_is_not_there_fails_its_job() {
    let done = job(2, "understudy").finish();
    assert_ne!(done.code, 0, "{done:#?}");
    assert!(done.stderr.contains("no such role: understudy"), "{done:#?}");
}

/// Joins the job again, while it is in it and when it has left it.
fn join_twice() -> Result<()> {
    let context = Context::init()?;
    let again = Context::init().map(|_| ());
    context.world().barrier()?;
    context.finalize()?;
    let late = Context::init().map(|_| ());
    assert_eq!(again.as_ref().unwrap_err().to_string(), late.unwrap_err().to_string());
    again
}

/// Rank 1 is killed, the last rank leaves as one whose start-up has failed, and rank 0 looks when both have.
fn leave_after_a_death() -> Result<()> {
    let context = Context::init()?;
    let turn = |turn: u32| thread::sleep(Duration::from_millis(500) * turn);
    match context.world().rank() {
        0 => turn(4),
        1 => raise(Signal::SIGKILL).unwrap(),
        _ => {
            turn(2);
            drop(context);
            thread::sleep(Duration::from_secs(600));
            return Ok(());
        }
    }
    context.world().barrier()
}

/// The last rank gives up all that it has of the job, operations under way among it, and lives on.
fn leave() -> Result<()> {
    let context = Context::init()?;
    if context.world().rank() == context.world().size() - 1 {
        for _ in 0..3 {
            drop(context.world().ibarrier()?);
        }
        drop(context);
        thread::sleep(Duration::from_secs(600));
        return Ok(());
    }
    context.world().barrier()?;
    // So that the other one is in the midst of an operation when it leaves.
    thread::sleep(Duration::from_millis(100));
    loop {
        context.world().barrier()?;
    }
}

fn hello() -> Result<()> {
    let context = Context::init()?;
    context.world().barrier()?;
    context.finalize()
}

/// Has no standard input and output when it joins; what it prints reaches nobody, and no memory.
fn no_streams() -> Result<()> {
    [0, 1].into_iter().for_each(|stream| nix::unistd::close(stream).unwrap());
    let context = Context::init()?;
    assert_eq!(nix::unistd::read(io::stdin(), &mut [0; 100]), Err(Errno::EBADF));
    assert_eq!(nix::unistd::write(io::stdout(), &[b'x'; 100]), Err(Errno::EBADF));
    context.world().barrier()?;
    context.finalize()
}

/// More reachable memory than a small `/dev/shm` has, in use.
fn memory() -> Result<()> {
    const COUNT: usize = 10 << 20;
    let context = Context::init()?;
    let world = context.world();
    let mut allocated = world.alloc::<u64>(COUNT)?;
    let mut ordinary = vec![0_u64; COUNT + 512];
    // Whole pages, because the test harness has threads.
    let start = ordinary.as_ptr().align_offset(4096);
    context.with_registered(&mut ordinary[start..start + COUNT], |registered| {
        for (index, (first, second)) in allocated.iter_mut().zip(registered.iter_mut()).enumerate() {
            (*first, *second) = (index as u64, world.rank() as u64);
        }
        world.allreduce_in_place(&mut allocated, Operator::Sum)?;
        world.bcast(registered, 1)?;
        assert!(allocated.iter().enumerate().all(|(index, &sum)| sum == (index * world.size()) as u64));
        assert!(registered.iter().all(|&root| root == 1));
        Ok::<_, han::Error>(())
    })??;
    assert!(ordinary[start..start + COUNT].iter().all(|&root| root == 1));
    drop(allocated);
    context.finalize()
}

/// As many communicators as there is memory for, the last of which works, as the world does; then one more in place of
/// another.
fn communicators() -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    let mut made = Vec::new();
    let error = loop {
        match world.dup() {
            Ok(another) => made.push(another),
            Err(error) => break error,
        }
    };
    report(&format!("{}: {error}", if made.len() < 20 { "few" } else { "many" }));
    for comm in [world, made.last().unwrap()] {
        let mut vector = vec![1_i64; 1 << 20];
        comm.allreduce_in_place(&mut vector, Operator::Sum)?;
        assert!(vector.iter().all(|&sum| sum == i64::try_from(comm.size()).unwrap()));
    }
    made.remove(0);
    world.barrier()?;
    world.dup()?.barrier()?;
    context.finalize()
}

/// Ends this process in a way that its peers must notice.
fn perish(how: &str) {
    report("perishes");
    match how {
        "kill" => raise(Signal::SIGKILL).unwrap(),
        "panic" => panic!("as the test wants it"),
        "exit" => process::exit(0),
        "abort" => process::abort(),
        _ => unreachable!("no such end: {how}"),
    }
}

/// The last rank perishes; the others report what their pending and their next operation return.
fn die(how: &str, when: &str) -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    let victim = world.rank() == world.size() - 1;
    if when == "between" {
        for _ in 0..100 {
            world.barrier()?;
        }
    }
    if victim && when != "within" {
        // The others are most likely waiting for it then.
        thread::sleep(Duration::from_millis(20));
        perish(how);
    }
    let how = how.to_owned();
    let op = UserOperator::elementwise::<i64>(true, move |a, b| {
        if victim {
            perish(&how);
        }
        a + b
    });
    if let Err(e) = world.allreduce_in_place(&mut vec![1_i64; 300_000], op) {
        report(&e.to_string());
    }
    world.bcast(&mut [0_u8; 3], 0)?;
    context.finalize()
}

fn dup_for_ever() -> Result<()> {
    let context = Context::init()?;
    loop {
        if let Err(e) = context.world().dup() {
            report(&format!("making: {e}"));
            process::exit(3);
        }
    }
}

fn bcast_for_ever() -> Result<()> {
    let context = Context::init()?;
    let mut vector = vec![1_i64; 100_000];
    loop {
        context.world().bcast(&mut vector, 1)?;
    }
}

fn allreduce_for_ever(count: usize) -> Result<()> {
    let context = Context::init()?;
    let mut vector = vec![1_i32; count];
    loop {
        context.world().allreduce_in_place(&mut vector, Operator::Sum)?;
    }
}

/// The last rank calls something else than the others, in the one way that `difference` says.
fn mismatch(difference: &str, place: &str) -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    let other = world.rank() == world.size() - 1;
    let comm = match place {
        "world" => world.clone(),
        // In reverse order, so that ranks in the group are not those in the world.
        _ => world.split(Some(0), -i32::try_from(world.rank()).unwrap())?.unwrap(),
    };
    comm.barrier()?;
    let result = differ(&comm, difference, other);
    result.and_then(|()| comm.barrier()).and_then(|()| context.finalize())
}

fn differ(comm: &Communicator, difference: &str, other: bool) -> Result<()> {
    let mut four = [1_i32; 4];
    match (difference, other) {
        ("collective", true) => comm.barrier(),
        ("collective", false) => comm.bcast(&mut four, 0),
        ("root", true) => comm.bcast(&mut four, 1),
        ("root", false) => comm.bcast(&mut four, 0),
        ("count", true) => comm.allreduce_in_place(&mut four[..3], Operator::Sum),
        ("datatype", true) => comm.allreduce_in_place(&mut [1_f32; 4], Operator::Sum),
        ("operator", true) => comm.allreduce_in_place(&mut four, Operator::Max),
        ("count" | "datatype" | "operator", false) => comm.allreduce_in_place(&mut four, Operator::Sum),
        ("large-count", true) => comm.allreduce_in_place(&mut vec![1_i32; 100_000], Operator::Sum),
        ("large-count", false) => comm.allreduce_in_place(&mut vec![1_i32; 100_001], Operator::Sum),
        ("in-reduce", true) => comm.reduce_in_place(&mut four, Operator::Sum, 2),
        ("in-reduce", false) => comm.reduce_in_place(&mut four, Operator::Sum, 1),
        ("new", true) => comm.split(Some(0), 0).map(drop),
        ("new", false) => comm.dup().map(drop),
        _ => unreachable!("no such difference: {difference}"),
    }
}

/// Each rank is the root of its own series, and waits for nobody until its ring is full.
fn two_roots() -> Result<()> {
    let context = Context::init()?;
    for round in 0..400 {
        context.world().bcast(&mut [round; 2], context.world().rank())?;
    }
    context.finalize()
}

/// Rank 1 stops in the middle of a series; whoever continues it lets the series end well.
fn stop() -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    for round in 0..20_i64 {
        if round == 10 && world.rank() == 1 {
            raise(Signal::SIGSTOP).unwrap();
        }
        let mut sum = [round, i64::try_from(world.rank()).unwrap()];
        world.allreduce_in_place(&mut sum, Operator::Sum)?;
        let size = i64::try_from(world.size()).unwrap();
        assert_eq!(sum, [size * round, size * (size - 1) / 2]);
    }
    context.finalize()
}

/// Rank 1 stops at some time in a series of long broadcasts.
fn stop_within() -> Result<()> {
    let context = Context::init()?;
    if context.world().rank() == 1 {
        thread::spawn(|| {
            thread::sleep(Duration::from_millis(300));
            raise(Signal::SIGSTOP).unwrap();
        });
    }
    let mut data = vec![0_u64; 8 << 20];
    loop {
        context.world().bcast(&mut data, 0)?;
    }
}

/// An allreduce in which all ranks work the whole time, in small steps that take long.
fn work_long() -> Result<()> {
    let context = Context::init()?;
    let op = UserOperator::elementwise::<i64>(true, |a, b| {
        if a == 1 {
            thread::sleep(Duration::from_millis(25));
        }
        a + b
    });
    // So that each piece of 8 KiB takes long.
    let mut data: Vec<i64> = (0..256 << 10).map(|at| if at % 1024 == 0 { 1 } else { 2 }).collect();
    context.world().allreduce_in_place(&mut data, op)?;
    assert_eq!((data[0], data[1]), (2, 4));
    context.finalize()
}

/// Rank 0 waits on one communicator, the others on another.
fn deadlock() -> Result<()> {
    let context = Context::init()?;
    let other = context.world().dup()?;
    if context.world().rank() == 0 { other.barrier() } else { context.world().barrier() }
}

fn abort() -> Result<()> {
    let context = Context::init()?;
    context.world().barrier()?;
    if context.world().rank() == 1 {
        // The others are asleep in the barrier by then, or about to enter it.
        thread::sleep(Duration::from_millis(100));
        context.abort(7, "the matrix is singular");
    }
    context.world().barrier()
}

/// Rank 1 finalizes while the others do a collective.
/// Rank 1 frees a communicator on which the others are in an allreduce, and goes on.
fn free_early() -> Result<()> {
    let context = Context::init()?;
    let comm = context.world().dup()?;
    if context.world().rank() == 1 {
        drop(comm);
    } else {
        comm.allreduce_in_place(&mut [1_i32; 4], Operator::Sum)?;
    }
    context.world().barrier()?;
    context.finalize()
}

/// The last rank dies, and the first, which only ever sends, comes to that when it is long dead.
fn late() -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    world.barrier()?;
    if world.rank() == world.size() - 1 {
        process::abort();
    }
    thread::sleep(Duration::from_millis(700));
    let mut done = 0;
    while done < 1000 {
        if let Err(error) = world.bcast(&mut [1_u8; 8], 0) {
            report(&format!("after {done}: {error}"));
            return Err(error);
        }
        done += 1;
    }
    context.finalize()
}

fn finalize_early(place: &str) -> Result<()> {
    let context = Context::init()?;
    let comm = if place == "world" { context.world().clone() } else { context.world().dup()? };
    if context.world().rank() != 1 {
        comm.allreduce_in_place(&mut [1_i32; 4], Operator::Sum)?;
    }
    context.finalize()
}
