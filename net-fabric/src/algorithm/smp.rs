//! Allreduce in which one rank of each node speaks for it (`nap-allreduce`, section II.A, figure 4): a reduction to the
//! node's leader, recursive doubling among the leaders, a bcast on the node.

use super::Shape;
use super::doubling::{Doubling, chunks};
use super::pieces::{Pool, places};
use super::topology::Within;
use crate::schedule::{Builder, Schedule};

pub(super) fn build(shape: &Shape<'_>) -> Schedule {
    let topology = shape.topology.expect("checked with the shape");
    let family = topology.family_in_group(shape.rank, Within::Binomial);
    let leaders = topology.leaders();
    // Leaders double as a world of their own.
    let number = leaders.binary_search_by_key(&shape.rank, |&leader| leader as usize).ok();
    let among = Shape { size: leaders.len(), rank: number.unwrap_or(0), ..*shape };
    let chunks = chunks(&among);
    let mut program = Builder::with_capacity(chunks.len() * (2 + 3 * family.children.len()));
    let children = family.children.len();
    let count = if children > 0 { places(shape, children, chunks.longest(), chunks.len()) } else { 0 };
    let mut pool = Pool::new(&mut program, count, chunks.longest());
    let doubling = number.map(|_| Doubling::new(&mut program, &among, Some(leaders), leaders.len(), chunks));
    for index in 0..chunks.len() {
        let range = chunks.get(index);
        let output = shape.output(range.clone());
        let mut partial = shape.operand(range);
        for (place, &child) in family.children.iter().enumerate() {
            let theirs = pool.take(partial.bytes);
            program.receive(child, theirs);
            // The leader of the only node has the result now.
            let is_result = leaders.len() == 1 && number.is_some() && place + 1 == children;
            let into = if is_result { output } else { theirs };
            program.reduce(partial, theirs, into);
            partial = into;
        }
        program.next_round();
        if let Some(doubling) = &doubling {
            doubling.chunk(&mut program, index, partial, output);
            program.next_round();
        }
        if let Some(parent) = family.parent {
            program.send(parent, partial);
            program.next_round();
            program.receive(parent, output);
        }
        for &child in family.children.iter().rev() {
            program.send(child, output);
        }
        program.next_round();
    }
    program.finish()
}

#[cfg(test)]
mod tests {
    use super::super::{Algorithm, Collective, Topology};
    use super::*;
    use crate::verify::{Survey, verify};

    #[test]
    fn proved_for_small_worlds() {
        let row = Survey { ranks: 26, chunks: 3, many_ranks: 26 }.prove(Collective::Allreduce, Algorithm::Smp);
        assert_eq!(row.fault, None);
        assert!(row.ordered > 0);
    }

    #[test]
    fn nodes_may_be_unequal_and_ranks_anywhere() {
        for nodes in [&[0, 0, 0, 1, 2, 2][..], &[4, 1, 4, 1, 2], &[0, 1, 2, 0, 1, 2, 0], &[3, 3, 3], &[1, 0]] {
            let topology = Topology::new(&[nodes]);
            let shape = Shape { size: nodes.len(), bytes: 40, element_bytes: 8, chunk_bytes: 16, ..Shape::default() };
            let shape = Shape { topology: Some(&topology), ..shape };
            let build = |rank| Algorithm::Smp.build(Collective::Allreduce, &Shape { rank, ..shape });
            let schedules: Vec<Schedule> = (0..nodes.len()).map(|rank| build(rank).expect("it applies")).collect();
            if let Err(fault) = verify(Collective::Allreduce, &shape, &schedules) {
                panic!("{nodes:?}: {fault}");
            }
            let leaders = topology.leaders().len();
            let sends = |schedule: &Schedule| {
                let node = |rank: u32| nodes[rank as usize];
                let own = schedules.iter().position(|other| std::ptr::eq(other, schedule)).expect("one of them");
                let is_far =
                    |action| matches!(action, crate::schedule::Action::Send { peer, .. } if node(peer) != nodes[own]);
                schedule.steps().filter(|step| is_far(step.action)).count()
            };
            let speakers = schedules.iter().filter(|schedule| sends(schedule) > 0).count();
            assert_eq!(speakers, if leaders > 1 { leaders } else { 0 }, "one rank of each node talks to others");
        }
    }
}
