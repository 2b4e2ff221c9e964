//! Giving the core away, where others than ranks may want it.

use std::cell::Cell;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

/// Notices whether somebody else than the job's ranks wants this core, and keeps it.
///
/// Among ranks that wait for each other a core that is given away is back within microseconds. A process that computes keeps it for
/// a turn of the scheduler's, some milliseconds; and since Linux takes a yield for all that was left of the yielder's own turn
/// (6.18), who yields at every wait hardly runs any more. A thread that sleeps keeps its claim. So who has lost turns to strangers
/// sleeps for some time where it would yield, then tries again.
///
/// ```
/// use std::time::Duration;
/// use reduce_kernels::Strangers;
///
/// let strangers = Strangers::beside(1, || Duration::ZERO);
/// if !strangers.give_way() {
///     // Sleep until there is news.
/// }
/// ```
pub struct Strangers {
    /// The time of this core that the ranks have had so far, all together. They may take long turns as well, when they work
    /// before they wait again.
    had: Box<dyn Fn() -> Duration>,
    /// How many they are.
    ranks: u32,
    /// Times that the core was given away, or was to be.
    asked: Cell<u32>,
    /// Short turns that are still to be seen before nobody is suspected.
    doubts: Cell<u32>,
    /// Since when it is looked at who has the core, and what the ranks had had of it by then.
    since: Cell<Option<(Instant, Duration)>>,
    /// How much of the time since then long turns have taken: nobody has more of it, since a core that nobody wants comes back at once.
    lost: Cell<Duration>,
    /// It is not looked before who has had the core: that costs a system call or two for each rank.
    next: Cell<Option<Instant>>,
    /// No core is given away before.
    until: Cell<Option<Instant>>,
    /// The same of strangers who were met last, who may have left since,
    met: Cell<Option<Instant>>,
    /// and for how long.
    length: Cell<Duration>,
}

/// A turn that makes suspicious: the scheduler's take 0.75 ms at least where nobody has changed it.
const TURN: Duration = Duration::from_micros(500);
/// Reading the clock costs a twentieth of a turn among ranks, so where nobody is suspected only every so many are timed.
const TIMED: u32 = 4;
/// Not every yield meets a stranger who is there.
const DOUBTS: u32 = 64;
/// Strangers have this part of the core at least,
const PART: u32 = 4;
/// and so much of it: the machine below may take it for a moment, which is no reason to sleep.
const LEAST: Duration = Duration::from_millis(2);
/// To look who has had the core takes this part of its time at most, of all ranks together.
const DEAR: u32 = 64;
/// What was so long ago does not count.
const SPAN: Duration = Duration::from_millis(50);
/// Strangers who were not met for so long come anew.
const FORGOTTEN: Duration = Duration::from_millis(100);
/// A turn is lost so often where strangers come and go.
const SHORTEST: Duration = Duration::from_millis(2);
/// A turn is lost so often where they stay.
const LONGEST: Duration = Duration::from_millis(32);

impl Strangers {
    /// Those beside so many ranks of this core, which have `had` so much of its time so far, all together. Nobody is suspected.
    #[must_use]
    pub fn beside(ranks: u32, had: impl Fn() -> Duration + 'static) -> Self {
        Self {
            had: Box::new(had),
            ranks,
            asked: Cell::default(),
            doubts: Cell::default(),
            since: Cell::default(),
            lost: Cell::default(),
            next: Cell::default(),
            until: Cell::default(),
            met: Cell::default(),
            length: Cell::default(),
        }
    }

    /// Gives the core to another runnable thread, if there is one. False, without having done so, where a stranger would
    /// take it for too long: then sleep.
    #[inline]
    pub fn give_way(&self) -> bool {
        let asked = self.asked.get().wrapping_add(1);
        self.asked.set(asked);
        if self.doubts.get() == 0 && !asked.is_multiple_of(TIMED) {
            thread::yield_now();
            return true;
        }
        let give_away = || {
            thread::yield_now();
            Instant::now()
        };
        self.give_way_at(Instant::now(), give_away)
    }

    /// The same at a time, by something that gives the core away and tells when it was back.
    #[cold]
    fn give_way_at(&self, now: Instant, give_away: impl FnOnce() -> Instant) -> bool {
        if let Some(until) = self.until.get() {
            if now < until {
                return false;
            }
            self.until.set(None);
            self.begin(now, (self.had)());
        }
        let back = give_away();
        let turn = back.duration_since(now);
        if turn >= TURN {
            self.doubts.set(DOUBTS);
            self.lost.set(self.lost.get() + turn);
            self.suspect(back);
        } else if self.doubts.get() > 0 {
            self.doubts.set(self.doubts.get() - 1);
            if self.doubts.get() == 0 {
                self.since.set(None);
            }
        }
        true
    }

    fn begin(&self, now: Instant, had: Duration) {
        self.since.set(Some((now, had)));
        self.lost.set(Duration::ZERO);
    }

    /// A turn was long: was it a stranger's?
    fn suspect(&self, now: Instant) {
        if self.since.get().is_some() && (self.lost.get() < LEAST || self.next.get().is_some_and(|next| now < next)) {
            return;
        }
        let asked = Instant::now();
        let had = (self.had)();
        // It may have been interrupted meanwhile.
        self.next.set(Some(now + self.ranks * (DEAR * asked.elapsed()).min(SPAN)));
        let Some((since, had_then)) = self.since.get() else { return self.begin(now, had) };
        let all = now.duration_since(since);
        let strangers = all.saturating_sub(had.saturating_sub(had_then)).min(self.lost.get());
        if strangers >= LEAST && strangers * PART >= all {
            let stays = self.met.get().is_some_and(|until| now.saturating_duration_since(until) < FORGOTTEN);
            let length = if stays { (2 * self.length.get()).min(LONGEST) } else { SHORTEST };
            self.until.set(Some(now + length));
            self.met.set(Some(now + length));
            self.length.set(length);
        } else if all > SPAN {
            self.begin(now, had);
        }
    }
}

impl fmt::Debug for Strangers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Strangers").field("until", &self.until).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    /// A core and its time, which passes as the test says.
    struct Core {
        strangers: Strangers,
        now: Cell<Instant>,
        had: Rc<Cell<Duration>>,
    }

    impl Core {
        fn new() -> Self {
            let had: Rc<Cell<Duration>> = Rc::default();
            let ranks = Rc::clone(&had);
            Self { strangers: Strangers::beside(1, move || ranks.get()), now: Cell::new(Instant::now()), had }
        }

        fn pass(&self, length: Duration) -> Instant {
            self.now.set(self.now.get() + length);
            self.now.get()
        }

        /// Whether the core was given away, to a stranger or to a rank for a turn of this length.
        fn gives_way(&self, stranger: bool, turn: Duration) -> bool {
            let give_away = || {
                self.had.set(self.had.get() + if stranger { Duration::ZERO } else { turn });
                self.pass(turn)
            };
            self.strangers.give_way_at(self.now.get(), give_away)
        }

        /// How long it is not given away.
        fn keeps(&self) -> Duration {
            let from = self.now.get();
            while !self.gives_way(false, SHORT) {
                self.pass(SHORTEST / 4);
            }
            self.now.get().duration_since(from)
        }
    }

    const SHORT: Duration = Duration::from_micros(2);
    const LONG: Duration = Duration::from_millis(3);

    #[test]
    fn turns_that_a_stranger_takes_are_soon_avoided() {
        let core = Core::new();
        assert!(core.gives_way(false, SHORT) && core.gives_way(true, LONG), "one is suspicious");
        let mut kept = Vec::new();
        for _ in 0..7 {
            assert!(core.gives_way(true, LONG), "it has to try again");
            kept.push(core.keeps().as_millis());
        }
        assert_eq!(kept, [2, 4, 8, 16, 32, 32, 32]);
    }

    #[test]
    fn a_stranger_who_has_left_is_forgotten() {
        let core = Core::new();
        for _ in 0..2 {
            assert!(core.gives_way(true, LONG) && core.gives_way(true, LONG));
            assert_eq!(core.keeps().as_millis(), SHORTEST.as_millis(), "no longer than the first time");
            assert!((1..DOUBTS).all(|_| core.gives_way(false, SHORT)));
            assert_eq!(core.strangers.doubts.get(), 0, "turns are not timed any more");
            core.pass(FORGOTTEN);
        }
    }

    #[test]
    fn a_stranger_who_is_not_met_for_some_turns_is_still_there() {
        let core = Core::new();
        let kept = [(); 3].map(|()| {
            assert!(core.gives_way(true, LONG) && core.gives_way(true, LONG));
            let kept = core.keeps().as_millis();
            assert!((0..DOUBTS).all(|_| core.gives_way(false, SHORT)));
            kept
        });
        assert_eq!(kept, [2, 4, 8]);
    }

    #[test]
    fn ranks_may_take_long_turns() {
        let core = Core::new();
        assert!((0..1000).all(|_| core.gives_way(false, LONG)));
        // Not so one who takes a third.
        let others = (0..1000).take_while(|turn| core.gives_way(turn % 3 == 0, LONG)).count();
        assert!(others < 10, "{others} turns");
    }

    #[test]
    fn a_moment_is_no_reason() {
        let core = Core::new();
        for _ in 0..10 {
            assert!(core.gives_way(true, LEAST / 4) && core.gives_way(true, LEAST / 4));
            assert!((0..DOUBTS).all(|_| core.gives_way(false, SHORT)));
        }
        // It is if there is one after the other.
        let moments = (0..10).take_while(|_| core.gives_way(true, LEAST / 4)).count();
        assert_eq!(moments, 5, "the first begins the count, four are enough");
    }

    #[test]
    fn a_core_that_nobody_wants_is_no_strangers() {
        let core = Core::new();
        for iteration in 0..100 {
            core.pass(Duration::from_millis(10)); // all sleep
            assert!(core.gives_way(false, LONG), "iteration {iteration}: a rank that computes before it waits");
            assert!((0..10).all(|_| core.gives_way(false, SHORT)), "iteration {iteration}");
        }
    }

    #[test]
    fn turns_are_timed_now_and_then() {
        // Others may compute on this core, and then a turn is long.
        let timed = || {
            let strangers = Strangers::beside(1, || Duration::ZERO);
            strangers.doubts.set(1);
            (0..=TIMED).all(|_| strangers.give_way()) && strangers.doubts.get() == 0
        };
        assert!((0..1000).any(|_| timed()));
    }
}
