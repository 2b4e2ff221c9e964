//! Calls of the MPI that may wait for other ranks, and have no form that returns at once and matches.
//!
//! They go straight to the MPI. While anything is under way here, the [deputy](crate::deputy) goes on with it meanwhile.
//! No argument is looked at, so all are taken for words of registers and the stack, as handles are: numbers of 32 bits
//! are in their lower halves. Those with counts of type `MPI_Count` are in [`counted`](crate::counted).
//!
//! Then there are calls that look for progress of others without waiting, which are called again and again.
#![allow(unsafe_code)] // Exports MPI's functions and calls the MPI library's.

use std::ffi::c_int;
use std::ptr;

use crate::abi::Word;
use crate::export::export;
use crate::gate;
use crate::older::On;
use crate::progress::ask;
use crate::real::{self, SUCCESS, handle_at, perhaps};
use crate::request;

/// Calls a function of the MPI library that may wait for others.
macro_rules! wait_in {
    ($real:expr, ($($argument:expr => $kind:ty),*)) => {
        match $crate::real::perhaps!($real, unsafe extern "C-unwind" fn($($kind),*) -> std::ffi::c_int) {
            // SAFETY: the arguments are the program's own.
            Some(real) => $crate::deputy::during(|| unsafe { real($($argument),*) }),
            None => $crate::older::On::Nothing.lacks($real),
        }
    };
}

pub(crate) use wait_in;

/// Functions by their names and arguments.
macro_rules! lengthy {
    ($($name:ident $profiled:ident ($($argument:ident)*);)*) => {export! {$(
        fn $name, $profiled($($argument: Word),*) {
            wait_in!(real::name(concat!(stringify!($profiled), "\0")), ($($argument => Word),*))
        }
    )*}};
}

/// Those that store a new communicator's handle where their last argument says.
macro_rules! making {
    ($($name:ident $profiled:ident ($($argument:ident)*) $made:ident;)*) => {export! {$(
        fn $name, $profiled($($argument: Word,)* $made: Word) {
            let name = real::name(concat!(stringify!($profiled), "\0"));
            let code = wait_in!(name, ($($argument => Word,)* $made => Word));
            if code == SUCCESS {
                // SAFETY: the library has stored a handle there.
                unsafe { made(ptr::with_exposed_provenance($made)) };
            }
            code
        }
    )*}};
}

/// Those that free the communicator whose handle is where their argument says.
macro_rules! freeing {
    ($($name:ident $profiled:ident;)*) => {export! {$(
        fn $name, $profiled(comm: Word) {
            // SAFETY: the argument is the program's own.
            let _ending = unsafe { Ending::begin(ptr::with_exposed_provenance(comm)) };
            wait_in!(real::name(concat!(stringify!($profiled), "\0")), (comm => Word))
        }
    )*}};
}

/// A communicator that is being freed, until its attributes are gone.
struct Ending(Word);

impl Ending {
    /// That of the handle at `place`; none where every call is the MPI's.
    ///
    /// # Safety
    /// A handle is there, or `place` is null.
    unsafe fn begin(place: *const Word) -> Option<Self> {
        if place.is_null() {
            return None;
        }
        gate::inside(|process| {
            // SAFETY: as the caller vouches.
            let handle = unsafe { handle_at(place, process.abi.flavour) };
            process.communicators.begin_to_end(handle);
            Self(handle)
        })
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        gate::inside(|process| process.communicators.end(self.0));
    }
}

/// Looks at a communicator that was made.
///
/// # Safety
/// Its handle is at `place`.
unsafe fn made(place: *const Word) {
    gate::inside(|process| {
        // SAFETY: as the caller vouches.
        process.made(unsafe { handle_at(place, process.abi.flavour) });
    });
}

/// Those that look whether others have come, and store where `$found` says whether, or how many.
macro_rules! looking {
    ($($name:ident $profiled:ident ($($before:ident)*) $found:ident ($($after:ident)*);)*) => {export! {$(
        fn $name, $profiled($($before: Word,)* $found: *mut c_int $(, $after: Word)*) {
            type Real = unsafe extern "C-unwind" fn($($before: Word,)* *mut c_int $(, $after: Word)*) -> c_int;
            request::advance();
            let name = real::name(concat!(stringify!($profiled), "\0"));
            match perhaps!(name, Real) {
                // SAFETY: the arguments are the program's own.
                Some(real) => ask(|| unsafe { real($($before,)* $found $(, $after)*) }, || is_none($found)),
                None => On::Nothing.lacks(name),
            }
        }
    )*}};
}

/// Whether nothing was found by a call of the MPI that was a success, and has stored a number.
pub(crate) fn is_none(found: *const c_int) -> bool {
    // SAFETY: the program gives room for a number. Where there is none the library's error is the program's affair.
    !found.is_null() && unsafe { found.read() } == 0
}

making! {
    MPI_Comm_dup PMPI_Comm_dup (a) b;
    MPI_Comm_dup_with_info PMPI_Comm_dup_with_info (a b) c;
    MPI_Comm_create PMPI_Comm_create (a b) c;
    MPI_Intercomm_merge PMPI_Intercomm_merge (a b) c;
    MPI_Cart_sub PMPI_Cart_sub (a b) c;
    MPI_Comm_split PMPI_Comm_split (a b c) d;
    MPI_Comm_create_group PMPI_Comm_create_group (a b c) d;
    MPI_Comm_split_type PMPI_Comm_split_type (a b c d) e;
    MPI_Comm_create_from_group PMPI_Comm_create_from_group (a b c d) e;
    MPI_Comm_accept PMPI_Comm_accept (a b c d) e;
    MPI_Comm_connect PMPI_Comm_connect (a b c d) e;
    MPI_Intercomm_create PMPI_Intercomm_create (a b c d e) f;
    MPI_Cart_create PMPI_Cart_create (a b c d e) f;
    MPI_Graph_create PMPI_Graph_create (a b c d e) f;
    MPI_Intercomm_create_from_groups PMPI_Intercomm_create_from_groups (a b c d e f g) h;
    MPI_Dist_graph_create PMPI_Dist_graph_create (a b c d e f g h) i;
    MPI_Dist_graph_create_adjacent PMPI_Dist_graph_create_adjacent (a b c d e f g h i) j;
}

freeing! {
    MPI_Comm_free PMPI_Comm_free;
    MPI_Comm_disconnect PMPI_Comm_disconnect;
}

lengthy! {
    // Communicators.
    MPI_Comm_spawn PMPI_Comm_spawn (a b c d e f g h);
    MPI_Comm_spawn_multiple PMPI_Comm_spawn_multiple (a b c d e f g h i);
    MPI_Comm_join PMPI_Comm_join (a b);
    MPI_Comm_set_info PMPI_Comm_set_info (a b);
    MPI_Cart_map PMPI_Cart_map (a b c d e);
    MPI_Graph_map PMPI_Graph_map (a b c d e);
    // Messages.
    MPI_Sendrecv_replace PMPI_Sendrecv_replace (a b c d e f g h i);
    MPI_Mrecv PMPI_Mrecv (a b c d e);
    MPI_Buffer_detach PMPI_Buffer_detach (a b);
    MPI_Buffer_flush PMPI_Buffer_flush ();
    MPI_Comm_detach_buffer PMPI_Comm_detach_buffer (a b c);
    MPI_Comm_flush_buffer PMPI_Comm_flush_buffer (a);
    MPI_Session_detach_buffer PMPI_Session_detach_buffer (a b c);
    MPI_Session_flush_buffer PMPI_Session_flush_buffer (a);
    // Collectives that are not taken.
    MPI_Reduce_scatter PMPI_Reduce_scatter (a b c d e f);
    MPI_Reduce_scatter_block PMPI_Reduce_scatter_block (a b c d e f);
    MPI_Scan PMPI_Scan (a b c d e f);
    MPI_Exscan PMPI_Exscan (a b c d e f);
    MPI_Allgather PMPI_Allgather (a b c d e f g);
    MPI_Alltoall PMPI_Alltoall (a b c d e f g);
    MPI_Neighbor_allgather PMPI_Neighbor_allgather (a b c d e f g);
    MPI_Neighbor_alltoall PMPI_Neighbor_alltoall (a b c d e f g);
    MPI_Gather PMPI_Gather (a b c d e f g h);
    MPI_Scatter PMPI_Scatter (a b c d e f g h);
    MPI_Allgatherv PMPI_Allgatherv (a b c d e f g h);
    MPI_Neighbor_allgatherv PMPI_Neighbor_allgatherv (a b c d e f g h);
    MPI_Gatherv PMPI_Gatherv (a b c d e f g h i);
    MPI_Scatterv PMPI_Scatterv (a b c d e f g h i);
    MPI_Alltoallv PMPI_Alltoallv (a b c d e f g h i);
    MPI_Alltoallw PMPI_Alltoallw (a b c d e f g h i);
    MPI_Neighbor_alltoallv PMPI_Neighbor_alltoallv (a b c d e f g h i);
    MPI_Neighbor_alltoallw PMPI_Neighbor_alltoallw (a b c d e f g h i);
    // The same, made to be started: making one may wait, too.
    MPI_Scan_init PMPI_Scan_init (a b c d e f g h);
    MPI_Exscan_init PMPI_Exscan_init (a b c d e f g h);
    MPI_Reduce_scatter_init PMPI_Reduce_scatter_init (a b c d e f g h);
    MPI_Reduce_scatter_block_init PMPI_Reduce_scatter_block_init (a b c d e f g h);
    MPI_Allgather_init PMPI_Allgather_init (a b c d e f g h i);
    MPI_Alltoall_init PMPI_Alltoall_init (a b c d e f g h i);
    MPI_Neighbor_allgather_init PMPI_Neighbor_allgather_init (a b c d e f g h i);
    MPI_Neighbor_alltoall_init PMPI_Neighbor_alltoall_init (a b c d e f g h i);
    MPI_Gather_init PMPI_Gather_init (a b c d e f g h i j);
    MPI_Scatter_init PMPI_Scatter_init (a b c d e f g h i j);
    MPI_Allgatherv_init PMPI_Allgatherv_init (a b c d e f g h i j);
    MPI_Neighbor_allgatherv_init PMPI_Neighbor_allgatherv_init (a b c d e f g h i j);
    MPI_Gatherv_init PMPI_Gatherv_init (a b c d e f g h i j k);
    MPI_Scatterv_init PMPI_Scatterv_init (a b c d e f g h i j k);
    MPI_Alltoallv_init PMPI_Alltoallv_init (a b c d e f g h i j k);
    MPI_Alltoallw_init PMPI_Alltoallw_init (a b c d e f g h i j k);
    MPI_Neighbor_alltoallv_init PMPI_Neighbor_alltoallv_init (a b c d e f g h i j k);
    MPI_Neighbor_alltoallw_init PMPI_Neighbor_alltoallw_init (a b c d e f g h i j k);
    // Windows.
    MPI_Win_set_info PMPI_Win_set_info (a b);
    MPI_Win_free PMPI_Win_free (a);
    MPI_Win_complete PMPI_Win_complete (a);
    MPI_Win_wait PMPI_Win_wait (a);
    MPI_Win_unlock_all PMPI_Win_unlock_all (a);
    MPI_Win_flush_all PMPI_Win_flush_all (a);
    MPI_Win_flush_local_all PMPI_Win_flush_local_all (a);
    MPI_Win_fence PMPI_Win_fence (a b);
    MPI_Win_unlock PMPI_Win_unlock (a b);
    MPI_Win_lock_all PMPI_Win_lock_all (a b);
    MPI_Win_flush PMPI_Win_flush (a b);
    MPI_Win_flush_local PMPI_Win_flush_local (a b);
    MPI_Win_create_dynamic PMPI_Win_create_dynamic (a b c);
    MPI_Win_start PMPI_Win_start (a b c);
    MPI_Win_post PMPI_Win_post (a b c);
    MPI_Win_lock PMPI_Win_lock (a b c d);
    MPI_Win_create PMPI_Win_create (a b c d e f);
    MPI_Win_allocate PMPI_Win_allocate (a b c d e f);
    MPI_Win_allocate_shared PMPI_Win_allocate_shared (a b c d e f);
    // What goes to a window whose rank has not posted it may wait for that.
    MPI_Fetch_and_op PMPI_Fetch_and_op (a b c d e f g);
    MPI_Compare_and_swap PMPI_Compare_and_swap (a b c d e f g);
    MPI_Put PMPI_Put (a b c d e f g h);
    MPI_Get PMPI_Get (a b c d e f g h);
    MPI_Rput PMPI_Rput (a b c d e f g h i);
    MPI_Rget PMPI_Rget (a b c d e f g h i);
    MPI_Accumulate PMPI_Accumulate (a b c d e f g h i);
    MPI_Raccumulate PMPI_Raccumulate (a b c d e f g h i j);
    MPI_Get_accumulate PMPI_Get_accumulate (a b c d e f g h i j k l);
    MPI_Rget_accumulate PMPI_Rget_accumulate (a b c d e f g h i j k l m);
    // Files.
    MPI_File_close PMPI_File_close (a);
    MPI_File_sync PMPI_File_sync (a);
    MPI_File_set_size PMPI_File_set_size (a b);
    MPI_File_preallocate PMPI_File_preallocate (a b);
    MPI_File_set_atomicity PMPI_File_set_atomicity (a b);
    MPI_File_set_info PMPI_File_set_info (a b);
    MPI_File_seek_shared PMPI_File_seek_shared (a b c);
    MPI_File_read_all_end PMPI_File_read_all_end (a b c);
    MPI_File_write_all_end PMPI_File_write_all_end (a b c);
    MPI_File_read_at_all_end PMPI_File_read_at_all_end (a b c);
    MPI_File_write_at_all_end PMPI_File_write_at_all_end (a b c);
    MPI_File_read_ordered_end PMPI_File_read_ordered_end (a b c);
    MPI_File_write_ordered_end PMPI_File_write_ordered_end (a b c);
    MPI_File_read_all_begin PMPI_File_read_all_begin (a b c d);
    MPI_File_write_all_begin PMPI_File_write_all_begin (a b c d);
    MPI_File_read_ordered_begin PMPI_File_read_ordered_begin (a b c d);
    MPI_File_write_ordered_begin PMPI_File_write_ordered_begin (a b c d);
    MPI_File_open PMPI_File_open (a b c d e);
    MPI_File_read_all PMPI_File_read_all (a b c d e);
    MPI_File_write_all PMPI_File_write_all (a b c d e);
    MPI_File_read_shared PMPI_File_read_shared (a b c d e);
    MPI_File_write_shared PMPI_File_write_shared (a b c d e);
    MPI_File_read_ordered PMPI_File_read_ordered (a b c d e);
    MPI_File_write_ordered PMPI_File_write_ordered (a b c d e);
    MPI_File_read_at_all_begin PMPI_File_read_at_all_begin (a b c d e);
    MPI_File_write_at_all_begin PMPI_File_write_at_all_begin (a b c d e);
    MPI_File_set_view PMPI_File_set_view (a b c d e f);
    MPI_File_read_at_all PMPI_File_read_at_all (a b c d e f);
    MPI_File_write_at_all PMPI_File_write_at_all (a b c d e f);
}

looking! {
    MPI_Iprobe PMPI_Iprobe (a b c) flag (e);
    MPI_Improbe PMPI_Improbe (a b c) flag (e f);
    MPI_Win_test PMPI_Win_test (a) flag ();
    MPI_Parrived PMPI_Parrived (a b) flag ();
    MPI_Request_get_status_any PMPI_Request_get_status_any (a b c) flag (e);
    MPI_Request_get_status_all PMPI_Request_get_status_all (a b) flag (d);
    MPI_Request_get_status_some PMPI_Request_get_status_some (a b) number (d e);
}
