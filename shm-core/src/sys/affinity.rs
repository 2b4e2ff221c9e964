//! Which cores this process may use, and how many of them it may keep busy.

use std::fs;
use std::path::Path;

use nix::sched::{CpuSet, sched_getaffinity, sched_yield};
use nix::unistd::Pid;

use crate::error::{Error, Result};

/// The cores in this process's affinity mask, ascending.
///
/// # Errors
/// The kernel's mask is wider than the library's (more than 1024 cores).
pub fn allowed_cores() -> Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0)).map_err(|e| Error::system("sched_getaffinity", e))?;
    Ok((0..CpuSet::count()).filter(|&core| set.is_set(core).unwrap_or(false)).collect())
}

/// Cores' worth of time that the control groups of this process allow, if they limit it.
#[must_use]
pub fn cgroup_quota() -> Option<f64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?.trim_start_matches('/');
    let mut dir = Path::new("/sys/fs/cgroup").join(path);
    let mut quota: Option<f64> = None;
    while dir.starts_with("/sys/fs/cgroup") {
        if let Some(here) = fs::read_to_string(dir.join("cpu.max")).ok().as_deref().and_then(parse_cpu_max) {
            quota = Some(quota.map_or(here, |q| q.min(here)));
        }
        if !dir.pop() {
            break;
        }
    }
    quota
}

/// `"MAX PERIOD"` of a `cpu.max` file as cores; `None` for `max`.
fn parse_cpu_max(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let max: f64 = words.next()?.parse().ok()?;
    let period: f64 = words.next()?.parse().ok()?;
    (period > 0.0).then_some(max / period)
}

/// Gives the core to another runnable thread, if there is one.
pub fn yield_now() {
    // sched_yield cannot fail on Linux.
    let _ = sched_yield();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_max_is_cores() {
        assert_eq!(parse_cpu_max("150000 100000\n"), Some(1.5));
        assert_eq!(parse_cpu_max("max 100000\n"), None);
        assert_eq!(parse_cpu_max("1 0"), None);
        assert_eq!(parse_cpu_max(""), None);
    }

    #[test]
    fn this_process_may_run_somewhere() {
        assert!(!allowed_cores().unwrap_or_default().is_empty());
    }
}
