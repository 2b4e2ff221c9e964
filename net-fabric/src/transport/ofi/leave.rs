//! Leaving in order.

use std::iter::successors;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use super::OfiTransport;
use crate::error::{Error, Result};
use crate::fabric::Memory;
use crate::transport::{Completion, Posted, Tag, Token, Transport};

/// The tags from here on are the transport's own: the highest 256 of 48 bits.
pub(super) const OWN_TAGS: u64 = (1 << 48) - 256;

/// How long a rank goes on acknowledging what its peers may send again.
const LINGERING: Duration = Duration::from_millis(250);

/// The tokens from here on are those of the rounds' words: two each, of what comes and of what goes.
const OWN_TOKENS: u64 = u64::MAX - 255;

/// What counts of the time between two looks at the clock: this rank looks more often, or it was stopped, as the
/// whole job may have been.
const MOST_BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// Time that this process waits, without that in which it was stopped.
struct Patience {
    left: Duration,
    looked: Instant,
}

impl Patience {
    fn new(limit: Duration) -> Self {
        Self { left: limit, looked: Instant::now() }
    }

    fn is_over(&mut self) -> bool {
        let now = Instant::now();
        let passed = now.saturating_duration_since(self.looked).min(MOST_BETWEEN_LOOKS);
        (self.left, self.looked) = (self.left.saturating_sub(passed), now);
        self.left.is_zero()
    }
}

/// What a rank tells and hears at one distance, and how far that is.
struct Round {
    number: u64,
    to: usize,
    from: usize,
    heard: bool,
    /// What it tells is on its way, or need not be any more.
    is_told: bool,
}

impl Round {
    fn all(rank: usize, size: usize) -> Vec<Self> {
        let distances = successors(Some(1), |distance| Some(2 * distance)).take_while(|distance| *distance < size);
        let round = |(number, distance)| Self {
            number,
            to: (rank + distance) % size,
            from: (rank + size - distance) % size,
            heard: false,
            is_told: false,
        };
        (0..).zip(distances).map(round).collect()
    }

    fn tag(&self) -> Tag {
        Tag(OWN_TAGS + self.number)
    }

    fn hears(&self) -> Token {
        Token(OWN_TOKENS + 2 * self.number)
    }

    fn tells(&self) -> Token {
        Token(OWN_TOKENS + 2 * self.number + 1)
    }
}

impl OfiTransport {
    /// Waits until all ranks are here, and all that this rank has sent is on its way, whatever becomes of this process;
    /// then the transport can be dropped. Completions of other messages are not told any more. Messages of which nobody
    /// heard since they were begun could otherwise be lost with it, because small ones are done before they are sent.
    ///
    /// A dissemination barrier: in round `k`, a rank tells the one `2^k` above it, and hears from the one `2^k` below.
    /// Who has left has heard from all who tell it something, so sends to a rank that is gone have done their work.
    ///
    /// # Errors
    /// A peer is gone, or has not come within `limit`.
    pub(super) fn leave_in_order(&mut self, limit: Duration) -> Result<()> {
        let mut patience = Patience::new(limit);
        let mut rounds = Round::all(self.rank(), self.size());
        self.leaving = true;
        let heard = self.tell_and_hear(&mut rounds, &mut patience);
        self.leaving = false;
        heard?;
        while let Some(Round { to, .. }) = rounds.iter().find(|round| !round.is_told) {
            if patience.is_over() {
                return Err(too_late(*to));
            }
            if self.go_on(&mut rounds).is_err() {
                break;
            }
        }
        let until = Instant::now() + if self.limits.lingers { LINGERING } else { Duration::ZERO };
        while Instant::now() < until && self.go_on(&mut rounds).is_ok() {}
        Ok(())
    }

    /// Begins to tell in all rounds, and hears in all.
    ///
    /// It listens in all of them before it tells anybody. Nobody closes a connection before having heard, through
    /// others at least, what this rank tells first, and `net` of libfabric 1.17 forgets with a connection what has come
    /// and was not asked for.
    fn tell_and_hear(&mut self, rounds: &mut [Round], patience: &mut Patience) -> Result<()> {
        let (mut listening, mut telling) = (0, 0);
        while telling < rounds.len() || rounds.iter().any(|round| !round.heard) {
            while let Some(round) = rounds.get(listening) {
                // SAFETY: no bytes are received.
                let posted = unsafe { self.receive(round.from, round.tag(), ptr::dangling_mut(), 0, round.hears()) }?;
                if posted == Posted::Busy {
                    break;
                }
                listening += 1;
            }
            if let (true, Some(round)) = (listening == rounds.len(), rounds.get(telling))
                && rounds[..telling].iter().all(|before| before.heard)
            {
                let nothing = Memory { start: ptr::dangling_mut(), bytes: 0, descriptor: ptr::null_mut() };
                // SAFETY: no bytes are sent.
                let posted = unsafe { self.send_tracked(round.to, round.tag(), 0, nothing, round.tells()) }?;
                telling += usize::from(posted != Posted::Busy);
            }
            self.go_on(rounds)?;
            if patience.is_over() {
                let unheard = rounds[..telling].iter().find(|round| !round.heard).map(|round| round.from);
                let unasked = rounds.get(listening).map(|round| round.from);
                let untold = rounds.get(telling).map(|round| round.to);
                return unheard.or(unasked).or(untold).map_or(Ok(()), |peer| Err(too_late(peer)));
            }
        }
        Ok(())
    }

    /// Lets the provider work, and notes what has ended of `rounds`. The loss of a message that was done before, which
    /// is told once, ends nothing here.
    fn go_on(&mut self, rounds: &mut [Round]) -> Result<()> {
        let mut completed = Vec::new();
        let worked = self.progress(&mut completed);
        if self.broken.is_some() {
            worked?;
        }
        for Completion { token, outcome, .. } in completed {
            if let Some(round) = rounds.iter_mut().find(|round| round.tells() == token) {
                round.is_told = true;
            } else if let Some(round) = rounds.iter_mut().find(|round| round.hears() == token) {
                outcome?;
                round.heard = true;
            }
        }
        thread::yield_now();
        Ok(())
    }
}

fn too_late(rank: usize) -> Error {
    Error::Unreachable { rank, reason: "it has not left in time".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Instant, Patience};

    #[test]
    fn time_in_which_a_rank_is_stopped_does_not_count() {
        let mut patience = Patience::new(Duration::from_secs(5));
        for look in 1..=5 {
            let stopped = Duration::from_secs(10);
            patience.looked = Instant::now().checked_sub(stopped).expect("a clock that runs for ten seconds");
            assert_eq!(patience.is_over(), look == 5, "{look}");
        }
    }
}
