//! Vectors of more than 2^31 elements.

use han::{Context, Operator, Result};

use crate::{finish, roles};

const COUNT: usize = (1 << 31) + 3;

/// What rank 0 sends, or rank 1 contributes; the period is odd and no divisor of any chunk.
fn value(index: usize, rank: usize) -> i8 {
    i8::try_from(index % 61).unwrap() - 30 + i8::try_from(rank).unwrap()
}

fn fill(buffer: &mut [i8], rank: usize) {
    let period: Vec<i8> = (0..61 * 64).map(|index| value(index, rank)).collect();
    for chunk in buffer.chunks_mut(period.len()) {
        chunk.copy_from_slice(&period[..chunk.len()]);
    }
}

#[track_caller]
fn assert_holds(buffer: &[i8], expected: impl Fn(usize) -> i8) {
    let period: Vec<i8> = (0..61 * 64).map(expected).collect();
    for (number, chunk) in buffer.chunks(period.len()).enumerate() {
        assert!(*chunk == period[..chunk.len()], "wrong from element {} on", number * period.len());
    }
}

pub(crate) fn rank() -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    let mut buffer = vec![0_i8; COUNT];
    fill(&mut buffer, world.rank());
    world.allreduce_in_place(&mut buffer, Operator::Sum)?;
    assert_holds(&buffer, |index| value(index, 0) + value(index, 1));
    if world.rank() == 1 {
        buffer.fill(0);
    }
    world.bcast(&mut buffer, 0)?;
    assert_holds(&buffer, |index| value(index, 0) + value(index, 1));
    context.finalize()
}

#[test]
fn more_than_two_to_the_31_elements() {
    finish(roles::job(2, "large")).expect(0, &[]);
}
