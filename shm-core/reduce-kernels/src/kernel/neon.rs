//! Kernels for `aarch64` with Advanced SIMD.
#![allow(unsafe_code)] // Hands the caller's raw pointers on to the loops.

use super::combine::Combine;
use super::table::{Backend, Table};
use super::{Isa, loops};
use half::f16;
use std::arch::is_aarch64_feature_detected;

pub(super) static TABLE: Table = Table::new::<Neon>();

pub(super) fn is_available() -> bool {
    is_aarch64_feature_detected!("neon")
}

struct Neon;

impl Backend for Neon {
    const ISA: Isa = Isa::Neon;
    type Half = f16;

    #[target_feature(enable = "neon")]
    unsafe fn three<T: Copy, O: Combine<T>>(dst: *mut u8, a: *const u8, b: *const u8, count: usize) {
        // SAFETY: the caller's promises are those that the loop asks for.
        unsafe { loops::fold_blocks::<T, O>(dst, &[a, b], count) }
    }

    #[target_feature(enable = "neon")]
    unsafe fn many<T: Copy, O: Combine<T>>(dst: *mut u8, srcs: &[*const u8], count: usize) {
        // SAFETY: the caller's promises are those that the loop asks for.
        unsafe { loops::fold_blocks::<T, O>(dst, srcs, count) }
    }
}
