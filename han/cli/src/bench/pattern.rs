//! What ranks send in a benchmark, and what they must receive: computed in 64-bit integers, without
//! the library, and exact in every datatype, so that a result is either right or wrong.
//!
//! Contributions repeat with a prime period, so that a pattern is filled and compared at memory
//! speed, while pieces that land at a wrong place (by powers of two, say) are still found.

use reduce_kernels::{Byte, Complex, Element, Operator, Pair, bf16, f16};

/// Elements after which a pattern repeats.
const PERIOD: usize = 8191;

/// One element as integers: a value and, for pairs and complex numbers, its second part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Model {
    first: i64,
    second: i64,
}

/// A type that patterns can be made of.
pub(crate) trait Cell: Element + PartialEq {
    /// Whether a product is a complex one.
    const COMPLEX: bool = false;

    /// The element that stands for `model`; integers wrap.
    fn cell(model: Model) -> Self;
}

macro_rules! cells {
    ($($type:ty: |$model:ident| $cell:expr),* $(,)?) => {$(
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // wrapping is meant
        #[allow(clippy::cast_precision_loss)] // floats get integers below 2^24 only
        impl Cell for $type {
            fn cell($model: Model) -> Self {
                $cell
            }
        }
    )*};
}

cells! {
    i8: |model| model.first as i8,
    i16: |model| model.first as i16,
    i32: |model| model.first as i32,
    i64: |model| model.first,
    u8: |model| model.first as u8,
    u16: |model| model.first as u16,
    u32: |model| model.first as u32,
    u64: |model| model.first as u64,
    f16: |model| f16::from_f32(model.first as f32),
    bf16: |model| bf16::from_f32(model.first as f32),
    f32: |model| model.first as f32,
    f64: |model| model.first as f64,
    bool: |model| model.first != 0,
    Byte: |model| Byte(model.first as u8),
    Pair<f32>: |model| Pair::new(model.first as f32, model.second as i32),
    Pair<f64>: |model| Pair::new(model.first as f64, model.second as i32),
    Pair<i64>: |model| Pair::new(model.first, model.second as i32),
    Pair<i32>: |model| Pair::new(model.first as i32, model.second as i32),
    Pair<i16>: |model| Pair::new(model.first as i16, model.second as i32),
}

#[allow(clippy::cast_precision_loss)] // integers below 2^24
impl Cell for Complex<f32> {
    const COMPLEX: bool = true;
    fn cell(model: Model) -> Self {
        Self::new(model.first as f32, model.second as f32)
    }
}

#[allow(clippy::cast_precision_loss)] // integers below 2^24
impl Cell for Complex<f64> {
    const COMPLEX: bool = true;
    fn cell(model: Model) -> Self {
        Self::new(model.first as f64, model.second as f64)
    }
}

/// The element that stands for nothing yet.
pub(crate) fn zero<T: Cell>() -> T {
    T::cell(Model { first: 0, second: 0 })
}

/// Elements that repeat with [`PERIOD`].
pub(crate) struct Pattern<T>(Vec<T>);

impl<T: Cell> Pattern<T> {
    fn new(count: usize, element: impl Fn(usize) -> Model) -> Self {
        Self((0..count.min(PERIOD)).map(|index| T::cell(element(index))).collect())
    }

    /// Writes the pattern over `buffer`.
    pub(crate) fn fill(&self, buffer: &mut [T]) {
        for piece in buffer.chunks_mut(PERIOD) {
            piece.copy_from_slice(&self.0[..piece.len()]);
        }
    }

    /// Whether `buffer` holds exactly the pattern.
    pub(crate) fn matches(&self, buffer: &[T]) -> bool {
        buffer.chunks(PERIOD).all(|piece| *piece == self.0[..piece.len()])
    }
}

/// The patterns of one rank for one size and one seed.
pub(crate) struct Patterns<T> {
    /// What this rank contributes.
    pub(crate) input: Pattern<T>,
    /// What a rank that receives must find.
    pub(crate) output: Pattern<T>,
    /// What a receive buffer holds before, wrong in every element.
    pub(crate) wrong: Pattern<T>,
}

impl<T: Cell> Patterns<T> {
    /// For a reduction with `operator` over `ranks` ranks.
    pub(crate) fn reduction(operator: Operator, ranks: usize, rank: usize, count: usize, seed: u64) -> Self {
        let reduction = Reduction { operator, complex: T::COMPLEX, ranks, seed };
        Self::of(count, |index| reduction.operand(rank, index), |index| reduction.result(index))
    }

    /// For a broadcast from `root`.
    pub(crate) fn broadcast(root: usize, count: usize, seed: u64) -> Self {
        let sent = |index: usize| {
            let mixed = mix(index, root, seed);
            Model { first: mixed % 101, second: mixed / 101 % 101 }
        };
        Self::of(count, sent, sent)
    }

    fn of(count: usize, input: impl Fn(usize) -> Model, output: impl Fn(usize) -> Model) -> Self {
        Self {
            input: Pattern::new(count, input),
            wrong: Pattern::new(count, |index| unlike(output(index))),
            output: Pattern::new(count, output),
        }
    }
}

/// An element that differs from `model` in every datatype, `bool` included.
fn unlike(model: Model) -> Model {
    Model { first: i64::from(model.first == 0), second: model.second }
}

/// A number below 2^31 that looks random.
fn mix(index: usize, rank: usize, seed: u64) -> i64 {
    let mut bits = (index as u64) ^ ((rank as u64) << 32) ^ (seed << 48);
    for _ in 0..2 {
        bits = (bits ^ (bits >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    (bits >> 33).cast_signed()
}

/// A reduction in integers, over operands so small that its result is exact in every datatype.
struct Reduction {
    operator: Operator,
    complex: bool,
    ranks: usize,
    seed: u64,
}

impl Reduction {
    /// What all ranks' operands at `index` make.
    fn result(&self, index: usize) -> Model {
        let first = self.operand(0, index);
        (1..self.ranks).fold(first, |left, rank| self.combine(left, self.operand(rank, index)))
    }

    /// What `rank` contributes at `index`.
    fn operand(&self, rank: usize, index: usize) -> Model {
        let mixed = mix(index, rank, self.seed);
        let ranks = i64::try_from(self.ranks).unwrap_or(i64::MAX);
        let (first, second) = match self.operator {
            Operator::Sum => {
                // bf16 holds the integers up to 256.
                let values = (256 / ranks).clamp(1, 31) + 1;
                (mixed % values, mixed / values % values)
            }
            Operator::Prod => {
                // f16 holds the powers of two up to 2^15: at most three ranks double, all turn the
                // sign or, if complex, the axis.
                let size = if (rank + index) % self.ranks < 3 { 2 } else { 1 };
                let signed = if mixed % 2 == 0 { size } else { -size };
                if self.complex && mixed % 4 < 2 { (0, signed) } else { (signed, 0) }
            }
            Operator::Min | Operator::Max => (mixed % 101, 0),
            // About half the results are true, however many ranks there are.
            Operator::Land => (i64::from(mixed % (2 * ranks) != 0), 0),
            Operator::Lor => (i64::from(mixed % (2 * ranks) == 0), 0),
            Operator::Lxor => (mixed % 2, 0),
            Operator::Band => (!(1 << (mixed % 8)) & 0xff, 0),
            Operator::Bor => (1 << (mixed % 8), 0),
            Operator::Bxor => (mixed % 256, 0),
            // Few values, so that the index often decides.
            Operator::Minloc | Operator::Maxloc => (mixed % 11, i64::try_from(rank).unwrap_or(i64::MAX)),
        };
        Model { first, second }
    }

    /// `left operator right`.
    fn combine(&self, left: Model, right: Model) -> Model {
        let (a, b) = (left.first, right.first);
        let first = match self.operator {
            Operator::Sum => return Model { first: a + b, second: left.second + right.second },
            Operator::Prod => {
                let (c, d) = (left.second, right.second);
                return Model { first: a * b - c * d, second: a * d + c * b };
            }
            Operator::Min => a.min(b),
            Operator::Max => a.max(b),
            Operator::Land => i64::from(a != 0 && b != 0),
            Operator::Lor => i64::from(a != 0 || b != 0),
            Operator::Lxor => i64::from((a != 0) != (b != 0)),
            Operator::Band => a & b,
            Operator::Bor => a | b,
            Operator::Bxor => a ^ b,
            Operator::Minloc | Operator::Maxloc => {
                let wins = if self.operator == Operator::Minloc { b < a } else { b > a };
                return if wins || (a == b && right.second < left.second) { right } else { left };
            }
        };
        Model { first, second: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reduce_kernels::{is_defined, reduce_into};

    /// The kernels and the model agree where both are exact: neither can be wrong alone.
    fn agrees<T: Cell + std::fmt::Debug>() {
        const COUNT: usize = 200;
        for operator in Operator::ALL {
            if !is_defined(T::DATATYPE, operator) {
                continue;
            }
            for ranks in [2, 3, 8, 256] {
                let reduction = Reduction { operator, complex: T::COMPLEX, ranks, seed: 5 };
                let operand = |rank| Pattern::<T>::new(COUNT, |index| reduction.operand(rank, index));
                let mut result = operand(0).0;
                for rank in 1..ranks {
                    reduce_into(&mut result, &operand(rank).0, operator).expect("defined");
                }
                let patterns = Patterns::<T>::reduction(operator, ranks, 0, COUNT, 5);
                assert_eq!(result, patterns.output.0, "{operator} of {ranks} {}", T::DATATYPE);
                assert!(!patterns.wrong.matches(&result));
            }
        }
    }

    #[test]
    fn the_model_is_exact_in_every_datatype() {
        agrees::<i8>();
        agrees::<u8>();
        agrees::<i32>();
        agrees::<u64>();
        agrees::<f16>();
        agrees::<bf16>();
        agrees::<f32>();
        agrees::<f64>();
        agrees::<Complex<f32>>();
        agrees::<bool>();
        agrees::<Byte>();
        agrees::<Pair<f64>>();
        agrees::<Pair<i16>>();
    }

    #[test]
    fn one_wrong_element_is_found_wherever_it_is() {
        let patterns = Patterns::<f32>::broadcast(1, 3 * PERIOD, 1);
        let mut buffer = vec![0.0; 3 * PERIOD - 5];
        patterns.output.fill(&mut buffer);
        assert!(patterns.output.matches(&buffer));
        for index in [0, PERIOD - 1, PERIOD, buffer.len() - 1] {
            let right = buffer[index];
            buffer[index] += 1.0;
            assert!(!patterns.output.matches(&buffer));
            buffer[index] = right;
        }
        assert!(!Patterns::<f32>::broadcast(1, 3 * PERIOD, 2).output.matches(&buffer));
    }
}
