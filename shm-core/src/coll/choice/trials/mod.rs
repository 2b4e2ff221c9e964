//! Whether ranks had better work at once in each other's vectors (`joint`) or do what they would do otherwise: by
//! trial. Which is faster follows from no table, as it depends on how far apart the cores are, which changes, on what the
//! kernel's copy costs, and on whether the program lets a rank run ahead of others. So now and then a few operations go the
//! other way, then a few by `joint`; the last of each are timed, and with the next one the ranks tell each other when
//! each has come and gone. All draw the same conclusion. Measurements are in `docs/joint.md`.

use std::ops::Range;

use crate::ring::{Ring, Span};
use crate::segment::layout::INLINE_BYTES;
use reduce_kernels::Collective;

/// Operations between two trials of a kind: doubled while they change nothing; 4 k times as many where the other way is slower by
/// far and takes k times as long.
const FIRST_PAUSE: u32 = 8;
const LAST_PAUSE: u32 = 512;
/// Where the other way takes several times as long, pauses get so many times as long as that, up to this: of 8 KiB, which the
/// kernel's calls take six times as long for, trials would cost a twelfth of all time.
const MOST_TIMES_SLOWER: u32 = 8;
/// Operations one way before some are timed: the first ones find nothing of what they need in the caches. Of long ones one is
/// enough.
const WARMING: u32 = 4;
const LONG_WARMING: u32 = 1;
const LONG_BYTES: usize = 1 << 20;
/// Operations each way that are timed: one may be interrupted, or come to pages that nobody has used.
const TIMED: usize = 2;
/// Most operations one way, while they use cells for the first time, or are not as long as the one that was timed; then there
/// is no trial. A ring of cells that was doubled for 64 KiB takes 32 to be gone round.
const MOST_WARMING: u32 = 36;
const ALL_TIMED: usize = 2 * TIMED;
/// The other way must be so much faster, in percent, twice in a row, or once, if it is faster by far.
const MARGIN_PERCENT: u64 = 5;
const WIDE_MARGIN_PERCENT: u64 = 25;
const IN_A_ROW: u32 = 2;

/// Bytes of those that are timed.
pub(crate) type TimedBytes = [usize; ALL_TIMED];
/// They differ by a part of so many at most: in a program of all lengths some are soon found that do not, and what does not
/// depend on the length is still about the same part of the time.
const ALIKE: usize = 8;

/// Operations that are judged together: of one collective, with lengths between two powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind(usize);

/// Powers of two from 2^12 on; the last kind has all that is longer.
const LENGTHS: usize = 14;
const COLLECTIVES: [Collective; 3] = [Collective::Bcast, Collective::Reduce, Collective::Allreduce];
const KINDS: usize = COLLECTIVES.len() * LENGTHS;

impl Kind {
    fn of(collective: Collective, bytes: usize) -> Self {
        let length = (bytes.max(1).ilog2() as usize).saturating_sub(12).min(LENGTHS - 1);
        let index = COLLECTIVES.iter().position(|&one| one == collective);
        // A barrier has no vectors: it counts as a bcast.
        Self(index.unwrap_or(0) * LENGTHS + length)
    }
}

/// A way to carry out an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Jointly,
    /// As if there was no such form.
    Otherwise,
}

/// How an operation is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Goes(Way),
    /// It is timed, for a trial of its kind.
    Timed(Way, Kind),
    /// Jointly; and what the ranks tell with it ends the trial.
    Ends(Kind, Took),
}

/// When a rank came to an operation and when it was through, in ns of the node's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stay {
    pub(crate) came_ns: u64,
    pub(crate) left_ns: u64,
}

impl Stay {
    /// The rank may have done something else meanwhile.
    pub(crate) const WANDERED: Self = Self { came_ns: 0, left_ns: 0 };
    /// It has taken pages for its cells, which costs more than the operation.
    pub(crate) const COLD: Self = Self { came_ns: 1, left_ns: 0 };
}

/// What a trial has told: what an operation takes, in ns, the shortest that was timed of each way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    Known {
        jointly_ns: u64,
        otherwise_ns: u64,
    },
    /// All those of a way were [`COLD`](Stay::COLD) on some rank.
    Cold,
    /// Some rank has wandered, in one of them.
    Wandered,
}

/// A rank's stays in the operations of a trial that are timed: those that went otherwise, then as many that went jointly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Took([Stay; ALL_TIMED]);

impl Took {
    /// Puts it beside this rank's flag of `span`.
    #[allow(unsafe_code)] // writes to memory that other processes map
    pub(crate) fn tell(self, ring: &Ring, span: Span) {
        const { assert!(size_of::<Self>() <= INLINE_BYTES, "they fit beside a flag") };
        let words = self.0.map(|stay| [stay.came_ns, stay.left_ns]);
        // SAFETY: the caller may write to the span and has not published it; so many words fit beside a flag.
        unsafe { ring.put_inline(span, words.as_ptr().cast(), size_of_val(&words)) };
    }

    /// What `rank`, which has published `span`, has told.
    #[allow(unsafe_code)] // reads memory that other processes map
    pub(crate) fn of(ring: &Ring, rank: usize, span: Span) -> Self {
        // SAFETY: so many words were told, which stay as they are until this rank leaves; any bits are numbers.
        let words = unsafe { ring.inline(rank, span).cast::<[[u64; 2]; ALL_TIMED]>().read_unaligned() };
        Self(words.map(|[came_ns, left_ns]| Stay { came_ns, left_ns }))
    }
}

/// What an operation takes each way: from when the last rank came until the last one was through. So what ranks waited for
/// one that was late does not count, nor what one that could run ahead did before others came. Those that were timed had so many
/// `bytes`, about as many; their times are brought to the first one's.
pub(crate) fn times(bytes: TimedBytes, ranks: impl Iterator<Item = Took> + Clone) -> Times {
    if ranks.clone().any(|Took(stays)| stays.contains(&Stay::WANDERED)) {
        return Times::Wandered;
    }
    let time = |operation: usize| {
        let stays = ranks.clone().map(|Took(stays)| stays[operation]);
        let all_came_ns = stays.clone().map(|stay| stay.came_ns).max()?;
        let all_left_ns = stays.clone().map(|stay| stay.left_ns).max()?;
        let took_ns =
            all_left_ns.saturating_sub(all_came_ns) as u128 * bytes[0] as u128 / bytes[operation].max(1) as u128;
        (!stays.clone().any(|stay| stay == Stay::COLD)).then(|| u64::try_from(took_ns).unwrap_or(u64::MAX))
    };
    let shortest = |operations: Range<usize>| operations.filter_map(time).min();
    match (shortest(TIMED..ALL_TIMED), shortest(0..TIMED)) {
        (Some(jointly_ns), Some(otherwise_ns)) => Times::Known { jointly_ns, otherwise_ns },
        _ => Times::Cold,
    }
}

/// All kinds' trials, the same on all ranks but for this one's own stays.
#[derive(Debug)]
pub(crate) struct Trials(Box<[Trial]>); // too much for small stacks

#[derive(Debug, Clone, Copy)]
struct Trial {
    joint: bool,
    /// A trial has told something.
    is_judged: bool,
    /// The last trial has.
    has_told: bool,
    /// Operations until the next trial.
    pause: u32,
    last_pause: u32,
    /// Operations of this trial so far that have gone the way that they go now.
    gone: u32,
    /// Trials in a row that the other way has won.
    dissent: u32,
    /// This rank's stays in those that were timed, so many so far, and their bytes.
    took: Took,
    timed: usize,
    bytes: TimedBytes,
}

impl Trials {
    /// `likely`: whether to work jointly on so many bytes probably pays.
    pub(crate) fn new(likely: impl Fn(Collective, usize) -> bool) -> Self {
        let trial = |kind: usize| Trial {
            joint: likely(COLLECTIVES[kind / LENGTHS], 1 << (kind % LENGTHS + 12)),
            is_judged: false,
            has_told: false,
            pause: 1,
            last_pause: FIRST_PAUSE,
            gone: 0,
            dissent: 0,
            took: Took::default(),
            timed: 0,
            bytes: [0; ALL_TIMED],
        };
        Self((0..KINDS).map(trial).collect())
    }

    /// True if the next operation would go by `joint`, but for trials.
    pub(crate) fn prefers_joint(&self, collective: Collective, bytes: usize) -> bool {
        self.0[Kind::of(collective, bytes).0].joint
    }

    /// How the next operation goes. All ranks ask for the same operations.
    pub(crate) fn turn(&mut self, collective: Collective, bytes: usize) -> Turn {
        let kind = Kind::of(collective, bytes);
        let trial = &mut self.0[kind.0];
        match trial.timed {
            0 if trial.pause > 0 => {
                trial.pause -= 1;
                Turn::Goes(if trial.joint { Way::Jointly } else { Way::Otherwise })
            }
            0..TIMED => Turn::Timed(Way::Otherwise, kind),
            TIMED..ALL_TIMED => Turn::Timed(Way::Jointly, kind),
            _ => Turn::Ends(kind, trial.took),
        }
    }

    /// If the next operation is the first of a trial of `kind`, whether the last trial has told something. What goes otherwise
    /// then had better find a longer ring of cells: it grows with use, and shows what it can only when it is long.
    pub(crate) fn begins(&self, kind: Kind) -> Option<bool> {
        let trial = &self.0[kind.0];
        (trial.timed == 0 && trial.gone == 0).then_some(trial.has_told)
    }

    /// An operation of a trial on `bytes` was completed. `warm`: it has used no cells for the first time.
    pub(crate) fn went(&mut self, kind: Kind, bytes: usize, stay: Stay, warm: bool) {
        let trial = &mut self.0[kind.0];
        trial.gone += 1;
        // Not always at the same distance from each other: calls of several kinds may take turns.
        let warming = if bytes < LONG_BYTES { WARMING } else { LONG_WARMING };
        let warming = if trial.timed < TIMED { warming } else { warming + trial.dissent };
        let is_alike = trial.timed == 0 || bytes.abs_diff(trial.bytes[0]) <= trial.bytes[0] / ALIKE;
        if warm && trial.gone > warming && is_alike {
            trial.took.0[trial.timed] = stay;
            trial.bytes[trial.timed] = bytes;
            trial.timed += 1;
            if trial.timed == TIMED {
                trial.gone = 0;
            }
        } else if trial.gone >= MOST_WARMING {
            (trial.timed, trial.gone, trial.has_told) = (0, 0, false);
            trial.rest(2, LAST_PAUSE);
        }
    }

    /// Bytes of the operations that were timed in the trial of `kind` that ends: all ranks know the same.
    pub(crate) fn timed_bytes(&self, kind: Kind) -> TimedBytes {
        self.0[kind.0].bytes
    }

    /// Ends a trial with what it has told. Where a rank may do something else meanwhile, operations go otherwise, where nobody
    /// needs all others at a time.
    pub(crate) fn judge(&mut self, kind: Kind, times: Times) {
        let trial = &mut self.0[kind.0];
        (trial.timed, trial.gone, trial.has_told) = (0, 0, times != Times::Cold);
        let (jointly_ns, otherwise_ns) = match times {
            Times::Known { jointly_ns, otherwise_ns } => (jointly_ns, otherwise_ns),
            Times::Cold => {
                // The next one finds some more of the pages.
                trial.pause = FIRST_PAUSE;
                return;
            }
            Times::Wandered => {
                (trial.joint, trial.dissent) = (false, 0);
                trial.rest(2, LAST_PAUSE);
                return;
            }
        };
        let (chosen, other) = if trial.joint { (jointly_ns, otherwise_ns) } else { (otherwise_ns, jointly_ns) };
        let is_faster = |one: u64, than: u64, percent: u64| one * 100 < than * (100 - percent);
        trial.dissent = if is_faster(other, chosen, MARGIN_PERCENT) { trial.dissent + 1 } else { 0 };
        let is_wide = is_faster(other, chosen, WIDE_MARGIN_PERCENT);
        if trial.dissent >= IN_A_ROW || is_wide {
            (trial.joint, trial.dissent) = (!trial.joint, 0);
            if is_wide {
                // What was faster by far so far may be so again: this trial may have been disturbed.
                trial.last_pause = FIRST_PAUSE;
            }
            // Otherwise no shorter pauses: where both take about as long, trials would come one after the other.
            trial.pause = trial.last_pause;
        } else if trial.dissent == 0 {
            let times_slower = other.checked_div(chosen).map_or(1, |times| times.clamp(1, MOST_TIMES_SLOWER.into()));
            let times_slower = u32::try_from(times_slower).unwrap_or(1);
            let is_far = is_faster(chosen, other, WIDE_MARGIN_PERCENT);
            trial.rest(if is_far { 4 * times_slower } else { 2 }, LAST_PAUSE * times_slower);
        } else {
            return; // the next operation is a trial again
        }
        self.guess(kind);
    }

    /// What was found of `kind` is the first guess of what is longer, up to the next length that was tried; and of what is shorter,
    /// if it was not to work jointly, whose cost that does not depend on the length weighs more there.
    fn guess(&mut self, kind: Kind) {
        let first = kind.0 / LENGTHS * LENGTHS;
        let (shorter, longer) = self.0[first..first + LENGTHS].split_at_mut(kind.0 - first);
        let Some((trial, longer)) = longer.split_first_mut() else { return };
        trial.is_judged = true;
        longer.iter_mut().take_while(|longer| !longer.is_judged).for_each(|longer| longer.joint = trial.joint);
        if !trial.joint {
            shorter.iter_mut().rev().take_while(|shorter| !shorter.is_judged).for_each(|shorter| shorter.joint = false);
        }
    }
}

impl Trial {
    /// Behind a trial that has changed nothing, for so many `times` as many operations as behind the last one, but no more than `most`.
    fn rest(&mut self, times: u32, most: u32) {
        self.last_pause = (times * self.last_pause).min(most);
        self.pause = self.last_pause;
    }
}

#[cfg(test)]
mod tests;
