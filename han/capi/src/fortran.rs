//! What the interfaces of `fortran/han.f90` bind to.
//!
//! The module consists of interfaces and constants only, so that a program needs nothing but
//! `libhan` to link, whatever compiler it was built with. What Fortran expects beyond C is done
//! here: counts of two integer kinds, an optional `ierror` (absent is a null pointer), and the end of
//! the program with a message if a call fails and the program has not asked for the code.
#![allow(unsafe_code)] // Exports C symbols, and names some.

use crate::abi::{Array, InOut, Out, Source, Target, Text, null};
use crate::arguments::IN_PLACE;
use crate::error::{self, Code, Failure, SUCCESS};
use crate::exchange::AllgatherFunction;
use crate::handle::Handle;
use crate::operator::OpFunction;
use crate::request::Request;
use crate::{collective, communicator, gate, lifecycle, memory, operator, request};
use han::{Communicator, UserOperator};
use shm_core::say;
use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicI32;

type Comm = Scalar<Handle<Communicator>>;
type Op = Scalar<Handle<UserOperator>>;
type Datatype = Scalar<c_int>;
type Ierror = Out<c_int>;
/// A `logical(c_bool)` that Fortran passes: not a `bool`, because some compilers' true is not 1.
type Logical = u8;

/// A derived type of one component, as Fortran passes it by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Scalar<T>(T);

/// Fortran's `HAN_IN_PLACE`: a variable that stands for its own address.
#[unsafe(no_mangle)]
pub static han_fortran_in_place: AtomicI32 = AtomicI32::new(0);

// What threads need in C, as far as han does without it.
unsafe extern "C" {
    fn pthread_cond_broadcast();
    fn pthread_cond_destroy();
    fn pthread_cond_init();
    fn pthread_cond_wait();
    fn pthread_mutex_destroy();
    fn pthread_mutex_init();
}

/// Brings them into static programs: gfortran's library takes one in which there is `pthread_key_create`, which han needs, for a
/// program of threads, and calls them then, there or not.
#[used]
static OF_THREADS: [unsafe extern "C" fn(); 6] = [
    pthread_cond_broadcast,
    pthread_cond_destroy,
    pthread_cond_init,
    pthread_cond_wait,
    pthread_mutex_destroy,
    pthread_mutex_init,
];

/// A count of either integer kind; a negative one becomes one that no datatype fits.
trait Count {
    fn elements(self) -> usize;
}

impl Count for i32 {
    fn elements(self) -> usize {
        usize::try_from(self).unwrap_or(usize::MAX)
    }
}

impl Count for i64 {
    fn elements(self) -> usize {
        usize::try_from(self).unwrap_or(usize::MAX)
    }
}

/// `sendbuf` with Fortran's `HAN_IN_PLACE` turned into C's.
fn sendbuf(buffer: Source) -> Source {
    buffer.or_replace(&raw const han_fortran_in_place as usize, IN_PLACE)
}

/// The same for a buffer that is written, where C's is refused: behind Fortran's variable lies other memory.
fn target(buffer: Target) -> Target {
    buffer.or_replace(&raw const han_fortran_in_place as usize, IN_PLACE)
}

/// Gives the code to the program, or ends it if it has not asked and the call has failed.
fn finish(code: c_int, ierror: Ierror) {
    ierror.set(code);
    if ierror.is_null() && code != SUCCESS {
        let (message, mut rank) = (error::last_message(), String::new());
        gate::call("", |process| {
            rank = format!("rank {}: ", process.context.world().rank());
            Ok(())
        });
        say(&format!("han: {rank}{message} (error {code})"));
        lifecycle::han_abort(code);
    }
}

/// Defines the functions that only hand on: `Fortran name(parameters) = C call;`.
macro_rules! bind {
    ($($name:ident($($parameter:ident: $kind:ty),*) = $call:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            #[allow(clippy::too_many_arguments)] // MPI's, and ierror.
            pub extern "C" fn $name($($parameter: $kind,)* ierror: Ierror) {
                finish($call, ierror);
            }
        )*
    };
}

/// The same for functions with a count, once for each integer kind.
macro_rules! bind_counted {
    ($($narrow:ident, $wide:ident(
        [$($before:ident: $before_kind:ty),*] $count:ident [$($after:ident: $after_kind:ty),*]
    ) = $call:expr;)*) => {
        $(
            bind_counted!(@one $narrow i32 [$($before: $before_kind),*] $count [$($after: $after_kind),*] $call);
            bind_counted!(@one $wide i64 [$($before: $before_kind),*] $count [$($after: $after_kind),*] $call);
        )*
    };
    (@one $name:ident $integer:ty [$($before:ident: $before_kind:ty),*] $count:ident
        [$($after:ident: $after_kind:ty),*] $call:expr) => {
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)] // MPI's, and ierror.
        pub extern "C" fn $name(
            $($before: $before_kind,)*
            $count: $integer,
            $($after: $after_kind,)*
            ierror: Ierror,
        ) {
            let $count = $count.elements();
            finish($call, ierror);
        }
    };
}

bind! {
    han_fortran_init() = lifecycle::han_init();
    han_fortran_init_oob(
        rank: c_int, size: c_int, allgather: Option<AllgatherFunction>, ctx: *mut c_void
    ) = lifecycle::han_init_oob(rank, size, allgather, ctx);
    han_fortran_finalize() = lifecycle::han_finalize();
    han_fortran_version(major: Out<c_int>, minor: Out<c_int>, patch: Out<c_int>)
        = lifecycle::han_version(major, minor, patch);

    han_fortran_comm_world(comm: Out<Handle<Communicator>>) = communicator::han_comm_world(comm);
    han_fortran_comm_rank(comm: Comm, rank: Out<c_int>) = communicator::han_comm_rank(comm.0, rank);
    han_fortran_comm_size(comm: Comm, size: Out<c_int>) = communicator::han_comm_size(comm.0, size);
    han_fortran_comm_dup(comm: Comm, newcomm: Out<Handle<Communicator>>)
        = communicator::han_comm_dup(comm.0, newcomm);
    han_fortran_comm_split(
        comm: Comm, color: c_int, key: c_int, newcomm: Out<Handle<Communicator>>
    ) = communicator::han_comm_split(comm.0, color, key, newcomm);
    han_fortran_comm_free(comm: InOut<Handle<Communicator>>) = communicator::han_comm_free(comm);

    han_fortran_datatype_size(datatype: Datatype, bytes: Out<usize>)
        = communicator::han_datatype_size(datatype.0, bytes);
    han_fortran_op_create(
        function: OpFunction, ctx: *mut c_void, commutative: Logical, op: Out<Handle<UserOperator>>
    ) = operator::han_op_create(function, ctx, c_int::from(commutative), op);
    han_fortran_op_free(op: InOut<Handle<UserOperator>>) = operator::han_op_free(op);

    han_fortran_barrier(comm: Comm) = collective::han_barrier(comm.0);
    han_fortran_ibarrier(comm: Comm, request: Out<Handle<Request>>)
        = collective::han_ibarrier(comm.0, request);
    han_fortran_barrier_init(comm: Comm, request: Out<Handle<Request>>)
        = collective::han_barrier_init(comm.0, request);

    han_fortran_start(request: InOut<Handle<Request>>) = collective::han_start(request);
    han_fortran_request_free(request: InOut<Handle<Request>>) = collective::han_request_free(request);
    han_fortran_wait(request: InOut<Handle<Request>>) = request::han_wait(request);
    han_fortran_waitall(count: c_int, requests: Array<Handle<Request>>)
        = request::han_waitall(count.elements(), requests);

    han_fortran_malloc(bytes: i64, pointer: Out<*mut c_void>)
        = memory::han_malloc(bytes.elements(), pointer);
    han_fortran_free(pointer: *mut c_void) = memory::han_free(pointer);
    han_fortran_register(buffer: Target, bytes: i64) = memory::han_register(target(buffer), bytes.elements());
    han_fortran_unregister(buffer: Target) = memory::han_unregister(target(buffer));
}

bind_counted! {
    han_fortran_bcast_i32, han_fortran_bcast_i64(
        [buffer: Target] count [datatype: Datatype, root: c_int, comm: Comm]
    ) = collective::han_bcast(target(buffer), count, datatype.0, root, comm.0);
    han_fortran_ibcast_i32, han_fortran_ibcast_i64(
        [buffer: Target] count
        [datatype: Datatype, root: c_int, comm: Comm, request: Out<Handle<Request>>]
    ) = collective::han_ibcast(target(buffer), count, datatype.0, root, comm.0, request);
    han_fortran_bcast_init_i32, han_fortran_bcast_init_i64(
        [buffer: Target] count
        [datatype: Datatype, root: c_int, comm: Comm, request: Out<Handle<Request>>]
    ) = collective::han_bcast_init(target(buffer), count, datatype.0, root, comm.0, request);

    han_fortran_reduce_i32, han_fortran_reduce_i64(
        [send: Source, recv: Target] count [datatype: Datatype, op: Op, root: c_int, comm: Comm]
    ) = collective::han_reduce(sendbuf(send), target(recv), count, datatype.0, op.0, root, comm.0);
    han_fortran_ireduce_i32, han_fortran_ireduce_i64(
        [send: Source, recv: Target] count
        [datatype: Datatype, op: Op, root: c_int, comm: Comm, request: Out<Handle<Request>>]
    ) = collective::han_ireduce(sendbuf(send), target(recv), count, datatype.0, op.0, root, comm.0, request);
    han_fortran_reduce_init_i32, han_fortran_reduce_init_i64(
        [send: Source, recv: Target] count
        [datatype: Datatype, op: Op, root: c_int, comm: Comm, request: Out<Handle<Request>>]
    ) = collective::han_reduce_init(sendbuf(send), target(recv), count, datatype.0, op.0, root, comm.0, request);

    han_fortran_allreduce_i32, han_fortran_allreduce_i64(
        [send: Source, recv: Target] count [datatype: Datatype, op: Op, comm: Comm]
    ) = collective::han_allreduce(sendbuf(send), target(recv), count, datatype.0, op.0, comm.0);
    han_fortran_iallreduce_i32, han_fortran_iallreduce_i64(
        [send: Source, recv: Target] count
        [datatype: Datatype, op: Op, comm: Comm, request: Out<Handle<Request>>]
    ) = collective::han_iallreduce(sendbuf(send), target(recv), count, datatype.0, op.0, comm.0, request);
    han_fortran_allreduce_init_i32, han_fortran_allreduce_init_i64(
        [send: Source, recv: Target] count
        [datatype: Datatype, op: Op, comm: Comm, request: Out<Handle<Request>>]
    ) = collective::han_allreduce_init(sendbuf(send), target(recv), count, datatype.0, op.0, comm.0, request);
}

// ---- functions that differ from C's ------------------------------------------------------------

#[unsafe(no_mangle)]
pub extern "C" fn han_fortran_initialized(flag: Out<bool>, ierror: Ierror) {
    flag.set(gate::is_initialized());
    finish(SUCCESS, ierror);
}

#[unsafe(no_mangle)]
pub extern "C" fn han_fortran_abort(code: c_int) {
    lifecycle::han_abort(code);
}

#[unsafe(no_mangle)]
pub extern "C" fn han_fortran_test(request: InOut<Handle<Request>>, flag: Out<bool>, ierror: Ierror) {
    let (complete, code) = request::test(request);
    flag.set(complete);
    finish(code, ierror);
}

#[unsafe(no_mangle)]
pub extern "C" fn han_fortran_comm_describe(comm: Comm, text: Text, length: c_int, ierror: Ierror) {
    let code = gate::call("han_comm_describe", |process| {
        let description = process.communicator(comm.0)?.describe();
        if text.is_null() {
            return Err(null(Code::Arg, "text"));
        }
        fill(text, length, &description)
    });
    finish(code, ierror);
}

#[unsafe(no_mangle)]
pub extern "C" fn han_fortran_strerror(error: c_int, text: Text, length: c_int) {
    // A text that is cut is the caller's choice of length here.
    let _ = fill(text, length, &error::meaning(error).to_string_lossy());
}

#[unsafe(no_mangle)]
pub extern "C" fn han_fortran_last_error_message(text: Text, length: c_int) {
    let _ = fill(text, length, &error::last_message());
}

/// Stores a text as Fortran does: cut, or filled up with blanks.
fn fill(text: Text, length: c_int, value: &str) -> Result<(), Failure> {
    let length = usize::try_from(length).unwrap_or(0);
    let fitting = value.floor_char_boundary(length);
    text.store(0, &value.as_bytes()[..fitting]);
    text.store(fitting, &vec![b' '; length - fitting]);
    if fitting == value.len() {
        return Ok(());
    }
    let message = format!("the text needs {} characters, length is {length}", value.len());
    Err(Failure::new(Code::Truncate, message))
}

/// `HAN_RECORD(bytes)`; with bytes that no record has, what uses it says so.
fn record(bytes: usize) -> Datatype {
    let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    Scalar(bytes.saturating_add(han::Datatype::RECORD_CODES.into()))
}

#[unsafe(no_mangle)]
pub extern "C" fn han_fortran_record_i32(bytes: i32) -> Datatype {
    record(bytes.elements())
}

#[unsafe(no_mangle)]
pub extern "C" fn han_fortran_record_i64(bytes: i64) -> Datatype {
    record(bytes.elements())
}

/// Defines `==` and `/=` of a handle type.
macro_rules! compare {
    ($($equal:ident, $differ:ident: $kind:ty;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $equal(left: Scalar<$kind>, right: Scalar<$kind>) -> bool {
                left.0 == right.0
            }

            #[unsafe(no_mangle)]
            pub extern "C" fn $differ(left: Scalar<$kind>, right: Scalar<$kind>) -> bool {
                left.0 != right.0
            }
        )*
    };
}

compare! {
    han_fortran_comm_eq, han_fortran_comm_ne: Handle<Communicator>;
    han_fortran_request_eq, han_fortran_request_ne: Handle<Request>;
    han_fortran_op_eq, han_fortran_op_ne: Handle<UserOperator>;
    han_fortran_datatype_eq, han_fortran_datatype_ne: c_int;
}
