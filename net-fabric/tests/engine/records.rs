//! Elements of any size, which a user's operator reduces, under every algorithm.

use std::sync::Arc;

use net_fabric::algorithm::{Algorithm, Collective, Shape, Topology};
use net_fabric::engine::{Fingerprint, Key, Operands, Policy, Settings, Work};
use net_fabric::transport::loopback::Options;
use reduce_kernels::{Datatype, Element, UserOperator};

use crate::rig::{Random, world};

/// Bytes whose first one scales all others, so that a record that is cut apart comes out wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
struct Record<const BYTES: usize>([u8; BYTES]);

// SAFETY: as many bytes, plain data without padding.
unsafe impl<const BYTES: usize> Element for Record<BYTES> {
    const DATATYPE: Datatype = Datatype::record_of::<Self>();
}

/// First `left`, then `right`, as maps that scale and shift: does not commute.
fn compose<const BYTES: usize>(left: Record<BYTES>, right: Record<BYTES>) -> Record<BYTES> {
    let (l, r) = (left.0, right.0);
    let shift = |at: usize| r[0].wrapping_mul(l[at]).wrapping_add(r[at]);
    Record(std::array::from_fn(|at| if at == 0 { l[0].wrapping_mul(r[0]) } else { shift(at) }))
}

/// The product rule, which commutes.
fn derive<const BYTES: usize>(left: Record<BYTES>, right: Record<BYTES>) -> Record<BYTES> {
    let (l, r) = (left.0, right.0);
    let rule = |at: usize| l[0].wrapping_mul(r[at]).wrapping_add(r[0].wrapping_mul(l[at]));
    Record(std::array::from_fn(|at| if at == 0 { l[0].wrapping_mul(r[0]) } else { rule(at) }))
}

fn value<const BYTES: usize>(rank: usize, index: usize) -> Record<BYTES> {
    let byte = |at: usize| (rank * 7919 + index * 104_729 + at * 13) % 251;
    Record(std::array::from_fn(|at| u8::try_from(if at == 0 { byte(0) | 1 } else { byte(at) }).unwrap()))
}

/// An allreduce of `count` records by `size` ranks, in random order.
fn exact<const BYTES: usize>(algorithm: Algorithm, size: usize, count: usize, chunk_bytes: usize, commutes: bool) {
    let combine = if commutes { derive } else { compose };
    let topology = Topology::new(&[&vec![0; size]]);
    let shape = |rank| Shape {
        rank,
        size,
        bytes: count * BYTES,
        element_bytes: BYTES,
        chunk_bytes,
        commutative: commutes,
        topology: Some(&topology),
        ..Shape::default()
    };
    if algorithm.applies(Collective::Allreduce, &shape(0)).is_err() {
        return;
    }
    let inputs: Vec<Vec<Record<BYTES>>> =
        (0..size).map(|rank| (0..count).map(|index| value(rank, index)).collect()).collect();
    let mut outputs = vec![vec![Record([0xab; BYTES]); count]; size];
    let mut engines = world(size, Options::default(), Settings::default());
    for (rank, engine) in engines.iter_mut().enumerate() {
        let bytes = count * BYTES;
        let vectors = (inputs[rank].as_ptr().cast(), outputs[rank].as_mut_ptr().cast());
        let operands = Operands::new(vectors.0, bytes, vectors.1, bytes)
            .reduced_by(UserOperator::elementwise(commutes, combine), Record::<BYTES>::DATATYPE);
        let work = Work {
            schedule: Arc::new(algorithm.build(Collective::Allreduce, &shape(rank)).unwrap()),
            operands,
            policy: Policy::EventDriven { sends: 2, recvs: 3 },
            key: Key { communicator: 0, sequence: 0 },
            fingerprint: Fingerprint::default(),
            part_of: None,
            group: None,
        };
        // SAFETY: the vectors are left alone until all engines have completed, or the test has failed.
        unsafe { engine.start(work) }.unwrap();
    }
    let mut random = Random(77);
    while engines.iter().any(|engine| engine.outstanding() > 0) {
        engines[random.below(size)].progress().unwrap();
    }
    let all = |index| (0..size).map(|rank| value(rank, index)).reduce(combine).unwrap();
    let expected: Vec<Record<BYTES>> = (0..count).map(all).collect();
    for output in outputs {
        assert!(output == expected, "{algorithm}: {count} records of {BYTES} bytes, {size} ranks, {commutes}");
    }
}

#[test]
fn records_of_any_size_are_exact() {
    for algorithm in Algorithm::all() {
        for size in [1, 2, 3, 5, 8] {
            for commutes in [false, true] {
                for count in [1, 2, 7, 100] {
                    exact::<13>(algorithm, size, count, 64, commutes);
                    exact::<24>(algorithm, size, count, 1000, commutes);
                }
                exact::<1000>(algorithm, size, 9, 4096, commutes);
                exact::<1023>(algorithm, size, 9, 64, commutes);
            }
        }
    }
}
