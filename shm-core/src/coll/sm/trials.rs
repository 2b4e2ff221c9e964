//! Whether ranks had better work at once in each other's vectors (`joint`) or do what they would do otherwise: by
//! trial. Which is faster follows from no table, as it depends on how far apart the cores are, which changes, and on
//! what the kernel's copy costs. So now and then a few operations go the other way, then a few by `joint`; the last of
//! each are timed, and at the end the ranks tell each other what both took them. All draw the same conclusion.
//! Measurements are in `docs/joint.md`.

use crate::ring::{Ring, Span};
use reduce_kernels::Collective;

/// Operations between two trials of a kind: doubled while they change nothing.
const FIRST_PAUSE: u32 = 8;
const LAST_PAUSE: u32 = 512;
/// Operations one way before one is timed: the first ones find nothing of what they need in the caches.
const WARMING: u32 = 4;
/// Most of them, while they still use cells for the first time, or none is as long as the one that was timed; then there
/// is no trial.
const MOST_WARMING: u32 = 24;
/// What working jointly takes beside the work: one flag more than otherwise goes from rank to rank.
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
    /// By `joint`; with the times that decide, if a trial ends with it.
    Joint(Option<Counted>),
    /// As if there was no such form; timed, if a trial begins with it.
    Otherwise(Option<Kind>),
}

/// What a rank was at work on one operation each way, in ns, without waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Took {
    pub(crate) jointly_ns: u64,
    pub(crate) otherwise_ns: u64,
}

impl Took {
    /// Puts it beside this rank's flag of `span`.
    #[allow(unsafe_code)] // writes to memory that other processes map
    pub(crate) fn tell(self, ring: &Ring, span: Span) {
        let words = [self.jointly_ns, self.otherwise_ns];
        // SAFETY: the caller may write to the span and has not published it; two words fit beside a flag.
        unsafe { ring.put_inline(span, words.as_ptr().cast(), size_of_val(&words)) };
    }

    /// What `rank`, which has published `span`, has told.
    #[allow(unsafe_code)] // reads memory that other processes map
    pub(crate) fn of(ring: &Ring, rank: usize, span: Span) -> Self {
        // SAFETY: two words were told, which stay as they are until this rank leaves; a flag's payload is aligned for them.
        let [jointly_ns, otherwise_ns] = unsafe { ring.inline(rank, span).cast::<[u64; 2]>().read_unaligned() };
        Self { jointly_ns, otherwise_ns }
    }
}

/// A trial that ends with this operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counted {
    kind: Kind,
    /// Otherwise a rank could begin with its work when another had done one of so many parts of its own.
    parts: usize,
    /// Of this rank, so far.
    pub(crate) took: Took,
}

impl Counted {
    /// What the operation takes jointly and otherwise, in ns, by what it took each of `ranks`: as long as the slowest one
    /// takes, and begins after another.
    pub(crate) fn times(&self, ranks: impl Iterator<Item = Took> + Clone) -> [u64; 2] {
        let jointly = ranks.clone().map(|took| took.jointly_ns);
        let otherwise = ranks.map(|took| took.otherwise_ns);
        let waited = otherwise.clone().min().unwrap_or(0) / self.parts as u64;
        [jointly.max().unwrap_or(0) + FLAG_NS, otherwise.max().unwrap_or(0) + waited]
    }
}

/// All kinds' trials, the same on all ranks but for this one's own times.
#[derive(Debug)]
pub(crate) struct Trials([Trial; KINDS]);

#[derive(Debug, Clone, Copy)]
struct Trial {
    joint: bool,
    /// Operations until the next trial.
    pause: u32,
    last_pause: u32,
    /// Operations of this trial so far that have gone the way that they go now.
    warming: u32,
    /// Trials in a row that the other way has won.
    dissent: u32,
    /// The one that was timed, where a trial is to end.
    otherwise: Option<Otherwise>,
}

/// An operation that did not go jointly.
#[derive(Debug, Clone, Copy)]
struct Otherwise {
    /// What it took this rank.
    ns: u64,
    bytes: usize,
    parts: usize,
}

impl Trials {
    /// `likely`: whether to work jointly on so many bytes probably pays.
    pub(crate) fn new(likely: impl Fn(usize) -> bool) -> Self {
        let trial = |kind: usize| Trial {
            joint: likely(1 << (kind % LENGTHS + 12)),
            pause: 1,
            last_pause: FIRST_PAUSE,
            warming: 0,
            dissent: 0,
            otherwise: None,
        };
        Self(std::array::from_fn(trial))
    }

    /// True if the next operation would go by `joint`, but for trials.
    pub(crate) fn prefers_joint(&self, collective: Collective, bytes: usize) -> bool {
        self.0[Kind::of(collective, bytes).0].joint
    }

    /// How the next operation goes. All ranks ask for the same operations.
    pub(crate) fn turn(&mut self, collective: Collective, bytes: usize) -> Turn {
        let kind = Kind::of(collective, bytes);
        let trial = &mut self.0[kind.0];
        if let Some(timed) = trial.otherwise {
            trial.warming += 1;
            // As long a vector as the one that was timed, and not always at the same distance from it: calls of several
            // kinds may take turns.
            let ends = trial.warming > WARMING + trial.dissent && timed.bytes == bytes;
            if !ends && trial.warming == MOST_WARMING {
                (trial.otherwise, trial.warming, trial.pause) = (None, 0, trial.last_pause);
            }
            let counted = Counted { kind, parts: timed.parts, took: Took { jointly_ns: 0, otherwise_ns: timed.ns } };
            return Turn::Joint(ends.then_some(counted));
        }
        if trial.pause == 0 {
            return Turn::Otherwise(Some(kind));
        }
        trial.pause -= 1;
        if trial.joint { Turn::Joint(None) } else { Turn::Otherwise(None) }
    }

    /// An operation of a trial took this rank `ns`, in `parts`, with the first of which another rank could begin. `warm`:
    /// it has used no cells for the first time.
    pub(crate) fn went_otherwise(&mut self, kind: Kind, bytes: usize, ns: u64, parts: usize, warm: bool) {
        let trial = &mut self.0[kind.0];
        trial.warming += 1;
        if warm && trial.warming > WARMING {
            (trial.otherwise, trial.warming) = (Some(Otherwise { ns, bytes, parts }), 0);
        } else if trial.warming == MOST_WARMING {
            (trial.warming, trial.pause) = (0, trial.last_pause);
        }
    }

    /// Ends a trial with what an operation takes jointly and otherwise, if that is known. It is not where a rank may do
    /// something else meanwhile: such operations go otherwise, where nobody needs all others at a time.
    pub(crate) fn judge(&mut self, Counted { kind, .. }: Counted, took: Option<[u64; 2]>) {
        let trial = &mut self.0[kind.0];
        (trial.otherwise, trial.warming) = (None, 0);
        let [jointly_ns, otherwise_ns] = took.unwrap_or_default();
        trial.joint &= took.is_some();
        let (chosen, other) = if trial.joint { (jointly_ns, otherwise_ns) } else { (otherwise_ns, jointly_ns) };
        if other * 100 >= chosen * (100 - MARGIN_PERCENT) {
            trial.dissent = 0;
            trial.last_pause = (2 * trial.last_pause).min(LAST_PAUSE);
        } else {
            trial.dissent += 1;
            if trial.dissent < IN_A_ROW {
                return; // the next operation is a trial again
            }
            (trial.joint, trial.dissent, trial.last_pause) = (!trial.joint, 0, FIRST_PAUSE);
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
    fn play(trials: &mut [Trials; 2], operations: usize, bytes: usize, [jointly_ns, otherwise_ns]: [u64; 2]) -> String {
        let mut ways = String::new();
        for _ in 0..operations {
            let turns = trials.each_mut().map(|one| one.turn(Bcast, bytes));
            match turns {
                [Turn::Joint(None), Turn::Joint(None)] => ways.push('j'),
                [Turn::Otherwise(None), Turn::Otherwise(None)] => ways.push('o'),
                [Turn::Otherwise(Some(kind)), Turn::Otherwise(Some(_))] => {
                    ways.push('O');
                    // The ranks are not equally fast.
                    trials[0].went_otherwise(kind, bytes, otherwise_ns, 1, true);
                    trials[1].went_otherwise(kind, bytes, 0, 1, true);
                }
                [Turn::Joint(Some(a)), Turn::Joint(Some(b))] => {
                    ways.push('J');
                    let took = [Took { jointly_ns, ..a.took }, Took { jointly_ns: 0, ..b.took }];
                    trials[0].judge(a, Some(a.times(took.into_iter())));
                    trials[1].judge(b, Some(b.times(took.into_iter())));
                }
                _ => panic!("{turns:?}"),
            }
        }
        ways
    }

    fn two() -> [Trials; 2] {
        [Trials::new(|bytes| bytes >= BYTES), Trials::new(|bytes| bytes >= BYTES)]
    }

    #[test]
    fn what_is_faster_goes_on_with_ever_fewer_trials() {
        let trial = "OOOOOjjjjJ";
        let mut trials = two();
        let ways = play(&mut trials, 100, BYTES, [1000, 5000]);
        let pauses = [16, 32, 21].map(|operations| "j".repeat(operations));
        assert_eq!(ways, format!("j{trial}{}{trial}{}{trial}{}", pauses[0], pauses[1], pauses[2]));
        assert!(trials[1].prefers_joint(Bcast, BYTES));
        play(&mut trials, 100_000, BYTES, [1000, 5000]);
        let ways = play(&mut trials, 2 * LAST_PAUSE as usize, BYTES, [1000, 5000]);
        assert!((1..=2).contains(&ways.matches('J').count()), "{ways}");
    }

    #[test]
    fn two_trials_in_a_row_change_the_way_and_one_does_not() {
        let mut trials = two();
        play(&mut trials, 11, BYTES, [5000, 1000]);
        assert!(trials[0].prefers_joint(Bcast, BYTES));
        play(&mut trials, 11, BYTES, [1000, 5000]);
        let ways = play(&mut trials, 45, BYTES, [5000, 1000]);
        assert!(ways.ends_with("OOOOOjjjjJOOOOOjjjjjJoooooooo"), "{ways}");
        assert!(!trials[0].prefers_joint(Bcast, BYTES) && !trials[1].prefers_joint(Bcast, BYTES));
        assert!(trials[0].prefers_joint(Allreduce, BYTES) && trials[0].prefers_joint(Bcast, 2 * BYTES));
        // About as fast is not faster.
        play(&mut trials, 2000, BYTES, [1000, 1000 + FLAG_NS]);
        assert!(!trials[0].prefers_joint(Bcast, BYTES));
        assert!(!Trials::new(|bytes| bytes >= BYTES).prefers_joint(Bcast, BYTES - 1), "short ones begin the other way");
    }

    #[test]
    fn cells_used_for_the_first_time_and_ranks_that_wander_decide_nothing() {
        let mut trials = Trials::new(|bytes| bytes >= BYTES);
        trials.turn(Bcast, BYTES);
        for _ in 0..MOST_WARMING {
            let Turn::Otherwise(Some(kind)) = trials.turn(Bcast, BYTES) else { panic!("a trial") };
            trials.went_otherwise(kind, BYTES, 1, 1, false);
        }
        assert_eq!(trials.turn(Bcast, BYTES), Turn::Joint(None));
        let mut trials = two();
        for one in &mut trials {
            let counted = (0..20).find_map(|_| match one.turn(Bcast, BYTES) {
                Turn::Otherwise(Some(kind)) => {
                    one.went_otherwise(kind, BYTES, 1, 1, true);
                    None
                }
                Turn::Joint(counted) => counted,
                Turn::Otherwise(None) => None,
            });
            one.judge(counted.expect("the end of a trial"), None);
            assert_eq!(one.turn(Bcast, BYTES), Turn::Otherwise(None));
        }
    }

    /// Every second one is shorter, and takes less.
    #[test]
    fn calls_that_take_turns_are_told_apart() {
        for short_first in [false, true] {
            let mut trials = two();
            let mut ways = String::new();
            for index in 0..400 {
                let (bytes, times) =
                    if (index % 2 == 0) == short_first { (BYTES, [600, 1000]) } else { (2 * BYTES - 64, [1200, 2000]) };
                ways += &play(&mut trials, 1, bytes, times.map(|ns| ns + FLAG_NS));
            }
            assert!(trials[0].prefers_joint(Bcast, BYTES), "{ways}");
            assert!(ways.matches('o').count() == 0, "{ways}");
        }
    }

    #[test]
    fn an_operation_takes_as_long_as_its_slowest_rank_that_waits_for_another() {
        let took = |jointly_ns, otherwise_ns| Took { jointly_ns, otherwise_ns };
        let ranks = [took(700, 4000), took(900, 2000), took(800, 5000)];
        let counted = |parts| Counted { kind: Kind(0), parts, took: Took::default() };
        assert_eq!(counted(4).times(ranks.into_iter()), [900 + FLAG_NS, 5000 + 500]);
        assert_eq!(counted(usize::MAX).times(ranks.into_iter()), [900 + FLAG_NS, 5000]);
        assert!(!Trials::new(|_| false).prefers_joint(Bcast, 1 << 30));
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
