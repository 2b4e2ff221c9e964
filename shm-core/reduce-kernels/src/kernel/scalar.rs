//! Kernels for every CPU, one element at a time: the oracle of the others.
#![allow(unsafe_code)] // Hands the caller's raw pointers on to the loops.

use super::combine::Combine;
use super::table::{Backend, Table};
use super::{Isa, loops};
use half::f16;

pub(super) static TABLE: Table = Table::new::<Scalar>();

struct Scalar;

impl Backend for Scalar {
    const ISA: Isa = Isa::Scalar;
    type Half = f16;

    unsafe fn three<T: Copy, O: Combine<T>>(dst: *mut u8, a: *const u8, b: *const u8, count: usize) {
        // SAFETY: the caller's promises are those that the loop asks for.
        unsafe { loops::fold_elements::<T, O>(dst, &[a, b], count) }
    }

    unsafe fn many<T: Copy, O: Combine<T>>(dst: *mut u8, srcs: &[*const u8], count: usize) {
        // SAFETY: the caller's promises are those that the loop asks for.
        unsafe { loops::fold_elements::<T, O>(dst, srcs, count) }
    }
}
