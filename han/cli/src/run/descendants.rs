//! Finding and ending everything that a process has started, however deep.
//!
//! The caller must adopt orphans (`shm_core::sys::process::adopt_orphans`). Then a process that loses
//! its parent becomes the caller's child, so nothing can leave the tree, and `waitpid` failing with
//! `ECHILD` proves that the tree is empty.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid};
use shm_core::sys::process::reap_child;

/// How long processes that have received `SIGKILL` may take to end; only ones that the kernel holds in
/// an uninterruptible call take longer.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// A process, which no later one of the same number is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pid: Pid,
    /// In clock ticks since boot.
    start: u64,
}

/// Kills and reaps all descendants except `spared` ones and theirs.
///
/// Returns the processes that did not end in time.
pub(super) fn end_all(spared: &HashSet<Process>) -> io::Result<Vec<Pid>> {
    let give_up = Instant::now() + KILL_PATIENCE;
    let mut pause = Duration::ZERO;
    loop {
        loop {
            match reap_child() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(Errno::ECHILD) => return Ok(Vec::new()),
                Err(e) => return Err(e.into()),
            }
        }
        let rest = descendants(getpid(), spared)?;
        if rest.is_empty() && !spared.is_empty() {
            return Ok(Vec::new());
        }
        for process in &rest {
            // One that has ended since it was listed is what we want.
            let _ = kill(process.pid, Signal::SIGKILL);
        }
        if Instant::now() > give_up {
            return Ok(rest.into_iter().map(|process| process.pid).collect());
        }
        thread::sleep(pause);
        pause = Duration::from_millis(1);
    }
}

/// All descendants of this process.
pub(super) fn all() -> io::Result<HashSet<Process>> {
    Ok(descendants(getpid(), &HashSet::new())?.into_iter().collect())
}

fn descendants(root: Pid, spared: &HashSet<Process>) -> io::Result<Vec<Process>> {
    let mut tree = process_tree()?;
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        let children = tree.remove(&parent).unwrap_or_default();
        let children = children.into_iter().filter(|child| !spared.contains(child));
        for child in children {
            found.push(child);
            open.push(child.pid);
        }
    }
    Ok(found)
}

/// The children of every process that has some.
fn process_tree() -> io::Result<HashMap<Pid, Vec<Process>>> {
    let mut tree: HashMap<Pid, Vec<Process>> = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process that ends while we look is no longer there to be listed.
        let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else { continue };
        if let Some((parent, start)) = parent_and_start(&String::from_utf8_lossy(&stat)) {
            tree.entry(parent).or_default().push(Process { pid: Pid::from_raw(pid), start });
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
    fn a_child_is_a_descendant_unless_spared() {
        let mut child = Command::new("/bin/sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let process = all().unwrap().into_iter().find(|process| process.pid == pid).unwrap();
        let listed = |spared| descendants(getpid(), &HashSet::from([spared])).unwrap().contains(&process);
        assert!(!listed(process));
        assert!(listed(Process { start: process.start + 1, ..process }));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
