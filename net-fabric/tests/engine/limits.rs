//! What each policy keeps under way, whom it waits for, and what an engine refuses.

use std::sync::Arc;
use std::time::Instant;

use net_fabric::Error;
use net_fabric::algorithm::{Algorithm, Collective, Tree};
use net_fabric::engine::{Engine, Fingerprint, Key, MAX_COMMUNICATORS, Operands, Policy, Settings, Work};
use net_fabric::schedule::{Buffer, Builder, Span};
use net_fabric::transport::loopback::Options;
use net_fabric::transport::{Loopback, Transport};
use reduce_kernels::{Datatype, Operator};

use crate::exact::everything;
use crate::rig::{Case, DEADLINE, Part, Random, world};
use crate::wrapped::Counting;

const SYNCHRONOUS: Options = Options { synchronous: true, held_messages: usize::MAX, disorder: None };

/// A bcast of 32 chunks from rank 0 to each of the others.
const STAR: Case = Case {
    collective: Collective::Bcast,
    algorithm: Algorithm::Tree(Tree::Linear),
    policy: Policy::Blocking,
    root: 0,
    count: 32,
    in_place: false,
    commutative: true,
    chunk_bytes: 4,
    slots: 2,
};

fn start_all<T: Transport>(engines: &mut [Engine<T>], case: Case, key: Key) -> Vec<Part> {
    let size = engines.len();
    let start = |(rank, engine): (usize, &mut Engine<T>)| {
        let mut part = case.part(rank, size, 0);
        part.start(engine, key);
        part
    };
    engines.iter_mut().enumerate().map(start).collect()
}

const KEY: Key = Key { communicator: 0, sequence: 0 };

#[test]
fn policies_keep_as_much_under_way_as_they_say() {
    for (policy, sends, recvs) in [
        (Policy::Blocking, 1, 1),
        (Policy::WaitAll, 1, 2),
        (Policy::EventDriven { sends: 1, recvs: 2 }, 1, 2),
        (Policy::EventDriven { sends: 3, recvs: 5 }, 3, 5),
    ] {
        let mut engines: Vec<_> = Counting::around(Loopback::world(4, SYNCHRONOUS), false)
            .into_iter()
            .map(|rank| Engine::new(rank, Settings::default()))
            .collect();
        let chain = Case { algorithm: Algorithm::Tree(Tree::Chain), policy, ..STAR };
        let parts = start_all(&mut engines, chain, KEY);
        let mut random = Random(5);
        while engines.iter().any(|engine| engine.outstanding() > 0) {
            engines[random.below(4)].progress().unwrap();
        }
        parts.iter().for_each(Part::check);
        let most = |sends| engines.iter().map(|engine| engine.transport().seen.borrow().most(sends)).max().unwrap();
        assert_eq!((most(true), most(false)), (sends, recvs), "{policy:?}");
    }
}

#[test]
fn only_event_driven_children_are_independent() {
    let event_driven = Policy::EventDriven { sends: 2, recvs: 3 };
    // Where nine have places for eight messages, one child of eight may hold half of those for whatever is ready.
    for (size, room, policy, independent) in [
        (3, usize::MAX, Policy::Blocking, false),
        (3, usize::MAX, Policy::WaitAll, false),
        (3, usize::MAX, event_driven, true),
        (9, 128, event_driven, true),
    ] {
        let mut transports = Counting::around(Loopback::world(size, SYNCHRONOUS), false);
        transports.iter_mut().for_each(|transport| transport.room = room);
        let mut engines: Vec<_> = transports.into_iter().map(|rank| Engine::new(rank, Settings::default())).collect();
        let parts = start_all(&mut engines, Case { policy, ..STAR }, KEY);
        // One of the children has fallen asleep after its first receives were posted.
        let asleep = 1;
        for _ in 0..1000 {
            for rank in (0..size).filter(|&rank| rank != asleep) {
                engines[rank].progress().unwrap();
            }
        }
        for rank in (1..size).filter(|&rank| rank != asleep) {
            assert_eq!(engines[rank].outstanding() == 0, independent, "rank {rank} of {size}, {policy:?}");
        }
        while engines.iter().any(|engine| engine.outstanding() > 0) {
            engines.iter_mut().for_each(|engine| assert!(engine.progress().is_ok()));
        }
        parts.iter().for_each(Part::check);
    }
}

/// However many the peers and whatever the policy, and nothing hangs or is less than exact because of that.
#[test]
fn operations_have_few_messages_under_way_in_all() {
    let disorder = Options { disorder: Some(7), ..SYNCHRONOUS };
    for (size, room, most, options) in [(9, 1, 1, SYNCHRONOUS), (7, 32, 2, disorder), (9, 64, 4, SYNCHRONOUS)] {
        let like = Case { count: 40, commutative: false, chunk_bytes: 16, root: 2, ..STAR };
        let wide = Policy::EventDriven { sends: 4, recvs: 6 };
        let cases = everything(size, like).into_iter().map(|case| match case.policy {
            Policy::EventDriven { .. } => Case { policy: wide, ..case },
            _ => case,
        });
        let mut reached = [0; 2];
        for case in cases.filter(|case| case.exists(size)) {
            let mut transports = Counting::around(Loopback::world(size, options), false);
            transports.iter_mut().for_each(|transport| transport.room = room);
            let mut engines: Vec<_> =
                transports.into_iter().map(|rank| Engine::new(rank, Settings::default())).collect();
            let parts = start_all(&mut engines, case, KEY);
            let mut random = Random(9);
            let deadline = Instant::now() + DEADLINE;
            while engines.iter().any(|engine| engine.outstanding() > 0) {
                engines[random.below(size)].progress().unwrap();
                assert!(Instant::now() < deadline, "{case:?} on {size} ranks with room for {room} hangs");
            }
            parts.iter().for_each(Part::check);
            for (sends, reached) in [true, false].into_iter().zip(&mut reached) {
                let in_all = |engine: &Engine<Counting>| engine.transport().seen.borrow().most_in_all(sends);
                *reached = engines.iter().map(in_all).max().unwrap().max(*reached);
            }
        }
        assert_eq!(reached, [most; 2], "{size} ranks with room for {room}");
    }
}

/// Rank 0 passes to rank 1, which has room for one message, first what comes late from rank 2, then what it has.
#[test]
fn what_overtakes_leaves_room_for_what_is_overtaken() {
    let policies = [1, 2, 3].map(|sends| Policy::EventDriven { sends, recvs: sends + 1 });
    for policy in policies.into_iter().chain([Policy::Blocking, Policy::WaitAll]) {
        let mut engines = world(3, SYNCHRONOUS, Settings::default());
        let part = |index: usize| Span::new(Buffer::Output, 4 * index, 4);
        let mut vectors = [[5u32, 6, 7, 8, 0, 0], [1; 6], [9; 6]];
        for (rank, output) in vectors.iter_mut().enumerate() {
            let mut program = Builder::new();
            match rank {
                0 => {
                    program.receive(2, part(4));
                    program.send(1, part(4));
                    (0..4).for_each(|index| assert!(program.send(1, part(index)) > 0));
                }
                1 => {
                    for index in 0..5 {
                        program.receive(0, part(5));
                        program.reduce(part(index), part(5), part(index));
                    }
                }
                _ => assert_eq!(program.send(0, part(0)), 0),
            }
            let operands = Operands::new(std::ptr::null(), 0, output.as_mut_ptr().cast(), 24);
            let operands = operands.reduced_by(Operator::Sum, Datatype::Uint32);
            if rank == 2 {
                // Late: whatever can overtake has done so.
                for _ in 0..100 {
                    engines.iter_mut().for_each(|engine| assert!(engine.progress().is_ok()));
                }
            }
            // SAFETY: the vectors outlive the loop below, in which the operation completes.
            unsafe { engines[rank].start(Work { policy, ..work(program.finish(), operands) }) }.unwrap();
        }
        for _ in 0..1000 {
            engines.iter_mut().for_each(|engine| assert!(engine.progress().is_ok()));
        }
        assert!(engines.iter().all(|engine| engine.outstanding() == 0), "{policy:?} hangs");
        drop(engines);
        assert_eq!(vectors[1], [10, 6, 7, 8, 9, 8]);
    }
}

#[test]
fn operations_beyond_all_tags_find_their_messages() {
    let mut engines = world(2, Options::default(), Settings { operations: 3, ..Settings::default() });
    let case = Case { count: 1, policy: Policy::EventDriven { sends: 1, recvs: 2 }, ..STAR };
    let start = |rank: usize, sequence: u32, engine: &mut _| {
        let mut part = case.part(rank, 2, sequence as usize);
        part.start(engine, Key { communicator: 0, sequence });
        part
    };
    // The root is far ahead, and numbers wrap around.
    let sequences: Vec<u32> = (0..5000).map(|i| (u32::MAX - 2000).wrapping_add(i)).collect();
    let (root, leaf) = engines.split_at_mut(1);
    let sent: Vec<Part> = sequences.iter().map(|&sequence| start(0, sequence, &mut root[0])).collect();
    assert_eq!(root[0].outstanding(), 0, "messages are held for the leaf");
    let received: Vec<Part> = sequences.iter().map(|&sequence| start(1, sequence, &mut leaf[0])).collect();
    assert_eq!(leaf[0].outstanding(), 5000);
    while leaf[0].outstanding() > 0 {
        leaf[0].progress().unwrap();
    }
    sent.iter().chain(&received).for_each(Part::check);
}

#[test]
fn what_is_refused_again_is_no_progress_and_what_is_only_sent_is_no_open_result() {
    // Two messages are held for the other rank, of sixteen.
    let options = Options { held_messages: 2, ..Options::default() };
    let mut engines = world(2, options, Settings::default());
    let case = Case { chunk_bytes: 8, policy: Policy::EventDriven { sends: 4, recvs: 6 }, ..STAR };
    let (root, leaf) = engines.split_at_mut(1);
    let mut sent = case.part(0, 2, 0);
    let sending = sent.try_start(&mut root[0], KEY).unwrap();
    while root[0].progress().unwrap() {}
    assert!(!root[0].test(sending).unwrap() && root[0].has_result(sending), "all that is left is to be sent");
    let mut received = case.part(1, 2, 0);
    let receiving = received.try_start(&mut leaf[0], KEY).unwrap();
    assert!(!leaf[0].has_result(receiving));
    while leaf[0].outstanding() + root[0].outstanding() > 0 {
        root[0].progress().unwrap();
        leaf[0].progress().unwrap();
    }
    assert!(leaf[0].has_result(receiving));
    [&sent, &received].into_iter().for_each(Part::check);
}

#[test]
fn groups_are_communicators_of_some_ranks() {
    let mut engines = world(5, Options::default(), Settings::default());
    let groups: [Arc<[u32]>; 2] = [Arc::new([4, 1, 3]), Arc::new([0, 3, 4, 2])];
    let case = Case { collective: Collective::Allreduce, algorithm: Algorithm::RecursiveDoubling, ..STAR };
    let mut parts = Vec::new();
    // Ranks 3 and 4 are in both, and begin them in different orders.
    for (rank, order) in [(0, [1, 0]), (1, [0, 1]), (2, [1, 0]), (3, [0, 1]), (4, [1, 0])] {
        for number in order {
            let group = &groups[number];
            let Some(within) = group.iter().position(|member| *member as usize == rank) else { continue };
            let mut part = case.part(within, group.len(), number);
            let key = Key { communicator: u16::try_from(number + 7).unwrap(), sequence: 3 };
            part.start_in(&mut engines[rank], key, Some(Arc::clone(group))).unwrap();
            parts.push(part);
        }
    }
    while engines.iter().any(|engine| engine.outstanding() > 0) {
        engines.iter_mut().for_each(|engine| assert!(engine.progress().is_ok()));
    }
    assert_eq!(parts.len(), 7);
    parts.iter().for_each(Part::check);
}

#[test]
fn a_communicators_number_can_be_used_again() {
    let mut engines = world(3, Options::default(), Settings::default());
    for members in [&[0, 1], &[1, 2], &[0, 2]] {
        let group: Arc<[u32]> = Arc::from(&members[..]);
        let mut parts = Vec::new();
        for (within, &rank) in members.iter().enumerate() {
            let mut part = STAR.part(within, 2, 0);
            part.start_in(&mut engines[rank as usize], KEY, Some(Arc::clone(&group))).unwrap();
            parts.push(part);
        }
        while engines.iter().any(|engine| engine.outstanding() > 0) {
            engines.iter_mut().for_each(|engine| assert!(engine.progress().is_ok()));
        }
        parts.iter().for_each(Part::check);
        members.iter().for_each(|&rank| engines[rank as usize].forget(0));
    }
}

#[test]
fn null_operands_are_accounted_and_not_touched() {
    let mut engines: Vec<_> = Counting::around(Loopback::world(8, Options::default()), true)
        .into_iter()
        .map(|rank| Engine::new(rank, Settings::default()))
        .collect();
    let case = Case { collective: Collective::Allreduce, algorithm: Algorithm::RecursiveDoubling, ..STAR };
    for (rank, engine) in engines.iter_mut().enumerate() {
        let work = work(case.schedule(rank, 8), Operands::null());
        // SAFETY: there is no memory.
        unsafe { engine.start(work) }.unwrap();
    }
    while engines.iter().any(|engine| engine.outstanding() > 0) {
        engines.iter_mut().for_each(|engine| assert!(engine.progress().is_ok()));
    }
    for engine in &engines {
        let seen = engine.transport().seen.borrow();
        assert_eq!(seen.reduced_bytes, 3 * 4 * case.count, "three rounds of eight ranks");
    }
}

fn work(schedule: net_fabric::schedule::Schedule, operands: Operands) -> Work {
    Work {
        schedule: Arc::new(schedule),
        operands,
        policy: Policy::default(),
        key: KEY,
        fingerprint: Fingerprint::default(),
        part_of: None,
        group: None,
    }
}

#[test]
fn impossible_work_is_refused_with_the_reason() {
    let mut engines: Vec<_> = Counting::around(Loopback::world(2, Options::default()), false)
        .into_iter()
        .map(|rank| Engine::new(rank, Settings::default()))
        .collect();
    let output = |bytes| Span::new(Buffer::Output, 0, bytes);
    let to = |peer: usize, bytes: usize| {
        let mut program = Builder::new();
        program.send(peer, output(bytes));
        program.finish()
    };
    let reduces = || {
        let mut program = Builder::new();
        program.reduce(output(12), output(12), output(12));
        program.finish()
    };
    let mut memory = vec![0u8; 2 << 20];
    let mut of = |bytes: usize| Operands::new(std::ptr::null(), 0, memory.as_mut_ptr(), bytes);
    let good = |operands| work(to(1, 8), operands);
    let cases = [
        (work(to(2, 8), of(8)), "messages to rank 2: ranks are 0 to 1"),
        (work(to(1, 16), of(8)), "uses 0 bytes of input and 16 of output, the operands have 0 and 8"),
        (work(to(1, 2 << 20), of(2 << 20)), "a message of 2097152 bytes: the counting transport takes at most 1048576"),
        (work(reduces(), of(12)), "the operands need an operator"),
        (work(reduces(), of(12).reduced_by(Operator::Sum, Datatype::Double)), "cuts elements of f64 apart"),
        (work(reduces(), of(12).reduced_by(Operator::Band, Datatype::Float)), "operator band is not defined for f32"),
        (Work { policy: Policy::EventDriven { sends: 2, recvs: 2 }, ..good(of(8)) }, "2 sends and 2 receives"),
        (Work { policy: Policy::EventDriven { sends: 0, recvs: 2 }, ..good(of(8)) }, "it takes a send"),
        (Work { group: Some(Arc::new([0, 2])), ..good(of(8)) }, "rank 2 of the group: the world's ranks are 0 to 1"),
        (
            Work { key: Key { communicator: MAX_COMMUNICATORS, sequence: 0 }, ..good(of(8)) },
            "communicator 32768: the greatest is 32767",
        ),
    ];
    for (work, reason) in cases {
        // SAFETY: `memory` outlives the engines.
        let error = unsafe { engines[0].start(work) }.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        assert!(error.to_string().contains(reason), "{error}\nlacks: {reason}");
    }
    // None of that has harmed anything.
    let parts = start_all(&mut engines, STAR, KEY);
    while engines.iter().any(|engine| engine.outstanding() > 0) {
        engines.iter_mut().for_each(|engine| assert!(engine.progress().is_ok()));
    }
    parts.iter().for_each(Part::check);
}
