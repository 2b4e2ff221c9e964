//! Every collective over real processes: 1 to 9 ranks of one job, every root, counts around every internal boundary, in
//! place or not, with exact results. `shm-core/tests/conformance.rs` has the same over threads, and more settings.

use han::{Communicator, Context, Operator, Result};

use crate::startup::with_dev_shm;
use crate::{finish, roles};

const RANKS: usize = 9;

/// Counts of i64 around the inline limit, annexes, cells, what is lent, shared out and cut, and beyond the ring.
fn counts() -> Vec<usize> {
    let around = |bytes: usize| [bytes / 8 - 1, bytes / 8, bytes / 8 + 1];
    let mut counts: Vec<_> = [56, 120, 1024, 4096, 8192, 16_384, 32_768, 65_536].into_iter().flat_map(around).collect();
    counts.extend([0, 1, 2, 64 * 4096 / 8 + 1, 3 * 64 * 4096 / 8 + 77]);
    counts
}

/// What `rank` contributes at `index` in the operation `salt`: each rank's part of a sum can be told from the others'.
fn value(rank: usize, index: usize, salt: usize) -> i64 {
    i64::try_from((index * 31 + salt) % 1009).unwrap() * 7_i64.pow(u32::try_from(rank).unwrap())
}

fn fill(buffer: &mut [i64], rank: usize, salt: usize) {
    buffer.iter_mut().enumerate().for_each(|(index, one)| *one = value(rank, index, salt));
}

/// Whether `buffer` holds what `rank` contributes, `times` times.
fn holds(buffer: &[i64], rank: usize, salt: usize, times: i64) -> bool {
    buffer.iter().enumerate().all(|(index, &one)| one == value(rank, index, salt) * times)
}

/// The role: what ranks of `comm` do with two buffers each.
fn every_collective(comm: &Communicator, first: &mut [i64], second: &mut [i64]) -> Result<()> {
    let (rank, size, sum) = (comm.rank(), comm.size(), Operator::Sum);
    // The contribution of rank 0, so many times, is the sum of all.
    let all: i64 = (0..size).map(|rank| 7_i64.pow(u32::try_from(rank).unwrap())).sum();
    for (number, count) in counts().into_iter().enumerate() {
        let (send, recv) = (&mut first[..count], &mut second[..count]);
        for root in 0..size {
            let (salt, here) = (number * RANKS + root, format!("{count} at rank {rank} of {size}, root {root}"));
            comm.barrier()?;
            fill(recv, rank, salt);
            comm.bcast(recv, root)?;
            assert!(holds(recv, root, salt, 1), "bcast of {here}");
            fill(send, rank, salt);
            recv.fill(5);
            comm.reduce(send, recv, sum, root)?;
            let right = if rank == root { holds(recv, 0, salt, all) } else { recv.iter().all(|&one| one == 5) };
            assert!(right && holds(send, rank, salt, 1), "reduce of {here}");
            comm.reduce_in_place(send, sum, root)?;
            let (of, times) = if rank == root { (0, all) } else { (rank, 1) };
            assert!(holds(send, of, salt, times), "reduce in place of {here}");
        }
        fill(send, rank, number);
        comm.allreduce(send, recv, sum)?;
        assert!(holds(recv, 0, number, all) && holds(send, rank, number, 1), "allreduce of {count}, {size} ranks");
        comm.allreduce_in_place(send, sum)?;
        assert!(holds(send, 0, number, all), "allreduce in place of {count}, {size} ranks");
    }
    Ok(())
}

/// The role of one of nine ranks: the first of them work together, 1 to 9, on buffers in ordinary memory or such that peers
/// map; each time in a communicator of its own, all of which stay.
pub(crate) fn rank(memory: &str) -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    let most = counts().into_iter().max().unwrap();
    let (mut ordinary, mut mapped) = ([vec![0; most], vec![0; most]], [world.alloc(most)?, world.alloc(most)?]);
    let [first, second]: [&mut [i64]; 2] = match (memory, &mut ordinary, &mut mapped) {
        ("ordinary", [first, second], _) => [first, second],
        (_, _, [first, second]) => [first, second],
    };
    let mut groups = Vec::new();
    for size in 1..=RANKS {
        if let Some(group) = world.split((world.rank() < size).then_some(0), 0)? {
            every_collective(&group, first, second)?;
            groups.push(group);
        }
        world.barrier()?;
    }
    context.finalize()
}

#[test]
fn every_collective_is_exact() {
    for (memory, settings) in [
        ("ordinary", ""),
        ("mapped", ""),
        ("ordinary", "assume_own_cores=1,tree_min_ranks=2,spins=10"),
        ("mapped", "assume_own_cores=1,tree_min_ranks=2,spins=10"),
    ] {
        let job = roles::job(RANKS, &format!("every {memory}")).env("HAN_SET", settings);
        finish(job).expect(0, &[]);
    }
}

/// There all communicators but the first have the fewest cells.
#[test]
fn so_it_is_in_a_small_dev_shm() {
    let Some(mut command) = with_dev_shm("32m", RANKS, "every ordinary") else { return };
    command.env("HAN_SET", "backing=dev_shm,assume_own_cores=1,spins=10");
    finish(crate::Job::of(command)).expect(0, &[]);
}
