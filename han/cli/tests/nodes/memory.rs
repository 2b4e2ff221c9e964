//! Memory that is registered while the network works on it.
#![allow(unsafe_code)] // registers by hand

use han::{Context, Operator, Result};

use crate::ranks;

/// Moving its pages would lose what the network writes to them.
#[test]
fn a_vector_on_its_way_between_nodes_is_not_registered() {
    for set in ["", "nodes_form=flat"] {
        ranks::job(&["-n", "4", "--nodes", "2"], "register").env("HAN_SET", set).finish().expect(0, &[]);
    }
}

pub(crate) fn register() -> Result<()> {
    const PAGE: usize = 4096;
    let context = Context::init()?;
    let (world, job) = (context.world(), context.job());
    let other = world.dup()?;
    // Whole pages within it.
    let mut vector = vec![1_u8; 4 * PAGE];
    let pages = vector.as_mut_ptr().wrapping_add(vector.as_ptr().align_offset(PAGE));
    if world.rank() > 0 {
        world.barrier()?;
    }
    let request = other.iallreduce(vector, Operator::Sum)?;
    if world.rank() == 0 {
        // SAFETY: it is refused.
        let outcome = unsafe { job.register(pages, 2 * PAGE) };
        assert!(outcome.is_err_and(|error| error.to_string().contains("a collective that is under way")));
        world.barrier()?;
    }
    let vector = request.wait()?;
    assert!(vector.iter().all(|&sum| usize::from(sum) == world.size()));
    // SAFETY: no other thread writes to the vector, which is unregistered before it goes.
    unsafe { job.register(pages, 2 * PAGE) }?;
    // SAFETY: no operation uses it.
    unsafe { job.unregister(pages) }?;
    context.finalize()
}
