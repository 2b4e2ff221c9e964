use super::*;
use Collective::{Allreduce, Bcast};

const BYTES: usize = 64 << 10;

/// Carries out `operations` that take so long each way; how each went, and the one rank's state.
fn play(trials: &mut [Trials; 2], operations: usize, bytes: usize, [jointly_ns, otherwise_ns]: [u64; 2]) -> String {
    let mut ways = String::new();
    for _ in 0..operations {
        let turns = trials.each_mut().map(|one| one.turn(Bcast, bytes));
        match turns {
            [Turn::Goes(Way::Jointly), Turn::Goes(Way::Jointly)] => ways.push('j'),
            [Turn::Goes(Way::Otherwise), Turn::Goes(Way::Otherwise)] => ways.push('o'),
            [Turn::Timed(way, kind), Turn::Timed(..)] => {
                let (letter, ns) = if way == Way::Jointly { ('J', jointly_ns) } else { ('O', otherwise_ns) };
                ways.push(letter);
                // One rank is late, and done with it at once.
                trials[0].went(kind, bytes, Stay { came_ns: 1000, left_ns: 2000 + ns }, true);
                trials[1].went(kind, bytes, Stay { came_ns: 2000, left_ns: 2001 }, true);
            }
            [Turn::Ends(kind, one), Turn::Ends(_, other)] => {
                ways.push('E');
                for trials in trials.iter_mut() {
                    trials.judge(kind, times(trials.timed_bytes(kind), [one, other].into_iter()));
                }
            }
            _ => panic!("{turns:?}"),
        }
    }
    ways
}

fn two() -> [Trials; 2] {
    [Trials::new(|_, bytes| bytes >= BYTES), Trials::new(|_, bytes| bytes >= BYTES)]
}

#[test]
fn what_is_faster_goes_on_with_ever_fewer_trials() {
    let trial = "OOOOOOJJJJJJE";
    for (times, pauses) in
        [([1000, 1100], [16, 32, 12]), ([1000, 1400], [32, 128, 12]), ([1000, 5000], [160, 2560, 12])]
    {
        let mut trials = two();
        let pauses = pauses.map(|operations| "j".repeat(operations));
        let expected = format!("j{trial}{}{trial}{}{trial}{}", pauses[0], pauses[1], pauses[2]);
        assert_eq!(play(&mut trials, expected.len(), BYTES, times), expected);
        assert!(trials[1].prefers_joint(Bcast, BYTES));
    }
    let mut trials = two();
    play(&mut trials, 100_000, BYTES, [1000, 5000]);
    let ways = play(&mut trials, 2 * LAST_PAUSE as usize, BYTES, [1000, 5000]);
    assert!((1..=2).contains(&ways.matches('E').count()), "{ways}");
}

#[test]
fn two_trials_in_a_row_change_the_way_and_one_does_not() {
    let (clearly, not) = ([5000, 4500], [4500, 5000]);
    let mut trials = two();
    play(&mut trials, 14, BYTES, clearly);
    assert!(trials[0].prefers_joint(Bcast, BYTES));
    play(&mut trials, 14, BYTES, not);
    let ways = play(&mut trials, 51, BYTES, clearly);
    assert!(ways.ends_with("OOOOOOJJJJJJEOOOOOOJJJJJJJEoooooooo"), "{ways}");
    assert!(!trials[0].prefers_joint(Bcast, BYTES) && !trials[1].prefers_joint(Bcast, BYTES));
    assert!(trials[0].prefers_joint(Allreduce, BYTES));
    // About as fast is not faster.
    play(&mut trials, 2000, BYTES, [1000, 1040]);
    assert!(!trials[0].prefers_joint(Bcast, BYTES));
    assert!(!Trials::new(|_, bytes| bytes >= BYTES).prefers_joint(Bcast, BYTES - 1), "short ones begin the other way");
}

#[test]
fn one_trial_changes_the_way_if_the_other_is_faster_by_far() {
    let mut trials = two();
    let ways = play(&mut trials, 16, BYTES, [5000, 3000]);
    assert_eq!(ways, "jOOOOOOJJJJJJEoo");
    let ways = play(&mut two(), 9, LONG_BYTES, [5000, 3000]);
    assert_eq!(ways, "jOOOJJJEo", "long operations");
}

#[test]
fn what_is_found_of_a_length_is_the_first_guess_of_others() {
    let guesses =
        |trials: &Trials| [BYTES / 2, BYTES, 2 * BYTES, 4 * BYTES].map(|bytes| trials.prefers_joint(Bcast, bytes));
    let mut trials = two();
    assert_eq!(guesses(&trials[0]), [false, true, true, true]);
    play(&mut trials, 16, 2 * BYTES, [5000, 3000]);
    assert_eq!(guesses(&trials[0]), [false; 4], "what does not pay is not begun with, shorter or longer");
    play(&mut trials, 16, BYTES, [3000, 5000]);
    assert_eq!(guesses(&trials[0]), [false, true, false, false], "what was tried stays");
    play(&mut trials, 16, 4 * BYTES, [3000, 5000]);
    assert_eq!(guesses(&trials[0]), [false, true, false, true]);
    assert!(trials[0].prefers_joint(Bcast, 8 * BYTES) && trials[0].prefers_joint(Allreduce, 2 * BYTES));
}

#[test]
fn cells_used_for_the_first_time_and_ranks_that_wander_decide_nothing() {
    let mut trials = Trials::new(|_, bytes| bytes >= BYTES);
    trials.turn(Bcast, BYTES);
    let stay = Stay { came_ns: 1, left_ns: 2 };
    for _ in 0..MOST_WARMING {
        let Turn::Timed(Way::Otherwise, kind) = trials.turn(Bcast, BYTES) else { panic!("a trial") };
        trials.went(kind, BYTES, stay, false);
    }
    assert_eq!(trials.turn(Bcast, BYTES), Turn::Goes(Way::Jointly));
    let mut trials = Trials::new(|_, bytes| bytes >= BYTES);
    let (kind, took) = (0..20)
        .find_map(|_| match trials.turn(Bcast, BYTES) {
            Turn::Timed(_, kind) => {
                trials.went(kind, BYTES, stay, true);
                None
            }
            Turn::Ends(kind, took) => Some((kind, took)),
            Turn::Goes(_) => None,
        })
        .expect("the end of a trial");
    let mut wandered = took;
    wandered.0[1] = Stay::WANDERED;
    trials.judge(kind, times([BYTES; ALL_TIMED], [took, wandered].into_iter()));
    assert_eq!(trials.turn(Bcast, BYTES), Turn::Goes(Way::Otherwise));
}

/// Another rank writes to its cells for the first time, long after all of this one's have been used.
#[test]
fn operations_in_which_a_rank_has_taken_pages_do_not_count() {
    let stay = |left_ns| Stay { came_ns: 1000, left_ns };
    let warm = Took([stay(1600), stay(1600), stay(5000), stay(5000)]);
    let mut cold = warm;
    cold.0[0] = Stay::COLD;
    assert_eq!(
        times([BYTES; ALL_TIMED], [warm, cold].into_iter()),
        Times::Known { jointly_ns: 4000, otherwise_ns: 600 }
    );
    cold.0[1] = Stay::COLD;
    assert_eq!(times([BYTES; ALL_TIMED], [warm, cold].into_iter()), Times::Cold);

    let mut trials = Trials::new(|_, _| false);
    let kind = Kind::of(Bcast, BYTES);
    trials.judge(kind, Times::Cold);
    assert!(!trials.prefers_joint(Bcast, BYTES) && trials.begins(kind) != Some(true));
    let soon = (0..=FIRST_PAUSE).map(|_| trials.turn(Bcast, BYTES)).last();
    assert_eq!(soon, Some(Turn::Timed(Way::Otherwise, kind)));
}

#[test]
fn trials_of_what_takes_many_times_as_long_are_rare() {
    for (jointly_ns, most) in [(1000, LAST_PAUSE), (2900, 2 * LAST_PAUSE), (90_000, 8 * LAST_PAUSE)] {
        let mut trials = two();
        let ways = play(&mut trials, 200_000, BYTES / 2, [jointly_ns, 1000]);
        let pause = ways.split('E').nth(20).map(|between| between.matches('o').count());
        assert_eq!(pause, Some(most as usize));
    }
}

#[test]
fn a_trial_that_was_disturbed_is_soon_made_good() {
    let mut trials = two();
    play(&mut trials, 100_000, BYTES / 2, [9000, 1000]);
    assert!(!trials[0].prefers_joint(Bcast, BYTES / 2));
    let until_flipped = (0..).take_while(|_| {
        play(&mut trials, 1, BYTES / 2, [9000, 90_000]);
        !trials[0].prefers_joint(Bcast, BYTES / 2)
    });
    assert!(until_flipped.count() <= (8 * LAST_PAUSE + 40) as usize);
    let ways = play(&mut trials, FIRST_PAUSE as usize + 20, BYTES / 2, [9000, 1000]);
    assert_eq!(ways, "j".repeat(8) + "OOOOOOJJJJJJE" + "ooooooo", "{ways}");
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
            ways += &play(&mut trials, 1, bytes, times);
        }
        assert!(trials[0].prefers_joint(Bcast, BYTES), "{ways}");
        assert!(ways.matches('o').count() == 0, "{ways}");
    }
}

#[test]
fn lengths_that_are_like_no_other_give_a_trial_up() {
    let mut trials = Trials::new(|_, bytes| bytes >= BYTES);
    trials.turn(Bcast, BYTES);
    let stay = Stay { came_ns: 1, left_ns: 2 };
    // The first that could be timed is followed by others that are all longer.
    for index in 0..MOST_WARMING {
        let bytes = if index == WARMING { BYTES } else { 2 * BYTES - 64 };
        let Turn::Timed(Way::Otherwise, kind) = trials.turn(Bcast, bytes) else { panic!("a trial") };
        trials.went(kind, bytes, stay, true);
    }
    assert_eq!(trials.turn(Bcast, BYTES), Turn::Goes(Way::Jointly));
}

#[test]
fn programs_of_all_lengths_find_the_faster_way() {
    let mut trials = two();
    let mut random = 1_u64;
    for _ in 0..2000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let bytes = BYTES + (random >> 33) as usize % BYTES;
        // A third of the shortest ones' time does not depend on the length.
        let ns = |part: u64| part * (500 + bytes as u64 / 64);
        play(&mut trials, 1, bytes, [ns(3), ns(2)]);
    }
    assert!(!trials[0].prefers_joint(Bcast, BYTES) && !trials[1].prefers_joint(Bcast, BYTES));
}

#[test]
fn an_operation_takes_from_the_last_that_came_to_the_last_that_left() {
    let took = |stays: [[u64; 2]; ALL_TIMED]| Took(stays.map(|[came_ns, left_ns]| Stay { came_ns, left_ns }));
    // Otherwise the first has run ahead, and the last finds all that it needs; jointly all wait for the last one. One of
    // each was interrupted.
    let ranks = [
        took([[1000, 2000], [3000, 9999], [5000, 9100], [9500, 9900]]),
        took([[4000, 4500], [5000, 5400], [8000, 9000], [9400, 99_000]]),
    ];
    assert_eq!(times([BYTES; ALL_TIMED], ranks.into_iter()), Times::Known { jointly_ns: 1100, otherwise_ns: 500 });
    for untold in 0..ALL_TIMED {
        let mut ranks = ranks;
        ranks[1].0[untold] = Stay::WANDERED;
        assert_eq!(times([BYTES; ALL_TIMED], ranks.into_iter()), Times::Wandered);
    }
    assert!(!Trials::new(|_, _| false).prefers_joint(Bcast, 1 << 30));
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
