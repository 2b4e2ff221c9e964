//! Time that all processes of a node agree on.

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`: the same for every process of the node.
#[must_use]
pub fn now_ns() -> u64 {
    nanoseconds(ClockId::CLOCK_MONOTONIC)
}

/// The same as of the last tick of the kernel, some milliseconds ago at most, in a quarter of the time.
#[must_use]
pub fn coarse_ns() -> u64 {
    nanoseconds(ClockId::CLOCK_MONOTONIC_COARSE)
}

fn nanoseconds(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |t| t.tv_sec().unsigned_abs() * 1_000_000_000 + t.tv_nsec().unsigned_abs())
}
