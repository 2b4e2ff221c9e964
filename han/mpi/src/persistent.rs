//! The collectives that are made once and started often, with counts of both kinds.
//!
//! Ranks make them in one order, but may start them in different ones, and between other collectives wherever they like:
//! so each has a communicator of its own. Making one may wait for others, so that is done then.
#![allow(unsafe_code)] // Exports MPI's functions and calls the MPI library's.

use std::cell::OnceCell;
use std::ffi::{c_int, c_void};

use crate::abi::Word;
use crate::arguments::{Allreduce, Arguments, Barrier, Bcast, Prepared, Reduce, Seat, Vectors};
use crate::deputy;
use crate::export::export;
use crate::gate;
use crate::nonblocking::allow_later;
use crate::older::call;
use crate::packed::Held;
use crate::process::Process;
use crate::rules::Why;
use han::Collective;

/// Makes a request, or gives `None`: it is the MPI's.
fn make(collective: Collective, comm: Word, request: *mut Word, arguments: impl Arguments + 'static) -> Option<c_int> {
    if request.is_null() {
        return None;
    }
    gate::inside(|process| {
        let made = process.ours_for_good(comm, &arguments).and_then(|ours| {
            let prepared = arguments.prepare(process, ours.seat())?;
            allow_later(&prepared)?;
            ours.allows(collective, prepared.call.bytes())?;
            Ok((process.another(comm)?, ours))
        });
        match made {
            Ok((communicator, ours)) => {
                let arguments = Box::new(arguments);
                Some(process.requests.make_persistent(collective, ours, communicator, arguments, request))
            }
            Err(why) => {
                process.passed(collective, why);
                None
            }
        }
    })?
}

/// A bcast's arguments with a datatype that the program may free as soon as the request is made: once a call could be made of
/// it, it is kept. What the MPI cannot keep, it shall say itself.
struct KeptBcast {
    given: Bcast,
    kept: OnceCell<Held>,
}

impl KeptBcast {
    fn now(&self) -> Bcast {
        let datatype = self.kept.get().map_or(self.given.datatype, |kept| kept.0);
        Bcast { datatype, ..self.given }
    }
}

impl Arguments for KeptBcast {
    fn look(&self, process: &Process, seat: Seat) -> Result<usize, Why> {
        self.now().look(process, seat)
    }

    fn prepare(&self, process: &Process, seat: Seat) -> Result<Prepared, Why> {
        let prepared = self.now().prepare(process, seat)?;
        let datatype = self.given.datatype;
        let is_predefined = process.datatypes.is_predefined(process.abi.flavour.word(datatype));
        if self.kept.get().is_none() && !is_predefined {
            let kept = Held::new(datatype).map_err(|_| Why::Arguments)?;
            self.kept.get_or_init(|| kept);
        }
        Ok(prepared)
    }
}

export! {
    fn MPI_Barrier_init, PMPI_Barrier_init(comm: Word, info: Word, request: *mut Word) {
        match make(Collective::Barrier, comm, request, Barrier) {
            Some(code) => code,
            None => call!(deputy::during, PMPI_Barrier_init, PMPI_Barrier_init, comm, 0, (
comm => Word, info => Word, request => *mut Word
)),
        }
    }
}

macro_rules! persistent {
    ($count:ty; $bcast:ident, $pbcast:ident, $obcast:ident; $reduce:ident, $preduce:ident, $oreduce:ident;
     $allreduce:ident, $pallreduce:ident, $oallreduce:ident) => {export! {
        fn $bcast, $pbcast(
            buffer: *mut c_void, count: $count, datatype: Word, root: c_int, comm: Word, info: Word, request: *mut Word
        ) {
            let given = Bcast { buffer: buffer.cast(), count: i64::from(count), datatype, root };
            match make(Collective::Bcast, comm, request, KeptBcast { given, kept: OnceCell::new() }) {
                Some(code) => code,
                None => call!(deputy::during, $pbcast, $obcast, comm, i64::from(count), (
buffer => *mut c_void, count => $count, datatype => Word, root => c_int, comm => Word, info => Word, request => *mut Word
)),
            }
        }

        fn $reduce, $preduce(
            send: *const c_void, recv: *mut c_void, count: $count, datatype: Word, op: Word, root: c_int, comm: Word,
            info: Word, request: *mut Word
        ) {
            let vectors = Vectors { send: send.cast(), recv: recv.cast(), count: i64::from(count), datatype, op };
            match make(Collective::Reduce, comm, request, Reduce { vectors, root }) {
                Some(code) => code,
                None => call!(deputy::during, $preduce, $oreduce, comm, i64::from(count), (
send => *const c_void, recv => *mut c_void, count => $count, datatype => Word, op => Word,
 root => c_int, comm => Word, info => Word, request => *mut Word
)),
            }
        }

        fn $allreduce, $pallreduce(
            send: *const c_void, recv: *mut c_void, count: $count, datatype: Word, op: Word, comm: Word, info: Word,
            request: *mut Word
        ) {
            let vectors = Vectors { send: send.cast(), recv: recv.cast(), count: i64::from(count), datatype, op };
            match make(Collective::Allreduce, comm, request, Allreduce(vectors)) {
                Some(code) => code,
                None => call!(deputy::during, $pallreduce, $oallreduce, comm, i64::from(count), (
send => *const c_void, recv => *mut c_void, count => $count, datatype => Word, op => Word,
 comm => Word, info => Word, request => *mut Word
)),
            }
        }
    }};
}

persistent!(c_int; MPI_Bcast_init, PMPI_Bcast_init, PMPI_Bcast_init;
    MPI_Reduce_init, PMPI_Reduce_init, PMPI_Reduce_init;
    MPI_Allreduce_init, PMPI_Allreduce_init, PMPI_Allreduce_init);
persistent!(i64; MPI_Bcast_init_c, PMPI_Bcast_init_c, PMPI_Bcast_init;
    MPI_Reduce_init_c, PMPI_Reduce_init_c, PMPI_Reduce_init;
    MPI_Allreduce_init_c, PMPI_Allreduce_init_c, PMPI_Allreduce_init);
