//! `han_malloc` and `han_free`: buffers that know whether they are ours; `han_register` and
//! `han_unregister`: buffers of the program's that peers can map.
#![allow(unsafe_code)] // Vouches for memory in the C caller's name, and exports C symbols.

use crate::abi::{Out, Target, null};
use crate::error::{Code, Failure, Outcome};
use crate::gate;
use crate::process::Process;
use shm_core::memory::Block;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr;

/// The live allocations by address. What is left goes when the process state goes.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    live: HashMap<usize, Block>,
}

impl Process {
    fn allocate(&mut self, bytes: usize) -> Outcome<*mut u8> {
        if bytes == 0 {
            return Ok(ptr::null_mut());
        }
        if bytes == usize::MAX {
            return Err(Failure::new(Code::NoMemory, "the number of bytes is negative"));
        }
        let block = self.context.job().allocate(bytes, false).map_err(han::Error::from)?;
        let pointer = block.pointer();
        self.memory.live.insert(pointer.addr(), block);
        Ok(pointer)
    }
}

impl Memory {
    fn free(&mut self, memory: *mut u8) -> Outcome {
        if memory.is_null() || self.live.remove(&memory.addr()).is_some() {
            return Ok(());
        }
        Err(Failure::new(Code::Arg, "pointer is not from han_malloc, or has been freed"))
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn han_malloc(bytes: usize, pointer: Out<*mut c_void>) -> c_int {
    pointer.set(ptr::null_mut());
    gate::call("han_malloc", |process| {
        pointer.check("pointer")?;
        pointer.set(process.allocate(bytes)?.cast());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn han_free(pointer: *mut c_void) -> c_int {
    gate::call("han_free", |process| process.memory.free(pointer.cast()))
}

#[unsafe(no_mangle)]
pub extern "C" fn han_register(pointer: Target, bytes: usize) -> c_int {
    gate::call("han_register", |process| {
        let start = given(pointer)?;
        // SAFETY: the C caller has agreed to the rules of `han_register`: no other thread writes to these
        // pages meanwhile, and the buffer is unregistered before it is freed.
        let outcome = unsafe { process.context.job().register(start, bytes) };
        Ok(outcome.map_err(han::Error::from)?)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn han_unregister(pointer: Target) -> c_int {
    gate::call("han_unregister", |process| {
        let start = given(pointer)?;
        // SAFETY: the C caller has agreed to the rules of `han_unregister`: no operation uses the buffer,
        // and no other thread accesses these pages meanwhile.
        let outcome = unsafe { process.context.job().unregister(start) };
        Ok(outcome.map_err(han::Error::from)?)
    })
}

fn given(pointer: Target) -> Outcome<*mut u8> {
    let start = pointer.address();
    if start.is_null() { Err(null(Code::Arg, "pointer")) } else { Ok(start) }
}
