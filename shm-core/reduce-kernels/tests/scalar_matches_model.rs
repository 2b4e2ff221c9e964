//! The scalar kernels against arithmetic written down once more, in another way: integers in 128
//! bits, `f32` and the halves in `f64`, pairs and logical values by case.
#![allow(unsafe_code)] // Calls the kernels.

mod support;

use half::{bf16, f16};
use reduce_kernels::{Datatype, Isa, Operator, is_defined, kernel_for};
use support::{agree, array, operand};

/// `left op right` for one element, as bytes.
fn model(datatype: Datatype, operator: Operator, left: &[u8], right: &[u8]) -> Vec<u8> {
    use Datatype as D;
    match datatype {
        D::Int8 | D::Int16 | D::Int32 | D::Int64 => {
            integer(operator, signed(left), signed(right)).to_le_bytes()[..left.len()].to_vec()
        }
        D::Uint8 | D::Uint16 | D::Uint32 | D::Uint64 | D::Bool | D::Byte => {
            integer(operator, unsigned(left), unsigned(right)).to_le_bytes()[..left.len()].to_vec()
        }
        D::Float16 => by_value(operator, left, right, f16_value, |v| f16::from_f64(v).to_le_bytes()),
        D::Bfloat16 => by_value(operator, left, right, bf16_value, |v| bf16::from_f64(v).to_le_bytes()),
        // A sum or product of two f32 in f64, rounded to f32, is the correctly rounded one.
        #[allow(clippy::cast_possible_truncation)]
        D::Float => by_value(operator, left, right, f32_value, |v| (v as f32).to_le_bytes()),
        D::Double => by_value(operator, left, right, f64_value, f64::to_le_bytes),
        D::ComplexFloat => complex(operator, D::Float, left, right),
        D::ComplexDouble => complex(operator, D::Double, left, right),
        D::FloatInt => pair(operator, left, right, 4, f32_value),
        D::DoubleInt => pair(operator, left, right, 8, f64_value),
        D::LongInt => pair(operator, left, right, 8, |bytes| signed(&bytes[..8])),
        D::TwoInt => pair(operator, left, right, 4, |bytes| signed(&bytes[..4])),
        D::ShortInt => pair(operator, left, right, 4, |bytes| signed(&bytes[..2])),
        D::Record(_) => unreachable!("no operator is defined on records"),
    }
}

fn signed(bytes: &[u8]) -> i128 {
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut extended = [if negative { 0xff } else { 0 }; 16];
    extended[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(extended)
}

fn unsigned(bytes: &[u8]) -> i128 {
    let mut extended = [0; 16];
    extended[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(extended)
}

fn f16_value(bytes: &[u8]) -> f64 {
    f16::from_le_bytes(array(bytes)).to_f64()
}

fn bf16_value(bytes: &[u8]) -> f64 {
    bf16::from_le_bytes(array(bytes)).to_f64()
}

fn f32_value(bytes: &[u8]) -> f64 {
    f32::from_le_bytes(array(bytes)).into()
}

fn f64_value(bytes: &[u8]) -> f64 {
    f64::from_le_bytes(array(bytes))
}

fn integer(operator: Operator, left: i128, right: i128) -> i128 {
    match operator {
        Operator::Sum => left + right,
        Operator::Prod => left.wrapping_mul(right),
        Operator::Min => left.min(right),
        Operator::Max => left.max(right),
        Operator::Land => (left != 0 && right != 0).into(),
        Operator::Lor => (left != 0 || right != 0).into(),
        Operator::Lxor => ((left != 0) != (right != 0)).into(),
        Operator::Band => left & right,
        Operator::Bor => left | right,
        Operator::Bxor => left ^ right,
        Operator::Minloc | Operator::Maxloc => unreachable!("not defined on integers"),
    }
}

fn by_value<const N: usize>(
    operator: Operator,
    left: &[u8],
    right: &[u8],
    value: fn(&[u8]) -> f64,
    bytes: impl Fn(f64) -> [u8; N],
) -> Vec<u8> {
    let (l, r) = (value(left), value(right));
    match operator {
        Operator::Sum => bytes(l + r).to_vec(),
        Operator::Prod => bytes(l * r).to_vec(),
        // The right one only if it is strictly beyond the left one: the left NaN, the left zero.
        Operator::Min if r < l => right.to_vec(),
        Operator::Max if r > l => right.to_vec(),
        _ => left.to_vec(),
    }
}

/// Built from the model of the real operations, so that each is rounded once.
fn complex(operator: Operator, real: Datatype, left: &[u8], right: &[u8]) -> Vec<u8> {
    let half = left.len() / 2;
    let op = |operator, a: &[u8], b: &[u8]| model(real, operator, a, b);
    let negated = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        *bytes.last_mut().expect("not empty") ^= 0x80;
        bytes
    };
    let ((a, b), (c, d)) = (left.split_at(half), right.split_at(half));
    let (re, im) = match operator {
        Operator::Sum => (op(Operator::Sum, a, c), op(Operator::Sum, b, d)),
        _ => (
            op(Operator::Sum, &op(Operator::Prod, a, c), &negated(&op(Operator::Prod, b, d))),
            op(Operator::Sum, &op(Operator::Prod, a, d), &op(Operator::Prod, b, c)),
        ),
    };
    [re, im].concat()
}

fn pair<V: PartialOrd>(
    operator: Operator,
    left: &[u8],
    right: &[u8],
    index_at: usize,
    value: fn(&[u8]) -> V,
) -> Vec<u8> {
    let index = |bytes: &[u8]| i32::from_le_bytes(array(&bytes[index_at..]));
    let (l, r) = (value(left), value(right));
    let beyond = match operator {
        Operator::Minloc => r < l,
        _ => r > l,
    };
    if beyond || (l == r && index(right) < index(left)) { right.to_vec() } else { left.to_vec() }
}

#[test]
#[cfg(target_endian = "little")]
fn every_pair_on_special_and_random_values() {
    const COUNT: usize = 20_000;
    for datatype in Datatype::ALL {
        let (a, b) = (operand(datatype, 0, COUNT), operand(datatype, 1, COUNT));
        for operator in Operator::ALL {
            if !is_defined(datatype, operator) {
                continue;
            }
            let kernel = kernel_for(Isa::Scalar, datatype, operator).expect("defined");
            let mut found = a.clone();
            // SAFETY: both have COUNT elements and are distinct.
            unsafe { (kernel.two)(found.as_mut_ptr(), b.as_ptr(), COUNT) };
            let size = datatype.size();
            for index in 0..COUNT {
                let range = index * size..(index + 1) * size;
                let (left, right) = (&a[range.clone()], &b[range.clone()]);
                let expected = model(datatype, operator, left, right);
                assert!(
                    agree(datatype, operator, &found[range.clone()], &expected),
                    "{datatype} {operator} of {left:02x?} and {right:02x?} is {:02x?}, not {expected:02x?}",
                    &found[range]
                );
            }
        }
    }
}

/// `operands[0] op operands[1] op ...` for one element, from the left; sums and products of halves are rounded once, at the end.
fn folded(datatype: Datatype, operator: Operator, operands: &[&[u8]]) -> Vec<u8> {
    let fold = |datatype, parts: Vec<Vec<u8>>| {
        parts.into_iter().reduce(|left, right| model(datatype, operator, &left, &right)).expect("not empty")
    };
    let is_rounded = matches!(operator, Operator::Sum | Operator::Prod);
    let wide = |value: fn(&[u8]) -> f32| operands.iter().map(|half| value(half).to_le_bytes().to_vec()).collect();
    match datatype {
        Datatype::Float16 if is_rounded => {
            let result = fold(Datatype::Float, wide(|half| f16::from_le_bytes(array(half)).to_f32()));
            f16::from_f32(f32::from_le_bytes(array(&result))).to_le_bytes().to_vec()
        }
        Datatype::Bfloat16 if is_rounded => {
            let result = fold(Datatype::Float, wide(|half| bf16::from_le_bytes(array(half)).to_f32()));
            bf16::from_f32(f32::from_le_bytes(array(&result))).to_le_bytes().to_vec()
        }
        _ => fold(datatype, operands.iter().map(|element| element.to_vec()).collect()),
    }
}

#[test]
#[cfg(target_endian = "little")]
fn many_operands_are_folded_from_the_left() {
    for datatype in Datatype::ALL {
        let size = datatype.size();
        for (operands, count) in [(3, 2000), (5, 2000), (9, 2000), (256, 200)] {
            let vectors: Vec<Vec<u8>> = (0..operands).map(|number| operand(datatype, number, count)).collect();
            let pointers: Vec<*const u8> = vectors.iter().map(|vector| vector.as_ptr()).collect();
            for operator in Operator::ALL {
                if !is_defined(datatype, operator) {
                    continue;
                }
                let kernel = kernel_for(Isa::Scalar, datatype, operator).expect("defined");
                let mut found = vec![0; count * size];
                // SAFETY: all have `count` elements and are distinct.
                unsafe { (kernel.many)(found.as_mut_ptr(), &pointers, count) };
                for index in 0..count {
                    let range = index * size..(index + 1) * size;
                    let elements: Vec<&[u8]> = vectors.iter().map(|vector| &vector[range.clone()]).collect();
                    let expected = folded(datatype, operator, &elements);
                    assert!(
                        agree(datatype, operator, &found[range.clone()], &expected),
                        "{datatype} {operator} of {operands} operands at {index} is {:02x?}, not {expected:02x?}",
                        &found[range]
                    );
                }
            }
        }
    }
}

#[test]
fn any_nonzero_byte_is_true() {
    // C code may hand in a `_Bool` that is neither 0 nor 1; the result is 0 or 1 all the same.
    let cases = [(Operator::Land, [0, 0, 0, 1]), (Operator::Lor, [0, 1, 1, 1]), (Operator::Lxor, [0, 1, 1, 0])];
    for isa in Isa::available() {
        for (operator, expected) in cases {
            let kernel = kernel_for(isa, Datatype::Bool, operator).expect("defined");
            let (mut inout, src) = ([0u8, 2, 0, 0xff], [0u8, 0, 0x80, 3]);
            // SAFETY: both have four elements and are distinct.
            unsafe { (kernel.two)(inout.as_mut_ptr(), src.as_ptr(), 4) };
            assert_eq!(inout, expected, "{isa} {operator}");
        }
    }
}

#[test]
fn many_halves_are_rounded_once() {
    // 2048 + 1 is a tie that f16 rounds down to 2048: a chain of two-operand sums stays at 2048,
    // one pass that accumulates in f32 reaches 2052. Likewise 256 + 1 in bf16.
    let f16s = [2048.0, 1.0, 1.0, 1.0, 1.0].map(f16::from_f32);
    let bf16s = [256.0, 1.0, 1.0, 1.0, 1.0].map(bf16::from_f32);
    for isa in Isa::available() {
        let sum = many(isa, Datatype::Float16, &f16s.map(f16::to_ne_bytes));
        assert_eq!(f16::from_ne_bytes(sum), f16::from_f32(2052.0), "{isa}");
        let sum = many(isa, Datatype::Bfloat16, &bf16s.map(bf16::to_ne_bytes));
        assert_eq!(bf16::from_ne_bytes(sum), bf16::from_f32(260.0), "{isa}");
    }
}

fn many(isa: Isa, datatype: Datatype, operands: &[[u8; 2]]) -> [u8; 2] {
    let kernel = kernel_for(isa, datatype, Operator::Sum).expect("defined");
    let pointers: Vec<*const u8> = operands.iter().map(|operand| operand.as_ptr()).collect();
    let mut result = [0; 2];
    // SAFETY: every operand and the result are one element of two bytes.
    unsafe { (kernel.many)(result.as_mut_ptr(), &pointers, 1) };
    result
}

#[test]
fn one_source_is_copied_bit_by_bit() {
    // A signalling NaN would be changed by a conversion.
    for isa in Isa::available() {
        assert_eq!(many(isa, Datatype::Float16, &[0x7c01u16.to_ne_bytes()]), 0x7c01u16.to_ne_bytes());
        assert_eq!(many(isa, Datatype::Bfloat16, &[0x7f81u16.to_ne_bytes()]), 0x7f81u16.to_ne_bytes());
    }
}
