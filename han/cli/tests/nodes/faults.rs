//! A cable that is pulled and a rank that dies, in a stream of collectives: every rank gets an error that names one
//! side, and no process is left.
#![allow(unsafe_code)] // forks

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use han::{Context, Operator, Result};
use net_fabric::algorithm::Algorithm;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{ForkResult, Pid, fork};

use crate::harness::{Finished, Running, eventually};
use crate::mismatch::expect_mismatch;
use crate::ranks;
use crate::testbed::Testbed;

/// The role: one collective after the other, small and large, until an error ends it.
pub(crate) fn stream() -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    let (mut short, mut long) = ([1_i64; 3], vec![1_i64; 30_000]);
    for round in 0.. {
        world.allreduce_in_place(&mut short, Operator::Max)?;
        world.bcast(&mut long, round % world.size())?;
        world.allreduce_in_place(&mut long, Operator::Max)?;
        world.reduce_in_place(&mut long, Operator::Max, 0)?;
        world.barrier()?;
        match round {
            3 => println!("streaming"),
            _ if round % 50 == 49 => println!("still streaming"),
            _ => {}
        }
    }
    context.finalize()
}

/// Calls of [`late_at_last`].
const CALLS: usize = 5;

/// The role: the ranks of one node are late for the last call of some.
pub(crate) fn late_at_last() -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    let mut long = vec![0_i64; 30_000];
    for _ in 1..CALLS {
        world.allreduce_in_place(&mut long, Operator::Sum)?;
    }
    if world.rank() < 2 {
        thread::sleep(Duration::from_millis(2500));
    }
    world.bcast(&mut long, 1)?;
    context.finalize()
}

/// The role: all ranks wait for a rank that is dead, from one moment or another on.
pub(crate) fn staggered() -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    world.barrier()?;
    if world.rank() == 1 {
        println!("dies");
        nix::sys::signal::raise(Signal::SIGKILL).unwrap();
    }
    thread::sleep(Duration::from_millis(137) * u32::try_from(world.rank()).unwrap());
    world.allreduce_in_place(&mut [1_i64; 3], Operator::Sum)?;
    context.finalize()
}

/// The role: rank 0 only sends short messages, with pauses in between, until it hears that rank 1 has died, has left the
/// job, or calls something else.
pub(crate) fn sends_alone(pause_ms: u64, what: &str) -> Result<()> {
    let context = Context::init()?;
    let (world, mut short) = (context.world(), [1_i64; 3]);
    let mut ended = None;
    for round in 0.. {
        if world.rank() == 1 && round == 3 {
            match what {
                "abort" => context.abort(7, "it has seen enough"),
                "mismatch" => world.allreduce_in_place(&mut short, Operator::Max)?,
                _ => nix::sys::signal::raise(Signal::SIGKILL).unwrap(),
            }
        }
        if world.rank() == 0 {
            // Rank 1 may have ended a moment later.
            let ended = ended.get_or_insert_with(Instant::now);
            assert!(ended.elapsed() < Duration::from_secs(30), "{round} calls have ended well");
            thread::sleep(Duration::from_millis(pause_ms));
        }
        match what {
            "reduce" => world.reduce_in_place(&mut short, Operator::Max, 1)?,
            _ => world.bcast(&mut short, 0)?,
        }
    }
    context.finalize()
}

/// How long the children of a rank that dies outlive it, in seconds.
const CHILD_S: u64 = 60;

/// The role: rank 1 dies and leaves a child, which goes on in its program or in another.
#[allow(clippy::zombie_processes)] // who would wait for it dies
pub(crate) fn leave_child(how: &str) -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    world.barrier()?;
    if world.rank() == 1 {
        if how == "runs" {
            // Over the descriptors that the harness and the launcher read, or they would wait for it.
            let mut sleep = Command::new("sleep");
            sleep.arg(CHILD_S.to_string()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            sleep.spawn().unwrap();
        // SAFETY: the child makes system calls only until it is ended.
        } else if let ForkResult::Child = unsafe { fork() }.unwrap() {
            for stream in 0..3 {
                let _ = nix::unistd::close(stream);
            }
            thread::sleep(Duration::from_secs(CHILD_S));
            nix::sys::signal::raise(Signal::SIGKILL).unwrap();
        }
        println!("dies");
        nix::sys::signal::raise(Signal::SIGKILL).unwrap();
    }
    world.allreduce_in_place(&mut [1_i64; 3], Operator::Sum)?;
    context.finalize()
}

/// The role: one node comes to everything when the others have long waited.
pub(crate) fn late() -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    let is_late = world.rank() * context.node_count() / world.size() == 1;
    let mut long = vec![0_i64; 30_000];
    for round in 0..4 {
        if is_late {
            std::thread::sleep(Duration::from_millis(if round == 0 { 2500 } else { 400 }));
        }
        long.fill(i64::try_from(world.rank()).unwrap());
        match round {
            0 => world.allreduce_in_place(&mut long, Operator::Sum)?,
            1 => world.bcast(&mut long, 1)?,
            2 => world.reduce_in_place(&mut long, Operator::Sum, 3)?,
            _ => world.barrier()?,
        }
        let expected = match (round, world.rank()) {
            (0, _) | (2, 3) => 6,
            (1, _) => 1,
            (_, rank) => i64::try_from(rank).unwrap(),
        };
        assert!(long.iter().all(|value| *value == expected), "round {round}: {}", long[0]);
    }
    println!("rank {} came through", world.rank());
    context.finalize()
}

/// The role: of three nodes the last one comes to a broadcast of rank 0 only when the ranks `first` have left it, each of
/// which leaves a file in `folder` then.
pub(crate) fn late_behind(folder: &Path, first: &str) -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    let mut long = vec![if world.rank() == 0 { 7_i64 } else { 0 }; 1 << 20];
    world.barrier()?;
    if world.rank() >= 4 {
        eventually("the ranks that need nothing of this node", || {
            first.split(',').all(|rank| folder.join(rank).exists())
        });
    }
    world.bcast(&mut long, 0)?;
    assert!(long.iter().all(|value| *value == 7));
    std::fs::write(folder.join(world.rank().to_string()), "").unwrap();
    context.finalize()
}

/// The reports of all ranks but `without`, in order.
#[track_caller]
pub(crate) fn reports(done: &Finished, ranks: usize, without: Option<usize>) -> Vec<String> {
    assert_ne!(done.code, 0, "{done:#?}");
    let report = |rank: usize| {
        let start = format!("report of rank {rank} (pid ");
        let report = done.stderr.lines().find(|line| line.starts_with(&start));
        let report = report.unwrap_or_else(|| panic!("rank {rank} has reported nothing: {done:#?}"));
        report.split_once("): ").unwrap().1.to_owned()
    };
    (0..ranks).filter(|rank| Some(*rank) != without).map(report).collect()
}

/// Every survivor names the victim as the one that is gone, whatever it says besides.
#[track_caller]
fn expect_death(done: &Finished, ranks: usize, victim: usize) {
    let (seen_afar, seen_beside) = (format!("rank {victim} cannot be reached"), format!("rank {victim} (pid "));
    let dead = |text: &str| text.contains(&seen_afar) || (text.contains(&seen_beside) && text.contains(") died "));
    for report in reports(done, ranks, Some(victim)) {
        assert!(dead(&report), "{report:?} does not name rank {victim}: {done:#?}");
        assert!(report.ends_with(" [death]"), "{report:?} is something else: {done:#?}");
    }
}

fn streaming(testbed: &Testbed, ranks: &str, nodes: &str) -> Running {
    let prefix = testbed.prefix();
    let mut job = ranks::job(&["-n", ranks, "--nodes", nodes, "--node-exec", &prefix], "stream").start();
    job.wait_for_lines("streaming", ranks.parse().unwrap());
    job
}

/// The process of `rank`.
#[track_caller]
fn process(job: &mut Running, rank: usize) -> Pid {
    let is_rank = |pid: &Pid| {
        let variables = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        variables.split(|byte| *byte == 0).any(|variable| variable == format!("PMI_RANK={rank}").as_bytes())
    };
    let found = job.processes().into_iter().find(is_rank);
    found.unwrap_or_else(|| panic!("rank {rank} has gone; standard error:\n{}", job.last_words()))
}

#[test]
fn a_rank_that_is_killed_is_named_on_every_node() {
    let Some(testbed) = Testbed::up(3) else { return };
    // Alone on its node; then beside another one.
    for (ranks, victim) in [(3, 1), (4, 1)] {
        let mut job = streaming(&testbed, &ranks.to_string(), "3");
        kill(process(&mut job, victim), Signal::SIGKILL).unwrap();
        let done = job.finish();
        expect_death(&done, ranks, victim);
    }
}

#[test]
fn a_death_is_noticed_by_a_rank_that_others_go_on_asking() {
    // Rank 0 alone awaits the dead one.
    let job = ranks::job(&["-n", "16", "--nodes", "16"], "staggered").env("HAN_SET", "inter_algorithm=linear");
    let mut job = job.start();
    job.wait_for_lines("dies", 1);
    let began = Instant::now();
    expect_death(&job.finish(), 16, 1);
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[test]
fn all_levels_give_a_call_one_number() {
    let job = ranks::job(&["-n", "4", "--nodes", "2"], "late-at-last");
    let done = job.env("HAN_SET", "segment_bytes=16384").env("HAN_WATCHDOG", "1").finish();
    done.expect(0, &["rank 2", "rank 3", " has waited "]);
    let numbers = |line: &str| -> Vec<usize> {
        line.split('#').skip(1).map(|rest| rest.split(' ').next().unwrap().parse().unwrap()).collect()
    };
    // A node without a core for a while may be late for others, too, and for the end; what counts in another way has far more.
    assert!(numbers(&done.stderr).iter().all(|number| (1..=CALLS + 1).contains(number)), "{done:#?}");
    for rank in ["watchdog: rank 2 (", "watchdog: rank 3 ("] {
        let mut lines = done.stderr.lines().filter(|line| line.contains(rank));
        assert!(lines.any(|line| numbers(line).iter().all(|number| *number == CALLS)), "{done:#?}");
    }
}

#[test]
fn a_rank_that_only_sends_hears_of_a_death_an_abort_and_a_mismatch() {
    let start = |(pause_ms, what)| {
        let role = format!("sends-alone {pause_ms} {what}");
        (what, ranks::job(&["-n", "2", "--nodes", "2"], &role).start())
    };
    let jobs = [(0, "bcast"), (2, "bcast"), (2, "reduce"), (1000, "bcast"), (2, "abort"), (2, "mismatch")].map(start);
    for (what, job) in jobs {
        let done = job.finish();
        match what {
            "mismatch" => expect_mismatch(&done, 2),
            "abort" => assert!(reports(&done, 2, Some(1))[0].ends_with(" [abort]"), "{done:#?}"),
            _ => expect_death(&done, 2, 1),
        }
    }
}

#[test]
fn a_child_that_outlives_its_rank_does_not_hide_the_death() {
    let start = |how| ranks::job(&["-n", "3", "--nodes", "3"], &format!("leave-child {how}")).start();
    let mut jobs = ["forks", "runs"].map(start);
    jobs.iter_mut().for_each(|job| job.wait_for_lines("dies", 1));
    let began = Instant::now();
    // At the end the launcher takes the child with it, which `finish` checks.
    for job in jobs {
        expect_death(&job.finish(), 3, 1);
    }
    assert!(began.elapsed() < Duration::from_secs(CHILD_S / 2), "heard only when the child had ended");
}

/// Jobs that are under way at once: most of the time they wait for silence to grow long, but they start and end.
pub(crate) const AT_ONCE: usize = 12;

/// A stream of collectives on three nodes.
struct Stream {
    job: Running,
    /// On each node.
    ppn: usize,
}

/// Has streams of every algorithm there is between nodes, with the policies in turn, and hands them to `end`, some at a
/// time. Algorithms that know nodes have two ranks on each; with one they would be others.
fn with_streams_of_every_algorithm(options: &[&str], mut end: impl FnMut(Vec<Stream>)) {
    let policies = ["blocking", "wait_all", "event_driven"];
    let start = |(number, algorithm): &(usize, Algorithm)| {
        let knows_nodes = matches!(algorithm, Algorithm::Nap | Algorithm::Smp | Algorithm::Leaders(_));
        let ppn = if knows_nodes { 2 } else { 1 };
        let set = format!("inter_algorithm={algorithm},inter_policy={}", policies[number % policies.len()]);
        let shape = ["-n", if knows_nodes { "6" } else { "3" }, "--nodes", "3"];
        Stream { job: ranks::job(&[&shape, options].concat(), "stream").env("HAN_SET", &set).start(), ppn }
    };
    let all: Vec<_> = Algorithm::all().enumerate().collect();
    for some in all.chunks(AT_ONCE) {
        let mut streams: Vec<Stream> = some.iter().map(start).collect();
        streams.iter_mut().for_each(|stream| stream.job.wait_for_lines("streaming", 3 * stream.ppn));
        end(streams);
    }
}

#[test]
fn whoever_dies_of_two_levels_is_named() {
    // Leaders and members in turn, as roots go round: with chunks, that both levels have something under way. Then on nodes
    // whose last ranks have nobody to exchange with in the node-aware allreduce.
    for (ranks, set) in [(4, "leaders=2"), (6, "inter_allreduce_algorithm=nap")] {
        let start = |victim: usize| {
            let job = ranks::job(&["-n", &ranks.to_string(), "--nodes", "2"], "stream");
            let mut job = job.env("HAN_SET", &format!("segment_bytes=16384,{set}")).start();
            job.wait_for_lines("streaming", ranks);
            (victim, job)
        };
        let mut jobs: Vec<(usize, Running)> = (0..ranks).map(start).collect();
        jobs.iter_mut().for_each(|(victim, job)| kill(process(job, *victim), Signal::SIGKILL).unwrap());
        jobs.into_iter().for_each(|(victim, job)| expect_death(&job.finish(), ranks, victim));
    }
}

#[test]
fn a_late_node_delays_and_does_not_break() {
    let job = ranks::job(&["-n", "4", "--nodes", "2"], "late").env("HAN_SET", "segment_bytes=16384");
    let done = job.finish();
    done.expect(0, &[]);
    assert_eq!(done.stdout.lines().filter(|line| line.contains("came through")).count(), 4, "{done:#?}");
}

#[test]
fn who_needs_nothing_of_a_late_node_goes_on_without_it() {
    // Eight chunks; then one. Rank 3 leads the second node: along a chain all of it but that one, which passes the data on,
    // and from the root itself all others.
    for chunk_bytes in [1 << 20, 16 << 20] {
        for (algorithm, first) in [("chain", "0,1,2"), ("linear", "1,2,3")] {
            let folder =
                std::env::temp_dir().join(format!("han-late-{}-{algorithm}-{chunk_bytes}", std::process::id()));
            std::fs::create_dir(&folder).unwrap();
            let job = ranks::job(&["-n", "6", "--nodes", "3"], &format!("late-behind {} {first}", folder.display()));
            let job = job.env("HAN_SET", &format!("inter_bcast_algorithm={algorithm},segment_bytes={chunk_bytes}"));
            let done = job.finish();
            std::fs::remove_dir_all(&folder).unwrap();
            done.expect(0, &[]);
        }
    }
}

#[test]
fn a_pulled_cable_between_nodes_of_two_ranks_ends_all_four() {
    let Some(testbed) = Testbed::up(2) else { return };
    let prefix = testbed.prefix();
    let start = |set: &str| {
        let job = ranks::job(&["-n", "4", "--nodes", "2", "--node-exec", &prefix], "stream");
        let mut job = job.env("HAN_SET", set).start();
        job.wait_for_lines("streaming", 4);
        job
    };
    let jobs = ["segment_bytes=16384", "segment_bytes=16384,inter_allreduce_algorithm=nap"].map(start);
    testbed.command("link", &["1", "down"]);
    for job in jobs {
        let done = job.finish();
        for (rank, report) in reports(&done, 4, None).iter().enumerate() {
            let afar = if rank < 2 { ["rank 2", "rank 3"] } else { ["rank 0", "rank 1"] };
            assert!(afar.iter().any(|name| report.contains(&format!("{name} cannot be reached"))), "{done:#?}");
        }
    }
}

#[test]
fn whatever_the_algorithm_a_death_is_named() {
    with_streams_of_every_algorithm(&[], |mut streams| {
        // The last rank of the last node.
        let victims: Vec<Pid> = streams.iter_mut().map(|stream| process(&mut stream.job, 3 * stream.ppn - 1)).collect();
        victims.iter().for_each(|victim| kill(*victim, Signal::SIGKILL).unwrap());
        for (Stream { job, ppn }, pid) in streams.into_iter().zip(victims) {
            let done = job.finish();
            let victim = 3 * ppn - 1;
            expect_death(&done, 3 * ppn, victim);
            // Whoever looks for it knows where.
            let place = format!("it was pid {pid} on ");
            let reports = reports(&done, 3 * ppn, Some(victim));
            assert!(reports[..2 * ppn].iter().all(|text| text.contains(&place)), "{done:#?}");
        }
    });
}

#[test]
fn whatever_the_algorithm_a_pulled_cable_ends_the_job_with_names() {
    let Some(testbed) = Testbed::up(3) else { return };
    with_streams_of_every_algorithm(&["--node-exec", &testbed.prefix()], |streams| {
        testbed.command("link", &["2", "down"]);
        for Stream { job, ppn } in streams {
            let done = job.finish();
            // Those on the one side name a rank on the other.
            for (rank, report) in reports(&done, 3 * ppn, None).iter().enumerate() {
                let border = 2 * ppn;
                let mut others = if rank < border { border..3 * ppn } else { 0..border };
                let names = |other| report.contains(&format!("rank {other} cannot be reached: it was pid "));
                assert!(others.any(names), "{done:#?}");
            }
        }
        testbed.command("link", &["2", "up"]);
    });
}

#[test]
fn killing_the_launcher_ends_a_stream_on_all_nodes() {
    let Some(testbed) = Testbed::up(2) else { return };
    let job = streaming(&testbed, "4", "2");
    job.signal(Signal::SIGKILL);
    job.wait_until_gone();
}

#[test]
fn nodes_without_a_common_network_say_so() {
    let Some(testbed) = Testbed::up(2) else { return };
    let prefix = testbed.prefix();
    let words = ["-n", "2", "--nodes", "2", "--node-exec", &prefix];
    let done = ranks::job(&words, "hello").env("HAN_PROVIDER", "cxi").finish();
    done.expect(3, &["report of rank 0", "report of rank 1", "has no network", "(cxi)"]);
    let done = ranks::job(&words, "hello").env("HAN_SET", "inter_algorithm=bubble").finish();
    done.expect(3, &["inter_algorithm=bubble", "recursive-doubling"]);
}

#[test]
fn settings_that_differ_between_nodes_are_named() {
    let words = ["-n", "2", "--nodes", "2", "--node-exec", "env HAN_SET=inter_chunk_bytes=100{node}"];
    let done = ranks::job(&words, "hello").finish();
    done.expect(3, &["settings differ", "inter_chunk_bytes=1000", "inter_chunk_bytes=1001"]);
}

#[test]
fn a_stranger_at_the_endpoint_is_refused() {
    let Some(testbed) = Testbed::up(2) else { return };
    let mut job = streaming(&testbed, "2", "2");
    // Whatever listens on node 0 hears from somebody on node 1 who has no secret, and goes on.
    let ports = testbed.on_node(0, &["sh", "-c", "cat /proc/net/tcp | awk '$4 == \"0A\" { print $2 }'"]);
    let ports: Vec<u16> =
        ports.lines().map(|line| u16::from_str_radix(line.split_once(':').unwrap().1, 16).unwrap()).collect();
    assert!(!ports.is_empty());
    let knock = |port: &u16| {
        let knock = format!("exec 3<>/dev/tcp/node0/{port}; echo heard; head -c 4096 /dev/urandom >&3; sleep 0.2");
        testbed.on_node(1, &["bash", "-c", &format!("({knock}) 2>/dev/null || true")]).contains("heard")
    };
    assert_ne!(ports.iter().filter(|port| knock(port)).count(), 0, "nobody has heard of the stranger");
    thread::sleep(Duration::from_millis(300));
    job.forget_lines();
    // More than can have been on their way.
    job.wait_for_lines("still streaming", 20);
    job.signal(Signal::SIGTERM);
    let done = job.finish();
    assert!(!done.stderr.contains("report of rank"), "{done:#?}");
}
