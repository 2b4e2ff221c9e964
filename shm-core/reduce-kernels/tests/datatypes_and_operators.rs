//! The table of what is defined, names and codes, and the safe functions over slices.

use std::collections::BTreeSet;

use half::{bf16, f16};
use reduce_kernels::{
    Byte, Complex, Datatype, DoubleInt, Element, Isa, KernelError, LongInt, Op, Operator, Pair, is_defined, kernel,
    kernel_for, reduce_into, reduce_many,
};

/// MPI 4.1, section 6.9.2: "Each operator may be applied to the types listed below".
/// One letter an operator, in the order sum prod min max land lor lxor band bor bxor minloc maxloc.
const MPI_TABLE: [(&str, &[Datatype]); 6] = [
    // C integer
    (
        "yyyyyyyyyy..",
        &[
            Datatype::Int8,
            Datatype::Int16,
            Datatype::Int32,
            Datatype::Int64,
            Datatype::Uint8,
            Datatype::Uint16,
            Datatype::Uint32,
            Datatype::Uint64,
        ],
    ),
    // Floating point
    ("yyyy........", &[Datatype::Float16, Datatype::Bfloat16, Datatype::Float, Datatype::Double]),
    // Complex
    ("yy..........", &[Datatype::ComplexFloat, Datatype::ComplexDouble]),
    // Logical
    ("....yyy.....", &[Datatype::Bool]),
    // Byte
    (".......yyy..", &[Datatype::Byte]),
    // Pairs, section 6.9.4
    (
        "..........yy",
        &[Datatype::FloatInt, Datatype::DoubleInt, Datatype::LongInt, Datatype::TwoInt, Datatype::ShortInt],
    ),
];

#[test]
fn operators_are_defined_where_mpi_says() {
    let rows: usize = MPI_TABLE.iter().map(|(_, datatypes)| datatypes.len()).sum();
    assert_eq!(rows, Datatype::ALL.len(), "a row for every datatype");
    for (defined, datatypes) in MPI_TABLE {
        for &datatype in datatypes {
            for (operator, letter) in Operator::ALL.into_iter().zip(defined.chars()) {
                let expected = letter == 'y';
                assert_eq!(is_defined(datatype, operator), expected, "{datatype} {operator}");
                assert_eq!(Op::from(operator).is_defined_for(datatype), expected);
                assert_eq!(kernel(datatype, operator).is_some(), expected, "{datatype} {operator}");
                for isa in Isa::available() {
                    let kernel = kernel_for(isa, datatype, operator);
                    let found = kernel.map(|k| (k.isa, k.datatype, k.operator));
                    assert_eq!(found, expected.then_some((isa, datatype, operator)));
                }
            }
        }
    }
}

#[test]
fn codes_go_both_ways_and_names_are_different() {
    for (code, datatype) in (0..).zip(Datatype::ALL) {
        assert_eq!(datatype.code(), code);
        assert_eq!(Datatype::from_code(code), Some(datatype));
    }
    for (code, operator) in (0..).zip(Operator::ALL) {
        assert_eq!(operator.code(), code);
        assert_eq!(Operator::from_code(code), Some(operator));
    }
    assert_eq!(Datatype::from_code(21), None);
    assert_eq!(Operator::from_code(12), None);
    assert_eq!(BTreeSet::from(Datatype::ALL.map(Datatype::name)).len(), Datatype::ALL.len());
    assert_eq!(BTreeSet::from(Operator::ALL.map(Operator::name)).len(), Operator::ALL.len());
}

#[test]
fn records_have_a_size_and_nothing_else() {
    for bytes in 1..=Datatype::MOST_RECORD_BYTES {
        let record = Datatype::record(bytes).expect("1 to 1024 bytes");
        assert_eq!(record.size(), bytes);
        assert_eq!(usize::from(record.code()), 4096 + bytes);
        assert_eq!(Datatype::from_code(record.code()), Some(record));
        assert!(bytes % record.align() == 0 && record.align() <= 16);
        assert!(record.align() == 16 || bytes % (2 * record.align()) != 0, "the largest power of two");
        assert!(Operator::ALL.into_iter().all(|operator| !is_defined(record, operator)));
        assert!(Operator::ALL.into_iter().all(|operator| kernel(record, operator).is_none()));
    }
    assert_eq!([0, 1025, 65_536 + 24].map(Datatype::record), [None; 3]);
    assert_eq!([4096, 4096 + 1025, u16::MAX].map(Datatype::from_code), [None; 3]);
    assert_eq!(Datatype::record(24).map(|record| record.to_string()).as_deref(), Some("record of 24 bytes"));
    assert_ne!(Datatype::record(8), Some(Datatype::Double));
    assert_eq!(Datatype::record_of::<[u64; 5]>(), Datatype::record(40).expect("40 bytes"));
}

#[test]
fn slices_of_every_element_type() {
    fn sum<T: Element + PartialEq + std::fmt::Debug>(left: T, right: T, expected: T) {
        let mut inout = [left; 3];
        reduce_into(&mut inout, &[right; 3], Operator::Sum).expect("sum is defined");
        assert_eq!(inout, [expected; 3]);
    }
    sum(100i8, 100, -56);
    sum(30_000i16, 30_000, -5_536);
    sum(i32::MAX, 1, i32::MIN);
    sum(i64::MAX, 1, i64::MIN);
    sum(200u8, 100, 44);
    sum(u16::MAX, 2, 1);
    sum(u32::MAX, 2, 1);
    sum(u64::MAX, 2, 1);
    sum(f16::from_f32(1.5), f16::from_f32(2.0), f16::from_f32(3.5));
    sum(bf16::from_f32(1.5), bf16::from_f32(2.0), bf16::from_f32(3.5));
    sum(1.5f32, 2.0, 3.5);
    sum(1.5f64, 2.0, 3.5);
    sum(Complex::new(1f32, 2.0), Complex::new(3.0, 4.0), Complex::new(4.0, 6.0));
    sum(Complex::new(1f64, 2.0), Complex::new(3.0, 4.0), Complex::new(4.0, 6.0));

    let mut truth = [true, true, false, false];
    reduce_into(&mut truth, &[true, false, true, false], Operator::Lxor).expect("defined");
    assert_eq!(truth, [false, true, true, false]);
    let mut bytes = [Byte(0b1100)];
    reduce_into(&mut bytes, &[Byte(0b1010)], Operator::Bxor).expect("defined");
    assert_eq!(bytes, [Byte(0b0110)]);
    let mut least = [DoubleInt::new(2.0, 7), DoubleInt::new(1.0, 9)];
    reduce_into(&mut least, &[DoubleInt::new(2.0, 3), DoubleInt::new(4.0, 0)], Operator::Minloc).expect("defined");
    assert_eq!(least, [Pair::new(2.0, 3), Pair::new(1.0, 9)]);
    let mut greatest = [LongInt::new(-5, 1)];
    reduce_into(&mut greatest, &[LongInt::new(i64::MIN, 0)], Operator::Maxloc).expect("defined");
    assert_eq!(greatest, [Pair::new(-5, 1)]);
}

#[test]
fn a_complex_product_turns() {
    // i * i = -1, and (1 + 2i)(3 + 4i) = -5 + 10i
    let mut values = [Complex::new(0.0f64, 1.0), Complex::new(1.0, 2.0)];
    reduce_into(&mut values, &[Complex::new(0.0, 1.0), Complex::new(3.0, 4.0)], Operator::Prod).expect("defined");
    assert_eq!(values, [Complex::new(-1.0, 0.0), Complex::new(-5.0, 10.0)]);
}

#[test]
fn nan_and_zeros_follow_the_documented_rule() {
    let nan = f64::NAN;
    for isa in Isa::available() {
        let minimum = |left: f64, right: f64| {
            let mut inout = left;
            let kernel = kernel_for(isa, Datatype::Double, Operator::Min).expect("defined");
            #[allow(unsafe_code)]
            // SAFETY: both are one element of f64, and distinct.
            unsafe {
                (kernel.two)((&raw mut inout).cast(), (&raw const right).cast(), 1);
            }
            inout
        };
        assert!(minimum(nan, 1.0).is_nan(), "{isa}: a NaN on the left stays");
        assert_eq!(minimum(1.0, nan), 1.0, "{isa}: a NaN on the right is passed over");
        assert_eq!(minimum(-0.0, 0.0).to_bits(), (-0.0f64).to_bits(), "{isa}: the left zero");
        assert_eq!(minimum(0.0, -0.0).to_bits(), 0.0f64.to_bits(), "{isa}: the left zero");
    }
}

#[test]
fn many_slices_fold_from_the_left() {
    // (1e16 + 1) + -1e16 is 0 in f64 from the left; from the right it would be 0 + ... = 1 + 0.
    let (big, one, minus) = ([1e16f64; 70], [1.0; 70], [-1e16; 70]);
    let mut dst = [f64::NAN; 70];
    reduce_many(&mut dst, &[&big, &one, &minus], Operator::Sum).expect("defined");
    assert_eq!(dst, [0.0; 70]);
    reduce_many(&mut dst, &[&big, &minus, &one], Operator::Sum).expect("defined");
    assert_eq!(dst, [1.0; 70]);
    reduce_many(&mut dst, &[&big], Operator::Sum).expect("defined");
    assert_eq!(dst, big);
    reduce_many(&mut dst, &[], Operator::Sum).expect("defined");
    assert_eq!(dst, big, "without sources nothing is written");
}

#[test]
fn wrong_arguments_say_what_is_wrong() {
    let undefined = reduce_into(&mut [1.0f32], &[2.0], Operator::Band).expect_err("not defined");
    assert_eq!(undefined.to_string(), "band is not defined on f32");
    let short = reduce_into(&mut [1, 2, 3], &[1, 2], Operator::Sum).expect_err("too short");
    assert_eq!(short, KernelError::Length { source_index: 0, expected: 3, found: 2 });
    let long = reduce_many(&mut [1], &[&[1], &[1, 2]], Operator::Sum).expect_err("too long");
    assert_eq!(long.to_string(), "the destination has 1 elements, source 1 has 2");
}
