//! Every collective, 1 to 9 ranks, every root, counts around every internal boundary, in place or
//! not, over every kind of segment, with exact results.
#![allow(clippy::unwrap_used)]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use reduce_kernels::{Op, Operator, UserOperator, f16};
use shm_core::segment::Backing;
use shm_core::segment::layout::{cell_bytes, cells_in_ring};
use shm_core::{Call, Form, LocalComm, Settings, Single};
use support::{heap, idle, ranks};

/// What rank `rank` contributes at `index` in the test with number `salt`.
fn value(rank: usize, index: usize, salt: usize) -> i64 {
    let mixed = (rank * 7919 + index * 104_729 + salt * 31) % 10_007;
    i64::try_from(mixed).unwrap() - 5000
}

fn vector(rank: usize, count: usize, salt: usize) -> Vec<i64> {
    (0..count).map(|index| value(rank, index, salt)).collect()
}

fn sum(size: usize, count: usize, salt: usize) -> Vec<i64> {
    (0..count).map(|index| (0..size).map(|rank| value(rank, index, salt)).sum()).collect()
}

/// Counts of i64 around the inline limit, cells, the slice threshold, chunks, and beyond the ring.
fn counts(settings: &Settings) -> Vec<usize> {
    let mut counts = vec![0, 1, 2];
    for bytes in [56, 120, 1024, 4096, 8192, 32_768, settings.chunk_bytes.unwrap_or(16_384), 64 * 4096] {
        let at = bytes / 8;
        counts.extend([at.saturating_sub(1), at, at + 1]);
    }
    counts.extend([3 * settings.chunk_bytes.unwrap_or(16_384) / 8 + 5, 3 * 64 * 4096 / 8 + 77]);
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// All of them, but under a sanitizer, which sees the same accesses for each, the first and the last.
fn roots(size: usize) -> impl Iterator<Item = usize> {
    (0..size).filter(move |&root| !cfg!(sanitized) || root == 0 || root + 1 == size)
}

fn every_collective(comm: &mut LocalComm, counts: &[usize]) {
    let (rank, size) = (comm.rank(), comm.size());
    let mut salt = 0;
    for &count in counts {
        for root in roots(size) {
            salt += 1;
            comm.run(Call::barrier(), idle).unwrap();

            let mut buffer = vector(rank, count, salt);
            comm.run(Call::bcast(&mut buffer, root), idle).unwrap();
            assert_eq!(buffer, vector(root, count, salt), "bcast count {count} root {root} rank {rank}");

            let send = vector(rank, count, salt);
            let mut recv = vec![77; count];
            comm.run(Call::reduce(&send, &mut recv, Operator::Sum.into(), root).unwrap(), idle).unwrap();
            let expected = if rank == root { sum(size, count, salt) } else { vec![77; count] };
            assert_eq!(recv, expected, "reduce count {count} root {root} rank {rank}");
            assert_eq!(send, vector(rank, count, salt), "reduce leaves what is sent");

            let mut buffer = vector(rank, count, salt);
            comm.run(Call::reduce_in_place(&mut buffer, Operator::Sum.into(), root), idle).unwrap();
            let expected = if rank == root { sum(size, count, salt) } else { vector(rank, count, salt) };
            assert_eq!(buffer, expected, "reduce in place count {count} root {root} rank {rank}");
        }
        let send = vector(rank, count, salt);
        let mut recv = vec![77; count];
        comm.run(Call::allreduce(&send, &mut recv, Operator::Sum.into()).unwrap(), idle).unwrap();
        assert_eq!(recv, sum(size, count, salt), "allreduce count {count} rank {rank}");
        let mut buffer = send;
        comm.run(Call::allreduce_in_place(&mut buffer, Operator::Sum.into()), idle).unwrap();
        assert_eq!(buffer, sum(size, count, salt), "allreduce in place count {count} rank {rank}");
    }
}

fn with_backing(backing: Backing) -> Settings {
    let mut settings = heap();
    settings.backing = Some(backing);
    settings
}

#[test]
fn heap_is_exact_for_1_to_9_ranks() {
    let settings = heap();
    let counts = counts(&settings);
    for size in 1..=9 {
        ranks(size, &settings, |comm, _| every_collective(comm, &counts));
    }
}

#[test]
fn memfd_and_dev_shm_are_exact() {
    for backing in [Backing::Memfd, Backing::DevShm] {
        let settings = with_backing(backing);
        let counts = counts(&settings);
        for size in [2, 5] {
            ranks(size, &settings, |comm, _| {
                assert_eq!(comm.job().backing(), backing);
                every_collective(comm, &counts);
            });
        }
    }
}

#[test]
fn trees_are_exact() {
    // Few ranks in trees, as if there were a core for each; then many ranks.
    let mut settings = heap();
    settings.tree_min_ranks = Some(2);
    settings.assume_own_cores = Some(true);
    for size in [2, 3, 8, 9, 10] {
        ranks(size, &settings, |comm, _| every_collective(comm, &[0, 1, 15]));
    }
}

#[test]
fn other_thresholds_are_exact() {
    for (chunk_bytes, slice_min_bytes, own_cores) in
        [(4096, 0, false), (16_384, 0, true), (65536, 0, true), (65536, usize::MAX, true)]
    {
        let mut settings = heap();
        // Decides the form of reduce; threads share cores all the same, so they must not spin.
        settings.assume_own_cores = Some(own_cores);
        settings.spins = Some(1);
        settings.chunk_bytes = Some(chunk_bytes);
        settings.slice_min_bytes = Some(slice_min_bytes);
        let counts = [16, 500, 513, 9000, 40_000, 100_000];
        for size in [2, 3, 4, 7] {
            ranks(size, &settings, |comm, _| every_collective(comm, &counts));
        }
    }
}

#[test]
fn every_way_to_reach_a_buffer_is_exact() {
    for single_copy in [Single::IfShared, Single::ByKernel, Single::Never] {
        for (slice_min_bytes, chunk_bytes) in [(0, 4096), (0, 65536), (usize::MAX, 16_384)] {
            let mut settings = heap();
            settings.assume_own_cores = Some(true);
            settings.spins = Some(1);
            settings.single_copy = single_copy;
            settings.single_copy_min_bytes = Some(0);
            settings.slice_min_bytes = Some(slice_min_bytes);
            settings.chunk_bytes = Some(chunk_bytes);
            for size in [2, 3, 5] {
                ranks(size, &settings, |comm, _| every_collective(comm, &[600, 9000, 100_001]));
            }
        }
    }
}

#[test]
fn every_form_that_is_set_is_taken_and_exact() {
    // Of allreduce and bcast of 1, 15, 16, 512, 513 and 40,000 numbers; threads reach all vectors.
    let taken = |form| match form {
        Form::Flat => ["sm/flat", "sm/flat", "sm/flat", "sm/flat", "sm/direct", "solo/direct"],
        Form::Tree => ["sm/tree", "sm/tree", "sm/flat", "sm/flat", "sm/direct", "solo/direct"],
        Form::Direct => ["sm/direct", "sm/direct", "sm/direct", "sm/direct", "sm/direct", "solo/direct"],
        Form::Ring => ["sm/ring", "sm/ring", "sm/ring", "sm/ring", "sm/ring", "solo/ring"],
        Form::Joint => ["solo/joint"; 6],
        _ => ["sm/slice", "sm/slice", "sm/slice", "sm/slice", "sm/slice", "solo/slice"],
    };
    let counts = [1, 15, 16, 512, 513, 40_000];
    for form in [Form::Flat, Form::Tree, Form::Direct, Form::Slice, Form::Ring, Form::Joint] {
        for single_copy in [Single::Auto, Single::Never] {
            let mut settings = heap();
            settings.form = Some(form);
            settings.single_copy = single_copy;
            settings.single_copy_min_bytes = Some(16_384);
            for size in [2, 3, 5, 9] {
                let reach = single_copy != Single::Never;
                let taken = taken(if form == Form::Joint && !reach { Form::Slice } else { form });
                ranks(size, &settings, |comm, _| {
                    for (count, mut choice) in counts.into_iter().zip(taken) {
                        if single_copy == Single::Never {
                            choice = match choice {
                                "solo/direct" => "sm/direct",
                                "solo/slice" => "sm/slice",
                                "solo/ring" => "sm/ring",
                                other => other,
                            };
                        }
                        let (send, mut recv) = (vec![1_i64; count], vec![0_i64; count]);
                        let call = Call::allreduce(&send, &mut recv, Operator::Sum.into()).unwrap();
                        assert_eq!(comm.choice(&call), choice, "{form} {count}");
                        let bcast = comm.choice(&Call::bcast(&mut recv, 0));
                        assert_eq!(
                            bcast,
                            choice.replace("slice", "direct").replace("ring", "direct"),
                            "{form} {count}"
                        );
                    }
                    every_collective(comm, &[0]);
                    every_collective(comm, &counts);
                });
            }
        }
    }
}

/// Chunks of a page: more of them than have cells at a time, and than there are slots in use.
#[test]
fn sums_that_are_handed_on_are_exact() {
    let on_cores = [("core:1", 2), ("core:2", 4), ("core:2", 5), ("core:2", 8), ("core:3", 7)];
    let in_trees = [2, 3, 5, 8].map(|size| (None, size));
    for (topology, size) in on_cores.map(|(topology, size)| (Some(topology), size)).into_iter().chain(in_trees) {
        for single_copy in [Single::Auto, Single::Never] {
            let mut settings = heap();
            settings.topology = topology.map(str::to_owned);
            if topology.is_none() {
                (settings.assume_own_cores, settings.spins) = (Some(true), Some(1));
            }
            settings.form = Some(Form::Chain);
            settings.single_copy = single_copy;
            settings.single_copy_min_bytes = Some(16_384);
            settings.chunk_bytes = Some(4096);
            ranks(size, &settings, |comm, _| {
                let mut vector = vec![1_i64; 4097];
                let call = Call::allreduce_in_place(&mut vector, Operator::Sum.into());
                // Threads map all of each other's memory.
                assert_eq!(comm.choice(&call), if single_copy == Single::Never { "sm/chain" } else { "solo/slice" });
                every_collective(comm, &[1, 511, 512, 513, 4096, 4097, 40_000]);
                every_collective(comm, &[140_003]);
                // Other forms use the same cells in between.
                for root in 0..comm.size() {
                    let mut vector = vec![1_i64; 70_000];
                    comm.run(Call::bcast(&mut vector, root), idle).unwrap();
                    comm.run(Call::reduce_in_place(&mut vector, Operator::Sum.into(), root), idle).unwrap();
                    let sum = if comm.rank() == root { comm.size() } else { 1 };
                    assert!(vector.iter().all(|&item| item == i64::try_from(sum).unwrap()));
                }
            });
        }
    }
}

/// An operator that does not commute, and elements of 16 bits, go otherwise.
#[test]
fn what_keeps_its_order_is_not_handed_on() {
    let mut settings = heap();
    (settings.topology, settings.form) = (Some("core:2".to_owned()), Some(Form::Chain));
    settings.single_copy = Single::Never;
    ranks(4, &settings, |comm, _| {
        let mut halves = vec![f16::ONE; 5000];
        let call = Call::allreduce_in_place(&mut halves, Operator::Sum.into());
        assert_eq!(comm.choice(&call), "sm/slice");
        let mut floats = vec![1.0_f32; 5000];
        assert_eq!(comm.choice(&Call::allreduce_in_place(&mut floats, Operator::Sum.into())), "sm/chain");
        comm.run(Call::allreduce_in_place(&mut floats, Operator::Sum.into()), idle).unwrap();
        assert!(floats.iter().all(|&item| item.to_bits() == 4.0_f32.to_bits()));
    });
}

/// Partial results of a tree would be infinite.
#[test]
fn sums_in_sixteen_bits_are_rounded_once() {
    let mut settings = heap();
    settings.form = Some(Form::Tree);
    let part = |rank| match rank {
        8 | 9 => 60000.0,
        16 => -60000.0,
        _ => 0.0,
    };
    ranks(18, &settings, |comm, _| {
        let mut halves = [f16::from_f32(part(comm.rank())); 3];
        comm.run(Call::allreduce_in_place(&mut halves, Operator::Sum.into()), idle).unwrap();
        assert_eq!(halves, [f16::from_f32(60000.0); 3]);
        let mut greatest = [f16::from_f32(part(comm.rank())); 3];
        let call = Call::allreduce_in_place(&mut greatest, Operator::Max.into());
        assert_eq!(comm.choice(&call), "sm/tree");
        comm.run(call, idle).unwrap();
        assert_eq!(greatest, [f16::from_f32(60000.0); 3]);
    });
}

/// Sums of floating-point numbers round differently in another order, so ranks that computed them each in its own
/// way would be told apart.
#[test]
fn all_ranks_receive_the_same_bits_round_the_ring() {
    let part = |rank: usize, index: usize| 1.0 / (1 + rank * 31 + index) as f32;
    for (reproducible, form, name) in [(false, Form::Ring, "sm/ring"), (true, Form::Ring, "sm/slice")] {
        let mut settings = heap();
        (settings.form, settings.reproducible) = (Some(form), reproducible);
        settings.single_copy = Single::Never;
        settings.chunk_bytes = Some(4096);
        for size in [2, 4, 7] {
            let results = ranks(size, &settings, |comm, _| {
                let send: Vec<f32> = (0..5003).map(|index| part(comm.rank(), index)).collect();
                let mut recv = vec![0.0; send.len()];
                let call = Call::allreduce(&send, &mut recv, Operator::Sum.into()).unwrap();
                assert_eq!(comm.choice(&call), name);
                comm.run(call, idle).unwrap();
                recv.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            });
            assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{size} ranks");
            let in_rank_order = |index| (0..size).map(|rank| part(rank, index)).reduce(|a, b| a + b).unwrap();
            let same = (0..5003).all(|index| results[0][index] == in_rank_order(index).to_bits());
            // Two summands have one order.
            assert_eq!(same, reproducible || size == 2, "{size} ranks");
        }
    }
}

/// Sums round differently in another order: all forms but those that hand partial sums on add up from the left in rank order,
/// and with `reproducible` there are no others.
#[test]
fn sums_of_floats_are_added_up_in_rank_order() {
    let forms = [None, Some(Form::Flat), Some(Form::Direct), Some(Form::Slice), Some(Form::Joint)];
    let singles = [Single::Auto, Single::ByKernel, Single::Never];
    for form in forms {
        for single_copy in singles {
            for own_cores in [false, true] {
                let mut settings = heap();
                (settings.form, settings.single_copy) = (form, single_copy);
                settings.assume_own_cores = Some(own_cores);
                settings.spins = Some(1);
                for size in [3, 10, 33] {
                    sums_are_in_rank_order(size, &settings);
                }
            }
        }
    }
}

#[test]
fn reproducible_sums_are_added_up_in_rank_order_whatever_is_set() {
    for form in [None, Some(Form::Tree), Some(Form::Slice), Some(Form::Ring), Some(Form::Chain), Some(Form::Joint)] {
        for (single_copy, topology) in [(Single::Auto, None), (Single::Never, Some("core:2".to_owned()))] {
            let mut settings = heap();
            (settings.form, settings.reproducible) = (form, true);
            // Chains where ranks share the cores of a machine, trees and work on all vectors where they do not.
            settings.assume_own_cores = Some(topology.is_none());
            settings.spins = Some(1);
            (settings.single_copy, settings.topology) = (single_copy, topology);
            for size in [3, 10, 33] {
                sums_are_in_rank_order(size, &settings);
            }
        }
    }
}

/// Sums of floats have the bits of a sum from the left, in lines, cells, chunks and parts of at least a page.
fn sums_are_in_rank_order(size: usize, settings: &Settings) {
    let part = |rank: usize, index: usize| 1.0 / (1 + rank * 31 + index) as f32;
    ranks(size, settings, |comm, _| {
        for count in [1, 30, 900, 5003, if size == 33 { 34_000 } else { 12_000 }] {
            let send: Vec<f32> = (0..count).map(|index| part(comm.rank(), index)).collect();
            let in_rank_order = |index| (0..size).map(|rank| part(rank, index)).fold(0.0, |sum, part| sum + part);
            let expected: Vec<u32> = (0..count).map(|index| f32::to_bits(in_rank_order(index))).collect();
            let bits = |sums: Vec<f32>| sums.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            let what = || format!("{count} on {size} ranks, {settings}");

            let mut recv = vec![0.0; count];
            let call = Call::allreduce(&send, &mut recv, Operator::Sum.into()).unwrap();
            let choice = comm.choice(&call);
            comm.run(call, idle).unwrap();
            let hands_on = ["tree", "ring", "chain"].iter().any(|form| choice.ends_with(form));
            assert!(!hands_on || !settings.reproducible, "{choice} for {}", what());
            assert!(hands_on || bits(recv) == expected, "allreduce by {choice} of {}", what());

            let root = size - 2;
            let mut buffer = send.clone();
            let call = Call::reduce_in_place(&mut buffer, Operator::Sum.into(), root);
            let choice = comm.choice(&call);
            comm.run(call, idle).unwrap();
            let hands_on = ["tree", "ring", "chain"].iter().any(|form| choice.ends_with(form));
            let result = if comm.rank() == root { expected } else { bits(send) };
            assert!(hands_on || bits(buffer) == result, "reduce by {choice} of {}", what());
        }
    });
}

#[test]
fn many_ranks_are_exact() {
    // Flat, as threads share cores; and in trees, as if they did not.
    let mut trees = heap();
    trees.assume_own_cores = Some(true);
    trees.spins = Some(1);
    // More rounds than there are slots in use.
    let mut ring = trees.clone();
    ring.form = Some(Form::Ring);
    let mut chains = heap();
    (chains.topology, chains.form) = (Some("core:2".to_owned()), Some(Form::Chain));
    chains.single_copy = Single::Never;
    let all = [(33, heap()), (33, chains), (256, heap()), (33, trees.clone()), (256, trees), (65, ring)];
    for (size, settings) in all {
        ranks(size, &settings, |comm, _| {
            let (rank, size) = (comm.rank(), comm.size());
            // The last has more chunks than are in flight.
            let counts = [1, 15, 16, 3000, 70_000];
            for &count in &counts[..if size == 33 { 5 } else { 4 }] {
                let mut buffer = vector(rank, count, 1);
                comm.run(Call::allreduce_in_place(&mut buffer, Operator::Sum.into()), idle).unwrap();
                assert_eq!(buffer, sum(size, count, 1), "allreduce of {count}");
                let root = size - 2;
                let mut buffer = vector(rank, count, 2);
                comm.run(Call::bcast(&mut buffer, root), idle).unwrap();
                assert_eq!(buffer, vector(root, count, 2), "bcast of {count}");
                let mut buffer = vector(rank, count, 3);
                comm.run(Call::reduce_in_place(&mut buffer, Operator::Sum.into(), root), idle).unwrap();
                if rank == root {
                    assert_eq!(buffer, sum(size, count, 3), "reduce of {count}");
                }
            }
            comm.run(Call::barrier(), idle).unwrap();
        });
    }
}

/// Behind operations with one root, ranks that share cores leave barriers in an order; one of them is late now and then.
#[test]
fn operations_with_one_root_and_a_barrier_behind_each() {
    for (size, count) in [(4, 1), (5, 1), (5, 300), (9, 5000)] {
        ranks(size, &heap(), |comm, _| {
            let rank = comm.rank();
            for root in [0, size - 1, 1] {
                for round in 0..12 {
                    if round % 4 == 2 && rank == (root + round / 4) % size {
                        thread::sleep(Duration::from_millis(5));
                    }
                    let mut buffer = vector(rank, count, round);
                    comm.run(Call::bcast(&mut buffer, root), idle).unwrap();
                    assert_eq!(buffer, vector(root, count, round), "bcast {round}");
                    comm.run(Call::barrier(), idle).unwrap();
                }
                for round in 0..12 {
                    if round % 4 == 2 && rank == (root + round / 4) % size {
                        thread::sleep(Duration::from_millis(5));
                    }
                    let mut buffer = vector(rank, count, round);
                    comm.run(Call::reduce_in_place(&mut buffer, Operator::Sum.into(), root), idle).unwrap();
                    let expected = if rank == root { sum(size, count, round) } else { vector(rank, count, round) };
                    assert_eq!(buffer, expected, "reduce {round}");
                    comm.run(Call::barrier(), idle).unwrap();
                }
            }
        });
    }
}

/// A root of bcast writes cells and reads none; its peers must learn all the same that it is past them, because their
/// own next payloads come to the same cells.
#[test]
fn cells_that_a_root_has_filled_are_used_again_by_its_peers() {
    let mut settings = heap();
    settings.single_copy = Single::Never;
    settings.timeout_s = 200.0;
    settings.chunk_bytes = Some(65_536);
    let ring = cells_in_ring(33) * cell_bytes(33) / size_of::<i64>();
    ranks(33, &settings, |comm, _| {
        let rank = comm.rank();
        for root in [0, 32, 7] {
            // Once around the ring of so many ranks, in fewer steps than marks may lag behind; then one cell.
            let mut buffer = vector(rank, ring, root);
            comm.run(Call::bcast(&mut buffer, root), idle).unwrap();
            assert_eq!(buffer, vector(root, ring, root));
            let mut buffer = vector(rank, 100, root);
            comm.run(Call::allreduce_in_place(&mut buffer, Operator::Sum.into()), idle).unwrap();
            assert_eq!(buffer, sum(33, 100, root));
        }
    });
}

/// Composition of x -> a x + b modulo 2^16: associative, not commutative.
fn compose(left: u32, right: u32) -> u32 {
    let (a, b, c, d) = (left >> 16, left & 0xffff, right >> 16, right & 0xffff);
    (a.wrapping_mul(c) & 0xffff) << 16 | (a.wrapping_mul(d).wrapping_add(b) & 0xffff)
}

/// What rank `rank` contributes at `index` to a composition: an odd slope, so that nothing is lost.
fn map(rank: usize, index: usize) -> u32 {
    u32::try_from(rank * 40_503 + index * 977 + 1).unwrap().wrapping_mul(0x9e37_79b1) | 0x1_0000
}

/// The compositions of all ranks' maps in rank order.
fn composed(size: usize, count: usize) -> Vec<u32> {
    (0..count).map(|index| (0..size).map(|rank| map(rank, index)).reduce(compose).unwrap()).collect()
}

/// What the tests below rely on: at every index each rank counts, and so does its place.
#[test]
fn compositions_tell_other_orders_and_ranks_left_out() {
    for index in 0..31 {
        let ranks: Vec<usize> = (0..20).collect();
        let of = |ranks: &[usize]| ranks.iter().map(|&rank| map(rank, index)).reduce(compose).unwrap();
        for rank in 1..ranks.len() {
            let mut swapped = ranks.clone();
            swapped.swap(rank - 1, rank);
            assert_ne!(of(&swapped), of(&ranks), "ranks {rank} and the one before it, at {index}");
            let mut without = ranks.clone();
            without.remove(rank);
            assert_ne!(of(&without), of(&ranks), "without rank {rank}, at {index}");
        }
    }
}

#[test]
fn operators_that_do_not_commute_keep_rank_order_in_every_form() {
    let mut trees = heap();
    trees.tree_min_ranks = Some(2);
    trees.assume_own_cores = Some(true);
    let mut ring = heap();
    ring.form = Some(Form::Ring);
    for settings in [heap(), trees, ring] {
        for size in [1, 2, 3, 5, 9, 20] {
            ranks(size, &settings, |comm, _| {
                let (rank, size) = (comm.rank(), comm.size());
                let op: Op = UserOperator::elementwise::<u32>(false, compose).into();
                for count in [1, 30, 31, 2000, 3000, 20_000] {
                    let expected = composed(size, count);
                    let send: Vec<u32> = (0..count).map(|i| map(rank, i)).collect();
                    let mut recv = vec![0; count];
                    comm.run(Call::allreduce(&send, &mut recv, op.clone()).unwrap(), idle).unwrap();
                    assert_eq!(recv, expected, "allreduce size {size} count {count}");
                    for root in roots(size) {
                        let mut buffer = send.clone();
                        comm.run(Call::reduce_in_place(&mut buffer, op.clone(), root), idle).unwrap();
                        if rank == root {
                            assert_eq!(buffer, expected, "reduce size {size} count {count} root {root}");
                        }
                    }
                }
            });
        }
    }
}

/// A root that has begun a bcast and does something else is not waited for, as long as nobody needs its part.
#[test]
fn a_root_that_has_gone_on_keeps_no_receiver() {
    let mut settings = heap();
    settings.form = Some(Form::Joint);
    settings.timeout_s = 200.0;
    for size in [2, 4] {
        let received = Barrier::new(size);
        ranks(size, &settings, |comm, _| {
            let begun = comm.start_owned(shm_core::OwnedCall::Bcast(1), vector(comm.rank(), 9000, 1)).unwrap();
            if comm.rank() != 1 {
                comm.wait(begun.ticket(), idle).unwrap();
            }
            received.wait();
            comm.wait(begun.ticket(), idle).unwrap();
            assert_eq!(comm.take(begun).unwrap(), vector(1, 9000, 1));
        });
    }
}

#[test]
fn several_outstanding_operations_complete_in_any_order() {
    for size in [1, 2, 4] {
        ranks(size, &heap(), |comm, _| {
            let (rank, size) = (comm.rank(), comm.size());
            for count in [1, 400, 9000] {
                let sums =
                    comm.start_owned(shm_core::OwnedCall::Allreduce(Operator::Sum.into()), vector(rank, count, 1));
                let copies = comm.start_owned(shm_core::OwnedCall::Bcast(size - 1), vector(rank, count, 2));
                let barrier = comm.start(Call::barrier()).unwrap();
                let (sums, copies) = (sums.unwrap(), copies.unwrap());
                comm.wait(barrier, idle).unwrap();
                assert!(comm.test(copies.ticket()).unwrap(), "completed before the barrier behind it");
                assert_eq!(comm.take(copies).unwrap(), vector(size - 1, count, 2));
                assert_eq!(comm.take(sums).unwrap(), sum(size, count, 1));
                comm.run(Call::barrier(), idle).unwrap();
            }
        });
    }
}

#[test]
fn a_blocking_call_completes_what_was_begun_before() {
    ranks(3, &heap(), |comm, _| {
        let rank = comm.rank();
        let begun = comm.start_owned(shm_core::OwnedCall::Allreduce(Operator::Max.into()), vec![rank as u64; 5000]);
        comm.run(Call::barrier(), idle).unwrap();
        assert_eq!(comm.take(begun.unwrap()).unwrap(), vec![2; 5000]);
    });
}

/// What an operator holds is dropped with its operation, which counts as completed all the same.
#[test]
fn an_operator_that_panics_when_it_is_dropped_leaves_later_operations_as_they_are() {
    struct Fragile;
    impl Drop for Fragile {
        fn drop(&mut self) {
            panic!("as the test wants it");
        }
    }
    ranks(2, &heap(), |comm, _| {
        let held = Fragile;
        let op = UserOperator::elementwise::<i64>(true, move |a, b| {
            let _held = &held;
            a + b
        });
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            // Of no elements, as an operation that panics keeps its vector for good.
            let owned = comm.start_owned(shm_core::OwnedCall::Allreduce(op.into()), Vec::<i64>::new()).unwrap();
            comm.wait(owned.ticket(), idle)
        }));
        assert!(outcome.is_err() && !comm.is_busy());
        let next = comm.start_owned(shm_core::OwnedCall::Allreduce(Operator::Sum.into()), vec![1_i64]).unwrap();
        comm.wait(next.ticket(), idle).unwrap();
        assert_eq!(comm.take(next).unwrap(), [2]);
    });
}

/// Machines and ranks on them: levels within levels, a part left over, and more ranks than cores, so that those
/// which share one are not neighbours in rank.
const MACHINES: [(&str, usize); 4] =
    [("pack:2 l3:2 core:2", 8), ("pack:3 core:2", 5), ("pack:2 l3:2 core:4", 16), ("pack:2 core:3", 10)];

#[test]
fn trees_that_follow_the_machine_are_exact() {
    for (machine, size) in MACHINES {
        for single_copy in [Single::IfShared, Single::ByKernel, Single::Never] {
            let mut settings = heap();
            settings.topology = Some(machine.to_owned());
            settings.assume_own_cores = Some(true);
            settings.spins = Some(1);
            settings.tree_min_ranks = Some(2);
            (settings.single_copy, settings.single_copy_min_bytes) = (single_copy, Some(0));
            settings.chunk_bytes = Some(4096);
            ranks(size, &settings, |comm, _| {
                let mut buffer = vec![0_i64; 9000];
                let lent = if single_copy == Single::Never { "sm/tree" } else { "solo/tree" };
                assert_eq!(comm.choice(&Call::bcast(&mut buffer, 0)), lent);
                assert_eq!(comm.choice(&Call::barrier()), "sm/tree");
                assert_eq!(comm.choice(&Call::allreduce_in_place(&mut buffer[..15], Operator::Sum.into())), "sm/tree");
                every_collective(comm, &[1, 15, 600, 9000]);
                // More chunks than there are slots in use.
                let mut buffer = vector(comm.rank(), 70_001, 3);
                comm.run(Call::bcast(&mut buffer, size - 1), idle).unwrap();
                assert_eq!(buffer, vector(size - 1, 70_001, 3));
            });
        }
    }
}

#[test]
fn rank_order_is_kept_where_the_machine_has_another() {
    for (machine, size) in MACHINES {
        let mut settings = heap();
        settings.topology = Some(machine.to_owned());
        settings.form = Some(Form::Tree);
        ranks(size, &settings, |comm, _| {
            let (rank, op) = (comm.rank(), Op::from(UserOperator::elementwise::<u32>(false, compose)));
            let expected = composed(size, 30);
            for root in 0..size {
                let mut buffer: Vec<u32> = (0..30).map(|i| map(rank, i)).collect();
                comm.run(Call::reduce_in_place(&mut buffer, op.clone(), root), idle).unwrap();
                assert!(rank != root || buffer == expected, "reduce to {root} on {machine}");
            }
            let mut buffer: Vec<u32> = (0..30).map(|i| map(rank, i)).collect();
            comm.run(Call::allreduce_in_place(&mut buffer, op.clone()), idle).unwrap();
            assert_eq!(buffer, expected, "allreduce on {machine}");
        });
    }
}
