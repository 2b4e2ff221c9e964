//! The numbers by which messages and their completions are known.

use crate::transport::{NOTES, Tag, Token};

/// Which operation of which communicator it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Key {
    /// The communicator: the same number on all of its ranks, unlike that of any other communicator of theirs that lives. A
    /// number may be used again after [`forget`](super::Engine::forget).
    pub communicator: u16,
    /// The operation's number on its communicator, the same on all of its ranks.
    pub sequence: u32,
}

/// Bits of a tag, from the lowest: message, operation, communicator, control.
const MESSAGE_BITS: u32 = 20;
const OPERATION_BITS: u32 = 12;
const COMMUNICATOR_BITS: u32 = 15;
const _: () = assert!(NOTES.0 == 1 << (MESSAGE_BITS + OPERATION_BITS + COMMUNICATOR_BITS));

/// Messages of one rank to another in one operation.
pub const MAX_MESSAGES: u32 = 1 << MESSAGE_BITS;
/// Communicators at a time.
pub const MAX_COMMUNICATORS: u16 = 1 << COMMUNICATOR_BITS;
/// Operations of a communicator whose tags differ. That many are never under way at once, and earlier messages are
/// received before later ones with the same tag.
pub(super) const MAX_OPERATIONS: usize = 1 << OPERATION_BITS;

impl Key {
    /// The tag of a message of this operation.
    pub(super) fn tag(self, message: u32) -> Tag {
        debug_assert!(message < MAX_MESSAGES && self.communicator < MAX_COMMUNICATORS);
        let operation = u64::from(self.sequence) & (MAX_OPERATIONS as u64 - 1);
        let communicator = u64::from(self.communicator);
        Tag((communicator << OPERATION_BITS | operation) << MESSAGE_BITS | u64::from(message))
    }
}

/// The tag of messages between engines.
pub(super) const CONTROL_TAG: Tag = NOTES;

/// A step of an operation, as its completion names it. An operation's place is used again with another generation,
/// so what comes late for an operation that was given up is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StepName {
    pub(super) place: u16,
    pub(super) generation: u32,
    pub(super) step: u32,
}

const GENERATION_BITS: u32 = 15;
const CONTROL_TOKEN: u64 = 1 << 63;

impl StepName {
    pub(super) fn token(self) -> Token {
        let generation = u64::from(self.generation) & ((1 << GENERATION_BITS) - 1);
        Token((generation << 16 | u64::from(self.place)) << 32 | u64::from(self.step))
    }

    /// The place, the step, and whether `generation` can be the one that was meant.
    #[expect(clippy::cast_possible_truncation, reason = "fields of 16 and 32 bits")]
    pub(super) fn of(token: Token) -> Option<Self> {
        let place = (token.0 >> 32) as u16;
        let generation = (token.0 >> 48) as u32;
        (token.0 & CONTROL_TOKEN == 0).then_some(Self { place, generation, step: token.0 as u32 })
    }

    /// Whether an operation of this generation can be meant.
    pub(super) fn is_of(self, generation: u32) -> bool {
        self.generation == generation & ((1 << GENERATION_BITS) - 1)
    }
}

/// The token of a message between engines, by its number.
pub(super) fn control_token(number: u32) -> Token {
    Token(CONTROL_TOKEN | u64::from(number))
}

/// The number of a message between engines.
#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
pub(super) fn control_number(token: Token) -> u32 {
    token.0 as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn tags_do_not_collide_and_have_48_bits() {
        let mut seen = HashSet::new();
        for communicator in [0, 1, MAX_COMMUNICATORS - 1] {
            for sequence in [0, 1, 4095, 4096 + 2] {
                for message in [0, 1, MAX_MESSAGES - 1] {
                    let tag = Key { communicator, sequence }.tag(message);
                    assert!(tag.0 < 1 << 47 && seen.insert(tag), "{tag:?}");
                }
            }
        }
        assert!(CONTROL_TAG.0 < 1 << 48 && !seen.contains(&CONTROL_TAG));
    }

    #[test]
    fn tokens_name_their_step() {
        let name = StepName { place: 65_535, generation: 0x1_8001, step: u32::MAX - 1 };
        let again = StepName::of(name.token()).expect("not a control token");
        assert!(again.place == name.place && again.step == name.step && again.is_of(name.generation));
        assert!(!again.is_of(name.generation + 1));
        assert_eq!(StepName::of(control_token(7)), None);
        assert_eq!(control_number(control_token(7)), 7);
    }
}
