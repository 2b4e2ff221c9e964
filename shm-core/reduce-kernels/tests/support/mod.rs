//! What the kernel tests share: operands full of special values, and comparison of results.
#![allow(dead_code)] // Each test program uses its own part.

use half::{bf16, f16};
use reduce_kernels::{Datatype, Operator};

/// `count` elements as bytes. Operand number `operand` cycles through the special values of the
/// datatype at its own pace, so that the first operands meet in every combination within the first
/// `SPECIALS * SPECIALS` elements; every third element is random bits.
pub(crate) fn operand(datatype: Datatype, operand: usize, count: usize) -> Vec<u8> {
    let specials = specials(datatype);
    let mut random = Random::new(operand as u64 + 1);
    let mut bytes = Vec::with_capacity(count * datatype.size());
    for index in 0..count {
        let pace = if operand.is_multiple_of(2) { index } else { index / specials.len() + operand / 2 };
        let mut element = specials[pace % specials.len()].clone();
        if index % 3 == 2 && index >= 3 * specials.len() {
            let random = random.next().to_ne_bytes().into_iter().cycle();
            element.iter_mut().zip(random).for_each(|(byte, random)| *byte = random);
        }
        if datatype == Datatype::Bool {
            element[0] &= 1;
        }
        bytes.extend(element);
    }
    bytes
}

/// Whether two results agree: bit for bit, except that any NaN of a sum or product equals any
/// other (its payload is not defined), and that the padding of pairs is ignored.
pub(crate) fn agree(datatype: Datatype, operator: Operator, left: &[u8], right: &[u8]) -> bool {
    let any_nan = matches!(operator, Operator::Sum | Operator::Prod);
    left == right
        || (left.len() == right.len()
            && left
                .chunks_exact(datatype.size())
                .zip(right.chunks_exact(datatype.size()))
                .all(|(left, right)| agree_one(datatype, any_nan, left, right)))
}

fn agree_one(datatype: Datatype, any_nan: bool, left: &[u8], right: &[u8]) -> bool {
    let floats = |bytes: &[u8], size: usize| -> Vec<f64> {
        bytes.chunks_exact(size).map(|part| to_f64(datatype, part)).collect()
    };
    let part = match datatype {
        Datatype::Float16 | Datatype::Bfloat16 => 2,
        Datatype::Float | Datatype::ComplexFloat => 4,
        Datatype::Double | Datatype::ComplexDouble => 8,
        Datatype::DoubleInt | Datatype::LongInt => return left[..12] == right[..12],
        Datatype::ShortInt => return left[..2] == right[..2] && left[4..] == right[4..],
        _ => return left == right,
    };
    left.chunks_exact(part)
        .zip(right.chunks_exact(part))
        .zip(floats(left, part).into_iter().zip(floats(right, part)))
        .all(|((l, r), (lf, rf))| l == r || (any_nan && lf.is_nan() && rf.is_nan()))
}

fn to_f64(datatype: Datatype, bytes: &[u8]) -> f64 {
    match bytes.len() {
        2 if datatype == Datatype::Float16 => f16::from_ne_bytes(array(bytes)).to_f64(),
        2 => bf16::from_ne_bytes(array(bytes)).to_f64(),
        4 => f32::from_ne_bytes(array(bytes)).into(),
        _ => f64::from_ne_bytes(array(bytes)),
    }
}

pub(crate) fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes[..N].try_into().expect("as many bytes as the element has")
}

/// Values at which operators change their ways, as bytes of one element each.
fn specials(datatype: Datatype) -> Vec<Vec<u8>> {
    let floats = |size: usize| -> Vec<Vec<u8>> {
        let (exponent_bits, mantissa_bits) = match (size, datatype) {
            (2, Datatype::Float16) => (5, 10),
            (2, _) => (8, 7),
            (4, _) => (8, 23),
            _ => (11, 52),
        };
        special_floats(size, exponent_bits, mantissa_bits)
    };
    let combined = |values: Vec<Vec<u8>>, others: Vec<Vec<u8>>, gap: usize| {
        let mut elements = Vec::new();
        for (index, value) in values.iter().enumerate() {
            for step in [0, 3] {
                let mut element = value.clone();
                element.extend(std::iter::repeat_n(0, gap));
                element.extend(&others[(index + step) % others.len()]);
                element.resize(datatype.size(), 0);
                elements.push(element);
            }
        }
        elements
    };
    let indices = || [0i32, 1, 5, -1].map(|index| index.to_ne_bytes().to_vec()).to_vec();
    match datatype {
        Datatype::Bool => vec![vec![0], vec![1]],
        Datatype::Float16 | Datatype::Bfloat16 | Datatype::Float | Datatype::Double => floats(datatype.size()),
        Datatype::ComplexFloat => combined(floats(4), floats(4), 0),
        Datatype::ComplexDouble => combined(floats(8), floats(8), 0),
        Datatype::FloatInt => combined(floats(4), indices(), 0),
        Datatype::DoubleInt => combined(floats(8), indices(), 0),
        Datatype::LongInt => combined(special_integers(8), indices(), 0),
        Datatype::TwoInt => combined(special_integers(4), indices(), 0),
        Datatype::ShortInt => combined(special_integers(2), indices(), 2),
        _ => special_integers(datatype.size()),
    }
}

fn special_integers(size: usize) -> Vec<Vec<u8>> {
    let top = 1u64 << (size * 8 - 1);
    [0, 1, 2, 3, top, top - 1, top + 1, u64::MAX, u64::MAX - 1, 0x5555_5555_5555_5555, 0xb504_f333]
        .map(|value| value.to_ne_bytes()[..size].to_vec())
        .to_vec()
}

/// Signed zeros, ones, infinities, quiet and signalling NaN with payloads, subnormals, the least
/// and greatest normal numbers, and values whose sums and products must be rounded.
fn special_floats(size: usize, exponent_bits: u32, mantissa_bits: u32) -> Vec<Vec<u8>> {
    let infinity = ((1u64 << exponent_bits) - 1) << mantissa_bits;
    let one = ((1u64 << (exponent_bits - 1)) - 1) << mantissa_bits;
    let unit = 1u64 << mantissa_bits;
    let magnitudes = [
        0,
        1,
        unit - 1,
        unit,
        one,
        one + 1,
        one + unit / 2 + 1,
        one - (unit * (u64::from(mantissa_bits) + 1)),
        infinity - 1,
        infinity,
        infinity + 1,
        infinity + unit / 2,
        infinity + unit / 2 + 3,
    ];
    let sign = 1u64 << (exponent_bits + mantissa_bits);
    magnitudes
        .into_iter()
        .flat_map(|magnitude| [magnitude, magnitude | sign])
        .map(|bits| bits.to_ne_bytes()[..size].to_vec())
        .collect()
}

/// A small generator (splitmix64), so that every run tests the same numbers.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
