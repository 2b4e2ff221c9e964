//! Every flag protocol under every interleaving that loom finds: `make test-loom`.
//!
//! `flags` has the protocols alone, `lending` what ranks do with each other's memory by them, `forms` the collectives
//! that are made of both. Payloads stand in loom's cells, which report any access that is not ordered by the flags.
#![cfg(loom)]
#![allow(unsafe_code, missing_docs)] // reads and writes loom's cells through their pointers

mod flags;
mod forms;
mod lending;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use shm_core::sync::{Slot, Watermark};

type OneWord = Slot<1>;

fn write(slot: &OneWord, value: u64) {
    // SAFETY: the pointer is valid for a word; loom checks that nobody else uses it meanwhile.
    slot.write(|to| unsafe { to.cast::<u64>().write(value) });
}

fn read(slot: &OneWord) -> u64 {
    // SAFETY: as above.
    slot.read(|from| unsafe { from.cast::<u64>().read() })
}

// But for the sleeper no model of `flags` and `lending` waits in a loop: a rank looks once and goes on only if what it needs
// is there. Loom tries all orders, so those in which it is there, and those in which it is not, are all explored.

fn model(body: impl Fn() + Send + Sync + 'static) {
    explore(3, body);
}

/// Tries all orders in which ranks are interrupted so often at most; that they wait is no interruption.
fn explore(interruptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(body);
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

/// One rank of a model: the places of its steps, used in turn, its watermark, and its vector.
struct Rank {
    places: Vec<OneWord>,
    mark: Watermark,
    vector: Vec<Lent>,
}

impl Rank {
    /// So many ranks, each with `words` words in its vector. They hold `10 ^ rank`, so that sums show who is in them.
    fn all(size: usize, places: usize, words: usize) -> Arc<Vec<Self>> {
        let rank = |rank| Self {
            places: (0..places).map(|_| OneWord::new()).collect(),
            mark: Watermark::new(),
            vector: (0..words).map(|_| Lent::new(10_u64.pow(rank))).collect(),
        };
        Arc::new((0..u32::try_from(size).unwrap()).map(rank).collect())
    }

    fn place(&self, step: u32) -> &OneWord {
        &self.places[step as usize % self.places.len()]
    }

    fn publish(&self, step: u32) {
        self.place(step).publish(step, 0);
    }

    fn has_published(&self, step: u32) -> bool {
        self.place(step).published(step).is_some()
    }
}

/// Runs `body` as every rank of the model; what each returned.
fn as_ranks<R: 'static>(
    size: usize,
    ranks: &Arc<Vec<Rank>>,
    body: impl Fn(usize, &[Rank]) -> R + Copy + Send + 'static,
) -> Vec<R> {
    let start = |rank| {
        let ranks = Arc::clone(ranks);
        thread::spawn(move || body(rank, &ranks))
    };
    let threads: Vec<_> = (1..size).map(start).collect();
    let first = body(0, ranks);
    let others = threads.into_iter().map(|thread| thread.join().unwrap());
    std::iter::once(first).chain(others).collect()
}
