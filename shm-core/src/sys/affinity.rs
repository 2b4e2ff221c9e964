//! Which cores this process may use, and how many of them it may keep busy.

use std::fs;
use std::path::{Path, PathBuf};

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
    let mut quota: Option<f64> = None;
    for (root, path) in groups(&own) {
        let mut dir = root.join(path.trim_start_matches('/'));
        while dir.starts_with(&root) {
            if let Some(here) = limit_of(&dir) {
                quota = Some(quota.map_or(here, |q| q.min(here)));
            }
            if !dir.pop() {
                break;
            }
        }
    }
    quota
}

/// Where the groups of `/proc/self/cgroup` that may limit time are mounted, and their paths there: the one of version 2, and
/// that of version 1's controller `cpu`.
fn groups(own: &str) -> Vec<(PathBuf, &str)> {
    let root = Path::new("/sys/fs/cgroup");
    let group = |line| {
        let (controllers, path) = str::split_once(line, ':')?.1.split_once(':')?;
        match controllers {
            "" => Some((root.to_owned(), path)),
            _ if controllers.split(',').any(|name| name == "cpu") => Some((root.join("cpu"), path)),
            _ => None,
        }
    };
    own.lines().filter_map(group).collect()
}

/// The limit of one group, as version 2 or version 1 says it.
fn limit_of(group: &Path) -> Option<f64> {
    let read = |name| fs::read_to_string(group.join(name)).ok();
    read("cpu.max").as_deref().and_then(parse_cpu_max).or_else(|| {
        // -1 where there is no limit.
        parse_cpu_max(&[read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?].join(" ")).filter(|&cores| cores > 0.0)
    })
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
    fn groups_of_both_versions_are_found() {
        let text = "12:cpuset:/a\n4:cpu,cpuacct:/job/1\n1:name=systemd:/x\n0::/job/2\n";
        let found = groups(text);
        let expected = [("/sys/fs/cgroup/cpu", "/job/1"), ("/sys/fs/cgroup", "/job/2")];
        assert_eq!(found, expected.map(|(root, path)| (PathBuf::from(root), path)));
        assert_eq!(parse_cpu_max("150000\n 100000\n"), Some(1.5), "version 1's two files");
    }

    #[test]
    fn this_process_may_run_somewhere() {
        assert!(!allowed_cores().unwrap_or_default().is_empty());
    }
}
