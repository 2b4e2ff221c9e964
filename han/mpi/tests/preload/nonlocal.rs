//! The MPI calls that may wait for other ranks: while one waits, the library goes on with collectives, so it has them all.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// What may wait for other ranks of the functions that MPICH 5 exports, by the standard's chapters; `*` stands for a second
/// name with `_c`.
const NONLOCAL: &str = "
    Send* Ssend* Rsend* Recv* Sendrecv* Sendrecv_replace* Probe Mprobe Mrecv*
    Buffer_detach* Buffer_flush Comm_detach_buffer* Comm_flush_buffer Session_detach_buffer* Session_flush_buffer
    Wait Waitall Waitany Waitsome
    Barrier Bcast* Gather* Gatherv* Scatter* Scatterv* Allgather* Allgatherv* Alltoall* Alltoallv* Alltoallw*
    Reduce* Allreduce* Reduce_scatter* Reduce_scatter_block* Scan* Exscan*
    Neighbor_allgather* Neighbor_allgatherv* Neighbor_alltoall* Neighbor_alltoallv* Neighbor_alltoallw*
    Barrier_init Bcast_init* Reduce_init* Allreduce_init* Gather_init Gatherv_init Scatter_init Scatterv_init
    Allgather_init Allgatherv_init Alltoall_init Alltoallv_init Alltoallw_init Reduce_scatter_init
    Reduce_scatter_block_init Scan_init Exscan_init Neighbor_allgather_init Neighbor_allgatherv_init
    Neighbor_alltoall_init Neighbor_alltoallv_init Neighbor_alltoallw_init
    Comm_dup Comm_dup_with_info Comm_create Comm_create_group Comm_split Comm_split_type Comm_free Comm_set_info
    Comm_create_from_group Intercomm_create Intercomm_create_from_groups Intercomm_merge
    Cart_create Cart_sub Cart_map Graph_create Graph_map Dist_graph_create Dist_graph_create_adjacent
    Init Init_thread Finalize Session_finalize Comm_spawn Comm_spawn_multiple Comm_accept Comm_connect Comm_disconnect Comm_join
    Win_create* Win_allocate* Win_allocate_shared* Win_create_dynamic Win_free Win_set_info Win_fence Win_start
    Win_complete Win_post Win_wait Win_lock Win_lock_all Win_unlock Win_unlock_all Win_flush Win_flush_all
    Win_flush_local Win_flush_local_all
    Put* Get* Rput* Rget* Accumulate* Raccumulate* Get_accumulate* Rget_accumulate* Fetch_and_op Compare_and_swap
    File_open File_close File_set_size File_preallocate File_set_info File_set_view File_set_atomicity File_sync
    File_seek_shared File_read_shared* File_write_shared* File_read_all* File_write_all* File_read_at_all*
    File_write_at_all* File_read_ordered* File_write_ordered* File_read_all_begin* File_read_all_end
    File_write_all_begin* File_write_all_end File_read_at_all_begin* File_read_at_all_end File_write_at_all_begin*
    File_write_at_all_end File_read_ordered_begin* File_read_ordered_end File_write_ordered_begin*
    File_write_ordered_end";

/// The functions that a shared library defines.
fn defined(library: &Path) -> BTreeSet<String> {
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library).output().unwrap();
    assert!(output.status.success(), "nm: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect()
}

#[test]
fn every_call_that_may_wait_comes_here() {
    let defined = defined(&crate::program::library());
    for word in NONLOCAL.split_whitespace() {
        let name = word.trim_end_matches('*');
        let names = [name.to_owned(), format!("{name}_c")];
        for name in &names[..if word.ends_with('*') { 2 } else { 1 }] {
            for name in [format!("MPI_{name}"), format!("PMPI_{name}")] {
                assert!(defined.contains(&name), "{name} may wait, and is not taken");
            }
        }
    }
}
