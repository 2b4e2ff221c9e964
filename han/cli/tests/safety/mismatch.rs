//! Ranks that do not call the same: every rank gets both sides.

use crate::{finish, reports, roles};

/// Three ranks, of which the last differs; what it calls, and what the others call.
fn both_sides_are_shown(difference: &str, others: &str, last: &str) {
    for place in ["world", "group"] {
        let done = finish(roles::job(3, &format!("mismatch {difference} {place}")));
        done.expect(3, &[]);
        let reports = reports(&done);
        assert_eq!(reports.iter().map(|(rank, ..)| *rank).collect::<Vec<_>>(), [0, 1, 2], "{done:#?}");
        let name = |rank: usize| format!("rank {rank} (pid {})", reports[rank].1);
        // Either of the first two ranks may be the one that is compared with the last.
        let sides =
            [0, 1].map(|rank| [format!("{} called {others}", name(rank)), format!("{} called {last}", name(2))]);
        for (.., text) in &reports {
            assert_eq!(*text, reports[0].2, "the same on all ranks: {done:#?}");
            assert!(text.starts_with("mismatched collective: operation #"), "{done:#?}");
            let shown = sides.iter().any(|sides| sides.iter().all(|side| text.contains(side)));
            assert!(shown, "{difference} on {place}: {sides:?} in {done:#?}");
        }
    }
}

#[test]
fn different_collectives() {
    both_sides_are_shown("collective", "bcast(count 4, i32, root 0)", "barrier()");
}

#[test]
fn different_communicators() {
    both_sides_are_shown("new", "dup()", "split()");
}

#[test]
fn different_roots() {
    both_sides_are_shown("root", "bcast(count 4, i32, root 0)", "bcast(count 4, i32, root 1)");
}

#[test]
fn different_roots_of_reduce() {
    both_sides_are_shown("in-reduce", "reduce(count 4, i32, sum, root 1)", "reduce(count 4, i32, sum, root 2)");
}

#[test]
fn different_counts() {
    both_sides_are_shown("count", "allreduce(count 4, i32, sum)", "allreduce(count 3, i32, sum)");
}

#[test]
fn different_large_counts() {
    both_sides_are_shown("large-count", "allreduce(count 100001, i32, sum)", "allreduce(count 100000, i32, sum)");
}

#[test]
fn different_datatypes() {
    both_sides_are_shown("datatype", "allreduce(count 4, i32, sum)", "allreduce(count 4, f32, sum)");
}

#[test]
fn different_operators() {
    both_sides_are_shown("operator", "allreduce(count 4, i32, sum)", "allreduce(count 4, i32, max)");
}

#[test]
fn two_roots_that_do_not_wait() {
    let done = finish(roles::job(2, "two-roots"));
    done.expect(3, &[]);
    let reports = reports(&done);
    assert_eq!(reports.iter().map(|(rank, ..)| *rank).collect::<Vec<_>>(), [0, 1], "{done:#?}");
    for (.., text) in &reports {
        for (rank, pid, _) in &reports {
            let side = format!("rank {rank} (pid {pid}) called bcast(count 2, i32, root {rank})");
            assert!(text.contains(&side), "{done:#?}");
        }
    }
}

/// Rank 1 finalizes while the others are in an allreduce: all three are told.
fn finalize_is_answered(place: &str) {
    let done = finish(roles::job(3, &format!("finalize-early {place}")));
    done.expect(3, &[]);
    let reports = reports(&done);
    assert_eq!(reports.iter().map(|(rank, ..)| *rank).collect::<Vec<_>>(), [0, 1, 2], "{done:#?}");
    let name = format!("rank 1 (pid {})", reports[1].1);
    for (.., text) in &reports {
        assert!(text.contains(&name) && text.contains("allreduce(count 4, i32, sum)"), "{done:#?}");
        // On another communicator nothing of it is called.
        let called = if place == "world" { "called finalize()" } else { "has called finalize" };
        assert!(text.contains(called), "{done:#?}");
    }
}

#[test]
fn finalize_while_others_are_in_a_collective() {
    finalize_is_answered("world");
}

#[test]
fn finalize_while_others_are_in_a_collective_of_a_group() {
    finalize_is_answered("dup");
}

#[test]
fn a_communicator_is_freed_while_others_are_in_a_collective() {
    let done = finish(roles::job(3, "free-early"));
    done.expect(3, &[]);
    let reports = reports(&done);
    assert_eq!(reports.iter().map(|(rank, ..)| *rank).collect::<Vec<_>>(), [0, 1, 2], "{done:#?}");
    let freed = format!("rank 1 (pid {}) has freed the communicator, but rank ", reports[1].1);
    for (.., text) in &reports {
        assert!(text.contains(&freed) && text.contains("allreduce(count 4, i32, sum)"), "{done:#?}");
    }
}
