//! Communicators, and what is known of datatypes.
#![allow(unsafe_code)] // Exports C symbols.

use crate::abi::{InOut, Out, Text, null};
use crate::arguments;
use crate::error::{Code, Failure, Outcome};
use crate::gate;
use crate::handle::Handle;
use crate::process::{Process, too_many, unknown};
use han::Communicator;
use std::ffi::c_int;

type Comm = Handle<Communicator>;

/// `HAN_UNDEFINED`.
pub(crate) const UNDEFINED: c_int = -32766;

fn adopt(process: &mut Process, communicator: Communicator) -> Outcome<Comm> {
    process.communicators.insert(communicator).ok_or_else(too_many)
}

fn int(number: usize) -> Outcome<c_int> {
    let why = "more ranks than a C int can count";
    c_int::try_from(number).map_err(|_| Failure::new(Code::Unsupported, why))
}

#[unsafe(no_mangle)]
pub extern "C" fn han_comm_world(comm: Out<Comm>) -> c_int {
    comm.set(Handle::NULL);
    gate::call("han_comm_world", |process| {
        comm.check("comm")?;
        comm.set(process.world);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn han_comm_rank(comm: Comm, rank: Out<c_int>) -> c_int {
    gate::call("han_comm_rank", |process| {
        rank.check("rank")?;
        rank.set(int(process.communicator(comm)?.rank())?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn han_comm_size(comm: Comm, size: Out<c_int>) -> c_int {
    gate::call("han_comm_size", |process| {
        size.check("size")?;
        size.set(int(process.communicator(comm)?.size())?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn han_comm_dup(comm: Comm, newcomm: Out<Comm>) -> c_int {
    newcomm.set(Handle::NULL);
    gate::call("han_comm_dup", |process| {
        newcomm.check("newcomm")?;
        let new = process.communicator(comm)?.dup()?;
        newcomm.set(adopt(process, new)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn han_comm_split(comm: Comm, color: c_int, key: c_int, newcomm: Out<Comm>) -> c_int {
    newcomm.set(Handle::NULL);
    gate::call("han_comm_split", |process| {
        newcomm.check("newcomm")?;
        let color = match u32::try_from(color) {
            Ok(color) => Some(color),
            Err(_) if color == UNDEFINED => None,
            Err(_) => {
                let message = format!("color {color} is negative and not HAN_UNDEFINED");
                return Err(Failure::new(Code::Arg, message));
            }
        };
        if let Some(new) = process.communicator(comm)?.split(color, key)? {
            newcomm.set(adopt(process, new)?);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn han_comm_free(comm: InOut<Handle<Communicator>>) -> c_int {
    gate::call("han_comm_free", |process| {
        let handle = comm.get("comm")?;
        if handle == process.world {
            return Err(Failure::new(Code::Comm, "the world is freed by han_finalize only"));
        }
        match process.communicators.remove(handle) {
            Some(communicator) => communicator.free(),
            None => return Err(unknown(Code::Comm, "comm", handle.is_null())),
        }
        comm.clear();
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn han_comm_describe(comm: Comm, text: Text, size: usize) -> c_int {
    gate::call("han_comm_describe", |process| {
        let description = process.communicator(comm)?.describe();
        if text.is_null() {
            return Err(null(Code::Arg, "text"));
        }
        let needed = description.len() + 1;
        let Some(room) = size.checked_sub(1) else {
            return Err(cut(needed, size));
        };
        let fitting = description.floor_char_boundary(room);
        text.store(0, &description.as_bytes()[..fitting]);
        text.store(fitting, &[0]);
        if needed > size { Err(cut(needed, size)) } else { Ok(()) }
    })
}

fn cut(needed: usize, size: usize) -> Failure {
    let message = format!("the text needs {needed} bytes, size is {size}");
    Failure::new(Code::Truncate, message)
}

#[unsafe(no_mangle)]
pub extern "C" fn han_datatype_size(datatype: c_int, bytes: Out<usize>) -> c_int {
    gate::call("han_datatype_size", |_| {
        bytes.check("bytes")?;
        bytes.set(arguments::datatype(datatype)?.size());
        Ok(())
    })
}
