//! What ranks do with each other's memory where it is, and when it is its owner's again.

use loom::sync::Arc;
use loom::thread;
use shm_core::sync::{Latch, Reaching};

use super::{Lent, Rank, as_ranks, model, read, write};

/// What an owner does too early in the models below.
#[derive(Clone, Copy, PartialEq)]
enum Broken {
    Nothing,
    /// Takes its memory back without a look at the watermarks.
    LeavesAtOnce,
    /// A reader marks before it reads.
    MarksFirst,
    /// Writes a slice of a peer in place before the peer has published its result.
    GathersAtOnce,
    /// Reads a result that a peer writes here before it is published.
    ReadsAtOnce,
}

/// Bcast: the owner tells where its memory is, readers copy from there, the owner writes to it again.
fn lending(readers: usize, broken: Broken) {
    model(move || {
        as_ranks(1 + readers, &Rank::all(1 + readers, 2, 1), move |rank, ranks| {
            let owner = &ranks[0];
            if rank == 0 {
                owner.vector[0].set(42);
                // The news, beside the flag.
                write(&owner.place(0), 7);
                owner.publish(0);
                if broken == Broken::LeavesAtOnce || ranks[1..].iter().all(|reader| reader.mark.reached(1)) {
                    owner.vector[0].set(43);
                }
                return;
            }
            if !owner.has_published(0) {
                return;
            }
            assert_eq!(read(&owner.place(0)), 7);
            if broken == Broken::MarksFirst {
                ranks[rank].mark.advance(1);
            }
            assert_eq!(owner.vector[0].get(), 42);
            ranks[rank].mark.advance(1);
        });
    });
}

#[test]
fn lent_memory_is_whole_until_all_have_marked() {
    lending(1, Broken::Nothing);
    lending(2, Broken::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn an_owner_that_leaves_before_the_marks_is_caught() {
    lending(1, Broken::LeavesAtOnce);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_reader_that_marks_before_it_reads_is_caught() {
    lending(1, Broken::MarksFirst);
}

/// Allreduce by slices in place: each rank reduces its slice of all vectors into its own, then copies the
/// others' slices from theirs over its own contribution, which they have read by then.
fn slices_in_place(size: usize, broken: Broken) {
    model(move || {
        as_ranks(size, &Rank::all(size, 2, size), move |rank, ranks| {
            let own = &ranks[rank];
            own.publish(0);
            if !ranks.iter().all(|peer| peer.has_published(0)) {
                return;
            }
            let sum = ranks.iter().map(|peer| peer.vector[rank].get()).sum();
            assert_eq!(sum, (0..size).map(|rank| 10_u64.pow(rank as u32)).sum());
            own.vector[rank].set(sum);
            own.publish(1);
            for (number, peer) in ranks.iter().enumerate().filter(|(number, _)| *number != rank) {
                if broken == Broken::GathersAtOnce {
                    own.vector[number].set(0);
                }
                if !peer.has_published(1) {
                    return;
                }
                own.vector[number].set(peer.vector[number].get());
                assert_eq!(own.vector[number].get(), sum);
            }
            own.mark.advance(2);
            if broken == Broken::LeavesAtOnce || ranks.iter().all(|peer| peer.mark.reached(2)) {
                // Nobody reads here any more.
                own.vector.iter().for_each(|slice| slice.set(0));
            }
        });
    });
}

#[test]
fn slices_are_overwritten_only_after_their_results() {
    slices_in_place(2, Broken::Nothing);
    slices_in_place(3, Broken::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_slice_that_is_overwritten_before_its_result_is_caught() {
    slices_in_place(2, Broken::GathersAtOnce);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn an_owner_that_leaves_before_its_results_are_read_is_caught() {
    slices_in_place(2, Broken::LeavesAtOnce);
}

/// Allreduce by slices through cells: the result of a rank's slice takes the place of its own part of it, and cells are
/// taken again when all have marked the parts' step, as they do with that of the results.
fn slices_through_cells(size: usize, broken: Broken) {
    model(move || {
        as_ranks(size, &Rank::all(size, 2, size), move |rank, ranks| {
            let own = &ranks[rank];
            own.publish(0);
            if !ranks.iter().all(|peer| peer.has_published(0)) {
                return;
            }
            let sum = ranks.iter().map(|peer| peer.vector[rank].get()).sum();
            own.vector[rank].set(sum);
            own.publish(1);
            if broken == Broken::MarksFirst {
                own.mark.advance(1);
            }
            for (number, peer) in ranks.iter().enumerate().filter(|(number, _)| *number != rank) {
                if !peer.has_published(1) {
                    return;
                }
                assert_eq!(peer.vector[number].get(), sum);
            }
            own.mark.advance(2);
            if ranks.iter().all(|peer| peer.mark.reached(1)) {
                // The next payload.
                own.vector.iter().for_each(|cell| cell.set(0));
            }
        });
    });
}

#[test]
fn cells_with_results_are_taken_again_when_all_have_read_them() {
    slices_through_cells(2, Broken::Nothing);
    slices_through_cells(3, Broken::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_rank_that_marks_the_parts_alone_is_caught() {
    slices_through_cells(2, Broken::MarksFirst);
}

/// Reduce by slices in place at rank 0: every rank reduces its slice of all vectors into the root's.
fn slices_to_root(size: usize, broken: Broken) {
    model(move || {
        as_ranks(size, &Rank::all(size, 2, size), move |rank, ranks| {
            let (root, own) = (&ranks[0], &ranks[rank]);
            own.publish(0);
            if !ranks.iter().all(|peer| peer.has_published(0)) {
                return;
            }
            let sum = ranks.iter().map(|peer| peer.vector[rank].get()).sum();
            root.vector[rank].set(sum);
            own.publish(1);
            if rank == 0 {
                for (number, peer) in ranks.iter().enumerate() {
                    if broken != Broken::ReadsAtOnce && !peer.has_published(1) {
                        return;
                    }
                    let result = root.vector[number].get();
                    assert!(broken == Broken::ReadsAtOnce || result == sum);
                }
            }
            own.mark.advance(2);
            if broken == Broken::LeavesAtOnce || ranks.iter().all(|peer| peer.mark.reached(2)) {
                own.vector.iter().for_each(|slice| slice.set(0));
            }
        });
    });
}

#[test]
fn results_that_peers_write_are_whole() {
    slices_to_root(2, Broken::Nothing);
    slices_to_root(3, Broken::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_root_that_reads_before_its_peers_publish_is_caught() {
    slices_to_root(2, Broken::ReadsAtOnce);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_contributor_that_leaves_before_the_marks_is_caught() {
    slices_to_root(2, Broken::LeavesAtOnce);
}

/// The job ends, by this owner or by another rank, while a peer is about to work on the owner's memory.
fn taking_back(ended_by_another: bool, looks_first: bool) {
    model(move || {
        let shared = Arc::new((Reaching::new(), Latch::<1>::new(), Lent::new(1)));
        let peer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (reaching, end, memory) = &*shared;
                for _ in 0..2 {
                    if reaching.begin(|| end.is_taken()) {
                        memory.set(memory.get() + 1);
                        reaching.end();
                    }
                }
            })
        };
        let another = ended_by_another.then(|| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.1.set(2, &[7]))
        });
        let (reaching, end, memory) = &*shared;
        let is_over = looks_first && reaching.is_over();
        let has_ended = if ended_by_another { end.is_taken() } else { end.set(0, &[7]) };
        if has_ended && (is_over || (!looks_first && reaching.is_over())) {
            // The caller's again.
            memory.set(0);
            assert_eq!(memory.get(), 0);
        }
        peer.join().unwrap();
        another.into_iter().for_each(|another| drop(another.join()));
    });
}

#[test]
fn an_owner_takes_its_memory_back() {
    taking_back(false, false);
    taking_back(true, false);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn an_owner_that_looks_before_the_job_has_ended_is_caught() {
    taking_back(false, true);
}
