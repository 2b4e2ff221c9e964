//! The blocking collectives, with counts of both kinds: from MPI's arguments to a call of han's, or on to the MPI.
#![allow(unsafe_code)] // Exports MPI's functions, calls the MPI library's, vouches for buffers in the caller's name.

use std::ffi::{c_int, c_void};
use std::time::Instant;

use crate::abi::Word;
use crate::arguments::{Allreduce, Arguments, Barrier, Bcast, Prepared, Reduce, Vectors};
use crate::deputy;
use crate::export::export;
use crate::gate;
use crate::lengthy::wait_in;
use crate::older::call;
use crate::process::{Ours, Process};
use han::Collective;

/// Carries a call out, or gives `None`: it is the MPI's.
#[inline(always)] // arguments are not stored to be passed on
fn take(collective: Collective, comm: Word, arguments: impl Arguments + Copy) -> Option<c_int> {
    gate::inside(|process| {
        let ours = process.ours(comm, arguments);
        let prepared = ours.and_then(|ours| {
            let prepared = arguments.prepare(process, ours.seat())?;
            ours.allows(collective, prepared.call.bytes())?;
            Ok((ours, prepared))
        });
        match prepared {
            Ok((ours, prepared)) => Some(process.run(collective, &ours, prepared)),
            Err(why) => {
                process.passed(collective, why);
                None
            }
        }
    })?
}

impl Process {
    /// Carries a call out, with its line in the report.
    #[inline]
    fn run(&self, collective: Collective, ours: &Ours, prepared: Prepared) -> c_int {
        let Some(report) = &self.report else { return self.carry_out(ours, prepared) };
        let (since, bytes) = (Instant::now(), prepared.call.bytes());
        let code = self.carry_out(ours, prepared);
        report.taken(collective, bytes, since);
        code
    }
}

export! {
    fn MPI_Barrier, PMPI_Barrier(comm: Word) {
        match take(Collective::Barrier, comm, Barrier) {
            Some(code) => code,
            None => wait_in!(c"PMPI_Barrier", (comm => Word)),
        }
    }
}

macro_rules! blocking {
    ($count:ty; $bcast:ident, $pbcast:ident, $obcast:ident; $reduce:ident, $preduce:ident, $oreduce:ident;
     $allreduce:ident, $pallreduce:ident, $oallreduce:ident) => {export! {
        fn $bcast, $pbcast(buffer: *mut c_void, count: $count, datatype: Word, root: c_int, comm: Word) {
            let arguments = Bcast { buffer: buffer.cast(), count: i64::from(count), datatype, root };
            match take(Collective::Bcast, comm, arguments) {
                Some(code) => code,
                None => call!(deputy::during, $pbcast, $obcast, comm, i64::from(count), (
buffer => *mut c_void, count => $count, datatype => Word, root => c_int, comm => Word
)),
            }
        }

        fn $reduce, $preduce(
            send: *const c_void, recv: *mut c_void, count: $count, datatype: Word, op: Word, root: c_int, comm: Word
        ) {
            let vectors = Vectors { send: send.cast(), recv: recv.cast(), count: i64::from(count), datatype, op };
            match take(Collective::Reduce, comm, Reduce { vectors, root }) {
                Some(code) => code,
                None => call!(deputy::during, $preduce, $oreduce, comm, i64::from(count), (
send => *const c_void, recv => *mut c_void, count => $count, datatype => Word, op => Word, root => c_int, comm => Word
)),
            }
        }

        fn $allreduce, $pallreduce(
            send: *const c_void, recv: *mut c_void, count: $count, datatype: Word, op: Word, comm: Word
        ) {
            let vectors = Vectors { send: send.cast(), recv: recv.cast(), count: i64::from(count), datatype, op };
            match take(Collective::Allreduce, comm, Allreduce(vectors)) {
                Some(code) => code,
                None => call!(deputy::during, $pallreduce, $oallreduce, comm, i64::from(count), (
send => *const c_void, recv => *mut c_void, count => $count, datatype => Word, op => Word, comm => Word
)),
            }
        }
    }};
}

blocking!(c_int; MPI_Bcast, PMPI_Bcast, PMPI_Bcast; MPI_Reduce, PMPI_Reduce, PMPI_Reduce;
    MPI_Allreduce, PMPI_Allreduce, PMPI_Allreduce);
blocking!(i64; MPI_Bcast_c, PMPI_Bcast_c, PMPI_Bcast; MPI_Reduce_c, PMPI_Reduce_c, PMPI_Reduce;
    MPI_Allreduce_c, PMPI_Allreduce_c, PMPI_Allreduce);
