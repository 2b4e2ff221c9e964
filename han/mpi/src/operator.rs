//! Operators: the predefined ones that han has kernels for, and any other, applied by the MPI library.
//!
//! A user's operator is a function that the library knows, in C's or in Fortran's convention, and it alone knows whether
//! it commutes; so is a predefined operator on a datatype that han has no kernels for. `MPI_Reduce_local` applies all of
//! them, so han need not see the functions at all.
#![allow(unsafe_code)] // Calls the MPI library.

use std::ffi::{c_int, c_void};

use han::{Operator, UserOperator};
use shm_core::say;

use crate::abi::{Abi, Flavour, Word};
use crate::datatype::Table;
use crate::real::{Real, SUCCESS, real};

/// The predefined operators by their handles.
pub(crate) struct Operators {
    known: Table<Operator>,
    flavour: Flavour,
    /// `MPI_OP_NULL`, and those that are for windows only.
    none: Vec<Word>,
}

impl Operators {
    pub(crate) fn new(abi: &Abi) -> Self {
        let none = [&abi.no_operators[..], &[abi.op_null]].concat();
        Self { known: Table::new(abi.operators.iter().copied()), flavour: abi.flavour, none }
    }

    /// The predefined operator of a handle.
    #[inline]
    pub(crate) fn predefined(&self, handle: Word) -> Option<Operator> {
        self.known.get(handle).copied()
    }

    /// Whether the handle can be an operator of the program's own.
    pub(crate) fn may_be_made(&self, handle: Word) -> bool {
        self.flavour.may_be_made_operator(handle) && !self.none.contains(&handle)
    }
}

/// What the MPI library needs to apply an operator; it must live as long as the operator is used.
#[derive(Debug)]
pub(crate) struct Applied {
    op: Word,
    datatype: Word,
    /// Bytes of an element.
    extent: usize,
}

impl Applied {
    /// Han's operator for `op` on elements of `datatype` with `extent` bytes, and what must live as long; `None` if `op`
    /// is none.
    pub(crate) fn operator(op: Word, datatype: Word, extent: usize) -> Option<(UserOperator, Box<Self>)> {
        let applied = Box::new(Self { op, datatype, extent });
        // SAFETY: the handle is the program's, and there is room for the answer.
        let commutes = Real::number(|commutes| unsafe { (real().op_commutative)(op, commutes) })?;
        let context = (&raw const *applied).cast_mut().cast();
        // SAFETY: who builds the call keeps the context until it has completed, `apply` takes arrays of elements of any
        // datatype as `from_raw` says, and does not unwind.
        let operator = unsafe { UserOperator::from_raw(apply, context, commutes != 0) };
        Some((operator, applied))
    }
}

/// `inout[i] = input[i] op inout[i]`, by the MPI library.
unsafe extern "C" fn apply(
    mut input: *const c_void,
    mut inout: *mut c_void,
    mut count: usize,
    _: c_int,
    context: *mut c_void,
) {
    // SAFETY: `operator` gave the address of an `Applied`, which lives until the call has completed.
    let applied = unsafe { &*context.cast_const().cast::<Applied>() };
    while count > 0 {
        let now = c_int::try_from(count).unwrap_or(c_int::MAX);
        // SAFETY: both hold `count` elements of the datatype, and the program keeps operator and datatype while its
        // call is under way.
        let code = unsafe { (real().reduce_local)(input, inout, now, applied.datatype, applied.op) };
        if code != SUCCESS {
            // The library's handler of errors has had its say, and there is no way back through the engine.
            say(&format!("libhan_mpi: MPI_Reduce_local returned error {code} within a reduction"));
            std::process::abort();
        }
        let done = now.unsigned_abs() as usize;
        (input, inout) =
            (input.wrapping_byte_add(done * applied.extent), inout.wrapping_byte_add(done * applied.extent));
        count -= done;
    }
}
