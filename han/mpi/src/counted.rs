//! Calls of the MPI that may wait for other ranks, with counts of type `MPI_Count`: as in [`lengthy`](crate::lengthy), and
//! by the functions with counts of type `int` where the library has no others.
#![allow(unsafe_code)] // Exports MPI's functions and calls the MPI library's.

use std::cell::RefCell;
use std::ffi::c_int;
use std::ptr;

use crate::abi::{Flavour, Word};
use crate::deputy;
use crate::export::export;
use crate::older::{On, is_int};
use crate::real::{self, SUCCESS, perhaps, real, theirs};

/// Functions by their names, the older one's name, and arguments; then whose errors they raise, which arguments are
/// counts, and which are arrays of so many.
macro_rules! counted {
    ($($name:ident $profiled:ident $older:ident ($($argument:ident)*)
       $on:expr, [$($count:ident)*] $([$($array:ident)*] of $length:expr),*;)*) => {export! {$(
        fn $name, $profiled($($argument: Word),*) {
            type Real = unsafe extern "C-unwind" fn($($argument: Word),*) -> c_int;
            let name = real::name(concat!(stringify!($profiled), "\0"));
            if let Some(real) = perhaps!(name, Real) {
                // SAFETY: the arguments are the program's own.
                return deputy::during(|| unsafe { real($($argument),*) });
            }
            let on = $on;
            let Some(older) = perhaps!(real::name(concat!("P", stringify!($older), "\0")), Real) else {
                return on.lacks(name);
            };
            $(if !is_int($count.cast_signed() as i64) {
                return on.has_too_many();
            })*
            let ints = Ints::default();
            $(
                let length = match $length {
                    Ok(length) => length,
                    Err(code) => return code,
                };
                $(
                    // SAFETY: the program's array has as many numbers.
                    let Some($array) = (unsafe { ints.narrowed($array, length) }) else { return on.has_too_many() };
                )*
            )*
            // SAFETY: as above; what is an array has as many numbers of the type that this function takes.
            let code = deputy::during(|| unsafe { older($($argument),*) });
            drop(ints);
            code
        }
    )*}};
}

/// Arrays of a program's numbers as those of type `int`, while a call lasts.
#[derive(Default)]
struct Ints(RefCell<Vec<Vec<c_int>>>);

impl Ints {
    /// Where the numbers of the program's array are as `int`s; the array itself if there are none, and nothing if one of
    /// them is more than an `int` can have.
    ///
    /// # Safety
    /// There are so many numbers of 64 bits.
    unsafe fn narrowed(&self, array: Word, length: usize) -> Option<Word> {
        if array == 0 || length == 0 {
            return Some(array);
        }
        let numbers: *const i64 = ptr::with_exposed_provenance(array);
        // SAFETY: as the caller vouches.
        let ints = (0..length).map(|index| c_int::try_from(unsafe { numbers.wrapping_add(index).read() }).ok());
        let ints: Vec<c_int> = ints.collect::<Option<_>>()?;
        let place = ints.as_ptr().expose_provenance();
        self.0.borrow_mut().push(ints);
        Some(place)
    }
}

type Ask = unsafe extern "C-unwind" fn(Word, *mut c_int) -> c_int;

/// What the MPI says of a communicator, or the code of the error that it has raised.
fn ask(question: Ask, comm: Word) -> Result<c_int, c_int> {
    let mut answer = 0;
    // SAFETY: the handle is the program's, and there is room for a number.
    let code = unsafe { question(comm, &raw mut answer) };
    if code == SUCCESS { Ok(answer) } else { Err(code) }
}

fn length(number: c_int) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// The ranks of the communicator, of this one's own group.
fn ranks(comm: Word) -> Result<usize, c_int> {
    ask(real().comm_size, comm).map(length)
}

/// The ranks that this one communicates with.
fn others(comm: Word) -> Result<usize, c_int> {
    if ask(real().comm_test_inter, comm)? == 0 {
        return ranks(comm);
    }
    ask(theirs!(c"PMPI_Comm_remote_size", Ask), comm).map(length)
}

/// The same at the root, where alone the arrays count.
fn others_at(root: Word, comm: Word) -> Result<usize, c_int> {
    // `MPI_ROOT`, of intercommunicators.
    let here = if Flavour::detect(real()) == Flavour::Mpich { -3 } else { -4 };
    #[allow(clippy::cast_possible_truncation)] // the lower half of the register
    let root = root as c_int;
    let is_root =
        if ask(real().comm_test_inter, comm)? == 0 { ask(real().comm_rank, comm)? == root } else { root == here };
    if is_root { others(comm) } else { Ok(0) }
}

/// The same unless this side is in place, where the arrays do not count.
fn others_of(send: Word, comm: Word) -> Result<usize, c_int> {
    // One of them is `MPI_IN_PLACE`, and neither is an address.
    if send == 1 || send == usize::MAX { Ok(0) } else { others(comm) }
}

/// The neighbours that this rank receives from, and sends to.
fn neighbours(comm: Word) -> Result<(usize, usize), c_int> {
    type Count = unsafe extern "C-unwind" fn(Word, c_int, *mut c_int) -> c_int;
    type CountBoth = unsafe extern "C-unwind" fn(Word, *mut c_int, *mut c_int, *mut c_int) -> c_int;
    let (cart, graph) = match Flavour::detect(real()) {
        Flavour::Mpich => (2, 1),
        Flavour::OpenMpi => (1, 2),
        Flavour::Standard => (211, 212),
    };
    let kind = ask(theirs!(c"PMPI_Topo_test", Ask), comm)?;
    if kind == cart {
        let both = 2 * length(ask(theirs!(c"PMPI_Cartdim_get", Ask), comm)?);
        return Ok((both, both));
    }
    let (mut incoming, mut outgoing, mut is_weighted) = (0, 0, 0);
    let code = if kind == graph {
        let rank = ask(real().comm_rank, comm)?;
        let count = theirs!(c"PMPI_Graph_neighbors_count", Count);
        // SAFETY: the communicator is a graph's, and there is room for a number.
        let code = unsafe { count(comm, rank, &raw mut incoming) };
        outgoing = incoming;
        code
    } else {
        let count = theirs!(c"PMPI_Dist_graph_neighbors_count", CountBoth);
        // SAFETY: the handle is a communicator's, and there is room for three numbers.
        unsafe { count(comm, &raw mut incoming, &raw mut outgoing, &raw mut is_weighted) }
    };
    if code == SUCCESS { Ok((length(incoming), length(outgoing))) } else { Err(code) }
}

fn sources(comm: Word) -> Result<usize, c_int> {
    neighbours(comm).map(|(sources, _)| sources)
}

fn destinations(comm: Word) -> Result<usize, c_int> {
    neighbours(comm).map(|(_, destinations)| destinations)
}

counted! {
    // Messages.
    MPI_Send_c PMPI_Send_c MPI_Send (b n t to tag comm) On::Comm(comm), [n];
    MPI_Ssend_c PMPI_Ssend_c MPI_Ssend (b n t to tag comm) On::Comm(comm), [n];
    MPI_Rsend_c PMPI_Rsend_c MPI_Rsend (b n t to tag comm) On::Comm(comm), [n];
    MPI_Recv_c PMPI_Recv_c MPI_Recv (b n t from tag comm status) On::Comm(comm), [n];
    MPI_Sendrecv_replace_c PMPI_Sendrecv_replace_c MPI_Sendrecv_replace
        (b n t to tag from rtag comm status) On::Comm(comm), [n];
    MPI_Sendrecv_c PMPI_Sendrecv_c MPI_Sendrecv
        (s sn st to tag r rn rt from rtag comm status) On::Comm(comm), [sn rn];
    MPI_Mrecv_c PMPI_Mrecv_c MPI_Mrecv (b n t message status) On::Nothing, [n];
    // Collectives that are not taken.
    MPI_Reduce_scatter_c PMPI_Reduce_scatter_c MPI_Reduce_scatter
        (s r counts t op comm) On::Comm(comm), [] [counts] of ranks(comm);
    MPI_Reduce_scatter_block_c PMPI_Reduce_scatter_block_c MPI_Reduce_scatter_block (s r n t op comm) On::Comm(comm), [n];
    MPI_Scan_c PMPI_Scan_c MPI_Scan (s r n t op comm) On::Comm(comm), [n];
    MPI_Exscan_c PMPI_Exscan_c MPI_Exscan (s r n t op comm) On::Comm(comm), [n];
    MPI_Allgather_c PMPI_Allgather_c MPI_Allgather (s sn st r rn rt comm) On::Comm(comm), [sn rn];
    MPI_Alltoall_c PMPI_Alltoall_c MPI_Alltoall (s sn st r rn rt comm) On::Comm(comm), [sn rn];
    MPI_Neighbor_allgather_c PMPI_Neighbor_allgather_c MPI_Neighbor_allgather
        (s sn st r rn rt comm) On::Comm(comm), [sn rn];
    MPI_Neighbor_alltoall_c PMPI_Neighbor_alltoall_c MPI_Neighbor_alltoall
        (s sn st r rn rt comm) On::Comm(comm), [sn rn];
    MPI_Gather_c PMPI_Gather_c MPI_Gather (s sn st r rn rt root comm) On::Comm(comm), [sn rn];
    MPI_Scatter_c PMPI_Scatter_c MPI_Scatter (s sn st r rn rt root comm) On::Comm(comm), [sn rn];
    MPI_Allgatherv_c PMPI_Allgatherv_c MPI_Allgatherv
        (s sn st r counts places rt comm) On::Comm(comm), [sn] [counts places] of others(comm);
    MPI_Neighbor_allgatherv_c PMPI_Neighbor_allgatherv_c MPI_Neighbor_allgatherv
        (s sn st r counts places rt comm) On::Comm(comm), [sn] [counts places] of sources(comm);
    MPI_Gatherv_c PMPI_Gatherv_c MPI_Gatherv
        (s sn st r counts places rt root comm) On::Comm(comm), [sn] [counts places] of others_at(root, comm);
    MPI_Scatterv_c PMPI_Scatterv_c MPI_Scatterv
        (s counts places st r rn rt root comm) On::Comm(comm), [rn] [counts places] of others_at(root, comm);
    MPI_Alltoallv_c PMPI_Alltoallv_c MPI_Alltoallv (s sn places st r rn from rt comm)
        On::Comm(comm), [] [sn places] of others_of(s, comm), [rn from] of others(comm);
    MPI_Alltoallw_c PMPI_Alltoallw_c MPI_Alltoallw (s sn places st r rn from rt comm)
        On::Comm(comm), [] [sn places] of others_of(s, comm), [rn from] of others(comm);
    MPI_Neighbor_alltoallv_c PMPI_Neighbor_alltoallv_c MPI_Neighbor_alltoallv (s sn places st r rn from rt comm)
        On::Comm(comm), [] [sn places] of destinations(comm), [rn from] of sources(comm);
    // Its displacements are addresses in both forms.
    MPI_Neighbor_alltoallw_c PMPI_Neighbor_alltoallw_c MPI_Neighbor_alltoallw (s sn places st r rn from rt comm)
        On::Comm(comm), [] [sn] of destinations(comm), [rn] of sources(comm);
    // Windows.
    MPI_Win_create_c PMPI_Win_create_c MPI_Win_create (b size unit info comm win) On::Comm(comm), [unit];
    MPI_Win_allocate_c PMPI_Win_allocate_c MPI_Win_allocate (size unit info comm b win) On::Comm(comm), [unit];
    MPI_Win_allocate_shared_c PMPI_Win_allocate_shared_c MPI_Win_allocate_shared
        (size unit info comm b win) On::Comm(comm), [unit];
    MPI_Put_c PMPI_Put_c MPI_Put (b n t to at rn rt win) On::Window(win), [n rn];
    MPI_Get_c PMPI_Get_c MPI_Get (b n t from at rn rt win) On::Window(win), [n rn];
    MPI_Rput_c PMPI_Rput_c MPI_Rput (b n t to at rn rt win request) On::Window(win), [n rn];
    MPI_Rget_c PMPI_Rget_c MPI_Rget (b n t from at rn rt win request) On::Window(win), [n rn];
    MPI_Accumulate_c PMPI_Accumulate_c MPI_Accumulate (b n t to at rn rt op win) On::Window(win), [n rn];
    MPI_Raccumulate_c PMPI_Raccumulate_c MPI_Raccumulate (b n t to at rn rt op win request) On::Window(win), [n rn];
    MPI_Get_accumulate_c PMPI_Get_accumulate_c MPI_Get_accumulate
        (b n t r gn gt to at rn rt op win) On::Window(win), [n gn rn];
    MPI_Rget_accumulate_c PMPI_Rget_accumulate_c MPI_Rget_accumulate
        (b n t r gn gt to at rn rt op win request) On::Window(win), [n gn rn];
    // Files.
    MPI_File_read_all_begin_c PMPI_File_read_all_begin_c MPI_File_read_all_begin (file b n t) On::File(file), [n];
    MPI_File_write_all_begin_c PMPI_File_write_all_begin_c MPI_File_write_all_begin (file b n t) On::File(file), [n];
    MPI_File_read_ordered_begin_c PMPI_File_read_ordered_begin_c MPI_File_read_ordered_begin
        (file b n t) On::File(file), [n];
    MPI_File_write_ordered_begin_c PMPI_File_write_ordered_begin_c MPI_File_write_ordered_begin
        (file b n t) On::File(file), [n];
    MPI_File_read_all_c PMPI_File_read_all_c MPI_File_read_all (file b n t status) On::File(file), [n];
    MPI_File_write_all_c PMPI_File_write_all_c MPI_File_write_all (file b n t status) On::File(file), [n];
    MPI_File_read_shared_c PMPI_File_read_shared_c MPI_File_read_shared (file b n t status) On::File(file), [n];
    MPI_File_write_shared_c PMPI_File_write_shared_c MPI_File_write_shared (file b n t status) On::File(file), [n];
    MPI_File_read_ordered_c PMPI_File_read_ordered_c MPI_File_read_ordered (file b n t status) On::File(file), [n];
    MPI_File_write_ordered_c PMPI_File_write_ordered_c MPI_File_write_ordered (file b n t status) On::File(file), [n];
    MPI_File_read_at_all_begin_c PMPI_File_read_at_all_begin_c MPI_File_read_at_all_begin
        (file at b n t) On::File(file), [n];
    MPI_File_write_at_all_begin_c PMPI_File_write_at_all_begin_c MPI_File_write_at_all_begin
        (file at b n t) On::File(file), [n];
    MPI_File_read_at_all_c PMPI_File_read_at_all_c MPI_File_read_at_all (file at b n t status) On::File(file), [n];
    MPI_File_write_at_all_c PMPI_File_write_at_all_c MPI_File_write_at_all (file at b n t status) On::File(file), [n];
}

/// Those that store a size where their last argument says.
macro_rules! detaching {
    ($($name:ident $profiled:ident $older:ident ($($argument:ident)*) $on:expr;)*) => {export! {$(
        fn $name, $profiled($($argument: Word,)* size: *mut i64) {
            type Real<T> = unsafe extern "C-unwind" fn($($argument: Word,)* *mut T) -> c_int;
            let name = real::name(concat!(stringify!($profiled), "\0"));
            if let Some(real) = perhaps!(name, Real<i64>) {
                // SAFETY: the arguments are the program's own.
                return deputy::during(|| unsafe { real($($argument,)* size) });
            }
            let Some(older) = perhaps!(real::name(concat!("P", stringify!($older), "\0")), Real<c_int>) else {
                return $on.lacks(name);
            };
            let mut bytes: c_int = 0;
            // SAFETY: as above, and there is room for a number.
            let code = deputy::during(|| unsafe { older($($argument,)* &raw mut bytes) });
            if code == SUCCESS {
                // SAFETY: the program gives room for a number.
                unsafe { size.write(bytes.into()) };
            }
            code
        }
    )*}};
}

detaching! {
    MPI_Buffer_detach_c PMPI_Buffer_detach_c MPI_Buffer_detach (buffer) On::Nothing;
    MPI_Comm_detach_buffer_c PMPI_Comm_detach_buffer_c MPI_Comm_detach_buffer (comm buffer) On::Comm(comm);
    MPI_Session_detach_buffer_c PMPI_Session_detach_buffer_c MPI_Session_detach_buffer (session buffer) On::Nothing;
}
