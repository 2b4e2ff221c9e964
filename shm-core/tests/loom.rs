//! Every flag protocol under every interleaving that loom finds: `make test-loom`.
//!
//! Payloads stand in loom's cells, which report any access that is not ordered by the flags.
#![cfg(loom)]
#![allow(unsafe_code, missing_docs)] // reads and writes loom's cells through their pointers

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering, fence};
use loom::thread;
use shm_core::sync::{Bell, Latch, OpRecord, Reaching, Slot, Watermark};

type OneWord = Slot<1>;

fn write(slot: &OneWord, value: u64) {
    // SAFETY: the pointer is valid for a word; loom checks that nobody else uses it meanwhile.
    slot.write(|to| unsafe { to.cast::<u64>().write(value) });
}

fn read(slot: &OneWord) -> u64 {
    // SAFETY: as above.
    slot.read(|from| unsafe { from.cast::<u64>().read() })
}

fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

// But for the sleeper no model waits in a loop: a rank looks once and goes on only if what it needs is there. Loom tries
// all orders, so those in which it is there, and those in which it is not, are all explored.

fn payload_is_whole(readers: usize) {
    model(move || {
        let slot = Arc::new(OneWord::new());
        let readers: Vec<_> = (0..readers)
            .map(|_| {
                let slot = Arc::clone(&slot);
                thread::spawn(move || {
                    if slot.published(0) == Some(7) {
                        assert_eq!(read(&slot), 42);
                    }
                })
            })
            .collect();
        write(&slot, 42);
        slot.publish(0, 7);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

#[test]
fn slot_payload_is_whole() {
    payload_is_whole(1);
    payload_is_whole(2);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_slot_written_after_its_flag_is_caught() {
    model(|| {
        let slot = Arc::new(OneWord::new());
        let reader = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || slot.published(0).is_some().then(|| read(&slot)))
        };
        slot.publish(0, 7);
        write(&slot, 42);
        reader.join().unwrap();
    });
}

/// One slot used for two steps: the second writing needs all readers of the first.
fn watermark_protects(readers: usize) {
    model(move || {
        let slot = Arc::new(OneWord::new());
        let marks: Vec<_> = (0..readers).map(|_| Arc::new(Watermark::new())).collect();
        let threads: Vec<_> = marks
            .iter()
            .map(|mark| {
                let (slot, mark) = (Arc::clone(&slot), Arc::clone(mark));
                thread::spawn(move || {
                    for step in 0..2 {
                        if slot.published(step).is_none() {
                            break;
                        }
                        assert_eq!(read(&slot), 10 + u64::from(step));
                        mark.advance(step + 1);
                    }
                })
            })
            .collect();
        for step in 0..2 {
            if marks.iter().all(|mark| mark.reached(step)) {
                write(&slot, 10 + u64::from(step));
                slot.publish(step, 0);
            }
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn watermark_protects_readers() {
    watermark_protects(1);
    watermark_protects(2);
}

/// Every rank writes, all read all, and a slot is used again without a look at watermarks: step s
/// needs step s - 2 to be read, which every peer's flag of step s - 1 shows.
fn flags_recycle(size: usize) {
    model(move || {
        let ranks: Arc<Vec<[OneWord; 2]>> = Arc::new((0..size).map(|_| [OneWord::new(), OneWord::new()]).collect());
        let body = move |rank: usize, ranks: &[[OneWord; 2]]| {
            for step in 0..3 {
                let slot = &ranks[rank][step as usize % 2];
                write(slot, 100 * rank as u64 + u64::from(step));
                slot.publish(step, 0);
                for (peer, slots) in ranks.iter().enumerate() {
                    let slot = &slots[step as usize % 2];
                    if slot.published(step).is_none() {
                        return;
                    }
                    assert_eq!(read(slot), 100 * peer as u64 + u64::from(step));
                }
            }
        };
        let threads: Vec<_> = (1..size)
            .map(|rank| {
                let ranks = Arc::clone(&ranks);
                thread::spawn(move || body(rank, &ranks))
            })
            .collect();
        body(0, &ranks);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn flags_alone_recycle_slots() {
    flags_recycle(2);
    flags_recycle(3);
}

/// A rank that goes to sleep although the flag is up must be woken by a ring.
///
/// `publisher_fence` stands for what `membarrier` of the sleeper does on the publisher's core.
fn bell_rings(publisher_fence: bool) {
    model(move || {
        let shared = Arc::new((OneWord::new(), Bell::new(), AtomicBool::new(false)));
        let sleeper = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (slot, bell, done) = &*shared;
                let mut asleep = false;
                bell.sleep_unless(
                    || slot.published(0).is_some(),
                    || fence(Ordering::SeqCst),
                    // The kernel compares and sleeps in one step: a later ring wakes, an earlier shows.
                    |word, seen| {
                        asleep = word.load(Ordering::Relaxed) == seen;
                        while !done.load(Ordering::Relaxed) {
                            thread::yield_now();
                        }
                    },
                );
                asleep
            })
        };
        let (slot, bell, done) = &*shared;
        let mut rang = false;
        slot.publish(0, 0);
        if publisher_fence {
            fence(Ordering::SeqCst);
        }
        bell.ring(|_| rang = true);
        done.store(true, Ordering::Relaxed);
        let asleep = sleeper.join().unwrap();
        assert!(rang || !asleep, "a ring was lost");
    });
}

#[test]
fn bell_loses_no_ring() {
    bell_rings(true);
}

#[test]
#[should_panic(expected = "a ring was lost")]
fn without_the_barrier_a_ring_is_lost() {
    bell_rings(false);
}

#[test]
fn latch_first_writer_wins() {
    model(|| {
        let latch = Arc::new(Latch::<2>::new());
        let writer = {
            let latch = Arc::clone(&latch);
            thread::spawn(move || latch.set(1, &[1, 2]))
        };
        let reader = {
            let latch = Arc::clone(&latch);
            thread::spawn(move || latch.get())
        };
        let here = latch.set(0, &[3, 4]);
        let there = writer.join().unwrap();
        assert!(here != there, "one of the two was first");
        let content = if here { [3, 4] } else { [1, 2] };
        assert_eq!((latch.get(), latch.writer()), (Some(content), usize::from(there)));
        assert!(matches!(reader.join().unwrap(), None | Some([1, 2] | [3, 4])));
    });
}

#[test]
fn record_is_whole() {
    model(|| {
        let record = Arc::new(OpRecord::new());
        let looker = {
            let record = Arc::clone(&record);
            thread::spawn(move || record.get(1))
        };
        record.enter(1, 5, 6, 7);
        assert!(matches!(looker.join().unwrap(), None | Some((5, 6, 7))));
        assert_eq!(record.get(1), Some((5, 6, 7)));
    });
}

/// A word of a rank's own memory, which peers reach where it is.
struct Lent(UnsafeCell<u64>);

// SAFETY: what the models are about; loom reports accesses that nothing keeps apart.
unsafe impl Sync for Lent {}
// SAFETY: the same.
unsafe impl Send for Lent {}

impl Lent {
    fn new(value: u64) -> Self {
        Self(UnsafeCell::new(value))
    }

    fn get(&self) -> u64 {
        // SAFETY: the pointer is valid; loom checks that nobody writes meanwhile.
        self.0.with(|word| unsafe { *word })
    }

    fn set(&self, value: u64) {
        // SAFETY: the pointer is valid; loom checks that nobody else uses it meanwhile.
        self.0.with_mut(|word| unsafe { *word = value });
    }
}

/// One rank of a model: its flags of two steps, its watermark, and its vector, a word for each rank's slice.
struct Rank {
    steps: [OneWord; 2],
    mark: Watermark,
    vector: Vec<Lent>,
}

impl Rank {
    /// Its vector holds `10 ^ rank` everywhere, so that sums show who is in them.
    fn all(size: usize) -> Arc<Vec<Self>> {
        let vector = |rank: u32| (0..size).map(|_| Lent::new(10_u64.pow(rank))).collect();
        let rank =
            |rank| Self { steps: [OneWord::new(), OneWord::new()], mark: Watermark::new(), vector: vector(rank) };
        Arc::new((0..u32::try_from(size).unwrap()).map(rank).collect())
    }

    fn publish(&self, step: u32) {
        self.steps[step as usize].publish(step, 0);
    }

    fn has_published(&self, step: u32) -> bool {
        self.steps[step as usize].published(step).is_some()
    }
}

/// Runs `body` as every rank of the model.
fn as_ranks(size: usize, ranks: &Arc<Vec<Rank>>, body: impl Fn(usize, &[Rank]) + Copy + Send + 'static) {
    let threads: Vec<_> = (1..size)
        .map(|rank| {
            let ranks = Arc::clone(ranks);
            thread::spawn(move || body(rank, &ranks))
        })
        .collect();
    body(0, ranks);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

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
        as_ranks(1 + readers, &Rank::all(1 + readers), move |rank, ranks| {
            let owner = &ranks[0];
            if rank == 0 {
                owner.vector[0].set(42);
                // The news, beside the flag.
                write(&owner.steps[0], 7);
                owner.publish(0);
                if broken == Broken::LeavesAtOnce || ranks[1..].iter().all(|reader| reader.mark.reached(1)) {
                    owner.vector[0].set(43);
                }
                return;
            }
            if !owner.has_published(0) {
                return;
            }
            assert_eq!(read(&owner.steps[0]), 7);
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
        as_ranks(size, &Rank::all(size), move |rank, ranks| {
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

/// Reduce by slices in place at rank 0: every rank reduces its slice of all vectors into the root's.
fn slices_to_root(size: usize, broken: Broken) {
    model(move || {
        as_ranks(size, &Rank::all(size), move |rank, ranks| {
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
