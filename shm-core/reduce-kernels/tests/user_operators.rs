//! Operators of the user: order of the operands, C functions with a context, checks.
#![allow(unsafe_code)] // Applies operators to raw memory.

use reduce_kernels::{Complex, Datatype, Op, Operator, UserOperator};
use std::ffi::{c_int, c_void};

/// The map x -> slope * x + offset; composition is associative and not commutative.
type Affine = Complex<f64>;

/// First `left`, then `right`.
fn compose(left: Affine, right: Affine) -> Affine {
    Affine::new(left.re * right.re, right.re * left.im + right.im)
}

/// Applies an operator to the ranks' contributions in rank order, as collectives do it: a right
/// fold that starts with a copy of the last contribution.
fn fold<T: Copy>(operator: &UserOperator, contributions: &[Vec<T>], datatype: Datatype) -> Vec<T> {
    let (last, others) = contributions.split_last().expect("not empty");
    let mut result = last.clone();
    for contribution in others.iter().rev() {
        // SAFETY: both are arrays of the same length of the datatype, and distinct.
        unsafe {
            operator.apply(contribution.as_ptr().cast(), result.as_mut_ptr().cast(), result.len(), datatype);
        }
    }
    result
}

#[test]
fn a_non_commutative_operator_sees_rank_order() {
    let operator = UserOperator::elementwise(false, compose);
    assert!(!operator.is_commutative());
    assert_eq!(operator.datatype(), Some(Datatype::ComplexDouble));
    for ranks in 1..=9 {
        let contributions: Vec<Vec<Affine>> = (0..ranks)
            .map(|rank| {
                let rank = f64::from(rank);
                vec![Affine::new(2.0, rank), Affine::new(-1.0, rank + 1.0), Affine::new(3.0, -rank)]
            })
            .collect();
        let found = fold(&operator, &contributions, Datatype::ComplexDouble);
        // Independent: send a point through the maps of rank 0, 1, 2, ...
        for (lane, map) in found.iter().enumerate() {
            for start in [0.0, 1.0, -7.0] {
                let through = contributions.iter().fold(start, |x, maps| maps[lane].re * x + maps[lane].im);
                assert_eq!(map.re * start + map.im, through, "{ranks} ranks, lane {lane}");
            }
        }
        if ranks > 1 {
            let reversed: Vec<_> = contributions.into_iter().rev().collect();
            assert_ne!(found, fold(&operator, &reversed, Datatype::ComplexDouble));
        }
    }
}

/// What the C function below is given as its context.
struct Seen {
    calls: usize,
    code: c_int,
}

/// `inout += 10 * in`: digits, most significant on the left.
unsafe extern "C" fn digits(
    input: *const c_void,
    inout: *mut c_void,
    count: usize,
    datatype: c_int,
    context: *mut c_void,
) {
    // SAFETY: the test passes a `Seen` and uses it only between calls.
    let seen = unsafe { &mut *context.cast::<Seen>() };
    seen.calls += 1;
    seen.code = datatype;
    // SAFETY: `apply` passes `count` aligned elements of i64.
    let input = unsafe { std::slice::from_raw_parts(input.cast::<i64>(), count) };
    // SAFETY: as above, and disjoint from `input`.
    let inout = unsafe { std::slice::from_raw_parts_mut(inout.cast::<i64>(), count) };
    for (right, left) in inout.iter_mut().zip(input) {
        *right += 10 * left;
    }
}

#[test]
fn a_c_function_gets_left_operand_code_and_context() {
    let mut seen = Seen { calls: 0, code: -1 };
    // SAFETY: `digits` accepts this context and arrays of i64; it is used with nothing else.
    let operator = unsafe { UserOperator::from_raw(digits, (&raw mut seen).cast(), false) };
    assert_eq!(operator.datatype(), None);
    let found = fold(&operator.clone(), &[vec![1i64, 7], vec![2, 8]], Datatype::Int64);
    assert_eq!(found, [12, 78]);
    assert_eq!((seen.calls, seen.code), (1, c_int::from(Datatype::Int64.code())));
}

#[test]
fn elementwise_takes_misaligned_memory() {
    let operator = UserOperator::elementwise(true, |a: i32, b: i32| a.wrapping_sub(b));
    let mut memory = [0u8; 1 + 2 * 4 + 2 * 4];
    memory[1..].copy_from_slice(&[10i32, 20, 3, 4].map(i32::to_ne_bytes).concat());
    let start = memory.as_mut_ptr();
    // SAFETY: `memory` is longer than that.
    let input = unsafe { start.add(1) };
    // SAFETY: as above.
    let inout = unsafe { start.add(1 + 2 * 4) };
    // SAFETY: two elements of i32 each, next to each other.
    unsafe { operator.apply(input, inout, 2, Datatype::Int32) };
    assert_eq!(memory[1 + 2 * 4..], [7i32, 16].map(i32::to_ne_bytes).concat());
}

#[test]
#[should_panic(expected = "the user operator is for i32, the buffers hold f32")]
fn elementwise_refuses_another_datatype() {
    let operator = UserOperator::elementwise(true, |a: i32, _| a);
    let mut inout = [1.0f32];
    // SAFETY: one element each; the datatype is refused before they are touched.
    unsafe {
        operator.apply([2.0f32].as_ptr().cast(), inout.as_mut_ptr().cast(), 1, Datatype::Float);
    }
}

#[test]
fn an_op_is_either() {
    let builtin = Op::from(Operator::Sum);
    assert!(builtin.is_commutative());
    assert_eq!(builtin.name(), "sum");
    assert!(!builtin.is_defined_for(Datatype::Bool));
    let user = Op::from(UserOperator::elementwise(false, |a: bool, b: bool| a && b));
    assert!(!user.is_commutative());
    assert_eq!(user.name(), "user");
    assert!(user.is_defined_for(Datatype::Bool));
    assert!(!user.is_defined_for(Datatype::Int8));
    assert_eq!(format!("{user:?}"), "User(UserOperator { datatype: Some(Bool), commutative: false, .. })");
}
