//! The collectives that return at once, with counts of both kinds.
#![allow(unsafe_code)] // Exports MPI's functions and calls the MPI library's.

use std::ffi::{c_int, c_void};

use crate::abi::Word;
use crate::arguments::{Allreduce, Arguments, Barrier, Bcast, Prepared, Reduce, Vectors};
use crate::export::export;
use crate::gate;
use crate::older::{at_once, call};
use crate::real::theirs;
use crate::rules::Why;
use han::Collective;

/// Begins a call, or gives `None`: it is the MPI's.
fn begin(collective: Collective, comm: Word, request: *mut Word, arguments: impl Arguments) -> Option<c_int> {
    if request.is_null() {
        return None;
    }
    gate::inside(|process| {
        let prepared = process.ours_already(comm, &arguments).and_then(|ours| {
            let prepared = arguments.prepare(process, ours.seat())?;
            allow_later(&prepared)?;
            ours.allows(collective, prepared.call.bytes())?;
            Ok((ours, prepared))
        });
        match prepared {
            Ok((ours, prepared)) => Some(process.requests.begin(process, collective, ours, prepared, request)),
            Err(why) => {
                process.passed(collective, why);
                None
            }
        }
    })?
}

/// An error if the call needs an operator that the program may free before it is carried out.
pub(crate) fn allow_later(prepared: &Prepared) -> Result<(), Why> {
    if prepared.kept.is_applied() { Err(Why::Operator) } else { Ok(()) }
}

export! {
    fn MPI_Ibarrier, PMPI_Ibarrier(comm: Word, request: *mut Word) {
        match begin(Collective::Barrier, comm, request, Barrier) {
            Some(code) => code,
            None => {
                let real = theirs!(c"PMPI_Ibarrier", unsafe extern "C-unwind" fn(Word, *mut Word) -> c_int);
                // SAFETY: the arguments are the caller's own.
                unsafe { real(comm, request) }
            }
        }
    }
}

macro_rules! nonblocking {
    ($count:ty; $bcast:ident, $pbcast:ident, $obcast:ident; $reduce:ident, $preduce:ident, $oreduce:ident;
     $allreduce:ident, $pallreduce:ident, $oallreduce:ident) => {export! {
        fn $bcast, $pbcast(
            buffer: *mut c_void, count: $count, datatype: Word, root: c_int, comm: Word, request: *mut Word
        ) {
            let arguments = Bcast { buffer: buffer.cast(), count: i64::from(count), datatype, root };
            match begin(Collective::Bcast, comm, request, arguments) {
                Some(code) => code,
                None => call!(at_once, $pbcast, $obcast, comm, i64::from(count), (
buffer => *mut c_void, count => $count, datatype => Word, root => c_int, comm => Word, request => *mut Word
)),
            }
        }

        fn $reduce, $preduce(
            send: *const c_void, recv: *mut c_void, count: $count, datatype: Word, op: Word, root: c_int, comm: Word,
            request: *mut Word
        ) {
            let vectors = Vectors { send: send.cast(), recv: recv.cast(), count: i64::from(count), datatype, op };
            match begin(Collective::Reduce, comm, request, Reduce { vectors, root }) {
                Some(code) => code,
                None => call!(at_once, $preduce, $oreduce, comm, i64::from(count), (
send => *const c_void, recv => *mut c_void, count => $count, datatype => Word, op => Word,
 root => c_int, comm => Word, request => *mut Word
)),
            }
        }

        fn $allreduce, $pallreduce(
            send: *const c_void, recv: *mut c_void, count: $count, datatype: Word, op: Word, comm: Word,
            request: *mut Word
        ) {
            let vectors = Vectors { send: send.cast(), recv: recv.cast(), count: i64::from(count), datatype, op };
            match begin(Collective::Allreduce, comm, request, Allreduce(vectors)) {
                Some(code) => code,
                None => call!(at_once, $pallreduce, $oallreduce, comm, i64::from(count), (
send => *const c_void, recv => *mut c_void, count => $count, datatype => Word, op => Word,
 comm => Word, request => *mut Word
)),
            }
        }
    }};
}

nonblocking!(c_int; MPI_Ibcast, PMPI_Ibcast, PMPI_Ibcast; MPI_Ireduce, PMPI_Ireduce, PMPI_Ireduce;
    MPI_Iallreduce, PMPI_Iallreduce, PMPI_Iallreduce);
nonblocking!(i64; MPI_Ibcast_c, PMPI_Ibcast_c, PMPI_Ibcast; MPI_Ireduce_c, PMPI_Ireduce_c, PMPI_Ireduce;
    MPI_Iallreduce_c, PMPI_Iallreduce_c, PMPI_Iallreduce);
