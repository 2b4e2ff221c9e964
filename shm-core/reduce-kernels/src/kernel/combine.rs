//! What each operator does to two elements: the one place that says it, for every instruction set.

use crate::convert::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, half_less};
use crate::{Complex, Operator, Pair};
use half::{bf16, f16};

/// One built-in operator on elements of type `T`.
///
/// Everything is `inline(always)` and free of branches, so that the loops of the kernels vectorize
/// for whatever instruction set they are compiled.
pub(crate) trait Combine<T: Copy>: 'static {
    /// The operator that this is.
    const OPERATOR: Operator;
    /// What is kept while operands are combined: `T`, or `f32` where `T` is too narrow.
    type Accumulator: Copy;

    fn widen<const N: usize>(values: [T; N]) -> [Self::Accumulator; N];
    fn combine(left: Self::Accumulator, right: Self::Accumulator) -> Self::Accumulator;
    fn narrow<const N: usize>(accumulators: [Self::Accumulator; N]) -> [T; N];
}

macro_rules! markers {
    ($($name:ident),*) => {$(
        #[derive(Clone, Copy)]
        pub(crate) struct $name;
    )*};
}
markers!(Sum, Prod, Min, Max, Land, Lor, Lxor, Band, Bor, Bxor, Minloc, Maxloc);

/// `Combine` with `T` itself as the accumulator.
macro_rules! plain {
    ($type:ty: $($operator:ident = |$left:ident, $right:ident| $body:expr;)*) => {$(
        impl Combine<$type> for $operator {
            const OPERATOR: Operator = Operator::$operator;
            type Accumulator = $type;
            #[inline(always)]
            fn widen<const N: usize>(values: [$type; N]) -> [$type; N] {
                values
            }
            #[inline(always)]
            fn combine($left: $type, $right: $type) -> $type {
                $body
            }
            #[inline(always)]
            fn narrow<const N: usize>(accumulators: [$type; N]) -> [$type; N] {
                accumulators
            }
        }
    )*};
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        plain! { $type:
            Sum = |a, b| a.wrapping_add(b);
            Prod = |a, b| a.wrapping_mul(b);
            Min = |a, b| if b < a { b } else { a };
            Max = |a, b| if b > a { b } else { a };
            Land = |a, b| <$type>::from((a != 0) & (b != 0));
            Lor = |a, b| <$type>::from((a | b) != 0);
            Lxor = |a, b| <$type>::from((a != 0) != (b != 0));
            Band = |a, b| a & b;
            Bor = |a, b| a | b;
            Bxor = |a, b| a ^ b;
        }
    )*};
}
integers!(i8 i16 i32 i64 u8 u16 u32 u64);

macro_rules! floats {
    ($($type:ty)*) => {$(
        plain! { $type:
            Sum = |a, b| a + b;
            Prod = |a, b| a * b;
            Min = |a, b| if b < a { b } else { a };
            Max = |a, b| if b > a { b } else { a };
        }
        plain! { Complex<$type>:
            Sum = |a, b| Complex::new(a.re + b.re, a.im + b.im);
            Prod = |a, b| Complex::new(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
        }
    )*};
}
floats!(f32 f64);

macro_rules! pairs {
    ($($value:ty)*) => {$(
        plain! { Pair<$value>:
            Minloc = |a, b| {
                let right = (b.value < a.value) | ((b.value == a.value) & (b.index < a.index));
                Pair::new(
                    if right { b.value } else { a.value },
                    if right { b.index } else { a.index },
                )
            };
            Maxloc = |a, b| {
                let right = (b.value > a.value) | ((b.value == a.value) & (b.index < a.index));
                Pair::new(
                    if right { b.value } else { a.value },
                    if right { b.index } else { a.index },
                )
            };
        }
    )*};
}
pairs!(f32 f64 i64 i32 i16);

macro_rules! halves {
    ($($type:ident, $infinity:literal, $widen:ident, $narrow:ident;)*) => {$(
        halves! { @widened $type, $widen, $narrow: Sum = +; Prod = *; }
        // The lesser and the greater are chosen by the bits, so that they come back unchanged.
        plain! { $type:
            Min = |a, b| if half_less::<$infinity>(b.to_bits(), a.to_bits()) { b } else { a };
            Max = |a, b| if half_less::<$infinity>(a.to_bits(), b.to_bits()) { b } else { a };
        }
    )*};
    (@widened $type:ident, $widen:ident, $narrow:ident: $($operator:ident = $symbol:tt;)*) => {$(
        impl Combine<$type> for $operator {
            const OPERATOR: Operator = Operator::$operator;
            type Accumulator = f32;
            #[inline(always)]
            fn widen<const N: usize>(values: [$type; N]) -> [f32; N] {
                values.map(|value| $widen(value.to_bits()))
            }
            #[inline(always)]
            fn combine(left: f32, right: f32) -> f32 {
                left $symbol right
            }
            #[inline(always)]
            fn narrow<const N: usize>(accumulators: [f32; N]) -> [$type; N] {
                accumulators.map(|value| $type::from_bits($narrow(value)))
            }
        }
    )*};
}
halves! {
    f16, 0x7c00, f16_to_f32, f32_to_f16;
    bf16, 0x7f80, bf16_to_f32, f32_to_bf16;
}
