//! Leaving in order.

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

const HEARD: Token = Token(u64::MAX);
const TOLD: Token = Token(u64::MAX - 1);

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

impl OfiTransport {
    /// Waits until all ranks are here, and all that this rank has sent is on its way, whatever becomes of this
    /// process; then the transport can be dropped. Completions of other messages are not told any more. Messages of which nobody heard since
    /// they were begun could otherwise be lost with it, because small ones are done before they are sent.
    ///
    /// A dissemination barrier: in round `k`, a rank tells the one `2^k` above it, and hears from the one `2^k` below.
    /// Who has left has heard from all who tell it something, so sends to a rank that is gone have done their work.
    ///
    /// # Errors
    /// A peer is gone, or has not come within `limit`.
    pub(super) fn leave_in_order(&mut self, limit: Duration) -> Result<()> {
        let mut patience = Patience::new(limit);
        self.leaving = true;
        let sends = self.tell_and_hear(&mut patience);
        self.leaving = false;
        let mut sends = sends?;
        let mut completed = Vec::new();
        while sends > 0 && !patience.is_over() && self.progress(&mut completed).is_ok() {
            sends -= completed.drain(..).filter(|completion| completion.token == TOLD).count();
            thread::yield_now();
        }
        let until = Instant::now() + if self.limits.lingers { LINGERING } else { Duration::ZERO };
        while Instant::now() < until && self.progress(&mut completed).is_ok() {
            thread::yield_now();
        }
        Ok(())
    }

    /// All rounds; gives the number of sends that have not ended yet.
    fn tell_and_hear(&mut self, patience: &mut Patience) -> Result<usize> {
        let (rank, size) = (self.rank(), self.size());
        let mut sends = 0;
        let mut distance = 1;
        for round in 0.. {
            if distance >= size {
                break;
            }
            let (to, from) = ((rank + distance) % size, (rank + size - distance) % size);
            let (mut told, mut listening, mut heard) = (false, false, false);
            while !(told && heard) {
                if !listening {
                    // SAFETY: no bytes are received.
                    let posted = unsafe { self.receive(from, Tag(OWN_TAGS + round), ptr::dangling_mut(), 0, HEARD) }?;
                    listening = posted != Posted::Busy;
                }
                if !told {
                    let nothing = Memory { start: ptr::dangling_mut(), bytes: 0, descriptor: ptr::null_mut() };
                    // SAFETY: no bytes are sent.
                    let posted = unsafe { self.send_tracked(to, Tag(OWN_TAGS + round), 0, nothing, TOLD) }?;
                    told = posted != Posted::Busy;
                    sends += usize::from(told);
                }
                let mut completed = Vec::new();
                self.progress(&mut completed)?;
                for Completion { token, outcome, .. } in completed {
                    if token == HEARD {
                        outcome?;
                        heard = true;
                    } else if token == TOLD {
                        sends -= 1;
                    }
                }
                if patience.is_over() && !(told && heard) {
                    let peer = if heard { to } else { from };
                    return Err(Error::Unreachable { rank: peer, reason: "it has not left in time".to_owned() });
                }
                thread::yield_now();
            }
            distance *= 2;
        }
        Ok(sends)
    }
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
