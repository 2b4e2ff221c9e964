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

/// Kills and reaps all descendants except those under `spared` children.
///
/// Returns the processes that did not end in time.
pub(super) fn end_all(spared: &HashSet<Pid>) -> io::Result<Vec<Pid>> {
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
            return Ok(rest);
        }
        for pid in &rest {
            // One that has ended since it was listed is what we want.
            let _ = kill(*pid, Signal::SIGKILL);
        }
        if Instant::now() > give_up {
            return Ok(rest);
        }
        thread::sleep(pause);
        pause = Duration::from_millis(1);
    }
}

/// The direct children of this process.
pub(super) fn children() -> io::Result<HashSet<Pid>> {
    Ok(process_tree()?.remove(&getpid()).unwrap_or_default().into_iter().collect())
}

fn descendants(root: Pid, spared: &HashSet<Pid>) -> io::Result<Vec<Pid>> {
    let mut tree = process_tree()?;
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(parent) = open.pop() {
        let children = tree.remove(&parent).unwrap_or_default();
        let children = children.into_iter().filter(|child| !spared.contains(child));
        for child in children {
            found.push(child);
            open.push(child);
        }
    }
    Ok(found)
}

/// The children of every process that has some.
fn process_tree() -> io::Result<HashMap<Pid, Vec<Pid>>> {
    let mut tree: HashMap<Pid, Vec<Pid>> = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        // A process that ends while we look is no longer there to be listed.
        let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else { continue };
        if let Some(parent) = parent_of(&String::from_utf8_lossy(&stat)) {
            tree.entry(parent).or_default().push(Pid::from_raw(pid));
        }
    }
    Ok(tree)
}

/// The parent in a line `PID (NAME) STATE PARENT ...`, whose name may hold anything.
fn parent_of(stat: &str) -> Option<Pid> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(1)?.parse().ok().map(Pid::from_raw)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn hostile_process_names_do_not_hide_the_parent() {
        assert_eq!(parent_of("12 (a) R 1 (b) S 7 12 12 0"), Some(Pid::from_raw(7)));
        assert_eq!(parent_of("12 (sleep) S 3 12 12 0"), Some(Pid::from_raw(3)));
        assert_eq!(parent_of("12 (sleep"), None);
    }

    #[test]
    fn a_child_is_a_descendant_unless_spared() {
        let mut child = Command::new("/bin/sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        assert!(children().unwrap().contains(&pid));
        assert!(descendants(getpid(), &HashSet::new()).unwrap().contains(&pid));
        assert!(!descendants(getpid(), &HashSet::from([pid])).unwrap().contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
