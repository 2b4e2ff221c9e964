//! A rank that does every collective on vectors of many lengths, and compares with what one process would compute.

use han::{Communicator, Context, Op, Operator, Result, UserOperator, wait_all};

/// Lengths: none, one, around the borders of packets, algorithms and chunks.
pub(crate) const COUNTS: [usize; 7] = [0, 1, 7, 1000, 1025, 20_011, 70_000];

/// The role: everything on the world, on a copy of it, and on parts that cross nodes or do not.
pub(crate) fn rank(counts: &[usize]) -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    everything(world, counts)?;
    let copy = world.dup()?;
    everything(&copy, &[3, 5000])?;
    outstanding(world, &copy)?;
    // Odd and even ranks, in opposite order; then halves that are nodes, if there are two; then nearly all.
    for color in [world.rank() % 2, world.rank() * 2 / world.size()] {
        let key = -i32::try_from(world.rank()).unwrap();
        let part = world.split(u32::try_from(color).ok(), key)?.unwrap();
        everything(&part, &[1, 3000])?;
        let again = part.dup()?;
        everything(&again, &[2])?;
    }
    // All of them in an order that goes from node to node, and back: other leaders, and nobody's neighbour is near.
    let (rank, size) = (world.rank(), world.size());
    for key in [rank * (size / 2 + 1) % size, size - rank] {
        let mixed = world.split(Some(0), i32::try_from(key).unwrap())?.unwrap();
        everything(&mixed, &[5, 2000])?;
    }
    let some = world.split((world.rank() > 0).then_some(9), 0)?;
    assert_eq!(some.is_some(), world.rank() > 0);
    if let Some(some) = some {
        everything(&some, &[100])?;
    }
    shared_memory(world)?;
    println!("rank {} has checked everything on {} nodes", world.rank(), context.node_count());
    context.finalize()
}

/// What `rank` contributes at `index`.
fn value(rank: usize, index: usize) -> i64 {
    i64::try_from((rank + 1) * 1_000_003 + index * 7).unwrap()
}

fn vector(rank: usize, count: usize) -> Vec<i64> {
    (0..count).map(|index| value(rank, index)).collect()
}

/// Composes the affine maps that two halves of the bits name: associative, but not commutative.
fn compose(left: i64, right: i64) -> i64 {
    let parts = |map: i64| (map >> 32, map & 0xffff_ffff);
    let ((a, b), (c, d)) = (parts(left), parts(right));
    let modulo = |x: i64| x.rem_euclid(65_521);
    modulo(a * c) << 32 | modulo(c * b + d)
}

fn map_of(rank: usize, index: usize) -> i64 {
    let part = |factor: usize| i64::try_from((rank * factor + index + 3) % 65_521).unwrap();
    part(31) << 32 | part(17)
}

fn everything(comm: &Communicator, counts: &[usize]) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    for &count in counts {
        let sum: Vec<i64> = (0..count).map(|index| (0..size).map(|rank| value(rank, index)).sum()).collect();
        let ordered = |index| (1..size).fold(map_of(0, index), |all, rank| compose(all, map_of(rank, index)));
        let ordered: Vec<i64> = (0..count).map(ordered).collect();
        let maps: Vec<i64> = (0..count).map(|index| map_of(rank, index)).collect();
        let in_order = || Op::from(UserOperator::elementwise(false, compose));
        let own = vector(rank, count);

        comm.barrier()?;
        let mut all = own.clone();
        comm.allreduce_in_place(&mut all, Operator::Sum)?;
        assert_eq!(all, sum, "allreduce of {count}");
        let mut all = vec![-1; count];
        comm.allreduce(&maps, &mut all, in_order())?;
        assert_eq!(all, ordered, "allreduce of {count} in order");
        let mut floats: Vec<f64> = own.iter().map(|&value| 0.1 * f64::from(i32::try_from(value).unwrap())).collect();
        comm.allreduce_in_place(&mut floats, Operator::Sum)?;
        same_on_all(comm, &floats)?;
        for root in [0, size - 1, size / 2] {
            let mut buffer = if rank == root { own.clone() } else { vec![0; count] };
            comm.bcast(&mut buffer, root)?;
            assert_eq!(buffer, vector(root, count), "bcast of {count} from {root}");
            let mut result = vec![-1; if rank == root { count } else { 0 }];
            comm.reduce(&own, &mut result, Operator::Sum, root)?;
            assert!(rank != root || result == sum, "reduce of {count} to {root}");
            let mut place = maps.clone();
            comm.reduce_in_place(&mut place, in_order(), root)?;
            assert_eq!(
                place,
                if rank == root { &ordered[..] } else { &maps[..] },
                "reduce of {count} to {root}, in place"
            );
        }
    }
    Ok(())
}

/// The role: sums that are rounded have the bits of adding one rank after the other, wherever these are.
pub(crate) fn in_order() -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    let addend = |rank: usize, index: usize| 1.0 / f64::from(u32::try_from(rank * 7 + index + 1).unwrap());
    let own_sum = |commutative| Op::from(UserOperator::elementwise::<f64>(commutative, |left, right| left + right));
    for count in [1, 100, 50_000] {
        let own: Vec<f64> = (0..count).map(|index| addend(world.rank(), index)).collect();
        let sum = |index: usize| (1..world.size()).fold(addend(0, index), |sum, rank| sum + addend(rank, index));
        let sums: Vec<f64> = (0..count).map(sum).collect();
        for op in [Operator::Sum.into(), own_sum(true), own_sum(false)] {
            let mut all = own.clone();
            world.allreduce_in_place(&mut all, op)?;
            assert!(all == sums, "allreduce of {count}");
        }
        let root = world.size() / 2;
        let mut result = vec![0.0; count];
        world.reduce(&own, &mut result, Operator::Sum, root)?;
        assert!(world.rank() != root || result == sums, "reduce of {count}");
    }
    println!("rank {} has checked everything on {} nodes", world.rank(), context.node_count());
    context.finalize()
}

/// Sums that are rounded are the same bits everywhere.
fn same_on_all(comm: &Communicator, floats: &[f64]) -> Result<()> {
    let bits: Vec<u64> = floats.iter().map(|value| value.to_bits()).collect();
    let (mut least, mut most) = (bits.clone(), bits);
    comm.allreduce_in_place(&mut least, Operator::Min)?;
    comm.allreduce_in_place(&mut most, Operator::Max)?;
    assert_eq!(least, most);
    Ok(())
}

/// Many operations at once, on two communicators, waited for in another order.
fn outstanding(one: &Communicator, other: &Communicator) -> Result<()> {
    let (rank, size) = (one.rank(), one.size());
    let mut requests = Vec::new();
    for number in 1..=20 {
        let comm = if number % 3 == 0 { other } else { one };
        requests.push(comm.iallreduce(vector(rank, number * 300), Operator::Max)?);
    }
    let barrier = one.ibarrier()?;
    let bcast = other.ibcast(vector(rank, 5000), size - 1)?;
    let reduce = one.ireduce(vector(rank, 100), Operator::Min, 0)?;
    let mut last = requests.pop().unwrap();
    while !last.test()? {}
    assert_eq!(last.wait()?, vector(size - 1, 6000));
    assert_eq!(bcast.wait()?, vector(size - 1, 5000));
    requests.reverse();
    for (all, number) in wait_all(requests)?.into_iter().zip((1..=19).rev()) {
        assert_eq!(all, vector(size - 1, number * 300));
    }
    assert_eq!(reduce.wait()?, vector(if rank == 0 { 0 } else { rank }, 100));
    barrier.wait()
}

/// The role: more operations under way than the network has places for messages of; none completes before the last is begun.
pub(crate) fn very_many() -> Result<()> {
    let context = Context::init()?;
    let (world, gate) = (context.world(), context.world().dup()?);
    let last = world.size() - 1;
    if world.rank() == last {
        gate.bcast(&mut [0_u8], 0)?;
    }
    let mut requests = Vec::new();
    for number in 0..70_000_u32 {
        requests.push(world.iallreduce(vec![number], Operator::Sum)?);
    }
    if world.rank() != last {
        gate.bcast(&mut [0_u8], 0)?;
    }
    let size = u32::try_from(world.size()).unwrap();
    for (sum, number) in wait_all(requests)?.into_iter().zip(0..) {
        assert_eq!(sum, [number * size]);
    }
    println!("rank {} has checked everything on {} nodes", world.rank(), context.node_count());
    context.finalize()
}

/// The role: communicators until there are no numbers for more, and one in the place of one that was freed.
pub(crate) fn too_many() -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    let mut all = Vec::new();
    let refused = loop {
        match world.dup() {
            Ok(more) => all.push(more),
            Err(error) => break error.to_string(),
        }
    };
    assert!(refused.contains("too many communicators over nodes: messages have 32768 numbers"), "{refused}");
    assert!(all.len() > 8000, "{}", all.len());
    drop(all.swap_remove(77));
    world.dup()?.barrier()?;
    println!("rank {} has checked everything on {} nodes", world.rank(), context.node_count());
    context.finalize()
}

/// The role: more splits than there would be numbers for if each group had its own, and each group has what its ranks gave, with
/// all others at work.
pub(crate) fn many_splits() -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    let (half, peer) = (world.rank() % 2, world.rank() / 2);
    let mut all = Vec::new();
    for number in 0..5500_u32 {
        let part = world.split(u32::try_from(half).ok(), 0)?.unwrap();
        assert_eq!((part.rank(), part.size()), (peer, world.size() / 2));
        if number % 500 == 0 {
            let begun = |root: usize| part.ibcast(vector(if part.rank() == root { half } else { 99 }, 3), root);
            for bcast in [begun(0)?, begun(part.size() - 1)?] {
                assert_eq!(bcast.wait()?, vector(half, 3));
            }
        }
        all.push(part);
    }
    println!("rank {} has checked everything on {} nodes", world.rank(), context.node_count());
    context.finalize()
}

/// Memory of the node's own kind works as any other.
fn shared_memory(comm: &Communicator) -> Result<()> {
    let mut block = comm.alloc::<i64>(9000)?;
    block.copy_from_slice(&vector(comm.rank(), 9000));
    comm.allreduce_in_place(&mut block, Operator::Max)?;
    assert_eq!(*block, vector(comm.size() - 1, 9000));
    Ok(())
}
