//! Operators that the user provides: a C function with a context, or a Rust closure.
#![allow(unsafe_code)] // Calls a foreign function, and gives typed access to untyped memory.

use crate::{Datatype, Element};
use std::ffi::{c_int, c_void};
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// A user's C function: `inout[i] = in[i] op inout[i]` for `count` elements, `in` being the operand
/// on the left, as in MPI. The arguments are `in`, `inout`, `count`, the datatype's
/// [code](Datatype::code), and the context that the operator was made with.
pub type UserFn =
    unsafe extern "C" fn(input: *const c_void, inout: *mut c_void, count: usize, datatype: c_int, context: *mut c_void);

/// Ends the process when a panic, or a C++ exception, of a user's operator passes it; who has come by [forgets](std::mem::forget) it.
///
/// An operation that was left half-way would leave the peers waiting for the rest of it, while a process that ends is a
/// death that they are told of.
#[derive(Debug)]
pub struct EndOnPanic;

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        crate::say("han: a user operator has panicked or thrown an exception: ending the process");
        std::process::abort();
    }
}

/// A reduction operator of the user's, cheap to clone.
///
/// It must be associative; whether it is commutative is stated when it is made. One application
/// computes `inout = input op inout`, so the operand on the right is copied to where the result shall be.
#[derive(Clone)]
pub struct UserOperator(Arc<Definition>);

struct Definition {
    function: Function,
    commutative: bool,
}

enum Function {
    Raw(Box<Raw>),
    Elementwise { datatype: Datatype, apply: Box<Elementwise> },
}

/// `(in, inout, count, datatype's code)`, as [`UserFn`].
type Raw = dyn Fn(*const c_void, *mut c_void, usize, c_int);

/// `(input, inout, count)` over elements of the datatype that stands beside it, at any alignment.
/// Called by [`UserOperator::apply`] only, whose caller promises what the pointers must be.
type Elementwise = dyn Fn(*const u8, *mut u8, usize) + Send + Sync;

// SAFETY: the closure is `Send` and `Sync`; for a raw function, whoever called `from_raw` promised
// that the function and its context may be used from any thread.
unsafe impl Send for Definition {}
// SAFETY: as for `Send`.
unsafe impl Sync for Definition {}

impl UserOperator {
    /// An operator from a C function and a context that is handed through to it.
    ///
    /// # Safety
    ///
    /// As long as the operator or a clone of it lives, `function` must be safe to call, from any
    /// thread, with this `context` and with two disjoint arrays of `count` elements each that are
    /// aligned as [`Datatype::align`] says, for every datatype that it is used with. It must not unwind.
    #[must_use]
    pub unsafe fn from_raw(function: UserFn, context: *mut c_void, commutative: bool) -> Self {
        // SAFETY: the caller's promise.
        let apply = move |input, inout, count, datatype| unsafe { function(input, inout, count, datatype, context) };
        // SAFETY: the same.
        unsafe { Self::from_raw_closure(apply, commutative) }
    }

    /// The same from a closure, which is given what a [`UserFn`] is, but for the context.
    ///
    /// # Safety
    ///
    /// As [`from_raw`](Self::from_raw).
    #[must_use]
    pub unsafe fn from_raw_closure(
        apply: impl Fn(*const c_void, *mut c_void, usize, c_int) + 'static,
        commutative: bool,
    ) -> Self {
        Self(Arc::new(Definition { function: Function::Raw(Box::new(apply)), commutative }))
    }

    /// An operator on elements of type `T`: `combine(left, right)`.
    pub fn elementwise<T: Element>(commutative: bool, combine: impl Fn(T, T) -> T + Send + Sync + 'static) -> Self {
        let apply = move |input: *const u8, inout: *mut u8, count: usize| {
            let (input, inout) = (input.cast::<T>(), inout.cast::<T>());
            for index in 0..count {
                // SAFETY: the caller of `UserOperator::apply` promises `count` elements, and index < count.
                let input = unsafe { input.add(index) };
                // SAFETY: the same for `inout`.
                let inout = unsafe { inout.add(index) };
                // SAFETY: it points at a valid `T` (`apply` has checked the datatype), at any alignment.
                let left = unsafe { input.read_unaligned() };
                // SAFETY: the same for `inout`.
                let right = unsafe { inout.read_unaligned() };
                // SAFETY: `inout` is valid for writes, at any alignment.
                unsafe { inout.write_unaligned(combine(left, right)) };
            }
        };
        let function = Function::Elementwise { datatype: T::DATATYPE, apply: Box::new(apply) };
        Self(Arc::new(Definition { function, commutative }))
    }

    /// Whether operands may be combined in another order than that of the ranks.
    #[must_use]
    pub fn is_commutative(&self) -> bool {
        self.0.commutative
    }

    /// The only datatype that it takes; `None` for a raw function, which is given the code.
    #[must_use]
    pub fn datatype(&self) -> Option<Datatype> {
        match self.0.function {
            Function::Raw(_) => None,
            Function::Elementwise { datatype, .. } => Some(datatype),
        }
    }

    /// `inout[i] = input[i] op inout[i]` for `count` elements.
    ///
    /// # Panics
    ///
    /// If the operator is an [elementwise](Self::elementwise) one of another datatype; or if its
    /// closure panics.
    ///
    /// # Safety
    ///
    /// `input` must be valid for reads and `inout` for reads and writes of `count` elements of
    /// `datatype`, with valid values (for [`Datatype::Bool`]: 0 or 1), and the two must not overlap.
    /// For a raw function the datatype must be one that it takes. They need not be aligned: where they are not as
    /// [`Datatype::align`] has it, the function is given copies.
    pub unsafe fn apply(&self, input: *const u8, inout: *mut u8, count: usize, datatype: Datatype) {
        match &self.0.function {
            Function::Raw(function) => {
                let code = c_int::from(datatype.code());
                // Our caller promised that the arrays, or what they are copied from, are valid and disjoint; they are aligned.
                let call = |input: *const u8, inout: *mut u8, count| {
                    function(input.cast(), inout.cast(), count, code);
                };
                let align = datatype.align();
                if input.addr().is_multiple_of(align) && inout.addr().is_multiple_of(align) {
                    call(input, inout, count);
                } else {
                    // SAFETY: the caller's promise.
                    unsafe { on_copies(input, inout, count, datatype.size(), call) };
                }
            }
            Function::Elementwise { datatype: only, apply } => {
                assert_eq!(*only, datatype, "the user operator is for {only}, the buffers hold {datatype}");
                apply(input, inout, count);
            }
        }
    }
}

/// Room for copies of a few elements, aligned for all that C has.
type Room = [MaybeUninit<u128>; ROOM_BYTES / size_of::<u128>()];
const ROOM_BYTES: usize = 4096;
const _: () = assert!(ROOM_BYTES >= Datatype::MOST_RECORD_BYTES);

/// `call` on aligned copies of both arrays, a few elements at a time.
///
/// # Safety
///
/// `input` must be valid for reads and `inout` for reads and writes of `count` elements of `size` bytes.
#[inline(never)] // the room is not for those who need none
unsafe fn on_copies(
    input: *const u8,
    inout: *mut u8,
    count: usize,
    size: usize,
    call: impl Fn(*const u8, *mut u8, usize),
) {
    let mut room: [Room; 2] = [[const { MaybeUninit::uninit() }; _]; 2];
    let [left, right] = room.each_mut().map(|room| room.as_mut_ptr().cast::<u8>());
    let most = ROOM_BYTES / size;
    for done in (0..count).step_by(most) {
        let now = most.min(count - done);
        let (input, inout) = (input.wrapping_add(done * size), inout.wrapping_add(done * size));
        // SAFETY: the caller's promise for these elements; there is room for them, which is nobody else's.
        unsafe { left.copy_from_nonoverlapping(input, now * size) };
        // SAFETY: the same.
        unsafe { right.copy_from_nonoverlapping(inout, now * size) };
        call(left, right, now);
        // SAFETY: the same the other way round.
        unsafe { inout.copy_from_nonoverlapping(right, now * size) };
    }
}

impl fmt::Debug for UserOperator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("UserOperator")
            .field("datatype", &self.datatype())
            .field("commutative", &self.0.commutative)
            .finish_non_exhaustive()
    }
}
