//! The loop of every kernel, generic over the element and the operator, and compiled once for each
//! instruction set.
//!
//! A block of elements is loaded whole from the first source into accumulators, combined with the
//! same block of each further source, and stored once. Blocks have a constant length, which is what
//! the compiler needs to keep the accumulators in vector registers, and a block is stored only
//! after it has been read from every source, so the destination may be one of the sources.
#![allow(unsafe_code)] // Reads and writes the memory that the callers' raw pointers name.

use super::combine::Combine;
use std::ptr;

/// `dst[i] = srcs[0][i] op srcs[1][i] op ...`, a left fold in the order of `srcs`, by blocks for
/// the vector units. One source is copied, none leaves `dst` as it is.
///
/// # Safety
///
/// `dst` must be valid for writes, and every source for reads, of `count` elements of `T`, at any
/// alignment. Each source either starts where `dst` starts or does not overlap it.
#[inline(always)]
pub(super) unsafe fn fold_blocks<T: Copy, O: Combine<T>>(dst: *mut u8, srcs: &[*const u8], count: usize) {
    let [first, rest @ ..] = srcs else { return };
    if rest.is_empty() {
        // SAFETY: the caller promises `count` elements at both; `copy` allows overlap.
        return unsafe { ptr::copy(*first, dst, count * size_of::<T>()) };
    }
    // Large blocks of at least four vectors and 64 elements: shorter loops are unrolled before they
    // can be vectorized (see docs/vectorization.md). What is left over goes in smaller blocks, so
    // that short operands are fast too.
    let mut done = 0;
    match size_of::<T>() {
        // SAFETY: here and below, the caller's promises are those that `blocks` asks for.
        1 => unsafe { blocks::<T, O, 256>(dst, srcs, count, &mut done) },
        // SAFETY: see above.
        2 => unsafe { blocks::<T, O, 128>(dst, srcs, count, &mut done) },
        // SAFETY: see above.
        _ => unsafe { blocks::<T, O, 64>(dst, srcs, count, &mut done) },
    }
    // SAFETY: see above.
    unsafe { blocks::<T, O, 16>(dst, srcs, count, &mut done) };
    // SAFETY: see above.
    unsafe { blocks::<T, O, 4>(dst, srcs, count, &mut done) };
    // SAFETY: see above.
    unsafe { blocks::<T, O, 1>(dst, srcs, count, &mut done) };
}

/// As [`fold_blocks`], one element at a time: the oracle.
///
/// # Safety
///
/// As for [`fold_blocks`].
#[inline(always)]
pub(super) unsafe fn fold_elements<T: Copy, O: Combine<T>>(dst: *mut u8, srcs: &[*const u8], count: usize) {
    if let [only] = srcs {
        // SAFETY: the caller promises `count` elements at both; `copy` allows overlap.
        return unsafe { ptr::copy(*only, dst, count * size_of::<T>()) };
    }
    // SAFETY: the caller's promises are those that `blocks` asks for.
    unsafe { blocks::<T, O, 1>(dst, srcs, count, &mut 0) };
}

/// Combines blocks of `N` elements from element `done` on, as many as fit, and moves `done` there.
///
/// # Safety
///
/// As for [`fold_blocks`].
#[inline(always)]
unsafe fn blocks<T: Copy, O: Combine<T>, const N: usize>(
    dst: *mut u8,
    srcs: &[*const u8],
    count: usize,
    done: &mut usize,
) {
    let [first, rest @ ..] = srcs else { return };
    while count - *done >= N {
        // SAFETY: done + N <= count, and every source has `count` elements.
        let mut accumulators = O::widen(unsafe { load::<T, N>(*first, *done) });
        for src in rest {
            // SAFETY: as for `first`.
            let values = O::widen(unsafe { load::<T, N>(*src, *done) });
            for lane in 0..N {
                accumulators[lane] = O::combine(accumulators[lane], values[lane]);
            }
        }
        // SAFETY: done + N <= count, and `dst` has `count` elements.
        unsafe { store(dst, *done, O::narrow(accumulators)) };
        *done += N;
    }
}

/// Elements `index .. index + N` of the array of `T` at `src`.
///
/// # Safety
///
/// They must be valid for reads.
#[inline(always)]
unsafe fn load<T: Copy, const N: usize>(src: *const u8, index: usize) -> [T; N] {
    // SAFETY: the caller promises that the element lies in the array.
    let block = unsafe { src.add(index * size_of::<T>()) };
    // SAFETY: the caller promises N readable elements there; alignment is not needed.
    unsafe { block.cast::<[T; N]>().read_unaligned() }
}

/// Writes elements `index .. index + N` of the array of `T` at `dst`.
///
/// # Safety
///
/// They must be valid for writes.
#[inline(always)]
unsafe fn store<T: Copy, const N: usize>(dst: *mut u8, index: usize, values: [T; N]) {
    // SAFETY: the caller promises that the element lies in the array.
    let block = unsafe { dst.add(index * size_of::<T>()) };
    // SAFETY: the caller promises N writable elements there; alignment is not needed.
    unsafe { block.cast::<[T; N]>().write_unaligned(values) };
}
