//! Every form of every collective, sized for ThreadSanitizer: `make test-tsan`. Ranks are threads over
//! the heap twin, so the sanitizer sees both sides of every flag and all payloads.
#![allow(clippy::unwrap_used)] // in a test a panic is the report

mod support;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reduce_kernels::{Op, Operator, UserOperator};
use shm_core::{Call, Error, Form, Job, LocalComm, OwnedCall, Settings, Single};
use support::{heap, idle, ranks};

const SIZES: [usize; 3] = [2, 3, 4];

/// What `rank` contributes in operation `salt`.
fn vector(rank: usize, count: usize, salt: usize) -> Vec<i64> {
    (0..count).map(|index| i64::try_from((rank * 7919 + index * 31 + salt * 131) % 1009).unwrap()).collect()
}

fn sum(size: usize, count: usize, salt: usize) -> Vec<i64> {
    let vectors: Vec<_> = (0..size).map(|rank| vector(rank, count, salt)).collect();
    (0..count).map(|index| vectors.iter().map(|vector| vector[index]).sum()).collect()
}

/// All collectives with every root; each result is exact.
fn every_collective(comm: &mut LocalComm, count: usize) {
    let (rank, size) = (comm.rank(), comm.size());
    for root in 0..size {
        comm.run(Call::barrier(), idle).unwrap();
        let mut buffer = vector(rank, count, root);
        comm.run(Call::bcast(&mut buffer, root), idle).unwrap();
        assert_eq!(buffer, vector(root, count, root));

        let (send, mut recv) = (vector(rank, count, root), vec![0; count]);
        comm.run(Call::reduce(&send, &mut recv, Operator::Sum.into(), root).unwrap(), idle).unwrap();
        if rank == root {
            assert_eq!(recv, sum(size, count, root));
        }
        comm.run(Call::allreduce(&send, &mut recv, Operator::Sum.into()).unwrap(), idle).unwrap();
        assert_eq!(recv, sum(size, count, root));
    }
}

/// Checks that `count` integers take the form that the test is about.
fn assert_form(comm: &LocalComm, count: usize, form: &str) {
    let mut buffer = vector(0, count, 0);
    let choice = comm.choice(&Call::allreduce_in_place(&mut buffer, Operator::Sum.into()));
    assert_eq!(choice.split_once('/').map(|(_, form)| form), Some(form));
}

fn form(settings: &Settings, form: &str, counts: &[usize]) {
    for size in SIZES {
        ranks(size, settings, |comm, _| {
            for &count in counts {
                assert_form(comm, count, form);
                every_collective(comm, count);
            }
        });
    }
}

fn trees() -> Settings {
    let mut settings = heap();
    settings.tree_min_ranks = Some(2);
    settings.assume_own_cores = Some(true);
    // There are not as many cores as the settings say.
    settings.spins = Some(1);
    settings
}

#[test]
fn flat() {
    form(&heap(), "flat", &[0, 1, 15, 16, 128, 129, 512]);
}

#[test]
fn tree() {
    form(&trees(), "tree", &[0, 1, 15]);
    // Two levels.
    ranks(9, &trees(), |comm, _| every_collective(comm, 1));
    // Three levels, which trees follow; bcasts of any length.
    for single_copy in [Single::IfShared, Single::Never] {
        let mut settings = reached(single_copy, 0, false);
        settings.topology = Some("pack:2 l3:2 core:1".to_owned());
        settings.chunk_bytes = Some(4096);
        for size in [4, 6] {
            ranks(size, &settings, |comm, _| [0, 15, 16, 3000].map(|count| every_collective(comm, count)));
        }
    }
}

#[test]
fn direct() {
    form(&heap(), "direct", &[513, 1023]);
}

#[test]
fn slice() {
    // From the first size in slices to more than a ring of cells.
    let mut settings = heap();
    settings.slice_min_bytes = Some(0);
    // Reduce by slices is for ranks with a core each.
    settings.assume_own_cores = Some(true);
    settings.spins = Some(1);
    form(&settings, "slice", &[1024, 7001, 40_000]);
}

#[test]
fn ring() {
    for (single_copy, past_caches) in [(Single::IfShared, false), (Single::IfShared, true), (Single::Never, false)] {
        let mut settings = reached(single_copy, 0, past_caches);
        settings.form = Some(Form::Ring);
        form(&settings, "ring", &[1, 700, 40_000]);
        ranks(3, &settings, |comm, _| {
            // Results through cells, and read where they were reduced to.
            in_place_and_overlapping(comm, 9001);
            in_place_and_overlapping(comm, (1 << 17) + 3);
        });
    }
}

#[test]
fn chain() {
    let mut settings = reached(Single::Never, None, false);
    (settings.form, settings.topology) = (Some(Form::Chain), Some("core:2".to_owned()));
    settings.chunk_bytes = Some(4096);
    for size in [4, 5] {
        ranks(size, &settings, |comm, _| {
            assert_form(comm, 700, "chain");
            for count in [1, 700, 40_000] {
                every_collective(comm, count);
            }
            in_place_and_overlapping(comm, 9001);
        });
    }
}

#[test]
fn joint() {
    let mut settings = heap();
    settings.form = Some(Form::Joint);
    form(&settings, "joint", &[1, 700, 40_000]);
    ranks(3, &settings, |comm, _| in_place_and_overlapping(comm, 9001));
    // Both ways in turns, as trials go.
    let mut settings = heap();
    settings.assume_own_cores = Some(true);
    settings.spins = Some(1);
    ranks(2, &settings, |comm, _| (0..60).for_each(|salt| every_collective(comm, 2000 + salt % 3)));
}

/// So many small operations that every place of the ring is used several times, with ranks that run
/// ahead: a root of bcast waits for nobody, nor does a contributor to reduce.
fn rotate(comm: &mut LocalComm) {
    let (rank, size) = (comm.rank(), comm.size());
    for salt in 0..300 {
        let root = salt / 100 % size;
        let mut buffer = vector(rank, 3, salt);
        comm.run(Call::bcast(&mut buffer, root), idle).unwrap();
        assert_eq!(buffer, vector(root, 3, salt));
    }
    for salt in 0..300 {
        let root = salt / 100 % size;
        let mut buffer = vector(rank, 20, salt);
        comm.run(Call::reduce_in_place(&mut buffer, Operator::Sum.into(), root), idle).unwrap();
        if rank == root {
            assert_eq!(buffer, sum(size, 20, salt));
        }
    }
    for salt in 0..300 {
        // Beside the flag, or in a cell; those before went into annexes.
        let count = if salt % 2 == 0 { 2 } else { 200 };
        let mut buffer = vector(rank, count, salt);
        comm.run(Call::allreduce_in_place(&mut buffer, Operator::Sum.into()), idle).unwrap();
        assert_eq!(buffer, sum(size, count, salt));
        comm.run(Call::barrier(), idle).unwrap();
    }
}

#[test]
fn the_ring_rotates() {
    for settings in [heap(), trees()] {
        for size in SIZES {
            ranks(size, &settings, |comm, _| rotate(comm));
        }
    }
}

/// A sleep of [`sleeping`] ranks, unless somebody wakes them: far longer than what they do.
const LONG_SLEEP: Duration = Duration::from_secs(100);

/// Settings of ranks that sleep at once. `None` where the kernel has no barrier for sleepers, without which they may miss a ring.
fn sleeping() -> Option<Settings> {
    let mut settings = heap();
    (settings.spins, settings.yields) = (Some(0), Some(0));
    settings.sleep_us = Some(LONG_SLEEP.as_micros().try_into().unwrap());
    let placement = ranks(1, &settings, |comm, _| comm.job().placement().to_owned());
    (!placement[0].contains("membarrier is refused")).then_some(settings)
}

/// What a rank does before it sleeps: fails where a sleep has come to its end by itself.
fn unless_overslept(began: Instant) -> impl Fn() -> shm_core::Result<bool> + Copy {
    move || {
        let overslept = || Error::InvalidArgument("a sleeper has not been woken".to_owned());
        (began.elapsed() < LONG_SLEEP).then_some(false).ok_or_else(overslept)
    }
}

#[test]
fn ranks_that_sleep_at_once_are_woken() {
    let Some(settings) = sleeping() else { return };
    let idle = unless_overslept(Instant::now());
    ranks(3, &settings, |comm, _| {
        let (rank, size) = (comm.rank(), comm.size());
        for salt in 0..100 {
            for count in [3, 200, 3000] {
                let root = salt % size;
                let mut buffer = vector(rank, count, salt);
                comm.run(Call::bcast(&mut buffer, root), idle).unwrap();
                assert_eq!(buffer, vector(root, count, salt));
                let mut buffer = vector(rank, count, salt);
                comm.run(Call::allreduce_in_place(&mut buffer, Operator::Sum.into()), idle).unwrap();
                assert_eq!(buffer, sum(size, count, salt));
                comm.run(Call::barrier(), idle).unwrap();
            }
        }
    });
    idle().unwrap();
}

#[test]
fn what_is_under_way_elsewhere_goes_on_while_a_rank_sleeps() {
    let Some(settings) = sleeping() else { return };
    let on_time = unless_overslept(Instant::now());
    ranks(2, &settings, |comm, exchange| {
        let mut other = LocalComm::together(exchange, Rc::clone(comm.job()), 1, vec![0, 1]).unwrap();
        let rank = comm.rank();
        let vectors = || (0..100).map(|salt| (salt, vector(rank, 3, salt)));
        if rank == 0 {
            let mut begin = |vector| other.start_owned(OwnedCall::Allreduce(Operator::Sum.into()), vector).unwrap();
            let begun: Vec<_> = vectors().map(|(_, vector)| begin(vector)).collect();
            comm.run(Call::barrier(), || {
                on_time()?;
                other.progress()?;
                Ok(other.is_busy())
            })
            .unwrap();
            // The peer may have come to the barrier before this rank has looked at the last one.
            other.wait_all(on_time).unwrap();
            for (salt, sums) in begun.into_iter().enumerate() {
                assert_eq!(other.take(sums).unwrap(), sum(2, 3, salt));
            }
        } else {
            for (salt, mut buffer) in vectors() {
                other.run(Call::allreduce_in_place(&mut buffer, Operator::Sum.into()), on_time).unwrap();
                assert_eq!(buffer, sum(2, 3, salt));
            }
            comm.run(Call::barrier(), on_time).unwrap();
        }
    });
    on_time().unwrap();
}

#[test]
fn ranks_that_sleep_learn_that_the_job_has_ended() {
    let Some(settings) = sleeping() else { return };
    let began = Instant::now();
    let [asleep, learned] = [(); 2].map(|()| AtomicUsize::new(0));
    let errors = ranks(3, &settings, |comm, _| {
        if comm.rank() == 0 {
            until(|| asleep.load(Ordering::Relaxed) == 2);
            // They are about to sleep.
            std::thread::sleep(Duration::from_millis(20));
            let error = comm.job().abort("as the test wants it");
            // That it goes wakes them, too.
            until(|| learned.load(Ordering::Relaxed) == 2);
            return error;
        }
        let first = Cell::new(true);
        let idle = || {
            asleep.fetch_add(usize::from(first.replace(false)), Ordering::Relaxed);
            Ok(false)
        };
        let error = comm.run(Call::barrier(), idle).unwrap_err();
        learned.fetch_add(1, Ordering::Relaxed);
        error
    });
    assert!(errors.iter().all(|error| matches!(error, Error::Aborted { rank: 0, .. })), "{errors:?}");
    unless_overslept(began)().unwrap();
}

#[test]
fn several_operations_are_under_way() {
    for size in SIZES {
        ranks(size, &heap(), |comm, _| {
            let (rank, size) = (comm.rank(), comm.size());
            for round in 0..20 {
                let count = [1, 100, 2000][round % 3];
                let sums = comm.start_owned(OwnedCall::Allreduce(Operator::Sum.into()), vector(rank, count, round));
                let copies = comm.start_owned(OwnedCall::Bcast(round % size), vector(rank, count, round));
                let barrier = comm.start(Call::barrier()).unwrap();
                let (sums, copies) = (sums.unwrap(), copies.unwrap());
                if round % 2 == rank % 2 {
                    while !comm.test(barrier).unwrap() {
                        std::thread::yield_now();
                    }
                }
                comm.wait(copies.ticket(), idle).unwrap();
                assert_eq!(comm.take(copies).unwrap(), vector(round % size, count, round));
                assert_eq!(comm.take(sums).unwrap(), sum(size, count, round));
            }
            comm.run(Call::barrier(), idle).unwrap();
        });
    }
}

#[test]
fn operators_of_the_user_read_what_peers_have_published() {
    // Affine maps x -> a x + b modulo 256, packed: their composition does not commute.
    let compose =
        |f: u16, g: u16| (f >> 8).wrapping_mul(g >> 8) << 8 | ((f >> 8).wrapping_mul(g & 255) + (f & 255)) & 255;
    let map = |rank: usize, index: usize| u16::try_from((rank * 40_503 + index * 977) % 65_536).unwrap() | 0x100;
    ranks(3, &heap(), |comm, _| {
        let op: Op = UserOperator::elementwise::<u16>(false, compose).into();
        for count in [7, 1000, 9000] {
            let mut buffer: Vec<u16> = (0..count).map(|index| map(comm.rank(), index)).collect();
            comm.run(Call::allreduce_in_place(&mut buffer, op.clone()), idle).unwrap();
            let expected = |index| (0..3).map(|rank| map(rank, index)).reduce(compose).unwrap();
            assert_eq!(buffer, (0..count).map(expected).collect::<Vec<u16>>());
        }
    });
}

#[test]
fn ranks_that_disagree_tell_each_other() {
    for size in SIZES {
        let errors = ranks(size, &heap(), |comm, _| {
            for _ in 0..5 {
                comm.run(Call::barrier(), idle).unwrap();
            }
            let mut buffer = [0_i64; 2];
            let call = if comm.rank() == 1 { Call::barrier() } else { Call::bcast(&mut buffer, 0) };
            let mut last = comm.run(call, idle);
            while last.is_ok() {
                last = comm.run(Call::barrier(), idle);
            }
            last.unwrap_err()
        });
        for error in errors {
            assert!(matches!(error, Error::Mismatch(_)), "{error}");
        }
    }
}

/// Vectors of any length are lent, or none are; payloads go past the caches, or not.
fn reached(single_copy: Single, slice_min_bytes: impl Into<Option<usize>>, past_caches: bool) -> Settings {
    let mut settings = trees();
    settings.single_copy = single_copy;
    settings.single_copy_min_bytes = Some(0);
    settings.slice_min_bytes = slice_min_bytes.into();
    settings.past_caches = Some(past_caches);
    settings.last_cache_bytes = past_caches.then_some(1);
    settings
}

/// All collectives in place, and several at once; vectors are freed as soon as their operation has completed.
fn in_place_and_overlapping(comm: &mut LocalComm, count: usize) {
    let (rank, size) = (comm.rank(), comm.size());
    for root in 0..size {
        let mut buffer = vector(rank, count, root);
        comm.run(Call::reduce_in_place(&mut buffer, Operator::Sum.into(), root), idle).unwrap();
        let expected = if rank == root { sum(size, count, root) } else { vector(rank, count, root) };
        assert_eq!(buffer, expected);
        // Ranks differ in whether they may lend.
        let mut buffer = vector(rank, count, root);
        if rank == root {
            comm.run(Call::allreduce_in_place(&mut buffer, Operator::Sum.into()), idle).unwrap();
        } else {
            let send = std::mem::replace(&mut buffer, vec![0; count]);
            comm.run(Call::allreduce(&send, &mut buffer, Operator::Sum.into()).unwrap(), idle).unwrap();
        }
        assert_eq!(buffer, sum(size, count, root));
    }
    let sums = comm.start_owned(OwnedCall::Allreduce(Operator::Sum.into()), vector(rank, count, 5)).unwrap();
    let copies = comm.start_owned(OwnedCall::Bcast(size - 1), vector(rank, count, 6)).unwrap();
    let root = comm.start_owned(OwnedCall::Reduce(Operator::Sum.into(), 0), vector(rank, count, 7)).unwrap();
    comm.wait(copies.ticket(), idle).unwrap();
    assert_eq!(comm.take(copies).unwrap(), vector(size - 1, count, 6));
    assert_eq!(comm.take(sums).unwrap(), sum(size, count, 5));
    comm.wait(root.ticket(), idle).unwrap();
    let kept = comm.take(root).unwrap();
    assert_eq!(kept, if rank == 0 { sum(size, count, 7) } else { vector(rank, count, 7) });
    let larger: Op = UserOperator::elementwise::<i64>(true, i64::max).into();
    let (send, mut recv) = (vector(rank, count, 8), vec![0; count]);
    comm.run(Call::allreduce(&send, &mut recv, larger).unwrap(), idle).unwrap();
    let vectors: Vec<_> = (0..size).map(|rank| vector(rank, count, 8)).collect();
    assert!((0..count).all(|index| Some(recv[index]) == vectors.iter().map(|vector| vector[index]).max()));
}

#[test]
fn lent_vectors_and_cells() {
    for single_copy in [Single::IfShared, Single::Never] {
        for past_caches in [false, true] {
            // All in slices, none, and as was measured.
            for slice_min_bytes in [Some(0), Some(usize::MAX), None] {
                if past_caches && slice_min_bytes.is_none() {
                    continue; // in slices
                }
                for size in SIZES {
                    ranks(size, &reached(single_copy, slice_min_bytes, past_caches), |comm, _| {
                        for count in [700, 9001] {
                            every_collective(comm, count);
                            in_place_and_overlapping(comm, count);
                        }
                    });
                }
            }
        }
    }
}

#[test]
fn lent_results() {
    // So long that results are read where they were reduced to.
    for past_caches in [false, true] {
        for size in [2, 3] {
            ranks(size, &reached(Single::IfShared, 0, past_caches), |comm, _| {
                in_place_and_overlapping(comm, (1 << 17) + 3);
            });
        }
    }
}

const TAKEN_BACK: i64 = -1;

/// Rank 2 leaves an operation by what `leave` does while it waits, and all use their vectors as soon as they have their
/// errors, while rank 1 is in its operator, until all of them have. What each rank got.
fn leaving(settings: &Settings, leave: impl Fn(&Job) -> shm_core::Result<()> + Sync) -> Vec<Error> {
    let [at_work, seen, done] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
    let taken_back = Arc::new(AtomicUsize::new(0));
    let errors = ranks(3, settings, |comm, _| {
        let (rank, count) = (comm.rank(), 20_000);
        let (here, others, seen) = (Arc::clone(&at_work), Arc::clone(&taken_back), Arc::clone(&seen));
        let op = UserOperator::elementwise::<i64>(true, move |a, b| {
            if rank == 1 && !here.swap(true, Ordering::Relaxed) {
                until(|| others.load(Ordering::Relaxed) == 2);
            }
            seen.fetch_or(a == TAKEN_BACK || b == TAKEN_BACK, Ordering::Relaxed);
            a.max(b)
        });
        let (mut send, mut recv) = (vector(rank, count, 0), vec![0; count]);
        let job = Rc::clone(comm.job());
        let end = || if rank == 2 && at_work.load(Ordering::Relaxed) { leave(&job).map(|()| false) } else { Ok(false) };
        let call = Call::allreduce(&send, &mut recv, op.into()).unwrap();
        let outcome = catch_unwind(AssertUnwindSafe(|| comm.run(call, end)));
        send.fill(TAKEN_BACK);
        recv.fill(TAKEN_BACK);
        if rank == 1 {
            done.store(true, Ordering::Relaxed);
        } else {
            // Relaxed, here and above: the sanitizer is to see who else orders rank 1's work and this rank's.
            taken_back.fetch_add(1, Ordering::Relaxed);
            until(|| done.load(Ordering::Relaxed));
            assert!(send.iter().chain(&recv).all(|&own| own == TAKEN_BACK), "written to after the error");
        }
        // After a panic as anybody sees it who asks.
        outcome.unwrap_or_else(|_| job.check()).unwrap_err()
    });
    assert!(!seen.load(Ordering::Relaxed), "what was written after the error was used");
    errors
}

fn until(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() && began.elapsed() < Duration::from_secs(200) {
        std::thread::yield_now();
    }
}

/// Forms that reach vectors of peers.
fn forms_that_reach() -> Vec<Settings> {
    let lent = |slice_min_bytes| reached(Single::IfShared, slice_min_bytes, false);
    let mut all: Vec<_> = [Some(0), Some(usize::MAX), None, Some(0), None, None].map(lent).into();
    all[3].for_all_max_bytes = Some(usize::MAX);
    all[4].form = Some(Form::Joint);
    all[5].form = Some(Form::Ring);
    all
}

#[test]
fn failed_operations_give_lent_vectors_back() {
    for settings in forms_that_reach() {
        for error in leaving(&settings, |job| Err(job.abort("as the test wants it"))) {
            assert!(matches!(error, Error::Aborted { rank: 2, .. }), "{error}");
        }
    }
}

/// What a caller does while it waits may fail by itself, or panic: nobody waits for it, or works on its vectors.
#[test]
fn who_fails_while_it_waits_gets_its_vectors_back() {
    for settings in forms_that_reach() {
        for error in leaving(&settings, |_| Err(Error::InvalidArgument("as the test wants it".to_owned()))) {
            assert!(matches!(&error, Error::Aborted { rank: 2, why, .. } if why.contains("test wants")), "{error}");
        }
        for has_finalized in [false, true] {
            let leave = |job: &Job| {
                if has_finalized {
                    job.finalize();
                }
                panic!("as the test wants it")
            };
            for error in leaving(&settings, leave) {
                assert!(matches!(error, Error::PeerDied { rank: 2, .. }), "{error}");
            }
        }
    }
}

/// Rank 0 looks at the job once it has given its core away 16 times; by then the barrier is over, and rank 1 has ended the job.
#[test]
fn what_was_complete_before_the_job_ended_is_no_error() {
    let [looks, ended] = [(); 2].map(|()| AtomicBool::new(false));
    let until = |flag: &AtomicBool| {
        while !flag.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    };
    let outcomes = ranks(2, &heap(), |comm, _| {
        let rank = comm.rank();
        let rests = Cell::new(0);
        if rank == 1 {
            until(&looks);
        }
        let outcome = comm.run(Call::barrier(), || {
            rests.set(rests.get() + 1);
            if rank == 0 && rests.get() == 16 {
                looks.store(true, Ordering::Release);
                until(&ended);
            }
            Ok(false)
        });
        if rank == 1 {
            comm.job().abort("as the test wants it");
            ended.store(true, Ordering::Release);
        }
        (outcome, comm.run(Call::barrier(), idle))
    });
    for (barrier, after) in outcomes {
        barrier.unwrap();
        assert!(matches!(after, Err(Error::Aborted { rank: 1, .. })), "{after:?}");
    }
}
