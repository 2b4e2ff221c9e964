//! Applies an operator to many ranks' vectors, always in rank order.
#![allow(unsafe_code)] // calls kernels on raw memory

use reduce_kernels::{Datatype, Op, kernel};

use reduce_kernels::Call;

/// `to = from[0] op from[1] op ...`, element by element.
///
/// Built-in operators fold from the left in one pass, so the bits do not depend on the form that
/// calls this; a user's operator folds from the right, as its signature wants.
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
    let bytes = count * datatype.size();
    let Some((last, others)) = from.split_last() else { return };
    // `to` is overwritten first, so a source that it is must be kept elsewhere, aligned for every element.
    let mut kept: Vec<u128> = Vec::new();
    let aliased = others.iter().any(|source| source.addr() == to.addr());
    if aliased {
        kept.resize(bytes.div_ceil(size_of::<u128>()), 0);
        // SAFETY: `kept` has room for `bytes`, and is new memory.
        unsafe { kept.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(to, bytes) };
    }
    // SAFETY: both are valid for `bytes`; they may be the same.
    unsafe { to.copy_from(*last, bytes) };
    for &source in others.iter().rev() {
        let source = if aliased && source.addr() == to.addr() { kept.as_ptr().cast() } else { source };
        let guard = EndOnPanic;
        // SAFETY: valid for `count` elements each and disjoint: an aliased source was replaced.
        unsafe { user.apply(source, to, count, datatype) };
        std::mem::forget(guard);
    }
}

/// Ends the process when a panic passes: an operation that was left half-way would leave the peers
/// waiting for the rest of it, while a process that ends is a death that they are told of.
struct EndOnPanic;

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        reduce_kernels::say("han: a user operator panicked: ending the process");
        std::process::abort();
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
