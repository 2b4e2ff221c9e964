//! Kernels for `x86_64` with AVX-512 (F, BW, DQ, VL: every AVX-512 server CPU) and F16C.
#![allow(unsafe_code)] // Hands the caller's raw pointers on to the loops.

use super::combine::Combine;
use super::f16c::HardwareF16;
use super::table::{Backend, Table};
use super::{Isa, loops};

pub(super) static TABLE: Table = Table::new::<Avx512>();

pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("f16c")
}

struct Avx512;

impl Backend for Avx512 {
    const ISA: Isa = Isa::Avx512;
    type Half = HardwareF16;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
    unsafe fn three<T: Copy, O: Combine<T>>(dst: *mut u8, a: *const u8, b: *const u8, count: usize) {
        // SAFETY: the caller's promises are those that the loop asks for.
        unsafe { loops::fold_blocks::<T, O>(dst, &[a, b], count) }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
    unsafe fn many<T: Copy, O: Combine<T>>(dst: *mut u8, srcs: &[*const u8], count: usize) {
        // SAFETY: the caller's promises are those that the loop asks for.
        unsafe { loops::fold_blocks::<T, O>(dst, srcs, count) }
    }
}
