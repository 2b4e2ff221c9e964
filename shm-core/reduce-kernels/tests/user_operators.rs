//! Operators of the user: order of the operands, C functions with a context, checks.
#![allow(unsafe_code)] // Applies operators to raw memory.

use reduce_kernels::{Complex, Datatype, Element, Op, Operator, UserOperator};
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

/// Adds bytes, of records as long as the context says; every call must be given what `Datatype::align` promises.
unsafe extern "C" fn add_bytes(
    input: *const c_void,
    inout: *mut c_void,
    count: usize,
    datatype: c_int,
    context: *mut c_void,
) {
    // SAFETY: the test passes the number of bytes, which lives as long as the operator.
    let bytes = unsafe { *context.cast::<usize>() };
    let record = Datatype::record(bytes).expect("1 to 1024 bytes");
    assert_eq!(datatype, c_int::from(record.code()));
    assert!(input.addr().is_multiple_of(record.align()) && inout.addr().is_multiple_of(record.align()));
    // SAFETY: `apply` passes `count` elements of so many bytes.
    let input = unsafe { std::slice::from_raw_parts(input.cast::<u8>(), count * bytes) };
    // SAFETY: as above, and disjoint from `input`.
    let inout = unsafe { std::slice::from_raw_parts_mut(inout.cast::<u8>(), count * bytes) };
    for (right, left) in inout.iter_mut().zip(input) {
        *right = right.wrapping_add(*left);
    }
}

#[test]
fn a_c_function_gets_aligned_records_wherever_they_are() {
    for mut bytes in [1, 3, 8, 13, 16, 24, 40, 48, 1000, 1023, 1024] {
        // SAFETY: `add_bytes` accepts this context and arrays of such records; it is used with nothing else.
        let operator = unsafe { UserOperator::from_raw(add_bytes, (&raw mut bytes).cast(), true) };
        for count in [0, 1, 4096 / bytes, 4096 / bytes + 1, 12_000 / bytes] {
            for (left, right) in [(0, 0), (0, 1), (8, 0), (1, 8), (4, 12), (3, 5)] {
                let length = count * bytes;
                let mut memory = vec![0_u128; 2 * (length / 16 + 2)];
                let start = memory.as_mut_ptr().cast::<u8>();
                let (input, inout) = (start.wrapping_add(left), start.wrapping_add((length / 16 + 2) * 16 + right));
                let numbers = |most| -> Vec<u8> { (0..=most).cycle().take(length).collect() };
                // SAFETY: both arrays lie in `memory`, apart.
                unsafe { input.copy_from_nonoverlapping(numbers(250).as_ptr(), length) };
                // SAFETY: the same.
                unsafe { inout.copy_from_nonoverlapping(numbers(12).as_ptr(), length) };
                let record = Datatype::record(bytes).expect("1 to 1024 bytes");
                // SAFETY: `count` records each, apart.
                unsafe { operator.apply(input, inout, count, record) };
                // SAFETY: initialised above.
                let found = unsafe { std::slice::from_raw_parts(inout, length) };
                let mut sums = numbers(250).into_iter().zip(numbers(12)).map(|(a, b)| a.wrapping_add(b));
                assert!(found.iter().all(|&byte| Some(byte) == sums.next()), "{count} records of {bytes}");
                assert!(memory[memory.len() - 1] >> (8 * right) == 0, "nothing behind");
            }
        }
    }
}

/// A 2x2 matrix and a number of factors: the product does not commute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Product {
    matrix: [u32; 4],
    factors: u32,
}

// SAFETY: `repr(C)` without padding, and valid for every bit pattern.
unsafe impl Element for Product {
    const DATATYPE: Datatype = Datatype::record_of::<Self>();
}

fn multiply(left: Product, right: Product) -> Product {
    let at = |row: usize, column: usize| {
        let term = |k: usize| left.matrix[2 * row + k].wrapping_mul(right.matrix[2 * k + column]);
        term(0).wrapping_add(term(1))
    };
    Product { matrix: [at(0, 0), at(0, 1), at(1, 0), at(1, 1)], factors: left.factors + right.factors }
}

#[test]
fn a_type_of_the_programs_own_is_reduced_in_rank_order() {
    let operator = UserOperator::elementwise(false, multiply);
    assert_eq!(operator.datatype(), Datatype::record(20));
    let of = |rank: u32, lane: u32| Product { matrix: [rank + 1, lane, 3, rank + 2 * lane], factors: 1 };
    let contributions: Vec<Vec<Product>> = (0..7).map(|rank| (0..3).map(|lane| of(rank, lane)).collect()).collect();
    let found = fold(&operator, &contributions, Product::DATATYPE);
    for (lane, found) in (0..).zip(found) {
        let expected = (0..7).map(|rank| of(rank, lane)).reduce(multiply);
        assert_eq!(Some(found), expected);
    }
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
