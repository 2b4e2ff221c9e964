//! What the engine costs by itself: an allreduce of 8 bytes between two ranks of one thread on the loopback
//! transport, beside the same messages without an engine. `cargo bench -p net-fabric`.
#![allow(unsafe_code, clippy::unwrap_used)] // Hands its vectors to the engine and the transport.

use std::sync::Arc;
use std::time::Instant;

use net_fabric::algorithm::{Algorithm, Collective, Shape};
use net_fabric::engine::{Engine, Fingerprint, Key, Operands, Policy, Settings, Work};
use net_fabric::schedule::Schedule;
use net_fabric::transport::loopback::Options;
use net_fabric::transport::{Loopback, Tag, Token, Transport};
use reduce_kernels::{Datatype, Operator};

const ROUNDS: u32 = 20_000;
const REPEATS: usize = 9;

/// Nanoseconds a rank and round: least, median and greatest of the repeats.
fn time(name: &str, mut round: impl FnMut(u32)) {
    let mut number = 0;
    let mut times: Vec<f64> = (0..=REPEATS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..ROUNDS {
                round(number);
                number += 1;
            }
            start.elapsed().as_secs_f64() * 1e9 / f64::from(ROUNDS) / 2.0
        })
        .skip(1)
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{name:32} {:7.0} {:7.0} {:7.0}", times[0], times[REPEATS / 2], times[REPEATS - 1]);
}

fn bare() {
    let mut ranks = Loopback::world(2, Options::default());
    let (mut own, mut peers) = ([1u64, 2], [0u64; 2]);
    let mut completed = Vec::new();
    time("messages alone", |number| {
        for rank in 0..2 {
            let (from, into) = (own[rank..].as_ptr().cast(), peers[rank..].as_mut_ptr().cast());
            let tag = Tag(u64::from(number));
            // SAFETY: both vectors outlive the round, in which the receive completes.
            unsafe { ranks[rank].receive(1 - rank, tag, into, 8, Token(0)) }.unwrap();
            // SAFETY: the same.
            unsafe { ranks[rank].send(1 - rank, tag, 7, from, 8, Token(1)) }.unwrap();
        }
        for rank in 0..2 {
            ranks[rank].progress(&mut completed).unwrap();
            assert!(completed.drain(..).all(|completion| completion.word == 7));
            own[rank] = own[rank].wrapping_add(peers[rank]);
        }
    });
}

fn with_engine(name: &str, policy: Policy) {
    let shape = |rank| Shape { rank, size: 2, bytes: 8, element_bytes: 8, in_place: true, ..Shape::default() };
    let schedules: Vec<Arc<Schedule>> = (0..2)
        .map(|rank| Arc::new(Algorithm::RecursiveDoubling.build(Collective::Allreduce, &shape(rank)).unwrap()))
        .collect();
    let world = Loopback::world(2, Options::default());
    let mut engines: Vec<_> = world.into_iter().map(|rank| Engine::new(rank, Settings::default())).collect();
    let mut own = [1u64, 2];
    time(name, |sequence| {
        let handles = [0, 1].map(|rank| {
            let work = Work {
                schedule: Arc::clone(&schedules[rank]),
                operands: Operands::new(std::ptr::null(), 0, own[rank..].as_mut_ptr().cast(), 8)
                    .reduced_by(Operator::Sum, Datatype::Uint64),
                policy,
                key: Key { communicator: 0, sequence },
                fingerprint: Fingerprint([1, 8]),
                part_of: None,
                group: None,
            };
            // SAFETY: `own` outlives the round, in which the operation completes.
            unsafe { engines[rank].start(work) }.unwrap()
        });
        while !(engines[0].test(handles[0]).unwrap() && engines[1].test(handles[1]).unwrap()) {
            for engine in &mut engines {
                engine.progress().unwrap();
            }
        }
    });
    assert_eq!(own[0], own[1], "both ranks have the same sum");
}

fn idle() {
    let mut engines: Vec<_> =
        Loopback::world(2, Options::default()).into_iter().map(|rank| Engine::new(rank, Settings::default())).collect();
    time("a poll with nothing to do", |_| {
        for engine in &mut engines {
            engine.progress().unwrap();
        }
    });
}

fn main() {
    println!("{:32} {:>7} {:>7} {:>7}  ns a rank", "8-byte allreduce, 2 ranks", "least", "median", "most");
    bare();
    with_engine("blocking", Policy::Blocking);
    with_engine("wait-all", Policy::WaitAll);
    with_engine("event-driven", Policy::default());
    idle();
}
