//! Plays schedules on real numbers in any order that a policy allows, for the tests: what the verifier proves must
//! hold here, whatever it accepts must give the right results.
//!
//! Sends are synchronous. Memory is garbage at first, and so is the place of a receive from when it is posted.

use std::collections::HashMap;

use crate::algorithm::{Collective, Shape};
use crate::schedule::{Action, Buffer, Schedule, Span};

/// Which steps a rank may begin.
#[derive(Debug, Clone, Copy)]
pub(super) enum Policy {
    /// One group after the other.
    Blocking,
    /// One round after the other, receives one round ahead.
    WaitAll,
    /// Whatever is ready; to or from each peer so many at most.
    EventDriven { sends: usize, receives: usize },
}

/// Which of the steps that may begin does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Order {
    First,
    Last,
    Random(u64),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    Begun,
    Complete,
}

struct Player<'a> {
    schedule: &'a Schedule,
    states: Vec<State>,
    memory: HashMap<Buffer, Vec<u64>>,
    /// The first step that has not completed.
    first: usize,
    /// Steps that each still waits for.
    waits: Vec<usize>,
    /// Where the group of each step begins.
    groups: Vec<usize>,
    /// The messages to and from each peer, and the place of each message in these.
    channels: Vec<Channel>,
    places: Vec<Option<(usize, usize)>>,
    /// What may begin.
    ready: Vec<usize>,
}

/// The messages in one direction, to or from one peer.
#[derive(Default)]
struct Channel {
    steps: Vec<usize>,
    /// How many have completed without a gap.
    oldest: usize,
    under_way: usize,
}

/// Sender and receiver of a message, and its number.
type Key = (usize, usize, u32);

const GARBAGE: u64 = 0xdead_beef_dead_beef;
const ELEMENT: usize = 8;

/// A rank's operand: an affine map in each element, so that combining them is associative and does not commute.
fn operand(rank: usize, elements: usize) -> Vec<u64> {
    (0..elements).map(|index| pack(3 + 5 * rank as u64 + index as u64, 1 + rank as u64)).collect()
}

const PRIME: u64 = 65_521;

fn pack(factor: u64, addend: u64) -> u64 {
    (factor % PRIME) << 32 | (addend % PRIME)
}

fn combine(commutative: bool, left: u64, right: u64) -> u64 {
    if commutative {
        return left.wrapping_add(right);
    }
    let ([a, b], [c, d]) = ([left >> 32, left & 0xffff], [right >> 32, right & 0xffff]);
    pack(a * c, a * d + b)
}

/// Plays until nothing moves any more; then whether all has ended with the right results.
pub(super) fn play(
    collective: Collective,
    shape: &Shape<'_>,
    schedules: &[Schedule],
    policy: Policy,
    order: Order,
) -> Result<(), String> {
    let mut players: Vec<Player<'_>> =
        schedules.iter().enumerate().map(|(rank, schedule)| Player::new(collective, shape, rank, schedule)).collect();
    let mut random = match order {
        Order::Random(seed) => seed | 1,
        _ => 1,
    };
    let mut choose = |count: usize| match order {
        Order::First => 0,
        Order::Last => count - 1,
        Order::Random(_) => {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % count as u64).expect("small")
        }
    };
    let mut posted: HashMap<Key, (Option<usize>, Option<usize>)> = HashMap::new();
    let mut matched: Vec<(Key, usize, usize)> = Vec::new();
    players.iter_mut().for_each(|player| player.look(policy));
    loop {
        let count = matched.len() + players.iter().map(|player| player.ready.len()).sum::<usize>();
        if count == 0 {
            break;
        }
        let mut chosen = choose(count);
        if chosen < matched.len() {
            let ((from, to, _), send, receive) = matched.swap_remove(chosen);
            let Action::Send { from: source, .. } = schedules[from].action(send) else { unreachable!() };
            let Action::Receive { into, .. } = schedules[to].action(receive) else { unreachable!() };
            let data = players[from].read(source).to_vec();
            players[to].slot(into).copy_from_slice(&data);
            for (rank, step) in [(from, send), (to, receive)] {
                players[rank].complete(step);
                players[rank].look(policy);
            }
            continue;
        }
        chosen -= matched.len();
        let rank = players.iter().position(|player| {
            let here = chosen < player.ready.len();
            chosen -= if here { 0 } else { player.ready.len() };
            here
        });
        let rank = rank.expect("counted");
        let step = players[rank].ready[chosen];
        let (key, receives) = match schedules[rank].action(step) {
            Action::Send { peer, message, .. } => ((rank, peer as usize, message), false),
            Action::Receive { peer, message, .. } => ((peer as usize, rank, message), true),
            _ => {
                players[rank].compute(step, shape.commutative);
                players[rank].look(policy);
                continue;
            }
        };
        players[rank].post(step);
        players[rank].look(policy);
        let sides = posted.entry(key).or_default();
        let side = if receives { &mut sides.1 } else { &mut sides.0 };
        if side.replace(step).is_some() {
            return Err(format!("message {} from {} to {} twice", key.2, key.0, key.1));
        }
        if let &mut (Some(send), Some(receive)) = sides {
            matched.push((key, send, receive));
        }
    }
    players.iter().enumerate().try_for_each(|(rank, player)| player.check(collective, shape, rank))
}

impl<'a> Player<'a> {
    fn new(collective: Collective, shape: &Shape<'_>, rank: usize, schedule: &'a Schedule) -> Self {
        let elements = shape.bytes / ELEMENT;
        let is_root = rank == shape.root;
        let in_place = shape.in_place && (is_root || collective != Collective::Reduce);
        let holds = if collective == Collective::Bcast { is_root } else { in_place };
        let own = operand(rank, elements);
        let garbage = |elements| vec![GARBAGE; elements];
        let memory = HashMap::from([
            (Buffer::Output, if holds { own.clone() } else { garbage(elements) }),
            (Buffer::Input, own),
            (Buffer::Scratch, garbage(schedule.scratch_bytes().div_ceil(ELEMENT))),
        ]);
        let len = schedule.len();
        let mut player = Self {
            schedule,
            states: vec![State::Waiting; len],
            memory,
            first: 0,
            waits: (0..len).map(|step| schedule.waits(step).len()).collect(),
            groups: Vec::new(),
            channels: Vec::new(),
            places: Vec::new(),
            ready: Vec::new(),
        };
        player.find_places();
        player
    }

    fn find_places(&mut self) {
        let mut known = HashMap::new();
        for (index, step) in self.schedule.steps().enumerate() {
            let before = self.groups.last().copied().unwrap_or(0);
            self.groups.push(if step.joined { before } else { index });
            let channel = match step.action {
                Action::Send { peer, .. } => Some((peer, true)),
                Action::Receive { peer, .. } => Some((peer, false)),
                _ => None,
            };
            let place = channel.map(|channel| {
                let number = *known.entry(channel).or_insert(self.channels.len());
                if number == self.channels.len() {
                    self.channels.push(Channel::default());
                }
                self.channels[number].steps.push(index);
                (number, self.channels[number].steps.len() - 1)
            });
            self.places.push(place);
        }
    }

    /// Finds the steps that may begin.
    fn look(&mut self, policy: Policy) {
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        ready.extend(
            (self.first..self.states.len()).filter(|&step| {
                self.states[step] == State::Waiting && self.waits[step] == 0 && self.allows(policy, step)
            }),
        );
        self.ready = ready;
    }

    fn allows(&self, policy: Policy, step: usize) -> bool {
        let action = self.schedule.action(step);
        match policy {
            Policy::Blocking => self.groups[step] == self.groups[self.first],
            Policy::WaitAll => {
                let ahead = matches!(action, Action::Receive { .. });
                self.schedule.round(step) <= self.schedule.round(self.first) + u32::from(ahead)
            }
            Policy::EventDriven { sends, receives } => {
                let Some((channel, place)) = self.places[step] else { return true };
                let Channel { steps, oldest, under_way } = &self.channels[channel];
                // One place is kept for the oldest message that has not completed.
                let kept = usize::from(place != *oldest && self.states[steps[*oldest]] == State::Waiting);
                let limit = if matches!(action, Action::Send { .. }) { sends } else { receives };
                place - oldest < receives && under_way + kept < limit
            }
        }
    }

    fn post(&mut self, step: usize) {
        if let Action::Receive { into, .. } = self.schedule.action(step) {
            self.slot(into).fill(GARBAGE);
        }
        self.states[step] = State::Begun;
        self.channels[self.places[step].expect("a message").0].under_way += 1;
    }

    fn complete(&mut self, step: usize) {
        self.states[step] = State::Complete;
        while self.states.get(self.first) == Some(&State::Complete) {
            self.first += 1;
        }
        for &follower in self.schedule.followers(step) {
            self.waits[follower as usize] -= 1;
        }
        if let Some((channel, _)) = self.places[step] {
            let Channel { steps, oldest, under_way } = &mut self.channels[channel];
            *under_way -= 1;
            while steps.get(*oldest).is_some_and(|&step| self.states[step] == State::Complete) {
                *oldest += 1;
            }
        }
    }

    fn compute(&mut self, step: usize, commutative: bool) {
        let (result, into) = match self.schedule.action(step) {
            Action::Reduce { left, right, into } => {
                let operands = self.read(left).iter().zip(self.read(right));
                (operands.map(|(&left, &right)| combine(commutative, left, right)).collect(), into)
            }
            Action::Copy { from, into } => (self.read(from).to_vec(), into),
            message => unreachable!("{message:?}"),
        };
        self.slot(into).copy_from_slice(&result);
        self.complete(step);
    }

    fn read(&self, span: Span) -> &[u64] {
        &self.memory[&span.buffer][span.start / ELEMENT..span.end() / ELEMENT]
    }

    fn slot(&mut self, span: Span) -> &mut [u64] {
        let buffer = self.memory.get_mut(&span.buffer).expect("all are there");
        &mut buffer[span.start / ELEMENT..span.end() / ELEMENT]
    }

    fn check(&self, collective: Collective, shape: &Shape<'_>, rank: usize) -> Result<(), String> {
        if let Some(step) = self.states.iter().position(|&state| state != State::Complete) {
            return Err(format!("rank {rank} is stuck at step {step}: {:?}", self.schedule.action(step)));
        }
        let elements = shape.bytes / ELEMENT;
        let expected = match collective {
            Collective::Barrier => return Ok(()),
            Collective::Reduce if rank != shape.root => return Ok(()),
            Collective::Bcast => operand(shape.root, elements),
            Collective::Reduce | Collective::Allreduce => {
                let all = (0..shape.size).map(|rank| operand(rank, elements));
                let both = |left: Vec<u64>, right: Vec<u64>| {
                    left.iter().zip(right).map(|(&left, right)| combine(shape.commutative, left, right)).collect()
                };
                all.reduce(both).unwrap_or_default()
            }
        };
        let output = &self.memory[&Buffer::Output];
        if *output == expected { Ok(()) } else { Err(format!("rank {rank} has {output:x?} instead of {expected:x?}")) }
    }
}
