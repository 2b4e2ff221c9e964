//! The collectives whose ranks hand sums or chunks on, or work on each other's vectors, step by step as `coll/sm` takes
//! them. Their ranks need each other in turns, so they look several times for what they need before they give up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::thread;

use super::{Rank, as_ranks, explore, read, write};

/// What a rank does too early.
#[derive(Clone, Copy, PartialEq)]
enum Early {
    Nothing,
    /// Marks a step before it has read what is there.
    Marks,
    /// Takes a peer's result before the flag that announces it.
    Gathers,
    /// Hands a chunk on before it has it.
    HandsOn,
    /// Writes to a peer's vector before that peer has announced it.
    Writes,
    /// Takes its vector back before the marks.
    Leaves,
}

/// Looks at something this often. Without an end loom would try orders in which two ranks look for ever.
const LOOKS: usize = 2;

/// Lets other ranks go on until it is so; `None` if it does not come to that.
fn until(ready: impl Fn() -> bool) -> Option<()> {
    (0..LOOKS)
        .any(|_| {
            ready() || {
                thread::yield_now();
                false
            }
        })
        .then_some(())
}

/// Runs `body` as every rank, each with so many places and words, and sees that in some orders all come to the end.
fn play<B>(size: usize, places: usize, words: usize, body: B)
where
    B: Fn(usize, &[Rank]) -> Option<()> + Copy + Send + Sync + 'static,
{
    let whole = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&whole);
    // Three ranks that wait for each other have enough orders without.
    let interruptions = if size == 2 { 2 } else { 0 };
    explore(interruptions, move || {
        let ends = as_ranks(size, &Rank::all(size, places, words), body);
        seen.fetch_add(usize::from(ends.iter().all(Option::is_some)), Ordering::Relaxed);
    });
    assert!(whole.load(Ordering::Relaxed) > 0, "no order in which all ranks come to the end");
}

/// As [`until`], for all ranks but `rank`, one after the other.
fn until_all(ranks: &[Rank], rank: usize, is_so: impl Fn(&Rank) -> bool) -> Option<()> {
    let mut peers = ranks.iter().enumerate().filter(|(peer, _)| *peer != rank);
    peers.try_for_each(|(_, peer)| until(|| is_so(peer)))
}

fn take_back(own: &Rank) {
    own.vector.iter().for_each(|word| word.set(0));
}

/// Allreduce in place round a ring (`rounds.rs`). Sums travel through two places a rank, which are used in turn; results
/// are read where they are.
fn ring(size: usize, chunks: usize, early: Early) {
    const PLACES: u32 = 2;
    play(size, PLACES as usize, size * chunks, move |rank, ranks| {
        let (own, previous) = (&ranks[rank], &ranks[(rank + size - 1) % size]);
        let total: u64 = (0..size).map(|rank| 10_u64.pow(rank as u32)).sum();
        let gather = |chunk: usize| {
            let results = (chunk * size + size - 1) as u32;
            for (number, peer) in ranks.iter().enumerate().filter(|(number, _)| *number != rank) {
                until(|| early == Early::Gathers || peer.has_published(results))?;
                let result = peer.vector[chunk * size + number].get();
                assert!(early != Early::Nothing || result == total);
                own.vector[chunk * size + number].set(result);
            }
            own.mark.advance(results + 1);
            Some(())
        };
        for (at, step) in (0..size * chunks).zip(0_u32..) {
            let (chunk, round) = (at / size, at % size);
            if step == 1 {
                until_all(ranks, rank, |peer| peer.has_published(0))?;
            } else if round == 1 && chunk > 0 {
                gather(chunk - 1)?;
            }
            until(|| round == 0 || previous.has_published(step - 1))?;
            until_all(ranks, rank, |peer| peer.mark.reached((step + 1).saturating_sub(PLACES)))?;
            let word = &own.vector[chunk * size + (rank + size - 1 - round) % size];
            if round == 0 {
                write(own.place(step), word.get());
            } else {
                if early == Early::Marks {
                    own.mark.advance(step);
                }
                let sum = read(previous.place(step - 1)) + word.get();
                if round + 1 == size { word.set(sum) } else { write(own.place(step), sum) }
            }
            own.publish(step);
            if round > 0 {
                own.mark.advance(step);
            }
        }
        gather(chunks - 1)?;
        until_all(ranks, rank, |peer| early == Early::Leaves || peer.mark.reached((size * chunks) as u32))?;
        take_back(own);
        Some(())
    });
}

#[test]
fn sums_go_round_a_ring() {
    ring(2, 1, Early::Nothing);
    ring(2, 2, Early::Nothing);
    ring(3, 1, Early::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_rank_of_a_ring_that_marks_before_it_reads_is_caught() {
    ring(2, 2, Early::Marks);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_rank_of_a_ring_that_gathers_before_the_last_round_is_caught() {
    ring(2, 1, Early::Gathers);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_rank_of_a_ring_that_leaves_before_the_marks_is_caught() {
    ring(2, 1, Early::Leaves);
}

/// Reduce and allreduce of two chunks by the ranks of a core (`chain.rs`), in one place for a chunk's sum and one for its
/// result: rank 1 begins the sum, the ranks behind it add to it, rank 0 takes it and has the result.
fn chain(size: usize, everywhere: bool, early: Early) {
    const CHUNKS: u32 = 2;
    play(size, CHUNKS as usize, 2, move |rank, ranks| {
        let own = &ranks[rank];
        let (sum, result) = (&ranks[1].vector[0], &ranks[0].vector[1]);
        let part = 10_u64.pow(rank as u32);
        let total: u64 = (0..size).map(|rank| 10_u64.pow(rank as u32)).sum();
        for chunk in 0..CHUNKS {
            let before = &ranks[if rank == 0 { size - 1 } else { rank - 1 }];
            until(|| rank == 1 || early == Early::Gathers || before.has_published(chunk))?;
            if early == Early::HandsOn {
                own.publish(chunk);
            }
            match rank {
                0 => {
                    until_all(ranks, rank, |peer| !everywhere || early == Early::Writes || peer.mark.reached(chunk))?;
                    if early == Early::Marks {
                        own.mark.advance(chunk + 1);
                    }
                    let whole = sum.get() + part;
                    assert!(early != Early::Nothing || whole == total);
                    if everywhere {
                        result.set(whole);
                    }
                }
                1 => {
                    until(|| early == Early::Writes || ranks[0].mark.reached(chunk))?;
                    sum.set(part);
                }
                _ => sum.set(sum.get() + part),
            }
            own.publish(chunk);
            if everywhere && rank > 0 {
                until(|| ranks[0].has_published(chunk))?;
                assert!(early != Early::Nothing || result.get() == total);
                result.get();
            }
            own.mark.advance(chunk + 1);
        }
        if rank == 1 {
            // The next operation's first writer to these cells.
            until_all(ranks, rank, |peer| early == Early::Leaves || peer.mark.reached(CHUNKS))?;
            sum.set(0);
        }
        Some(())
    });
}

#[test]
fn the_ranks_of_a_core_hand_a_sum_on() {
    for everywhere in [false, true] {
        chain(2, everywhere, Early::Nothing);
        chain(3, everywhere, Early::Nothing);
    }
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_rank_that_adds_to_a_sum_before_it_is_there_is_caught() {
    chain(3, false, Early::Gathers);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_rank_that_hands_a_sum_on_before_it_has_added_is_caught() {
    chain(3, false, Early::HandsOn);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_rank_that_begins_a_sum_where_one_is_still_read_is_caught() {
    chain(2, false, Early::Writes);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn cells_of_a_sum_that_are_taken_again_before_all_have_marked_are_caught() {
    chain(3, false, Early::Leaves);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_root_that_marks_a_sum_before_it_has_read_it_is_caught() {
    chain(2, false, Early::Marks);
}

/// Bcast in two chunks from rank to rank (`relay.rs`): out of the buffer of the rank before, if buffers are `lent`, or
/// through the only place that each has.
fn relay(size: usize, lent: bool, early: Early) {
    const CHUNKS: u32 = 2;
    let places = if lent { CHUNKS } else { 1 };
    play(size, places as usize, CHUNKS as usize, move |rank, ranks| {
        let own = &ranks[rank];
        let child = ranks.get(rank + 1);
        for (chunk, word) in (0..CHUNKS).zip(&own.vector) {
            if early == Early::HandsOn {
                own.publish(chunk);
            }
            if let Some(parent) = rank.checked_sub(1).map(|parent| &ranks[parent]) {
                until(|| parent.has_published(chunk))?;
                if early == Early::Marks {
                    own.mark.advance(chunk + 1);
                }
                word.set(if lent { parent.vector[chunk as usize].get() } else { read(parent.place(chunk)) });
                assert!(early != Early::Nothing || word.get() == 1, "what rank 0 has");
            }
            if child.is_some() {
                until_all(ranks, rank, |peer| peer.mark.reached((chunk + 1).saturating_sub(places)))?;
                if !lent {
                    write(own.place(chunk), word.get());
                }
                own.publish(chunk);
            }
            own.mark.advance(chunk + 1);
        }
        until(|| early == Early::Leaves || !lent || child.is_none_or(|child| child.mark.reached(CHUNKS)))?;
        take_back(own);
        Some(())
    });
}

#[test]
fn leaders_hand_chunks_on() {
    for lent in [true, false] {
        relay(2, lent, Early::Nothing);
        relay(3, lent, Early::Nothing);
    }
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_leader_that_hands_on_what_it_has_not_is_caught() {
    relay(3, true, Early::HandsOn);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_leader_that_marks_before_it_copies_is_caught() {
    relay(2, false, Early::Marks);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_leader_that_leaves_before_its_children_have_marked_is_caught() {
    relay(2, true, Early::Leaves);
}

/// Allreduce in place, each rank writing the result of its own part to all vectors. A rank leaves when all have marked
/// (`slice.rs`), or when it has seen all last flags (`joint.rs`).
fn for_all(size: usize, marks: bool, early: Early) {
    play(size, 2, size, move |rank, ranks| {
        let own = &ranks[rank];
        // As callers do before the call.
        own.vector.iter().for_each(|word| word.set(2 * word.get()));
        own.publish(0);
        until_all(ranks, rank, |peer| early == Early::Writes || peer.has_published(0))?;
        let sum = ranks.iter().map(|peer| peer.vector[rank].get()).sum();
        ranks.iter().for_each(|peer| peer.vector[rank].set(sum));
        own.publish(1);
        until_all(ranks, rank, |peer| matches!(early, Early::Gathers | Early::Leaves) || peer.has_published(1))?;
        // Who leaves too early may not have looked yet.
        if early != Early::Leaves {
            assert!(own.vector.iter().all(|word| word.get() == sum || early != Early::Nothing));
        }
        if marks {
            own.mark.advance(2);
            until_all(ranks, rank, |peer| peer.mark.reached(2))?;
        }
        take_back(own);
        Some(())
    });
}

#[test]
fn slices_that_are_written_for_all_are_whole() {
    for_all(2, true, Early::Nothing);
    for_all(3, true, Early::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_rank_that_writes_before_its_peers_have_come_is_caught() {
    for_all(2, true, Early::Writes);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_rank_that_reads_before_all_have_written_is_caught() {
    for_all(2, true, Early::Gathers);
}

#[test]
fn parts_are_whole_when_all_last_flags_are_seen() {
    for_all(2, false, Early::Nothing);
    for_all(3, false, Early::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_rank_that_writes_its_part_before_the_others_have_come_is_caught() {
    for_all(2, false, Early::Writes);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_rank_that_leaves_before_the_others_parts_are_done_is_caught() {
    for_all(2, false, Early::Leaves);
}

/// What two ranks do jointly with words of their own beside those of an allreduce: of a bcast rank 0 writes the second
/// word to rank 1, which reads the first; or each adds the peer's first word to its own, into its second word.
fn of_pair(whole: bool, early: Early) {
    play(2, 2, 2, move |rank, ranks| {
        let (own, peer) = (&ranks[rank], &ranks[1 - rank]);
        // As callers do before the call.
        own.vector.iter().for_each(|word| word.set(2 * word.get()));
        own.publish(0);
        until(|| early == Early::Writes || peer.has_published(0))?;
        match rank {
            _ if whole => own.vector[1].set(own.vector[0].get() + peer.vector[0].get()),
            0 => peer.vector[1].set(own.vector[1].get()),
            _ => own.vector[0].set(peer.vector[0].get()),
        }
        own.publish(1);
        until(|| early == Early::Leaves || peer.has_published(1))?;
        take_back(own);
        Some(())
    });
}

#[test]
fn a_bcast_is_read_and_written_at_once() {
    of_pair(false, Early::Nothing);
}

#[test]
fn vectors_are_reduced_whole_by_both() {
    of_pair(true, Early::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_root_that_writes_before_the_other_has_come_is_caught() {
    of_pair(false, Early::Writes);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_root_that_leaves_before_the_other_has_read_is_caught() {
    of_pair(false, Early::Leaves);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_rank_that_leaves_before_the_other_has_read_all_is_caught() {
    of_pair(true, Early::Leaves);
}

/// Reductions of vectors that their readers read whole (`direct.rs`): every rank is a reader, or rank 0 alone, which lends
/// nothing. A rank leaves when its readers have marked.
fn read_whole(size: usize, readers: usize, early: Early) {
    play(size, 1, 1, move |rank, ranks| {
        let own = &ranks[rank];
        own.publish(0);
        if rank < readers {
            until_all(ranks, rank, |peer| peer.has_published(0))?;
            let sum: u64 = ranks.iter().map(|peer| peer.vector[0].get()).sum();
            assert!(early != Early::Nothing || sum == (0..size).map(|rank| 10_u64.pow(rank as u32)).sum());
        }
        own.mark.advance(1);
        if early == Early::Leaves {
            // Who has come has not read yet.
            until_all(ranks, rank, |peer| peer.has_published(0))?;
        } else {
            until_all(&ranks[..readers], rank, |peer| peer.mark.reached(1))?;
        }
        take_back(own);
        Some(())
    });
}

#[test]
fn vectors_are_their_owners_when_all_readers_have_marked() {
    for size in [2, 3] {
        read_whole(size, size, Early::Nothing);
        read_whole(size, 1, Early::Nothing);
    }
}

#[test]
#[should_panic(expected = "Causality violation")]
fn an_owner_that_leaves_when_all_have_come_is_caught() {
    read_whole(2, 2, Early::Leaves);
}
