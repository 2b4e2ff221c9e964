//! The flags one by one: steps, watermarks, the bell, the latch, records.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering, fence};
use loom::thread;
use shm_core::sync::{Bell, Latch, OpRecord, Sources, Wakers, Watermark};

use super::{OneWord, model, read, write};

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

/// A rank that goes to sleep although the flag is up must be woken by a ring, also when it has slept before.
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
                let sleeper = bell.announce(Sources::of(5), || fence(Ordering::SeqCst));
                let look = || slot.published(0).is_none().then_some(Wakers::ALL);
                // The first sleep ends by itself, as sleeps are bounded.
                sleeper.sleep_unless(look, |_, _, _| {});
                sleeper.sleep_unless(
                    look,
                    // The kernel compares and sleeps in one step: a later ring wakes, an earlier shows.
                    |word, seen, _| {
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
        bell.ring(5, |_| rang = true);
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

#[test]
fn record_is_replaced() {
    model(|| {
        let record = Arc::new(OpRecord::new());
        record.enter(1, 5, 6, 7);
        let looker = {
            let record = Arc::clone(&record);
            thread::spawn(move || record.get(1))
        };
        record.replace(2, 8, 9, 10);
        assert!(matches!(looker.join().unwrap(), None | Some((5, 6, 7))));
        assert_eq!(record.get(2), Some((8, 9, 10)));
    });
}
