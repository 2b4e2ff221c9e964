//! The blocking collectives whose counts are of type `MPI_Count`.
#![allow(unsafe_code)] // Exports MPI's functions and calls the MPI library's.

use std::ffi::{c_int, c_void};

use crate::abi::Word;
use crate::arguments::{Allreduce, Bcast, Reduce, Vectors};
use crate::collective::take;
use crate::deputy;
use crate::export::export;
use crate::older::call;
use han::Collective;

export! {
    fn MPI_Bcast_c, PMPI_Bcast_c(buffer: *mut c_void, count: i64, datatype: Word, root: c_int, comm: Word) {
        match take(Collective::Bcast, comm, Bcast { buffer: buffer.cast(), count, datatype, root }) {
            Some(code) => code,
            None => call!(deputy::during, c"PMPI_Bcast_c", c"PMPI_Bcast", comm, count, (
                buffer => *mut c_void, count => i64, datatype => Word, root => c_int, comm => Word
            )),
        }
    }

    fn MPI_Reduce_c, PMPI_Reduce_c(
        send: *const c_void, recv: *mut c_void, count: i64, datatype: Word, op: Word, root: c_int, comm: Word
    ) {
        let vectors = Vectors { send: send.cast(), recv: recv.cast(), count, datatype, op };
        match take(Collective::Reduce, comm, Reduce { vectors, root }) {
            Some(code) => code,
            None => call!(deputy::during, c"PMPI_Reduce_c", c"PMPI_Reduce", comm, count, (
                send => *const c_void, recv => *mut c_void, count => i64, datatype => Word, op => Word,
                root => c_int, comm => Word
            )),
        }
    }

    fn MPI_Allreduce_c, PMPI_Allreduce_c(
        send: *const c_void, recv: *mut c_void, count: i64, datatype: Word, op: Word, comm: Word
    ) {
        let vectors = Vectors { send: send.cast(), recv: recv.cast(), count, datatype, op };
        match take(Collective::Allreduce, comm, Allreduce(vectors)) {
            Some(code) => code,
            None => call!(deputy::during, c"PMPI_Allreduce_c", c"PMPI_Allreduce", comm, count, (
                send => *const c_void, recv => *mut c_void, count => i64, datatype => Word, op => Word, comm => Word
            )),
        }
    }
}
