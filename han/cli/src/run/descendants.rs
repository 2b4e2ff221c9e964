//! Finding and ending everything that a process has started, however deep.
//!
//! The caller must adopt orphans (`shm_core::sys::process::adopt_orphans`). Then a process that loses
//! its parent becomes the caller's child, so nothing can leave the tree, and `waitpid` failing with
//! `ECHILD` proves that the tree is empty.
//!
//! `/proc` may be that of a namespace of processes around ours (`unshare --pid` leaves it so), where processes have other
//! numbers than here.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};
use shm_core::sys::process::reap_child;

use super::say;

/// How long processes that have received `SIGKILL` may take to end; only ones that the kernel holds in
/// an uninterruptible call take longer.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// A process, which no later one of the same number is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    /// Its number in `/proc`.
    shown: Pid,
    /// In clock ticks since boot.
    start: u64,
}

/// What became of descendants.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// How many had to be killed.
    pub(super) killed: usize,
    /// Those that did not end in time.
    pub(super) left: Vec<Pid>,
}

impl Ended {
    /// Says which processes are left, if some are.
    pub(super) fn tell(&self) {
        if !self.left.is_empty() {
            say(&format!("these processes do not end: {}", list(&self.left)));
        }
    }
}

/// `4711, 4712`.
fn list(pids: &[Pid]) -> String {
    pids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Kills and reaps all descendants except `spared` ones and theirs.
pub(super) fn end_all(spared: &HashSet<Process>) -> io::Result<Ended> {
    let give_up = Instant::now() + KILL_PATIENCE;
    let (mut pause, mut ended) = (Duration::ZERO, Ended::default());
    loop {
        loop {
            match reap_child() {
                // Others have ended by themselves meanwhile.
                Ok(Some((_, status))) => ended.killed += usize::from(status.signal() == Some(Signal::SIGKILL as i32)),
                Ok(None) => break,
                Err(Errno::ECHILD) => return Ok(ended),
                Err(e) => return Err(e.into()),
            }
        }
        let rest: Vec<Pid> = descendants(spared)?.iter().filter_map(Process::pid).collect();
        if rest.is_empty() && !spared.is_empty() {
            return Ok(ended);
        }
        for pid in &rest {
            // One that has ended since it was listed is what we want.
            let _ = kill(*pid, Signal::SIGKILL);
        }
        if Instant::now() > give_up {
            ended.left = rest;
            return Ok(ended);
        }
        thread::sleep(pause);
        pause = Duration::from_millis(1);
    }
}

/// All descendants of this process.
pub(super) fn all() -> io::Result<HashSet<Process>> {
    Ok(descendants(&HashSet::new())?.into_iter().collect())
}

impl Process {
    /// Its number here; `None` if it has ended.
    fn pid(&self) -> Option<Pid> {
        if own_number()? == getpid() {
            return Some(self.shown);
        }
        let inwards = numbers("self")?.len().checked_sub(1)?;
        numbers(&self.shown.to_string())?.get(inwards).copied()
    }
}

/// The number that this process has in `/proc`.
fn own_number() -> Option<Pid> {
    let link = fs::read_link("/proc/self").ok()?;
    link.to_str()?.parse().ok().map(Pid::from_raw)
}

/// The numbers of a process in the namespaces that it is in, from that of `/proc` inwards.
fn numbers(shown: &str) -> Option<Vec<Pid>> {
    let status = fs::read(format!("/proc/{shown}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_ascii_whitespace();
    numbers.map(|number| number.parse().ok().map(Pid::from_raw)).collect()
}

fn descendants(spared: &HashSet<Process>) -> io::Result<Vec<Process>> {
    let mut tree = process_tree()?;
    let mut found = Vec::new();
    let mut open = Vec::from_iter(own_number());
    while let Some(parent) = open.pop() {
        let children = tree.remove(&parent).unwrap_or_default();
        let children = children.into_iter().filter(|child| !spared.contains(child));
        for child in children {
            found.push(child);
            open.push(child.shown);
        }
    }
    Ok(found)
}

/// The children of every process that has some.
fn process_tree() -> io::Result<HashMap<Pid, Vec<Process>>> {
    let mut tree: HashMap<Pid, Vec<Process>> = HashMap::new();
    let entries = fs::read_dir("/proc").map_err(|e| {
        let why = format!("cannot read /proc: {e}");
        io::Error::other(why)
    })?;
    for entry in entries {
        let name = entry?.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process that ends while we look is no longer there to be listed.
        let Ok(stat) = fs::read(format!("/proc/{number}/stat")) else { continue };
        if let Some((parent, start)) = parent_and_start(&String::from_utf8_lossy(&stat)) {
            tree.entry(parent).or_default().push(Process { shown: Pid::from_raw(number), start });
        }
    }
    Ok(tree)
}

/// Of a line `PID (NAME) STATE PARENT ...`, whose name may hold anything.
fn parent_and_start(stat: &str) -> Option<(Pid, u64)> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut words = after_name.split_ascii_whitespace().skip(1);
    let parent = words.next()?.parse().ok().map(Pid::from_raw)?;
    Some((parent, words.nth(17)?.parse().ok()?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn hostile_process_names_do_not_hide_the_parent() {
        let rest = "7 12 12 0 -1 4194304 113 0 0 0 0 0 0 0 20 0 1 0 5213 8192";
        assert_eq!(parent_and_start(&format!("12 (a) R 1 (b) S {rest}")), Some((Pid::from_raw(7), 5213)));
        assert_eq!(parent_and_start(&format!("12 (sleep) S {rest}")), Some((Pid::from_raw(7), 5213)));
        assert_eq!(parent_and_start("12 (sleep"), None);
    }

    #[test]
    fn processes_that_are_left_are_told_by_their_numbers() {
        assert_eq!(list(&[4711, 4712].map(Pid::from_raw)), "4711, 4712");
    }

    #[test]
    fn a_child_is_a_descendant_unless_spared() {
        let mut child = Command::new("/bin/sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let process = all().unwrap().into_iter().find(|process| process.shown == pid).unwrap();
        let listed = |spared| descendants(&HashSet::from([spared])).unwrap().contains(&process);
        assert!(!listed(process));
        assert!(listed(Process { start: process.start + 1, ..process }));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
