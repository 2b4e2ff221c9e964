//! Half precision on `x86_64`: conversions by the F16C instructions, which the compiler does not
//! find by itself in the portable ones.
#![allow(unsafe_code)] // The instructions may be called only where the CPU has them.

use super::combine::{Combine, Max, Min, Prod, Sum};
use crate::Operator;
use half::f16;
use std::arch::x86_64::{__m128i, __m256, _MM_FROUND_TO_NEAREST_INT, _mm256_cvtph_ps, _mm256_cvtps_ph};

/// An `f16` that is widened and narrowed by F16C.
///
/// Invariant: its operators are used only by the tables of instruction sets that include F16C, and
/// [`super::Isa`] gives those out only where the CPU has it.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct HardwareF16(f16);

/// Lanes that one instruction converts.
const LANES: usize = 8;

#[inline(always)]
fn widen_block<const N: usize>(values: [HardwareF16; N]) -> [f32; N] {
    let mut wide = [0.0; N];
    for (wide, values) in wide.chunks_mut(LANES).zip(values.chunks(LANES)) {
        let mut lanes = [0; LANES];
        for (lane, value) in lanes.iter_mut().zip(values) {
            *lane = value.0.to_bits();
        }
        let lanes = widen_lanes(lanes);
        wide.copy_from_slice(&lanes[..values.len()]);
    }
    wide
}

#[inline(always)]
fn narrow_block<const N: usize>(values: [f32; N]) -> [HardwareF16; N] {
    let mut narrow = [HardwareF16(f16::ZERO); N];
    for (narrow, values) in narrow.chunks_mut(LANES).zip(values.chunks(LANES)) {
        let mut lanes = [0.0; LANES];
        lanes[..values.len()].copy_from_slice(values);
        for (narrow, bits) in narrow.iter_mut().zip(narrow_lanes(lanes)) {
            *narrow = HardwareF16(f16::from_bits(bits));
        }
    }
    narrow
}

#[inline(always)]
fn widen_lanes(halves: [u16; LANES]) -> [f32; LANES] {
    // SAFETY: both are 16 bytes of plain integers.
    let halves = unsafe { std::mem::transmute::<[u16; LANES], __m128i>(halves) };
    // SAFETY: the CPU has F16C, by the invariant of `HardwareF16`.
    let wide = unsafe { _mm256_cvtph_ps(halves) };
    // SAFETY: both are eight floats.
    unsafe { std::mem::transmute::<__m256, [f32; LANES]>(wide) }
}

#[inline(always)]
fn narrow_lanes(wide: [f32; LANES]) -> [u16; LANES] {
    // SAFETY: both are eight floats.
    let wide = unsafe { std::mem::transmute::<[f32; LANES], __m256>(wide) };
    // SAFETY: the CPU has F16C, by the invariant of `HardwareF16`.
    let halves = unsafe { _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(wide) };
    // SAFETY: both are 16 bytes of plain integers.
    unsafe { std::mem::transmute::<__m128i, [u16; LANES]>(halves) }
}

macro_rules! converted {
    ($($operator:ident)*) => {$(
        impl Combine<HardwareF16> for $operator {
            const OPERATOR: Operator = <$operator as Combine<f16>>::OPERATOR;
            type Accumulator = f32;
            #[inline(always)]
            fn widen<const N: usize>(values: [HardwareF16; N]) -> [f32; N] {
                widen_block(values)
            }
            #[inline(always)]
            fn combine(left: f32, right: f32) -> f32 {
                <$operator as Combine<f16>>::combine(left, right)
            }
            #[inline(always)]
            fn narrow<const N: usize>(accumulators: [f32; N]) -> [HardwareF16; N] {
                narrow_block(accumulators)
            }
        }
    )*};
}
converted!(Sum Prod);

/// Chosen by the bits, without conversion.
macro_rules! unconverted {
    ($($operator:ident)*) => {$(
        impl Combine<HardwareF16> for $operator {
            const OPERATOR: Operator = <$operator as Combine<f16>>::OPERATOR;
            type Accumulator = f16;
            #[inline(always)]
            fn widen<const N: usize>(values: [HardwareF16; N]) -> [f16; N] {
                values.map(|value| value.0)
            }
            #[inline(always)]
            fn combine(left: f16, right: f16) -> f16 {
                <$operator as Combine<f16>>::combine(left, right)
            }
            #[inline(always)]
            fn narrow<const N: usize>(accumulators: [f16; N]) -> [HardwareF16; N] {
                accumulators.map(HardwareF16)
            }
        }
    )*};
}
unconverted!(Min Max);
