//! Operators that the user provides: a C function with a context, or a Rust closure.
#![allow(unsafe_code)] // Calls a foreign function, and gives typed access to untyped memory.

use crate::{Datatype, Element};
use std::ffi::{c_int, c_void};
use std::fmt;
use std::sync::Arc;

/// A user's C function: `inout[i] = in[i] op inout[i]` for `count` elements, `in` being the operand
/// on the left, as in MPI. The arguments are `in`, `inout`, `count`, the datatype's
/// [code](Datatype::code), and the context that the operator was made with.
pub type UserFn =
    unsafe extern "C" fn(input: *const c_void, inout: *mut c_void, count: usize, datatype: c_int, context: *mut c_void);

/// A reduction operator of the user's, cheap to clone.
///
/// It must be associative; whether it is commutative is stated when it is made. One application
/// computes `inout = input op inout`, the new operand standing on the left, so operands in rank
/// order are folded from the right: start with a copy of the last, then apply the others backwards.
#[derive(Clone)]
pub struct UserOperator(Arc<Definition>);

struct Definition {
    function: Function,
    commutative: bool,
}

enum Function {
    Raw { function: UserFn, context: *mut c_void },
    Elementwise { datatype: Datatype, apply: Box<Elementwise> },
}

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
    /// aligned for the datatype, for every datatype that it is used with. It must not unwind.
    #[must_use]
    pub unsafe fn from_raw(function: UserFn, context: *mut c_void, commutative: bool) -> Self {
        Self(Arc::new(Definition { function: Function::Raw { function, context }, commutative }))
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
            Function::Raw { .. } => None,
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
    /// For a raw function they must also be aligned to [`Datatype::align`], and the datatype one
    /// that the function takes.
    pub unsafe fn apply(&self, input: *const u8, inout: *mut u8, count: usize, datatype: Datatype) {
        match &self.0.function {
            Function::Raw { function, context } => {
                let code = c_int::from(datatype.code());
                // SAFETY: `from_raw`'s caller promised that the function may be called with this
                // context, our caller that the arrays are valid, disjoint and aligned.
                unsafe { function(input.cast(), inout.cast(), count, code, *context) };
            }
            Function::Elementwise { datatype: only, apply } => {
                assert_eq!(*only, datatype, "the user operator is for {only}, the buffers hold {datatype}");
                apply(input, inout, count);
            }
        }
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
