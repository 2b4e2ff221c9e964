//! Applies an operator to many ranks' vectors, always in rank order.
#![allow(unsafe_code)] // calls kernels on raw memory

use crate::copy::cico::{LINE, Line};
use reduce_kernels::{Call, Datatype, EndOnPanic, Op, kernel};

/// `to = from[0] op from[1] op ...`, element by element.
///
/// From the left, as between nodes, so that the bits do not depend on the form that calls this, nor on where the ranks are.
///
/// # Safety
/// `to` is valid for writing, and each of `from` for reading, `bytes`, a whole number of elements.
/// `to` may be one of `from`; else it overlaps none of them.
#[inline]
pub(crate) unsafe fn fold(op: &Op, datatype: Datatype, to: *mut u8, from: &[*const u8], bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { fold_elements(op, datatype, to, from, bytes / datatype.size()) }
}

/// As [`fold`], for who knows the number of elements: it saves a division.
///
/// # Safety
/// As for [`fold`], with `count` elements for its bytes.
#[inline]
pub(crate) unsafe fn fold_elements(op: &Op, datatype: Datatype, to: *mut u8, from: &[*const u8], count: usize) {
    match op {
        Op::Builtin(operator) => {
            let Some(kernel) = kernel(datatype, *operator) else {
                unreachable!("Call::check lets only defined operators pass")
            };
            match *from {
                // The same bits as `many`, and quicker to call.
                // SAFETY: the caller's promise is the kernel's condition.
                [a, b] => unsafe { (kernel.three)(to, a, b, count) },
                // SAFETY: the same.
                _ => unsafe { (kernel.many)(to, from, count) },
            }
        }
        // SAFETY: the same promise.
        Op::User(user) => unsafe { fold_user(user, datatype, to, from, count) },
    }
}

/// What is folded at a time by a user's operator: sums stay in the first cache.
const USER_BLOCK_BYTES: usize = 4096;

/// # Safety
/// As for [`fold_elements`].
#[cold]
unsafe fn fold_user(
    user: &reduce_kernels::UserOperator,
    datatype: Datatype,
    to: *mut u8,
    from: &[*const u8],
    count: usize,
) {
    let [first, middle @ .., last] = from else {
        if let [only] = from {
            // SAFETY: both are valid for so many bytes; they may be the same.
            unsafe { to.copy_from(*only, count * datatype.size()) };
        }
        return;
    };
    let most = (USER_BLOCK_BYTES / datatype.size()).clamp(1, count.max(1));
    let lines = (most * datatype.size()).div_ceil(LINE);
    let is_over_first = to.cast_const() == *first;
    let mut room = vec![Line::ZERO; if middle.is_empty() && !is_over_first { 0 } else { 2 * lines }];
    let mut sums = [room.as_mut_ptr().cast::<u8>(), room.as_mut_ptr().wrapping_add(lines).cast()];
    // The function writes over its operand on the right, so each is copied to where the sum shall be.
    let apply = |left: *const u8, right: *const u8, sum: *mut u8, count: usize| {
        let guard = EndOnPanic;
        // SAFETY: blocks of `count` elements of the caller's vectors or of `room`; `sum` is apart from `left`.
        unsafe { sum.copy_from(right, count * datatype.size()) };
        // SAFETY: as above.
        unsafe { user.apply(left, sum, count, datatype) };
        std::mem::forget(guard);
    };
    for begin in (0..count).step_by(most) {
        let count = most.min(count - begin);
        let at = begin * datatype.size();
        let mut sum = first.wrapping_add(at);
        for source in middle {
            apply(sum, source.wrapping_add(at), sums[0], count);
            sum = sums[0];
            sums.swap(0, 1);
        }
        // Sources that `to` is have been read by now, but for the first of two and the last.
        let end = if sum == to.wrapping_add(at).cast_const() { sums[0] } else { to.wrapping_add(at) };
        apply(sum, last.wrapping_add(at), end, count);
        if end != to.wrapping_add(at) {
            // SAFETY: `to` is valid for as many bytes and apart from `room`.
            unsafe { to.wrapping_add(at).copy_from_nonoverlapping(end, count * datatype.size()) };
        }
    }
}

/// A collective of a single rank: its contribution is the result.
pub(crate) fn alone(call: &Call<'_>) {
    let gives_result = call.collective.reduces();
    if gives_result && call.count > 0 {
        // SAFETY: `Call::check` has seen both buffers, which are valid for `bytes` by the call's making.
        unsafe { call.recv.copy_from(call.send, call.bytes()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reduce_kernels::UserOperator;

    /// x -> a x + b modulo 2^16, as one number: composition does not commute.
    fn compose(left: u32, right: u32) -> u32 {
        let (a, b, c, d) = (left >> 16, left & 0xffff, right >> 16, right & 0xffff);
        (a.wrapping_mul(c) & 0xffff) << 16 | (a.wrapping_mul(d).wrapping_add(b) & 0xffff)
    }

    #[test]
    fn user_operators_keep_rank_order_wherever_the_result_goes() {
        let op = Op::User(UserOperator::elementwise::<u32>(false, compose));
        let vectors: Vec<Vec<u32>> = (0..5).map(|r| (0..9).map(|i| (r * 7 + 3) << 16 | (i + r)).collect()).collect();
        let expected: Vec<u32> =
            (0..9).map(|i| vectors.iter().map(|v| v[i]).reduce(compose).expect("five ranks")).collect();
        for place in 0..=5 {
            let mut all = vectors.clone();
            all.push(vec![0; 9]);
            let from: Vec<*const u8> = (0..5).map(|r| all[r].as_ptr().cast()).collect();
            let to = all[place].as_mut_ptr().cast();
            // SAFETY: all vectors hold 9 elements; `to` is one of the sources, or the sixth vector.
            unsafe { fold(&op, Datatype::Uint32, to, &from, 36) };
            assert_eq!(all[place], expected, "result in place of vector {place}");
        }
    }
}
