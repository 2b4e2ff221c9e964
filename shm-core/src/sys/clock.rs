//! Time that all processes of a node agree on.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

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

/// The time that process `pid` has had of all cores; none if it has ended.
#[must_use]
pub fn used(pid: u32) -> Duration {
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid.cast_signed()));
    Duration::from_nanos(clock.map_or(0, nanoseconds))
}

fn nanoseconds(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |t| t.tv_sec().unsigned_abs() * 1_000_000_000 + t.tv_nsec().unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::affinity;
    use nix::sched::{CpuSet, sched_setaffinity};
    use reduce_kernels::Strangers;
    use std::hint::black_box;
    use std::process::{Child, Command, id};

    #[test]
    fn who_computes_uses_time() {
        let before = used(id());
        while used(id()) < before + Duration::from_millis(5) {
            black_box(now_ns());
        }
        assert_eq!(used(1 << 22), Duration::ZERO, "no process has this number");
    }

    /// Ended with the test.
    struct Computes(Child);

    impl Drop for Computes {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_process_that_computes_on_this_core_is_a_stranger() {
        let mut core = CpuSet::new();
        core.set(affinity::allowed_cores().expect("cores")[0]).expect("a core");
        sched_setaffinity(Pid::from_raw(0), &core).expect("it may run there");
        let stranger = Computes(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("a shell"));
        let strangers = Strangers::beside(1, || used(id()));
        // Without end if it is not noticed.
        while strangers.give_way() {}
        drop(stranger);
    }
}
