//! Whether two ranks had better share out the work on their vectors (`halves`) or do what they would do otherwise: by
//! trial. Which is faster follows from no table, as it depends on how far apart the cores are, which changes, and on
//! what the kernel's copy costs. So now and then a few operations go the other way, then a few by `halves`; the last of
//! each are timed, and at the end the ranks tell each other what both took them. Both draw the same conclusion.
//! Measurements are in `docs/halves.md`.

use crate::ring::{Ring, Span};
use reduce_kernels::Collective;

/// What is begun with, before the first trial.
const LIKELY_FROM: usize = 32 << 10;

/// Operations before the first trial of a kind, and between two: doubled while they change nothing.
const FIRST_PAUSE: u32 = 8;
const LAST_PAUSE: u32 = 512;
/// Operations one way before one is timed: the first ones find nothing of what they need in the caches.
const WARMING: u32 = 4;
/// Most of them, while they still use cells for the first time; then there is no trial.
const MOST_WARMING: u32 = 24;
/// What sharing out takes beside the work: one flag more than otherwise goes from rank to rank.
const FLAG_NS: u64 = 300;
/// The other way must be so much faster, in percent, twice in a row: one time may have been interrupted.
const MARGIN_PERCENT: u64 = 5;
const IN_A_ROW: u32 = 2;

/// Operations that are judged together: of one collective, with lengths between two powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind(usize);

/// Powers of two from 2^12 on; the last kind has all that is longer.
const LENGTHS: usize = 14;
const KINDS: usize = 3 * LENGTHS;

impl Kind {
    fn of(collective: Collective, bytes: usize) -> Self {
        let length = (bytes.max(1).ilog2() as usize).saturating_sub(12).min(LENGTHS - 1);
        let collective = match collective {
            Collective::Barrier | Collective::Bcast => 0,
            Collective::Reduce => 1,
            Collective::Allreduce => 2,
        };
        Self(collective * LENGTHS + length)
    }
}

/// How an operation is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// By `halves`; with the times that decide, if a trial ends with it.
    Halves(Option<Counted>),
    /// As if there was no such form; timed, if a trial begins with it.
    Otherwise(Option<Kind>),
}

/// What a rank was at work on one operation each way, in ns, without waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Took {
    pub(crate) halves_ns: u64,
    pub(crate) otherwise_ns: u64,
}

impl Took {
    /// Puts it beside this rank's flag of `span`.
    #[allow(unsafe_code)] // writes to memory that other processes map
    pub(crate) fn tell(self, ring: &Ring, span: Span) {
        let words = [self.halves_ns, self.otherwise_ns];
        // SAFETY: the caller may write to the span and has not published it; two words fit beside a flag.
        unsafe { ring.put_inline(span, words.as_ptr().cast(), size_of_val(&words)) };
    }

    /// What `rank`, which has published `span`, has told.
    #[allow(unsafe_code)] // reads memory that other processes map
    pub(crate) fn of(ring: &Ring, rank: usize, span: Span) -> Self {
        // SAFETY: two words were told, which stay as they are until this rank leaves; a flag's payload is aligned for them.
        let [halves_ns, otherwise_ns] = unsafe { ring.inline(rank, span).cast::<[u64; 2]>().read_unaligned() };
        Self { halves_ns, otherwise_ns }
    }
}

/// A trial that ends with this operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    kind: Kind,
    /// Of this rank, so far.
    pub(crate) took: Took,
}

/// All kinds' trials, the same on both ranks but for this one's own times.
#[derive(Debug)]
pub(crate) struct Trials([Trial; KINDS]);

#[derive(Debug, Clone, Copy)]
struct Trial {
    halves: bool,
    /// Operations until the next trial.
    pause: u32,
    last_pause: u32,
    /// Operations of this trial so far that have gone the way that they go now.
    warming: u32,
    /// Trials in a row that the other way has won.
    dissent: u32,
    /// What an operation took this rank otherwise, where a trial is to end.
    otherwise_ns: Option<u64>,
    /// One rank could begin with its part of it when the other had done one of so many parts.
    otherwise_parts: u64,
}

impl Trials {
    pub(crate) fn new() -> Self {
        let trial = |kind: usize| Trial {
            halves: 1 << (kind % LENGTHS + 12) >= LIKELY_FROM,
            pause: 1,
            last_pause: FIRST_PAUSE,
            warming: 0,
            dissent: 0,
            otherwise_ns: None,
            otherwise_parts: 1,
        };
        Self(std::array::from_fn(trial))
    }

    /// True if the next operation would go by `halves`, but for trials.
    pub(crate) fn prefer_halves(&self, collective: Collective, bytes: usize) -> bool {
        self.0[Kind::of(collective, bytes).0].halves
    }

    /// How the next operation goes. Both ranks ask for the same operations.
    pub(crate) fn turn(&mut self, collective: Collective, bytes: usize) -> Turn {
        let kind = Kind::of(collective, bytes);
        let trial = &mut self.0[kind.0];
        if let Some(otherwise_ns) = trial.otherwise_ns {
            trial.warming += 1;
            let ends = trial.warming > WARMING;
            return Turn::Halves(ends.then_some(Counted { kind, took: Took { halves_ns: 0, otherwise_ns } }));
        }
        if trial.pause == 0 {
            return Turn::Otherwise(Some(kind));
        }
        trial.pause -= 1;
        if trial.halves { Turn::Halves(None) } else { Turn::Otherwise(None) }
    }

    /// The first operation of a trial took this rank `ns`. `parts`: one rank could begin with its part of it when the
    /// other had done one of so many. `warm`: it has used no cells for the first time.
    pub(crate) fn went_otherwise(&mut self, kind: Kind, ns: u64, parts: usize, warm: bool) {
        let trial = &mut self.0[kind.0];
        trial.warming += 1;
        if warm && trial.warming > WARMING {
            (trial.otherwise_ns, trial.otherwise_parts, trial.warming) = (Some(ns), parts as u64, 0);
        } else if trial.warming == MOST_WARMING {
            (trial.warming, trial.pause) = (0, trial.last_pause);
        }
    }

    /// Ends a trial with what it took both ranks, if that says anything.
    pub(crate) fn judge(&mut self, Counted { kind, .. }: Counted, took: Option<[Took; 2]>) {
        let trial = &mut self.0[kind.0];
        (trial.otherwise_ns, trial.warming) = (None, 0);
        let Some([a, b]) = took else {
            trial.pause = trial.last_pause;
            return;
        };
        let halves_ns = a.halves_ns.max(b.halves_ns) + FLAG_NS;
        let (least, most) = (a.otherwise_ns.min(b.otherwise_ns), a.otherwise_ns.max(b.otherwise_ns));
        let otherwise_ns = most + least / trial.otherwise_parts;
        let (chosen, other) = if trial.halves { (halves_ns, otherwise_ns) } else { (otherwise_ns, halves_ns) };
        if other * 100 >= chosen * (100 - MARGIN_PERCENT) {
            trial.dissent = 0;
            trial.last_pause = (2 * trial.last_pause).min(LAST_PAUSE);
        } else {
            trial.dissent += 1;
            if trial.dissent < IN_A_ROW {
                return; // the next operation is a trial again
            }
            (trial.halves, trial.dissent, trial.last_pause) = (!trial.halves, 0, FIRST_PAUSE);
        }
        trial.pause = trial.last_pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Collective::{Allreduce, Bcast};

    const BYTES: usize = 64 << 10;

    /// Carries out `operations` that take each rank so long each way; how each went, and the one rank's state.
    fn play(trials: &mut [Trials; 2], operations: usize, bytes: usize, [halves_ns, otherwise_ns]: [u64; 2]) -> String {
        let mut ways = String::new();
        for _ in 0..operations {
            let turns = trials.each_mut().map(|one| one.turn(Bcast, bytes));
            match turns {
                [Turn::Halves(None), Turn::Halves(None)] => ways.push('h'),
                [Turn::Otherwise(None), Turn::Otherwise(None)] => ways.push('o'),
                [Turn::Otherwise(Some(kind)), Turn::Otherwise(Some(_))] => {
                    ways.push('O');
                    // The ranks are not equally fast.
                    trials[0].went_otherwise(kind, otherwise_ns, 1, true);
                    trials[1].went_otherwise(kind, 0, 1, true);
                }
                [Turn::Halves(Some(a)), Turn::Halves(Some(b))] => {
                    ways.push('H');
                    let took = [Took { halves_ns, ..a.took }, Took { halves_ns: 0, ..b.took }];
                    trials[0].judge(a, Some(took));
                    trials[1].judge(b, Some(took));
                }
                _ => panic!("{turns:?}"),
            }
        }
        ways
    }

    fn two() -> [Trials; 2] {
        [Trials::new(), Trials::new()]
    }

    #[test]
    fn what_is_faster_goes_on_with_ever_fewer_trials() {
        let trial = "OOOOOhhhhH";
        let mut trials = two();
        let ways = play(&mut trials, 100, BYTES, [1000, 5000]);
        let pauses = [16, 32, 21].map(|operations| "h".repeat(operations));
        assert_eq!(ways, format!("h{trial}{}{trial}{}{trial}{}", pauses[0], pauses[1], pauses[2]));
        assert!(trials[1].prefer_halves(Bcast, BYTES));
        play(&mut trials, 100_000, BYTES, [1000, 5000]);
        let ways = play(&mut trials, 2 * LAST_PAUSE as usize, BYTES, [1000, 5000]);
        assert!((1..=2).contains(&ways.matches('H').count()), "{ways}");
    }

    #[test]
    fn two_trials_in_a_row_change_the_way_and_one_does_not() {
        let mut trials = two();
        play(&mut trials, 11, BYTES, [5000, 1000]);
        assert!(trials[0].prefer_halves(Bcast, BYTES));
        play(&mut trials, 10, BYTES, [1000, 5000]);
        let ways = play(&mut trials, 44, BYTES, [5000, 1000]);
        assert!(ways.ends_with("OOOOOhhhhHOOOOOhhhhHoooooooo"), "{ways}");
        assert!(!trials[0].prefer_halves(Bcast, BYTES) && !trials[1].prefer_halves(Bcast, BYTES));
        assert!(trials[0].prefer_halves(Allreduce, BYTES) && trials[0].prefer_halves(Bcast, 2 * BYTES));
        // About as fast is not faster.
        play(&mut trials, 2000, BYTES, [1000, 1000 + FLAG_NS]);
        assert!(!trials[0].prefer_halves(Bcast, BYTES));
        assert!(!Trials::new().prefer_halves(Bcast, LIKELY_FROM - 1), "short ones begin the other way");
    }

    #[test]
    fn cells_used_for_the_first_time_and_ranks_that_wander_decide_nothing() {
        let mut trials = Trials::new();
        trials.turn(Bcast, BYTES);
        for _ in 0..MOST_WARMING {
            let Turn::Otherwise(Some(kind)) = trials.turn(Bcast, BYTES) else { panic!("a trial") };
            trials.went_otherwise(kind, 1, 1, false);
        }
        assert_eq!(trials.turn(Bcast, BYTES), Turn::Halves(None));
        let mut trials = two();
        for one in &mut trials {
            let counted = (0..20).find_map(|_| match one.turn(Bcast, BYTES) {
                Turn::Otherwise(Some(kind)) => {
                    one.went_otherwise(kind, 1, 1, true);
                    None
                }
                Turn::Halves(counted) => counted,
                Turn::Otherwise(None) => None,
            });
            one.judge(counted.expect("the end of a trial"), None);
            assert_eq!(one.turn(Bcast, BYTES), Turn::Halves(None));
        }
    }

    #[test]
    fn kinds_are_of_a_collective_and_a_length() {
        let kinds: Vec<usize> = [Bcast, Collective::Reduce, Allreduce]
            .iter()
            .flat_map(|&collective| (12..26).map(move |length| Kind::of(collective, (1 << length) + 1).0))
            .collect();
        assert_eq!(kinds, (0..KINDS).collect::<Vec<_>>());
        assert_eq!(Kind::of(Allreduce, usize::MAX).0, KINDS - 1);
    }
}
