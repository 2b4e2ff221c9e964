//! User operators.
#![allow(unsafe_code)] // Exports C symbols; takes the C caller's function.

use crate::abi::{InOut, Out, null};
use crate::error::{Code, Failure};
use crate::gate;
use crate::handle::Handle;
use crate::process::{too_many, unknown};
use han::{Operator, UserOperator};
use std::ffi::{c_int, c_void};

/// `han_op_function`, which may be null.
pub type OpFunction =
    Option<unsafe extern "C" fn(*const c_void, *mut c_void, usize, datatype: c_int, ctx: *mut c_void)>;

#[unsafe(no_mangle)]
pub extern "C" fn han_op_create(
    function: OpFunction,
    ctx: *mut c_void,
    commutative: c_int,
    op: Out<Handle<UserOperator>>,
) -> c_int {
    op.set(Handle::NULL);
    gate::call("han_op_create", |process| {
        op.check("op")?;
        let function = function.ok_or_else(|| null(Code::Arg, "function"))?;
        let apply = move |input, inout, count, datatype| {
            // SAFETY: the C caller vouches that the function takes `ctx` and arrays as `han.h` says.
            unsafe { function(input, inout, count, datatype, ctx) };
            gate::end_forked_child();
        };
        // SAFETY: the arrays are the function's, which, the C caller vouches, does not unwind. It is called from
        // within calls that the gate lets in one by one.
        let user = unsafe { UserOperator::from_raw_closure(apply, commutative != 0) };
        op.set(process.operators.insert(user).ok_or_else(too_many)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn han_op_free(op: InOut<Handle<UserOperator>>) -> c_int {
    gate::call("han_op_free", |process| {
        let handle = op.get("op")?;
        if (1..=Operator::ALL.len()).contains(&handle.bits()) {
            return Err(Failure::new(Code::Op, "a predefined operator cannot be freed"));
        }
        match process.operators.remove(handle) {
            Some(_) => op.clear(),
            None => return Err(unknown(Code::Op, "op", handle.is_null())),
        }
        Ok(())
    })
}
