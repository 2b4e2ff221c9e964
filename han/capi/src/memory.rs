//! `han_malloc` and `han_free`: page-aligned buffers that know whether they are ours.
#![allow(unsafe_code)] // Hands memory out to C, and exports C symbols.

use crate::abi::Out;
use crate::error::{Code, Failure, Outcome};
use crate::gate;
use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr;

const PAGE_BYTES: usize = 4096;

/// The live allocations: address and layout. What is left goes when the process state goes.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    live: HashMap<usize, (*mut u8, Layout)>,
}

impl Memory {
    fn allocate(&mut self, bytes: usize) -> Outcome<*mut u8> {
        if bytes == 0 {
            return Ok(ptr::null_mut());
        }
        let exhausted = || Failure::new(Code::NoMemory, format!("no memory for {bytes} bytes"));
        let layout = Layout::from_size_align(bytes, PAGE_BYTES).map_err(|_| exhausted())?;
        // SAFETY: the layout's size is not 0.
        let memory = unsafe { alloc(layout) };
        if memory.is_null() {
            return Err(exhausted());
        }
        self.live.insert(memory.addr(), (memory, layout));
        Ok(memory)
    }

    fn free(&mut self, memory: *mut u8) -> Outcome {
        if memory.is_null() {
            return Ok(());
        }
        let Some((memory, layout)) = self.live.remove(&memory.addr()) else {
            let why = "pointer is not from han_malloc, or has been freed";
            return Err(Failure::new(Code::Arg, why));
        };
        // SAFETY: `allocate` got it from `alloc` with this layout, and it has just left the table, so
        // it is freed once.
        unsafe { dealloc(memory, layout) };
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        for (memory, layout) in std::mem::take(&mut self.live).into_values() {
            // SAFETY: as in `free`: it was in the table, which is empty now.
            unsafe { dealloc(memory, layout) };
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn han_malloc(bytes: usize, pointer: Out<*mut c_void>) -> c_int {
    pointer.set(ptr::null_mut());
    gate::call("han_malloc", |process| {
        pointer.check("pointer")?;
        pointer.set(process.memory.allocate(bytes)?.cast());
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn han_free(pointer: *mut c_void) -> c_int {
    gate::call("han_free", |process| process.memory.free(pointer.cast()))
}
