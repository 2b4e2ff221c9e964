//! Ranks that fail while peers work on their memory: death within each copy method, memory that its owner
//! unmaps, permission that is withdrawn. Every rank is told, nobody crashes, nobody waits for ever.
#![allow(unsafe_code)] // unmaps a buffer that is in use, gives up capabilities

use std::env;
use std::num::NonZeroUsize;
use std::os::unix::process::CommandExt;
use std::process::Command;

use han::{Call, Communicator, Context, Datatype, Operator, RawRequest, Result};
use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use nix::sys::signal::{Signal, raise};

use crate::forbid::forbid;
use crate::harness::Finished;
use crate::{finish, reports, roles};

/// Elements of every vector: more than all cells hold, several pieces of a single copy.
const COUNT: usize = 2 << 20;

/// Copy methods, and the settings under which collectives use them, in every form that they take. A limit
/// on waiting turns a hang into a report that no test expects.
const METHODS: [(&str, &str); 5] = [
    ("shared", "single_copy=if_shared,timeout_s=200"),
    ("shared", "single_copy=if_shared,assume_own_cores=1,spins=1,slice_min_bytes=0,timeout_s=200"),
    ("cma", "methods=cma,single_copy=by_kernel,timeout_s=200"),
    ("cma", "single_copy=by_kernel,slice_min_bytes=0,assume_own_cores=1,spins=1,timeout_s=200"),
    ("cico", "methods=cico,chunk_bytes=4096,timeout_s=200"),
];

/// A vector that lives as long as the process, so that an operation may outlive everything else.
pub(crate) fn vector(world: &Communicator, shared: bool) -> Result<&'static mut [i64]> {
    let elements = if shared { &mut Box::leak(Box::new(world.alloc(COUNT)?))[..] } else { Vec::leak(vec![0; COUNT]) };
    elements.fill(i64::try_from(world.rank()).unwrap());
    Ok(elements)
}

fn call(collective: &str, send: &'static [i64], recv: &'static mut [i64]) -> Call<'static> {
    match collective {
        "bcast" => Call::bcast(recv, 0),
        "reduce" => Call::reduce(send, recv, Operator::Sum.into(), 0).unwrap(),
        "reduce-in-place" => Call::reduce_in_place(recv, Operator::Sum.into(), 0),
        "allreduce" => Call::allreduce(send, recv, Operator::Sum.into()).unwrap(),
        "allreduce-in-place" => Call::allreduce_in_place(recv, Operator::Sum.into()),
        _ => unreachable!("no such collective: {collective}"),
    }
}

/// Rank `victim` begins the operation, looks at it `looks` times, and is killed.
pub(crate) fn perish(method: &str, collective: &str, victim: &str, looks: &str) -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    let shared = method == "shared";
    let (send, recv) = (vector(world, shared)?, vector(world, shared)?);
    world.barrier()?;
    let (send_at, recv_at) = (send.as_ptr(), recv.as_mut_ptr());
    let call = call(collective, send, recv);
    if world.rank() == victim.parse::<usize>().unwrap() {
        let mut request = world.start(call)?;
        for _ in 0..looks.parse::<usize>().unwrap() {
            request.test()?;
        }
        raise(Signal::SIGKILL).unwrap();
        unreachable!("killed");
    }
    let outcome = world.run(call).and_then(|()| world.barrier());
    if outcome.is_err() {
        // Nobody uses the vectors any more: what is written here now stays.
        // SAFETY: it lives for ever, and the operation that had it has ended.
        let send = unsafe { std::slice::from_raw_parts(send_at, COUNT) };
        // SAFETY: the same.
        let recv = unsafe { std::slice::from_raw_parts_mut(recv_at, COUNT) };
        recv.fill(-7);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(recv.iter().all(|&element| element == -7), "written to after the error");
        assert!(collective == "bcast" || send.iter().all(|&e| usize::try_from(e) == Ok(world.rank())));
    }
    outcome
}

/// No rank crashed, and each of `ranks` has said one thing, which all of them say, up to what was pending.
pub(crate) fn all_say(done: &Finished, ranks: &[usize], start: &str) {
    for crash in ["SIGSEGV", "SIGBUS", "SIGABRT", "panicked"] {
        assert!(!done.stderr.contains(crash), "{crash} in {done:#?}");
    }
    let reports = reports(done);
    assert_eq!(reports.iter().map(|(rank, ..)| *rank).collect::<Vec<_>>(), ranks, "{done:#?}");
    for (.., text) in &reports {
        assert!(text.starts_with(start), "{start:?} in {done:#?}");
    }
}

fn deaths(method: &str) {
    for (_, settings) in METHODS.iter().filter(|(name, _)| *name == method) {
        for collective in ["bcast", "reduce", "reduce-in-place", "allreduce", "allreduce-in-place"] {
            for (victim, looks) in [(0, 0), (0, 1), (2, 0), (2, 1)] {
                let role = format!("perish-in {method} {collective} {victim} {looks}");
                let job = roles::job(3, &role).env("HAN_SET", settings).start();
                let done = job.finish();
                let survivors: Vec<usize> = (0..3).filter(|&rank| rank != victim).collect();
                let killed = format!("han run: rank {victim} (pid ");
                let pid = done.stderr.split_once(&killed).and_then(|(_, rest)| rest.split_once(')'));
                let pid = pid.unwrap_or_else(|| panic!("{role} {settings}: {done:#?}")).0;
                all_say(&done, &survivors, &format!("rank {victim} (pid {pid}) died without finalizing; "));
                assert_eq!(done.code, 137, "{role} {settings}: {done:#?}");
            }
        }
    }
    crate::assert_no_file_is_left();
}

#[test]
fn a_death_while_vectors_are_mapped_is_told_to_all() {
    deaths("shared");
}

#[test]
fn a_death_while_the_kernel_copies_is_told_to_all() {
    deaths("cma");
}

#[test]
fn a_death_between_chunks_is_told_to_all() {
    deaths("cico");
}

/// Begins `collective` on memory that is then unmapped, before any peer has begun.
pub(crate) fn unmap(collective: &str) -> Result<()> {
    let context = Context::init()?;
    let (world, other) = (context.world(), context.world().dup()?);
    let bytes = NonZeroUsize::new(COUNT * size_of::<i64>()).unwrap();
    // SAFETY: a new mapping, wherever the kernel likes.
    let base =
        unsafe { mmap_anonymous(None, bytes, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE) };
    let base = base.unwrap();
    let start = |buffer: *mut u8| -> Result<RawRequest> {
        let call = match collective {
            // SAFETY: the mapping has as many elements; that it goes is what the test is about, and this rank does
            // not look at it then.
            "bcast" => unsafe { Call::bcast_raw(buffer, COUNT, Datatype::Int64, 0) },
            // SAFETY: the same.
            _ => unsafe { Call::reduce_raw(buffer, buffer, COUNT, Datatype::Int64, Operator::Sum.into(), 1) },
        };
        world.start(call)
    };
    if world.rank() != 0 {
        other.barrier()?;
        let outcome = start(base.as_ptr().cast())?.wait();
        return outcome.and_then(|()| world.barrier());
    }
    let mut request = start(base.as_ptr().cast())?;
    // SAFETY: the whole mapping, of which this process keeps no reference.
    unsafe { munmap(base, bytes.get()) }.unwrap();
    other.barrier()?;
    request.wait()?;
    world.barrier()
}

/// Only one rank finds the hole in each case of reduce: the root. The third one waits for it.
#[test]
fn a_buffer_that_its_owner_unmaps_is_an_error_on_all_ranks() {
    for collective in ["bcast", "reduce"] {
        let job = roles::job(3, &format!("unmap {collective}"));
        let done = finish(job.env("HAN_SET", "methods=cma,single_copy=by_kernel,timeout_s=200"));
        done.expect(3, &["nothing is mapped there at 0x", "must stay allocated until the collective has completed"]);
        all_say(&done, &[0, 1, 2], "memory of rank 0 (pid ");
        let reports = reports(&done);
        assert!(reports.iter().all(|(.., text)| *text == reports[0].2), "the same on all ranks: {done:#?}");
        assert!(reports[0].2.contains(&format!("memory of rank 0 (pid {})", reports[0].1)), "{done:#?}");
        assert!(reports[0].2.contains("found by rank "), "{done:#?}");
    }
}

/// Starts this program again without capabilities, which all its threads would have to give up: what the
/// kernel refuses then is refused to root as to everybody.
fn without_capabilities() {
    const DONE: &str = "HAN_TEST_WITHOUT_CAPABILITIES";
    if env::var_os(DONE).is_some() {
        return;
    }
    for capability in 0..64 {
        // SAFETY: takes numbers only. Refused to those who have none to lose.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
    let error = Command::new(env::current_exe().unwrap()).args(env::args_os().skip(1)).env(DONE, "1").exec();
    panic!("{error}");
}

/// After some operations that worked, the kernel's copies are refused in the way that `how` says.
pub(crate) fn refuse(how: &str, collective: &str) -> Result<()> {
    if how != "reads" {
        without_capabilities();
    }
    let context = Context::init()?;
    let world = context.world();
    let shared = how == "map";
    let (send, recv) = (vector(world, shared)?, vector(world, false)?);
    let sum = vector(world, false)?;
    if how != "map" {
        for _ in 0..3 {
            world.allreduce(send, sum, Operator::Sum)?;
        }
        assert_eq!((sum[0], sum[COUNT - 1]), (3, 3));
    }
    match (how, world.rank()) {
        ("reads", 1) => forbid(libc::SYS_process_vm_readv),
        // SAFETY: takes numbers only.
        ("owner" | "map", 0) => assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }, 0),
        _ => {}
    }
    world.barrier()?;
    if shared && collective == "bcast" {
        world.bcast(send, 0)?;
    } else {
        world.run(call(collective, send, recv))?;
    }
    world.barrier()
}

/// One rank may no longer read others' memory.
#[test]
fn reading_that_is_forbidden_to_one_rank_half_way_is_an_error_on_all() {
    for collective in ["bcast", "allreduce"] {
        let job = roles::job(3, &format!("refuse reads {collective}"));
        let done = finish(job.env("HAN_SET", "methods=cma,single_copy=by_kernel,timeout_s=200"));
        done.expect(3, &["process_vm_readv is refused (EPERM)", "; found by rank 1 (pid "]);
        all_say(&done, &[0, 1, 2], "memory of rank ");
    }
}

/// Nobody may read one rank's memory any more; nor map it, where it was not mapped before.
#[test]
fn an_owner_that_closes_itself_half_way_is_an_error_on_all() {
    let by_kernel = "methods=cma,single_copy=by_kernel,timeout_s=200";
    for (how, set, part) in [
        ("owner", by_kernel, "process_vm_readv is refused (EPERM)"),
        ("map", "methods=shared,timeout_s=200", "Permission denied"),
        ("map", "timeout_s=200", "process_vm_readv is refused (EPERM)"),
    ] {
        let done = finish(roles::job(3, &format!("refuse {how} bcast")).env("HAN_SET", set));
        done.expect(3, &[part, "; found by rank "]);
        all_say(&done, &[0, 1, 2], "memory of rank 0 (pid ");
    }
}
