//! The verifier against broken schedules, and against schedules that are played.

use super::play::{Order, Policy, play};
use super::survey::{places, shapes};
use super::{pairs, verify};
use crate::algorithm::{Algorithm, Collective, Shape, Topology};
use crate::schedule::{Action, Buffer, Schedule, Span, Step};

const POLICIES: [Policy; 6] = [
    Policy::Blocking,
    Policy::WaitAll,
    Policy::EventDriven { sends: 1, receives: 2 },
    Policy::EventDriven { sends: 2, receives: 3 },
    Policy::EventDriven { sends: 1, receives: 4 },
    Policy::EventDriven { sends: 4, receives: 6 },
];

fn build(collective: Collective, algorithm: Algorithm, shape: &Shape<'_>) -> Vec<Schedule> {
    let build = |rank| algorithm.build(collective, &Shape { rank, ..*shape }).expect("it applies");
    (0..shape.size).map(build).collect()
}

#[test]
fn what_is_proved_ends_with_the_right_results_under_every_policy() {
    for (collective, algorithm) in pairs() {
        for size in [1, 2, 3, 5, 8, 11] {
            let topology = places(size);
            for (root, chunks) in [(0, 4), (size / 2, 2)] {
                for shape in shapes(collective, algorithm, (size, root, chunks), &topology) {
                    let schedules = build(collective, algorithm, &shape);
                    assert!(verify(collective, &shape, &schedules).is_ok());
                    for policy in POLICIES {
                        for order in [Order::First, Order::Last, Order::Random(17)] {
                            let outcome = play(collective, &shape, &schedules, policy, order);
                            assert_eq!(outcome, Ok(()), "{collective} {algorithm} {policy:?} {order:?} {shape:?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn as_many_chunks_are_proved_as_the_survey_says() {
    // Nodes have 6 ranks, of which the last sends each chunk once to whom it sends first.
    for (algorithm, size) in [
        (Algorithm::RecursiveDoubling, 6),
        (Algorithm::Smp, 6),
        (Algorithm::Smp, 7),
        (Algorithm::Leaders(2), 6),
        (Algorithm::Leaders(4), 6),
    ] {
        let topology = places(size);
        for chunks in 1..=5 {
            for shape in shapes(Collective::Allreduce, algorithm, (size, 0, chunks), &topology) {
                let schedule = &build(Collective::Allreduce, algorithm, &shape)[5];
                let to = |step: Step<'_>| if let Action::Send { peer, .. } = step.action { Some(peer) } else { None };
                let sends: Vec<u32> = schedule.steps().filter_map(to).collect();
                let first = sends.iter().filter(|peer| **peer == sends[0]).count();
                assert_eq!(first, chunks, "{algorithm}, {size} ranks: {sends:?}");
            }
        }
    }
}

/// One rank's schedule, taken apart.
#[derive(Clone)]
struct Part {
    action: Action,
    waits: Vec<u32>,
    round: u32,
    joined: bool,
}

fn take_apart(schedule: &Schedule) -> Vec<Part> {
    let part = |Step { action, waits, round, joined }: Step<'_>| Part { action, waits: waits.to_vec(), round, joined };
    schedule.steps().map(part).collect()
}

fn put_together(parts: &[Part], scratch_bytes: usize) -> Schedule {
    fn step(Part { action, waits, round, joined }: &Part) -> Step<'_> {
        Step { action: *action, waits, round: *round, joined: *joined }
    }
    Schedule::from_parts(parts.iter().map(step), scratch_bytes)
}

/// What is done to one step.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mutation {
    Drop,
    Duplicate,
    SwapWithNext,
    OtherPeer,
    OtherNumber,
    Shift(usize),
    Shorten,
    SwapOperands,
    DropWait(usize),
    Join,
    Unjoin,
    RoundBack,
    /// This step and all behind it.
    RoundForward,
}

fn mutations(step: &Part) -> Vec<Mutation> {
    use Mutation::*;
    let mut all = vec![Drop, Duplicate, SwapWithNext, OtherPeer, OtherNumber, SwapOperands, Shorten];
    all.extend([Join, Unjoin, RoundBack, RoundForward]);
    all.extend((0..3).map(Shift));
    all.extend((0..step.waits.len()).map(DropWait));
    all
}

/// The spans of an action, to be changed.
fn spans(action: &mut Action) -> Vec<&mut Span> {
    match action {
        Action::Send { from, .. } => vec![from],
        Action::Receive { into, .. } => vec![into],
        Action::Reduce { left, right, into } => vec![left, right, into],
        Action::Copy { from, into } => vec![from, into],
    }
}

/// The mutant, if the mutation means anything there; and whether it is wrong for sure.
fn mutate(parts: &[Part], at: usize, mutation: Mutation, size: u32) -> Option<(Vec<Part>, bool)> {
    let mut parts = parts.to_vec();
    let position = u32::try_from(at).expect("few steps");
    let bytes = spans(&mut parts[at].action)[0].bytes;
    let is_message = matches!(parts[at].action, Action::Send { .. } | Action::Receive { .. });
    let certain = match mutation {
        Mutation::Drop => {
            let dropped = parts.remove(at);
            for part in &mut parts[at..] {
                if part.waits.contains(&position) {
                    part.waits.extend(&dropped.waits);
                }
                part.waits.retain(|&wait| wait != position);
                part.waits.iter_mut().filter(|wait| **wait > position).for_each(|wait| *wait -= 1);
                part.waits.sort_unstable();
                part.waits.dedup();
            }
            // The other half of an exchange stands alone.
            if let Some(next) = parts.get_mut(at)
                && !dropped.joined
            {
                next.joined = false;
            }
            true
        }
        Mutation::Duplicate => {
            for part in &mut parts[at + 1..] {
                part.waits.iter_mut().filter(|wait| **wait > position).for_each(|wait| *wait += 1);
            }
            let again = Part { waits: vec![position], joined: false, ..parts[at].clone() };
            parts.insert(at + 1, again);
            if let Some(next) = parts.get_mut(at + 2) {
                next.joined = false;
            }
            is_message
        }
        Mutation::SwapWithNext => {
            let next = parts.get(at + 1)?.action;
            if next == parts[at].action {
                return None;
            }
            parts[at + 1].action = std::mem::replace(&mut parts[at].action, next);
            false
        }
        Mutation::OtherPeer => {
            let (Action::Send { peer, .. } | Action::Receive { peer, .. }) = &mut parts[at].action else { return None };
            *peer = (*peer + 1) % size;
            true
        }
        Mutation::OtherNumber => {
            let (Action::Send { message, .. } | Action::Receive { message, .. }) = &mut parts[at].action else {
                return None;
            };
            *message += 1;
            true
        }
        Mutation::Shift(index) => {
            let mut spans = spans(&mut parts[at].action);
            let span = spans.get_mut(index).filter(|span| span.bytes > 0)?;
            span.start = if span.start >= 8 { span.start - 8 } else { span.start + 8 };
            true
        }
        Mutation::Shorten => {
            spans(&mut parts[at].action).into_iter().for_each(|span| span.bytes -= span.bytes.min(8));
            bytes > 0
        }
        Mutation::SwapOperands => {
            let Action::Reduce { left, right, .. } = &mut parts[at].action else { return None };
            std::mem::swap(left, right);
            false
        }
        Mutation::DropWait(index) => {
            let wait = parts[at].waits.remove(index);
            // Wrong, unless the step waits for that one through others.
            let mut open = parts[at].waits.clone();
            let mut implied = false;
            while let Some(other) = open.pop() {
                implied |= other == wait;
                open.extend(&parts[other as usize].waits);
            }
            !implied && bytes > 0
        }
        Mutation::Join | Mutation::Unjoin | Mutation::RoundBack | Mutation::RoundForward => {
            regroup(&mut parts, at, mutation)?
        }
    };
    Some((parts, certain))
}

/// Mutations of rounds and groups; whether it is wrong for sure.
fn regroup(parts: &mut [Part], at: usize, mutation: Mutation) -> Option<bool> {
    Some(match mutation {
        Mutation::Join => {
            let before = parts.get(at.checked_sub(1)?)?.action;
            if std::mem::replace(&mut parts[at].joined, true) {
                return None;
            }
            !matches!(
                (before, parts[at].action),
                (Action::Send { .. }, Action::Receive { .. }) | (Action::Receive { .. }, Action::Send { .. })
            )
        }
        Mutation::Unjoin => {
            if !std::mem::replace(&mut parts[at].joined, false) {
                return None;
            }
            false
        }
        Mutation::RoundBack => {
            if at == 0 || parts[at - 1].round == 0 {
                return None;
            }
            parts[at].round = parts[at - 1].round - 1;
            true
        }
        // Elsewhere there may as well be more rounds.
        Mutation::RoundForward => {
            if !parts[at].joined {
                return None;
            }
            parts[at..].iter_mut().for_each(|part| part.round += 1);
            true
        }
        _ => unreachable!("of a step alone"),
    })
}

/// Breaks each step of each rank in all ways, and gives how many mutants were caught, and how many are as good.
fn break_all(collective: Collective, algorithm: Algorithm, shape: &Shape<'_>) -> (usize, usize) {
    let (mut caught, mut equivalent) = (0, 0);
    let mut schedules = build(collective, algorithm, shape);
    for rank in 0..shape.size {
        let (whole, scratch) = (schedules[rank].clone(), schedules[rank].scratch_bytes());
        let parts = take_apart(&whole);
        for at in 0..parts.len() {
            for mutation in mutations(&parts[at]) {
                let ranks = u32::try_from(shape.size).expect("few ranks");
                let Some((mutant, certain)) = mutate(&parts, at, mutation, ranks) else { continue };
                schedules[rank] = put_together(&mutant, scratch);
                let case = || format!("{collective} {algorithm} rank {rank} step {at} {mutation:?} {shape:?}");
                if verify(collective, shape, &schedules).is_err() {
                    caught += 1;
                    continue;
                }
                assert!(!certain, "accepted: {}", case());
                equivalent += 1;
                for policy in POLICIES {
                    for order in [Order::First, Order::Last, Order::Random(5)] {
                        let outcome = play(collective, shape, &schedules, policy, order);
                        assert_eq!(outcome, Ok(()), "accepted, but {policy:?} {order:?}: {}", case());
                    }
                }
            }
        }
        schedules[rank] = whole;
    }
    (caught, equivalent)
}

#[test]
#[allow(clippy::print_stdout)] // how many, for who wants to know
fn broken_schedules_are_rejected() {
    let (mut caught, mut equivalent) = (0, 0);
    for (collective, algorithm) in pairs() {
        for (size, root, chunks) in [(2, 1, 1), (4, 0, 2), (5, 3, 2), (8, 2, 1)] {
            let topology = places(size);
            for shape in shapes(collective, algorithm, (size, root, chunks), &topology) {
                let outcome = break_all(collective, algorithm, &shape);
                (caught, equivalent) = (caught + outcome.0, equivalent + outcome.1);
            }
        }
    }
    println!("{caught} broken schedules caught, {equivalent} as good as before");
    // Most of what is done to a schedule breaks it; what does not is mostly two steps that may as well be swapped.
    assert!(caught > 10 * equivalent && equivalent > 0, "{caught} caught, {equivalent} equivalent");
}

/// Nodes of as many ranks, of more, and of fewer than there are nodes: figures 6, 8 and 9 of `nap-allreduce`.
#[test]
fn broken_schedules_between_nodes_are_rejected() {
    for (nodes, ppn) in [(3, 3), (2, 4), (3, 2), (5, 3)] {
        let places: Vec<usize> = (0..nodes * ppn).map(|rank| rank / ppn).collect();
        let topology = Topology::new(&[&places]);
        for shape in shapes(Collective::Allreduce, Algorithm::Nap, (nodes * ppn, 0, 2), &topology) {
            let (caught, equivalent) = break_all(Collective::Allreduce, Algorithm::Nap, &shape);
            assert!(caught > 10 * equivalent, "{nodes} nodes of {ppn}: {caught} caught, {equivalent} equivalent");
        }
    }
}

#[test]
fn between_nodes_every_policy_ends_with_the_right_results() {
    for (nodes, ppn) in [(4, 4), (2, 4), (7, 3), (9, 2)] {
        let places: Vec<usize> = (0..nodes * ppn).map(|rank| rank / ppn).collect();
        let topology = Topology::new(&[&places]);
        for shape in shapes(Collective::Allreduce, Algorithm::Nap, (nodes * ppn, 0, 3), &topology) {
            let schedules = build(Collective::Allreduce, Algorithm::Nap, &shape);
            for policy in POLICIES {
                for order in [Order::First, Order::Last, Order::Random(17)] {
                    let outcome = play(Collective::Allreduce, &shape, &schedules, policy, order);
                    assert_eq!(outcome, Ok(()), "{policy:?} {order:?} {shape:?}");
                }
            }
        }
    }
}

#[test]
fn every_wait_of_a_barrier_is_needed() {
    let shape = Shape { size: 8, ..Shape::default() };
    let mut schedules = build(Collective::Barrier, Algorithm::Dissemination, &shape);
    let parts = take_apart(&schedules[3]);
    for (at, part) in parts.iter().enumerate() {
        for index in 0..part.waits.len() {
            let (mutant, _) = mutate(&parts, at, Mutation::DropWait(index), 8).expect("a wait");
            schedules[3] = put_together(&mutant, 0);
            let fault = verify(Collective::Barrier, &shape, &schedules).expect_err("a wait less");
            assert!(fault.to_string().contains("without having heard of rank"), "{fault}");
        }
    }
}

/// What ends in blocking order, and may hang or mix up messages under other policies.
#[test]
fn schedules_of_other_forms_than_the_proof_has_are_rejected() {
    let span = |buffer, start| Span::new(buffer, start, 8);
    let [low, high] = [0, 8].map(|start| span(Buffer::Output, start));
    let part = |action, round, joined| Part { action, waits: Vec::new(), round, joined };
    let send = |peer, message, from| part(Action::Send { peer, message, from }, 0, false);
    let receive = |peer, message, into| part(Action::Receive { peer, message, into }, 0, false);
    let joined = |part: Part| Part { joined: true, ..part };
    let reason = |collective, shape: &Shape<'_>, ranks: &[Vec<Part>]| {
        let schedules: Vec<Schedule> = ranks.iter().map(|parts| put_together(parts, 8)).collect();
        verify(collective, shape, &schedules).expect_err("another form").reason
    };

    // Sends of the next round do not begin before this one has ended, and this one waits for them.
    let shape = Shape { size: 2, bytes: 8, element_bytes: 8, ..Shape::default() };
    let rank = |peer: u32| {
        let (own, theirs) = (span(Buffer::Input, 0), span(Buffer::Scratch, 0));
        let (left, right) = if peer == 1 { (own, theirs) } else { (theirs, own) };
        let sum = Part { waits: vec![0], ..part(Action::Reduce { left, right, into: low }, 1, false) };
        vec![receive(peer, 0, theirs), Part { round: 1, ..joined(send(peer, 0, own)) }, sum]
    };
    let fault = reason(Collective::Allreduce, &shape, &[rank(1), rank(0)]);
    assert!(fault.starts_with("is joined with something else"), "{fault}");

    // Two messages of one number, and numbers that do not begin with 0.
    let shape = Shape { bytes: 16, ..shape };
    for (numbers, expected) in [([0, 0], "is message 0, behind 1 with"), ([1, 2], "is message 1, behind 0 with")] {
        let [first, second] = numbers;
        let root = vec![send(1, first, low), send(1, second, high)];
        let leaf = vec![receive(0, first, low), receive(0, second, high)];
        let fault = reason(Collective::Bcast, &shape, &[root, leaf]);
        assert!(fault.starts_with(expected), "{fault}");
    }

    // Where one message at a time may be sent, it is the one that is received last.
    let shape = Shape { size: 3, ..shape };
    let root = vec![send(1, 0, low), joined(send(2, 0, high)), send(2, 1, low)];
    let relay = vec![receive(0, 0, high), Part { waits: vec![0], ..send(1, 0, high) }, receive(0, 1, low)];
    let leaf = vec![receive(2, 0, high), receive(0, 0, low)];
    let fault = reason(Collective::Bcast, &shape, &[root, leaf, relay]);
    assert!(fault.starts_with("is joined with something else"), "{fault}");
}

#[test]
fn faults_say_what_is_wrong() {
    let shape = Shape { size: 3, bytes: 24, element_bytes: 8, ..Shape::default() };
    let algorithm: Algorithm = "chain".parse().expect("a name");
    let mut schedules = build(Collective::Bcast, algorithm, &shape);
    let last = std::mem::take(&mut schedules[2]);
    let fault = verify(Collective::Bcast, &shape, &schedules).expect_err("rank 2 does nothing");
    assert_eq!((fault.rank, fault.step), (1, Some(1)));
    assert!(fault.to_string().starts_with("rank 1: step 1 and 0 other ranks wait for ever"), "{fault}");
    schedules[2] = last;
    assert!(verify(Collective::Bcast, &Shape { root: 1, ..shape }, &schedules).is_err());
    assert!(verify(Collective::Bcast, &Shape { size: 2, ..shape }, &schedules).is_err());
}
