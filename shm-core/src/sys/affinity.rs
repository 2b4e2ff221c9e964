//! Which cores this process may use, and how many of them it may keep busy.
#![allow(unsafe_code)] // the C library's masks end at 1024 cores, and the kernel's are as long as the machine could have cores

use std::fs;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sched::sched_yield;

use crate::error::{Error, Result};

/// Cores in a word of a mask.
const CORES: usize = usize::BITS as usize;
/// Words of the first mask that the kernel is asked to fill, and of the last.
const FIRST_WORDS: usize = 16;
const MOST_WORDS: usize = 8192;

/// The cores in this thread's affinity mask, ascending.
///
/// # Errors
/// The kernel does not tell.
pub fn allowed_cores() -> Result<Vec<usize>> {
    let mask = own_mask(FIRST_WORDS).map_err(|errno| Error::system("sched_getaffinity", errno))?;
    Ok(cores_in(&mask))
}

/// Lets this thread run on these cores alone.
///
/// # Errors
/// None of them exists, or may be used.
pub fn run_on(cores: &[usize]) -> Result<()> {
    let mask = mask_of(cores);
    // SAFETY: the kernel reads the mask, which has as many bytes.
    let set = unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(&*mask), mask.as_ptr()) };
    Errno::result(set).map(drop).map_err(|errno| Error::system("sched_setaffinity", errno))
}

/// This thread's mask. It is asked for with `words` first, and with more where the kernel's is longer.
fn own_mask(mut words: usize) -> nix::Result<Vec<usize>> {
    loop {
        let mut mask = vec![0; words];
        // SAFETY: the kernel writes as many bytes at most, which the mask has.
        let told = unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&*mask), mask.as_mut_ptr()) };
        match Errno::result(told) {
            Ok(_) => return Ok(mask),
            Err(Errno::EINVAL) if words < MOST_WORDS => words = (2 * words).max(1),
            Err(errno) => return Err(errno),
        }
    }
}

fn cores_in(mask: &[usize]) -> Vec<usize> {
    (0..CORES * mask.len()).filter(|core| mask[core / CORES] & 1 << (core % CORES) != 0).collect()
}

fn mask_of(cores: &[usize]) -> Vec<usize> {
    let mut mask = vec![0; cores.iter().max().map_or(0, |last| last / CORES + 1)];
    for core in cores {
        mask[core / CORES] |= 1 << (core % CORES);
    }
    mask
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
    fn masks_are_as_long_as_the_kernels() {
        let cores = allowed_cores().unwrap_or_default();
        assert!(!cores.is_empty());
        // No kernel's mask is as short.
        assert_eq!(own_mask(0).map(|mask| cores_in(&mask)), Ok(cores.clone()));
        run_on(&cores).expect("these are its own");
        run_on(&[]).expect_err("it has to run somewhere");
    }

    #[test]
    fn masks_name_thousands_of_cores() {
        let cores = [0, 63, 64, 1023, 1024, 4095];
        let mask = mask_of(&cores);
        assert_eq!((mask.len() * CORES, cores_in(&mask).as_slice()), (4096, &cores[..]));
    }
}
