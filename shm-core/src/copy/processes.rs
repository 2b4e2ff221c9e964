//! Tests of what processes can reach of each other: ranks are this test binary, started again to play a
//! role, connected by files.
#![allow(clippy::unwrap_used)] // in a test a panic is the report

mod harness;
mod roles;

use harness::ranks;

#[test]
fn allocated_memory_is_mapped_by_peers_and_written_by_both_sides() {
    ranks(3, "allocated", "");
}

#[test]
fn ordinary_memory_is_copied_by_the_kernel() {
    ranks(2, "ordinary", "");
}

#[test]
fn a_peers_buffer_that_is_not_there_is_an_error_and_no_crash() {
    ranks(2, "unmapped", "");
}

#[test]
fn a_rank_that_cannot_map_its_peers_does_what_they_do() {
    ranks(3, "no-descriptors", "slice_min_bytes=0 single_copy_min_bytes=0 for_all_max_bytes=4000000");
}

#[test]
fn a_rank_whose_program_has_all_descriptors_still_maps_its_peers() {
    ranks(2, "all-descriptors-taken", "methods=shared+cico");
}

#[test]
fn neither_descriptors_nor_mappings_leak() {
    ranks(2, "churn", "");
}

#[test]
fn a_freed_regions_memory_goes_at_once_though_peers_have_it_mapped() {
    ranks(2, "given-back", "");
}

#[test]
fn registered_memory_is_mapped_where_it_is_and_given_back_with_its_contents() {
    ranks(3, "registered", "");
}

#[test]
fn vectors_that_are_registered_once_an_operation_has_begun_are_what_their_owner_tells() {
    ranks(2, "registered-late", "form=joint");
    ranks(2, "registered-late", "form=slice single_copy=by_kernel single_copy_min_bytes=0 for_all_max_bytes=4000000");
}

#[test]
fn vectors_that_peers_kernels_write_to_are_not_moved() {
    ranks(2, "registered-under-way", "form=joint");
}

#[test]
fn buffers_go_as_a_whole_unless_a_lent_vector_lies_beside_them() {
    ranks(1, "lent", "");
}

#[test]
fn buffers_that_share_a_page_are_registered_side_by_side() {
    ranks(2, "side-by-side", "");
}

#[test]
fn the_engines_own_data_may_lie_on_a_registered_page() {
    ranks(2, "beside-the-engine", "");
}

#[test]
fn registering_ten_thousand_times_leaks_nothing() {
    ranks(2, "register-churn", "");
}

#[test]
fn what_cannot_be_registered_is_refused_with_the_reason() {
    ranks(1, "refused", "");
}

#[test]
fn what_is_more_than_files_may_be_is_an_error_and_no_signal() {
    ranks(1, "limited", "");
}

#[test]
fn a_rank_whose_program_has_closed_all_descriptors_ends_well() {
    ranks(2, "files-closed", "backing=dev_shm");
}

#[test]
fn a_buffer_whose_file_the_program_has_closed_keeps_its_contents() {
    ranks(1, "without-file", "");
}

#[test]
fn a_maker_of_memory_that_dies_before_the_others_map_it_is_named() {
    ranks(3, "perished", "backing=memfd");
}

#[test]
fn a_forked_child_writes_to_its_own_copy() {
    ranks(2, "forked", "");
}

#[test]
fn a_forked_child_keeps_what_its_parent_takes_back() {
    ranks(1, "forked-before-it-is-private", "");
}

#[test]
fn a_forked_child_keeps_what_came_to_the_place_of_freed_buffers() {
    ranks(1, "forked-after-free", "");
}

#[test]
fn a_child_of_a_process_that_has_closed_its_files_has_memory_as_it_was() {
    ranks(1, "forked-without-file", "");
}

#[test]
fn what_han_itself_does_in_a_child_leaves_its_parent_alone() {
    ranks(1, "forked-beside-the-engine", "");
}

#[test]
fn what_the_c_library_does_in_a_child_before_han_leaves_its_parent_alone() {
    ranks(1, "forked-in-haste", "");
}

#[test]
fn a_childs_forks_and_its_parents_do_not_take_each_others_word() {
    ranks(1, "forked-side-by-side", "");
}

#[test]
fn children_that_are_forked_while_buffers_are_registered_have_their_own() {
    ranks(1, "forked-meanwhile", "");
}

#[test]
fn buffers_that_were_freed_too_early_leave_nothing_behind() {
    ranks(2, "freed-early", "");
}

#[test]
fn pages_that_cannot_go_back_are_kept_track_of() {
    ranks(1, "no-room", "");
}

#[test]
fn as_many_buffers_as_can_be_registered_leave_room_to_allocate() {
    ranks(2, "many", "");
}

#[test]
fn what_the_system_does_not_tell_of_a_buffer_is_its_own_error() {
    ranks(1, "untold", "");
}

#[test]
fn handlers_of_signals_may_write_to_pages_that_are_moved() {
    ranks(1, "interrupted", "");
}

#[test]
fn a_child_that_is_killed_at_once_keeps_nobody_waiting() {
    ranks(1, "forked-in-vain", "");
}

#[test]
fn handlers_of_signals_may_fork() {
    ranks(1, "forked-by-handler", "");
}

#[test]
fn pages_that_other_threads_may_use_stay_where_they_are() {
    ranks(1, "threaded", "");
}

#[test]
fn registering_without_the_method_changes_nothing() {
    ranks(2, "register-in-vain", "methods=cma");
    ranks(2, "register-in-vain", "methods=cico");
}

#[test]
fn methods_that_are_not_set_are_not_used() {
    ranks(2, "without", "methods=cico");
    ranks(2, "without", "methods=cma");
    ranks(2, "without", "methods=shared");
}

#[test]
fn a_process_that_nobody_may_look_into_is_found_by_all() {
    for size in [2, 3, 9] {
        ranks(size, "guarded", "");
    }
}

#[test]
fn a_filter_against_kernel_copies_leaves_mappings() {
    ranks(2, "filtered", "");
}
