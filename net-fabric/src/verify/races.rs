//! What can be said about one rank's schedule alone: its form, its messages' numbers, the bounds of its memory, and
//! races.

use super::{Fault, Room};
use crate::schedule::{Action, Buffer, Schedule, Span, Step};

/// Checks schedules one by one; keeps its memory for the next.
#[derive(Default)]
pub(super) struct Checker {
    accesses: Vec<Access>,
    borders: Vec<usize>,
    fields: Vec<Field>,
    readers: Vec<Reader>,
    /// For each step how many of its followers have been met.
    met: Vec<u32>,
    /// By peer: messages from it and to it that have been met.
    messages: Vec<[u32; 2]>,
    search: Search,
}

impl Checker {
    /// Checks the schedule of one of so many ranks.
    pub(super) fn check(
        &mut self,
        (rank, ranks): (usize, usize),
        schedule: &Schedule,
        room: &Room,
    ) -> Result<(), Fault> {
        self.check_form(rank, schedule)?;
        self.check_messages((rank, ranks), schedule)?;
        self.accesses.clear();
        for index in 0..schedule.len() {
            let action = schedule.action(index);
            check_action(&action).map_err(|reason| Fault { rank, step: Some(index), reason })?;
            for (span, writes) in spans(&action).into_iter().flatten() {
                room.check(span, writes).map_err(|reason| Fault { rank, step: Some(index), reason })?;
                if span.bytes > 0 && span.buffer != Buffer::Input {
                    self.accesses.push(Access { span, step: narrow(index), writes });
                }
            }
        }
        self.search.restart(schedule.len());
        for buffer in [Buffer::Output, Buffer::Scratch] {
            self.check_order(schedule, buffer).map_err(|(earlier, access)| Fault {
                rank,
                step: Some(access.step as usize),
                reason: format!(
                    "and step {earlier} both use bytes of {:?}, and neither waits for the other",
                    access.span
                ),
            })?;
        }
        Ok(())
    }

    /// Waits go back and are sorted, followers are their inverse, rounds go on. What is joined is a send and a receive of
    /// one round, which do not wait for each other.
    fn check_form(&mut self, rank: usize, schedule: &Schedule) -> Result<(), Fault> {
        self.met.clear();
        self.met.resize(schedule.len(), 0);
        let mut before: Option<Step<'_>> = None;
        for (index, step) in schedule.steps().enumerate() {
            let fault = |reason: String| Err(Fault { rank, step: Some(index), reason });
            if !step.waits.is_sorted_by(|a, b| a < b) || step.waits.last().is_some_and(|&last| last as usize >= index) {
                return fault(format!("waits for {:?}, not for earlier steps in order", step.waits));
            }
            for &wait in step.waits {
                let met = &mut self.met[wait as usize];
                if schedule.followers(wait as usize).get(*met as usize) != Some(&narrow(index)) {
                    return fault(format!("waits for step {wait} and is not among its followers"));
                }
                *met += 1;
            }
            if let Some(Step { round, .. }) = before
                && step.round < round
            {
                return fault(format!("is of round {}, behind one of round {round}", step.round));
            }
            let exchanges = |before: &Step<'_>| {
                let directions = [before.action, step.action].map(|action| message(action).map(|(.., sends)| sends));
                matches!(directions, [Some(one), Some(other)] if one != other)
                    && before.round == step.round
                    && !before.joined
                    && step.waits.last().is_none_or(|&last| (last as usize) < index - 1)
            };
            if step.joined && !before.as_ref().is_some_and(exchanges) {
                return fault("is joined with something else than the other half of an exchange in one round".into());
            }
            before = Some(step);
        }
        match (0..schedule.len()).find(|&index| self.met[index] as usize != schedule.followers(index).len()) {
            Some(index) => {
                Err(Fault { rank, step: Some(index), reason: "has followers that do not wait for it".into() })
            }
            None => Ok(()),
        }
    }

    /// Messages are with other ranks, and those with each are numbered from 0 on in either direction.
    fn check_messages(&mut self, (rank, ranks): (usize, usize), schedule: &Schedule) -> Result<(), Fault> {
        self.messages.clear();
        self.messages.resize(ranks, [0; 2]);
        for index in 0..schedule.len() {
            let fault = |reason: String| Err(Fault { rank, step: Some(index), reason });
            let Some((peer, number, sends)) = message(schedule.action(index)) else { continue };
            if peer as usize == rank {
                return fault("is a message to itself".into());
            }
            let Some(before) = self.messages.get_mut(peer as usize) else {
                return fault(format!("is a message of rank {peer}, which is none"));
            };
            let before = &mut before[usize::from(sends)];
            if number != *before {
                return fault(format!("is message {number}, behind {before} with rank {peer} in its direction"));
            }
            *before += 1;
        }
        Ok(())
    }

    /// Checks that of any two steps with a byte in common that one of them writes, one waits for the other.
    ///
    /// All borders of spans cut the memory into fields; in each, going by program order, a reader must come after the
    /// last writer, and a writer after that one and after all readers since. All other pairs follow.
    fn check_order(&mut self, schedule: &Schedule, buffer: Buffer) -> Result<(), (u32, Access)> {
        let Self { accesses, borders, fields, readers, search, .. } = self;
        let accesses = accesses.iter().filter(|access| access.span.buffer == buffer);
        borders.clear();
        borders.extend(accesses.clone().flat_map(|access| [access.span.start, access.span.end()]));
        borders.sort_unstable();
        borders.dedup();
        fields.clear();
        fields.resize(borders.len(), Field { writer: NONE, readers: NONE });
        readers.clear();
        for &access in accesses {
            let Access { step, span, writes } = access;
            let mut at = borders.partition_point(|&border| border < span.start);
            while borders[at] < span.end() {
                let field = &mut fields[at];
                let mut check = |earlier| match search.comes_before(schedule, earlier, step) {
                    true => Ok(()),
                    false => Err((earlier, access)),
                };
                if field.writer != NONE {
                    check(field.writer)?;
                }
                if writes {
                    while field.readers != NONE {
                        let Reader { step: reader, next } = readers[field.readers as usize];
                        check(reader)?;
                        field.readers = next;
                    }
                    field.writer = step;
                } else {
                    readers.push(Reader { step, next: field.readers });
                    field.readers = narrow(readers.len() - 1);
                }
                at += 1;
            }
        }
        Ok(())
    }
}

const NONE: u32 = u32::MAX;

/// Bytes between two borders: who wrote them last, and the first link of those who have read them since.
#[derive(Clone, Copy)]
struct Field {
    writer: u32,
    readers: u32,
}

struct Reader {
    step: u32,
    next: u32,
}

#[derive(Clone, Copy)]
struct Access {
    span: Span,
    step: u32,
    writes: bool,
}

/// The peer and the number of a message, and whether it is sent.
fn message(action: Action) -> Option<(u32, u32, bool)> {
    match action {
        Action::Send { peer, message, .. } => Some((peer, message, true)),
        Action::Receive { peer, message, .. } => Some((peer, message, false)),
        Action::Reduce { .. } | Action::Copy { .. } => None,
    }
}

/// Checks that the spans of a step fit together.
fn check_action(action: &Action) -> Result<(), String> {
    match *action {
        Action::Reduce { left, right, into } => {
            let apart = |operand: Span| operand == into || !operand.overlaps(&into);
            if left.bytes != into.bytes || right.bytes != into.bytes || !apart(left) || !apart(right) {
                return Err(format!("combines {left:?} with {right:?} into {into:?}"));
            }
        }
        Action::Copy { from, into } => {
            if from.bytes != into.bytes || from.overlaps(&into) {
                return Err(format!("copies {from:?} into {into:?}"));
            }
        }
        Action::Send { .. } | Action::Receive { .. } => {}
    }
    Ok(())
}

/// The bytes that an action uses, and whether it writes them.
fn spans(action: &Action) -> [Option<(Span, bool)>; 3] {
    match *action {
        Action::Send { from, .. } => [Some((from, false)), None, None],
        Action::Receive { into, .. } => [Some((into, true)), None, None],
        Action::Reduce { left, right, into } => [Some((left, false)), Some((right, false)), Some((into, true))],
        Action::Copy { from, into } => [Some((from, false)), Some((into, true)), None],
    }
}

/// Finds out which steps come before which, whatever the order of execution.
#[derive(Default)]
struct Search {
    /// Steps that a search has seen, marked with its number.
    seen: Vec<u32>,
    number: u32,
    open: Vec<u32>,
}

impl Search {
    /// For another schedule.
    fn restart(&mut self, steps: usize) {
        self.seen.clear();
        self.seen.resize(steps, 0);
        self.number = 0;
    }

    /// Whether `later` waits for `earlier`, if through others.
    fn comes_before(&mut self, schedule: &Schedule, earlier: u32, later: u32) -> bool {
        if earlier == later || schedule.waits(later as usize).contains(&earlier) {
            return true;
        }
        self.number += 1;
        self.open.clear();
        self.open.push(later);
        while let Some(step) = self.open.pop() {
            for &wait in schedule.waits(step as usize).iter().rev().take_while(|&&wait| wait >= earlier) {
                if wait == earlier {
                    return true;
                }
                if std::mem::replace(&mut self.seen[wait as usize], self.number) != self.number {
                    self.open.push(wait);
                }
            }
        }
        false
    }
}

fn narrow(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 steps")
}
