//! The ranks of these tests: this test binary, started again by the launcher to play a role.

use std::env;
use std::path::Path;
use std::time::Duration;
use std::{fs, process, thread};

use han::{Context, Operator, Result, wait_all};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::harness::{Job, eventually};

const ROLE: &str = "HAN_TEST_ROLE";

/// `han run OPTIONS` of ranks that play `role` and record to `file`, however slow those are that survive a failure.
pub(crate) fn job(options: &[&str], role: &str, file: &Path) -> Job {
    Job::new(&[&["--grace", "120"], options, &["--"], &program().each_ref().map(String::as_str)].concat())
        .env(ROLE, role)
        .env("HAN_TRACE", file.to_str().unwrap())
}

/// The command of a rank.
pub(crate) fn program() -> [String; 6] {
    let own = env::current_exe().unwrap().to_str().unwrap().to_owned();
    [own.as_str(), "roles::play_a_role", "--exact", "--ignored", "--nocapture", "--quiet"].map(str::to_owned)
}

#[test]
#[ignore = "a rank of other tests: they start it under the launcher"]
fn play_a_role() {
    let Ok(role) = env::var(ROLE) else { return };
    let played = match role.as_str() {
        "few" => few(),
        "moves" => moves(),
        "tasks" => tasks(),
        "stream" => stream(),
        "limited" => limited(),
        "refused" => refused(),
        "late" => late(),
        "unlike" => unlike(),
        "nodes" => nodes(),
        "late-reader" => late_reader(),
        _ => panic!("no such role: {role}"),
    };
    if let Err(e) = played {
        eprintln!("report of rank {}: {e}", env::var("PMI_RANK").unwrap());
        process::exit(3);
    }
    process::exit(0);
}

/// Calls that [`crate::recorded`] knows.
fn few() -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    let mut vector = vec![1_i64; 1000];
    world.barrier()?;
    for _ in 0..3 {
        world.allreduce_in_place(&mut vector, Operator::Max)?;
    }
    world.bcast(&mut vector[..10], world.size() - 1)?;
    let part = world.split(Some(0), 0)?.unwrap();
    let requests = vec![
        world.iallreduce(vec![1_i64; 5000], Operator::Max)?,
        part.iallreduce(vec![1_i64; 50], Operator::Max)?,
        world.iallreduce(vec![1_i64; 7], Operator::Max)?,
    ];
    wait_all(requests)?;
    let mut sum = [1_u32];
    part.reduce_in_place(&mut sum, Operator::Sum, 0)?;
    println!("done");
    context.finalize()
}

/// Two calls, each in a directory of its own.
fn moves() -> Result<()> {
    let context = Context::init()?;
    context.world().barrier()?;
    env::set_current_dir(ELSEWHERE).unwrap();
    context.world().barrier()?;
    context.finalize()
}

/// Where ranks of the role `moves` go.
pub(crate) const ELSEWHERE: &str = "elsewhere";

/// The bytes that files may have, for the role of that name.
pub(crate) const LIMIT: &str = "HAN_TEST_LIMIT";

/// Some calls, once files are limited.
fn limited() -> Result<()> {
    let context = Context::init()?;
    let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    let limit = env::var(LIMIT).map_or(hard, |bytes| bytes.parse().unwrap());
    setrlimit(Resource::RLIMIT_FSIZE, limit, hard).unwrap();
    for _ in 0..20 {
        context.world().barrier()?;
    }
    context.finalize()
}

/// Calls of several chunks of 64 KiB, that [`crate::recorded`] knows.
fn tasks() -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    let mut vector = vec![1_i64; 5 << 13];
    world.bcast(&mut vector, 0)?;
    world.allreduce_in_place(&mut vector, Operator::Max)?;
    world.iallreduce(vector.clone(), Operator::Max)?.wait()?;
    world.allreduce_in_place(&mut vector[..10], Operator::Max)?;
    world.barrier()?;
    context.finalize()
}

/// Collectives without end.
fn stream() -> Result<()> {
    let context = Context::init()?;
    let mut vector = vec![1_i64; 100];
    println!("streaming");
    loop {
        context.world().allreduce_in_place(&mut vector, Operator::Max)?;
    }
}

/// A call that is refused, and good ones.
fn refused() -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    world.bcast(&mut [0_u8; 4], 99).unwrap_err();
    (0..20).try_for_each(|_| world.barrier())?;
    context.finalize()
}

/// The 31st call of rank 0 is another one than that of the others.
fn unlike() -> Result<()> {
    let context = Context::init()?;
    let (world, mut vector) = (context.world(), [1_i64; 8]);
    (0..30).try_for_each(|_| world.allreduce_in_place(&mut vector, Operator::Max))?;
    let vector = &mut vector[usize::from(world.rank() == 0)..];
    world.allreduce_in_place(vector, Operator::Max)?;
    context.finalize()
}

/// Calls on communicators that nodes make for themselves.
fn nodes() -> Result<()> {
    let context = Context::init()?;
    let node = context.world().split(Some(u32::try_from(context.world().rank() / 2).unwrap()), 0)?.unwrap();
    let copy = node.dup()?;
    for _ in 0..5 {
        copy.bcast(&mut [1_u8; 24], 0)?;
    }
    context.finalize()
}

/// Rank 1 takes what its node gets only when the other node has long had it.
fn late_reader() -> Result<()> {
    let context = Context::init()?;
    let (world, mut vector) = (context.world(), vec![1_i64; 1 << 20]);
    let received = env::var("HAN_TRACE").unwrap() + ".received";
    if world.rank() == 1 {
        eventually("the other node has it", || Path::new(&received).exists());
        thread::sleep(Duration::from_millis(200));
    }
    world.bcast(&mut vector, 0)?;
    if world.rank() == 3 {
        fs::write(&received, "").unwrap();
    }
    context.finalize()
}

/// Rank 0 finds rank 1's part with its last word in it, lets it wait for longer than parts are written anew, and finds
/// it unchanged.
fn late() -> Result<()> {
    let context = Context::init()?;
    if context.world().rank() == 0 {
        let part = env::var("HAN_TRACE").unwrap() + ".rank-1";
        let read = || fs::read_to_string(&part).unwrap();
        eventually("rank 1 has said its last", || read().contains("\"last\":true"));
        let said = read();
        thread::sleep(Duration::from_millis(2500));
        assert_eq!(read(), said);
    }
    context.finalize()
}
