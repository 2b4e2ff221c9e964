//! How a rank waits: spin, pause, yield, sleep, chosen from ranks against usable cores.
#![allow(unsafe_code)] // an intrinsic

use std::time::Duration;

use super::{Bell, Sleeper, Sources, Wakers};
use crate::sys::futex;

/// How long each kind of waiting lasts before the next begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Polls of the operation before the core is first given away to a rank that may need it.
    pub spins: u32,
    /// Polls before the core is given away while a rank on another core is waited for.
    pub spins_apart: u32,
    /// Times that the core is given away, one poll after each, before sleeping; fewer where strangers would take it.
    pub yields: u32,
    /// Longest single sleep on the bell.
    pub sleep_us: u32,
    /// Time between two looks at all peers: whether they live, and what they do.
    pub look_ms: u32,
}

/// [`Patience::look_ms`] where few ranks compete for each core.
const LOOK_MS: u32 = 20;

/// Polls before the first pause instruction, which alone can take longer than a flag's way.
const EAGER_SPINS: u32 = 32;
/// Yields between two looks at the job.
const LOOK_EVERY: u32 = 16;
/// Polls between two rests.
const SPINS_AFTER_REST: u32 = 64;

impl Patience {
    /// For a rank that has a core to itself: nobody gains from its yielding.
    pub const OWN_CORE: Self =
        Self { spins: 20_000, spins_apart: 20_000, yields: 2_000, sleep_us: 1_000, look_ms: LOOK_MS };
    /// For ranks that share cores: the peer that is waited for may need this very core.
    pub const SHARED_CORE: Self = Self { spins: 1, spins_apart: 100, yields: 2_000, sleep_us: 1_000, look_ms: LOOK_MS };
}

impl Patience {
    /// The same for a rank that has other things to do now and then while it waits.
    #[must_use]
    pub fn attentive(self) -> Self {
        const SPINS: u32 = 256;
        let (spins, spins_apart) = (self.spins.min(SPINS), self.spins_apart.min(SPINS));
        Self { spins, spins_apart, sleep_us: self.sleep_us.min(100), ..self }
    }

    /// The same among `ranks` of which `per_core` compete for a core. Every rank looks at every other one, so looks of many on
    /// few cores would keep these busy: there are fewer, at least four a second.
    #[must_use]
    pub fn among(self, ranks: usize, per_core: f64) -> Self {
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 1 to 12
        let times = (ranks as f64 * per_core / 256.0).clamp(1.0, 12.0) as u32;
        Self { look_ms: self.look_ms * times, ..self }
    }
}

/// A short rest between two polls of a line that a peer is about to write: about half a line's way.
///
/// Without it the processor has looked ahead at the line many times when it is taken away, drops all that,
/// and asks for it again while the peer is still writing. A pause instruction takes longer than the line's way.
#[inline]
pub(crate) fn breathe() {
    #[cfg(target_arch = "x86_64")]
    for _ in 0..3 {
        // SAFETY: orders this thread's loads, and nothing else.
        unsafe { core::arch::x86_64::_mm_lfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::hint::spin_loop();
}

/// One wait in progress: counts what was tried and escalates.
#[derive(Debug)]
pub struct Waiter<'a> {
    patience: Patience,
    bell: &'a Bell,
    sources: Sources,
    /// It has slept, and nothing has gone on since.
    sleeper: Option<Sleeper<'a>>,
    /// Times that the core was given away, in all.
    rests: u32,
    /// So many of them since what is waited for went on.
    rested: u32,
}

impl<'a> Waiter<'a> {
    /// A wait that has not begun, for what is published on these communicators.
    #[must_use]
    pub fn new(patience: Patience, bell: &'a Bell, sources: Sources) -> Self {
        Self { patience, bell, sources, sleeper: None, rests: 0, rested: 0 }
    }

    /// What is waited for goes on: sleep is far again. Looks at the job stay as frequent.
    #[inline]
    pub fn go_on(&mut self) {
        self.rested = 0;
        self.sleeper = None;
    }

    /// News on any communicator are waited for from now on, since something is under way there.
    pub fn heed_all(&mut self) {
        if self.sources != Sources::ALL {
            self.sources = Sources::ALL;
            self.sleeper = None;
        }
    }

    /// Polls `ready` for the spinning part; true as soon as it holds. `apart`: whoever is waited for
    /// does not need this core.
    ///
    /// # Errors
    /// Those of `ready`.
    #[inline]
    pub fn spin<E>(&self, apart: bool, mut ready: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
        let first = if apart { self.patience.spins_apart } else { self.patience.spins };
        let spins = if self.rests == 0 { first } else { first.min(SPINS_AFTER_REST) };
        for spin in 0..spins {
            if ready()? {
                return Ok(true);
            }
            if spin >= EAGER_SPINS {
                std::hint::spin_loop();
            }
        }
        Ok(false)
    }

    /// Gives the core away once: by `give_way`, or later, or if that refuses, by sleep until one of the peers that `look` tells
    /// rings the bell; `None`: what is waited for is there.
    ///
    /// Returns true now and then, and always behind a long wait: the caller can afford slow checks.
    pub fn rest(&mut self, give_way: impl FnOnce() -> bool, look: impl FnOnce() -> Option<Wakers>) -> bool {
        self.rests = self.rests.wrapping_add(1);
        self.rested = self.rested.saturating_add(1);
        let is_long = self.rested > self.patience.yields;
        let looks = is_long || self.rests.is_multiple_of(LOOK_EVERY);
        if !is_long && give_way() {
            return looks;
        }
        let limit = Duration::from_micros(u64::from(self.patience.sleep_us));
        // If membarrier is refused a ring can be missed; the sleep's limit then bounds the delay.
        let barrier = || {
            let _ = futex::barrier_all();
        };
        let sleeper = self.sleeper.get_or_insert_with(|| self.bell.announce(self.sources, barrier));
        sleeper.sleep_unless(look, |word, seen, wakers| futex::wait(word, seen, wakers.bits(), limit));
        looks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a rest was sleep, and whether the job is to be looked at behind it.
    fn rest(waiter: &mut Waiter<'_>) -> (bool, bool) {
        let mut sleeps = false;
        // A sleeper looks once more before it sleeps.
        let give_way = || true;
        let looks = waiter.rest(give_way, || {
            sleeps = true;
            None
        });
        (sleeps, looks)
    }

    #[test]
    fn who_goes_on_does_not_sleep() {
        for (yields, goes_on_every) in [(60, 30), (10, 5), (1, 1)] {
            let bell = Bell::new();
            let mut waiter = Waiter::new(Patience { yields, ..Patience::SHARED_CORE }, &bell, Sources::of(0));
            let mut looks = 0;
            for round in 0..200 {
                let (sleeps, looked) = rest(&mut waiter);
                assert!(!sleeps, "{round} of {yields}");
                looks += u32::from(looked);
                if round % goes_on_every == 0 {
                    waiter.go_on();
                }
            }
            assert_eq!(looks, 12, "looks at the job in 200 rests");
            let slept = (0..=yields).any(|_| rest(&mut waiter).0);
            assert!(slept, "who does not go on sleeps");
        }
    }

    #[test]
    fn who_sleeps_is_announced_until_something_goes_on() {
        let bell = Bell::new();
        let rings = |communicator| {
            let mut rang = false;
            bell.ring(communicator, |_| rang = true);
            rang
        };
        let mut waiter = Waiter::new(Patience { yields: 0, ..Patience::SHARED_CORE }, &bell, Sources::of(3));
        assert!(!rings(3));
        let mut sleeps = || {
            rest(&mut waiter);
            waiter.sleeper.as_ref().map(std::ptr::from_ref)
        };
        assert!(sleeps().is_some() && sleeps() == sleeps());
        assert!(rings(3) && rings(19) && !rings(4), "who waits for 3 is announced there alone");
        waiter.go_on();
        assert!(!rings(3));
        rest(&mut waiter);
        assert!(rings(3));
        waiter.heed_all();
        assert!(!rings(3));
        rest(&mut waiter);
        assert!((0..32).all(rings), "what is under way elsewhere counts as well");
        drop(waiter);
        assert!(!rings(3));
    }

    /// As `yields` can be set: after so many a rank that waits has to hear of a death, too.
    #[test]
    fn who_never_sleeps_looks_at_the_job_for_ever() {
        let bell = Bell::new();
        let mut waiter = Waiter::new(Patience { yields: u32::MAX, ..Patience::SHARED_CORE }, &bell, Sources::of(0));
        (waiter.rests, waiter.rested) = (u32::MAX - 8, u32::MAX - 8);
        let looks = (0..200).filter(|_| rest(&mut waiter).1).count();
        assert!((12..=13).contains(&looks), "{looks} looks at the job in 200 rests");
    }
}
