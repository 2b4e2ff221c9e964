//! Records of any size, which only users' operators reduce, in every form: exact, in rank order where it counts, and
//! never cut apart.
#![allow(unsafe_code, clippy::unwrap_used)] // types of the program's own promise their layout

mod support;

use std::array;
use std::fmt::{self, Debug, Formatter};

use reduce_kernels::{Datatype, Element, Op, Operator, UserOperator};
use shm_core::{Call, Form, LocalComm, Single};
use support::{heap, idle, ranks};

/// Bytes whose first one scales all others, so that a record that is cut apart comes out wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
struct Record<const BYTES: usize>([u8; BYTES]);

// SAFETY: as many bytes, plain data without padding.
unsafe impl<const BYTES: usize> Element for Record<BYTES> {
    const DATATYPE: Datatype = Datatype::record_of::<Self>();
}

impl<const BYTES: usize> Debug for Record<BYTES> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}..", &self.0[..BYTES.min(4)])
    }
}

/// What rank `rank` contributes at `index` in the test with number `salt`; the scale is odd, so nothing is lost.
fn value<const BYTES: usize>(rank: usize, index: usize, salt: usize) -> Record<BYTES> {
    let first = u8::try_from((rank * 7919 + index * 104_729 + salt * 31) % 251).unwrap();
    let [step, ..] = (2 * index + 1).to_le_bytes();
    let mut bytes = [first | 1; BYTES];
    for at in 1..BYTES {
        bytes[at] = bytes[at - 1].wrapping_add(step);
    }
    Record(bytes)
}

fn vector<const BYTES: usize>(rank: usize, count: usize, salt: usize) -> Vec<Record<BYTES>> {
    (0..count).map(|index| value(rank, index, salt)).collect()
}

/// First `left`, then `right`, as maps that scale and shift: does not commute.
fn compose<const BYTES: usize>(left: Record<BYTES>, right: Record<BYTES>) -> Record<BYTES> {
    let (l, r) = (left.0, right.0);
    let shift = |at: usize| r[0].wrapping_mul(l[at]).wrapping_add(r[at]);
    Record(array::from_fn(|at| if at == 0 { l[0].wrapping_mul(r[0]) } else { shift(at) }))
}

/// The product rule, which commutes.
fn derive<const BYTES: usize>(left: Record<BYTES>, right: Record<BYTES>) -> Record<BYTES> {
    let (l, r) = (left.0, right.0);
    let rule = |at: usize| l[0].wrapping_mul(r[at]).wrapping_add(r[0].wrapping_mul(l[at]));
    Record(array::from_fn(|at| if at == 0 { l[0].wrapping_mul(r[0]) } else { rule(at) }))
}

type Combine<const BYTES: usize> = fn(Record<BYTES>, Record<BYTES>) -> Record<BYTES>;

/// Counts around the inline limit, annexes, cells, chunks, and beyond the ring, up to `most_bytes`.
fn counts<const BYTES: usize>(most_bytes: usize) -> Vec<usize> {
    let mut counts = vec![0, 1, 2];
    for bytes in
        [56, 120, 1024, 4096, 3 * 4096, 16_384, 65_536, 200_000].into_iter().filter(|&bytes| bytes <= most_bytes)
    {
        counts.extend([bytes / BYTES, bytes / BYTES + 1]);
    }
    counts.sort_unstable();
    counts.dedup();
    counts
}

fn every_collective<const BYTES: usize>(comm: &mut LocalComm, counts: &[usize]) {
    let (rank, size) = (comm.rank(), comm.size());
    let operators: [(bool, Combine<BYTES>); 2] = [(false, compose), (true, derive)];
    for (salt, &count) in counts.iter().enumerate() {
        let root = salt % size;
        let mut buffer = vector::<BYTES>(rank, count, salt);
        comm.run(Call::bcast(&mut buffer, root), idle).unwrap();
        assert!(buffer == vector(root, count, salt), "bcast of {count} records of {BYTES} bytes");
        for (commutes, combine) in operators {
            let what = || format!("{count} records of {BYTES} bytes on {size} ranks, commutes: {commutes}");
            let op = || Op::from(UserOperator::elementwise(commutes, combine));
            let all = |index| (0..size).map(|rank| value::<BYTES>(rank, index, salt)).reduce(combine).unwrap();
            let expected: Vec<_> = (0..count).map(all).collect();
            let send = vector::<BYTES>(rank, count, salt);

            let mut recv = vec![Record([77; BYTES]); count];
            comm.run(Call::allreduce(&send, &mut recv, op()).unwrap(), idle).unwrap();
            assert!(recv == expected, "allreduce of {}", what());
            assert!(send == vector(rank, count, salt), "what is sent stays");
            let mut buffer = send.clone();
            comm.run(Call::allreduce_in_place(&mut buffer, op()), idle).unwrap();
            assert!(buffer == expected, "allreduce in place of {}", what());

            let mut recv = vec![Record([77; BYTES]); count];
            comm.run(Call::reduce(&send, &mut recv, op(), root).unwrap(), idle).unwrap();
            let at_root = if rank == root { &expected } else { &vec![Record([77; BYTES]); count] };
            assert!(recv == *at_root, "reduce of {}", what());
            let mut buffer = send.clone();
            comm.run(Call::reduce_in_place(&mut buffer, op(), root), idle).unwrap();
            assert!(buffer == if rank == root { expected } else { send }, "reduce in place of {}", what());
        }
    }
}

/// Records of sizes that divide lines and cells, and that do not, beside each other on one communicator; under a sanitizer
/// some of them.
fn every_size(comm: &mut LocalComm, most_bytes: usize) {
    every_collective::<13>(comm, &counts::<13>(most_bytes));
    every_collective::<1023>(comm, &[1, 4, 5, 67]);
    if cfg!(sanitized) {
        return;
    }
    every_collective::<1>(comm, &[1, 5000]);
    every_collective::<3>(comm, &counts::<3>(most_bytes));
    every_collective::<24>(comm, &counts::<24>(most_bytes));
    every_collective::<1000>(comm, &counts::<1000>(most_bytes));
    every_collective::<1024>(comm, &[1, 4, 5, 67]);
}

#[test]
fn records_are_exact_in_the_form_that_is_chosen() {
    for size in [1, 2, 3, 4, 7] {
        ranks(size, &heap(), |comm, _| every_size(comm, 200_000));
    }
}

#[test]
fn records_are_exact_in_every_form_that_is_set() {
    for form in [Form::Flat, Form::Tree, Form::Direct, Form::Slice, Form::Ring, Form::Joint] {
        for single_copy in [Single::Auto, Single::ByKernel, Single::Never] {
            let mut settings = heap();
            settings.form = Some(form);
            (settings.single_copy, settings.single_copy_min_bytes) = (single_copy, Some(16_384));
            settings.chunk_bytes = Some(4096);
            for size in [2, 5] {
                ranks(size, &settings, |comm, _| every_size(comm, 20_000));
            }
        }
    }
}

#[test]
fn records_are_exact_with_a_core_for_each_rank() {
    for (slice_min_bytes, single_copy) in
        [(None, Single::Auto), (Some(0), Single::IfShared), (Some(0), Single::Never), (Some(usize::MAX), Single::Auto)]
    {
        let mut settings = heap();
        (settings.assume_own_cores, settings.spins) = (Some(true), Some(1));
        settings.slice_min_bytes = slice_min_bytes;
        (settings.single_copy, settings.single_copy_min_bytes) = (single_copy, Some(0));
        for size in [2, 4] {
            ranks(size, &settings, |comm, _| every_size(comm, 200_000));
        }
    }
}

#[test]
fn records_that_the_ranks_of_a_core_hand_on_are_exact() {
    for (chunk_bytes, size) in [(Some(4096), 4), (None, 5)] {
        let mut settings = heap();
        (settings.topology, settings.form) = (Some("core:2".to_owned()), Some(Form::Chain));
        (settings.single_copy, settings.chunk_bytes) = (Single::Never, chunk_bytes);
        ranks(size, &settings, |comm, _| {
            let op = UserOperator::elementwise(true, derive::<24>);
            let call = Call::allreduce_in_place(&mut [Record([1; 24]); 500], op.into()).signature();
            assert_eq!(call.to_string(), "allreduce(count 500, record of 24 bytes, user operator)");
            every_size(comm, 65_536);
            every_collective::<24>(comm, &[40_000]);
        });
    }
}

#[test]
fn records_are_exact_on_many_ranks() {
    for form in [None, Some(Form::Ring)] {
        let mut settings = heap();
        settings.form = form;
        ranks(34, &settings, |comm, _| {
            every_collective::<24>(comm, &[1, 5, 43, 3000]);
            every_collective::<1023>(comm, &[1, 70]);
        });
    }
}

/// The kernel's copies come in steps, and long vectors in pieces, of other lengths than those of chunks.
#[test]
fn long_vectors_of_records_are_worked_on_jointly() {
    for single_copy in [Single::Auto, Single::ByKernel] {
        let mut settings = heap();
        (settings.form, settings.single_copy) = (Some(Form::Joint), single_copy);
        ranks(2, &settings, |comm, _| every_collective::<24>(comm, &[400_001]));
        ranks(3, &settings, |comm, _| every_collective::<1000>(comm, &[700]));
    }
}

#[test]
fn records_of_different_sizes_do_not_match() {
    let errors = ranks(2, &heap(), |comm, _| {
        let error = if comm.rank() == 0 {
            let op = UserOperator::elementwise(true, derive::<24>);
            comm.run(Call::allreduce_in_place(&mut [Record([0; 24])], op.into()), idle)
        } else {
            let op = UserOperator::elementwise(true, derive::<40>);
            comm.run(Call::allreduce_in_place(&mut [Record([0; 40])], op.into()), idle)
        };
        error.expect_err("the sizes differ").to_string()
    });
    for error in errors {
        assert!(error.contains("record of 24 bytes") && error.contains("record of 40 bytes"), "{error}");
    }
}

#[test]
fn built_in_operators_take_no_records() {
    ranks(1, &heap(), |comm, _| {
        let error = comm.run(Call::allreduce_in_place(&mut [Record([0; 24])], Operator::Sum.into()), idle);
        let error = error.expect_err("not defined").to_string();
        assert!(error.contains("operator sum is not defined for record of 24 bytes"), "{error}");
    });
}
