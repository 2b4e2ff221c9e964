//! A tree as lines: what hangs on a rank stands below it, the near ones first, with the level that
//! both share.

use std::io::{self, Write};

use shm_core::topo::{Hierarchy, Level, Tree};

use super::ranges_text;

/// One line below a rank.
struct Branch {
    level: Level,
    /// Ranks that hang side by side and on which nobody hangs, or ranks that hang one on the other.
    ranks: Vec<usize>,
    is_chain: bool,
}

pub(super) fn draw(out: &mut impl Write, hierarchy: &Hierarchy, tree: &Tree) -> io::Result<()> {
    writeln!(out, "{}", tree.root())?;
    below(out, hierarchy, tree, tree.root(), "")
}

fn below(out: &mut impl Write, hierarchy: &Hierarchy, tree: &Tree, rank: usize, indent: &str) -> io::Result<()> {
    let branches = branches(hierarchy, tree, rank);
    for (index, branch) in branches.iter().enumerate() {
        let is_last = index + 1 == branches.len();
        let (corner, line) = if is_last { ("└─", "   ") } else { ("├─", "│  ") };
        writeln!(out, "{indent}{corner} {}: {}", branch.level, branch.text())?;
        if let Some(&end) = branch.ranks.last() {
            below(out, hierarchy, tree, end, &format!("{indent}{line}"))?;
        }
    }
    Ok(())
}

fn branches(hierarchy: &Hierarchy, tree: &Tree, rank: usize) -> Vec<Branch> {
    let mut branches: Vec<Branch> = Vec::new();
    for &child in tree.children(rank) {
        let level = hierarchy.distance(rank, child);
        let ranks = chain(hierarchy, tree, child, level);
        let is_leaf = tree.children(child).is_empty();
        match branches.last_mut() {
            Some(last) if is_leaf && last.level == level && last.is_leaves(tree) => last.ranks.push(child),
            _ => branches.push(Branch { level, is_chain: ranks.len() > 1, ranks }),
        }
    }
    branches
}

/// `first`, and who hangs on it alone and at the same level, and so on.
fn chain(hierarchy: &Hierarchy, tree: &Tree, first: usize, level: Level) -> Vec<usize> {
    let next = |&rank: &usize| match tree.children(rank) {
        &[only] if hierarchy.distance(rank, only) == level => Some(only),
        _ => None,
    };
    std::iter::successors(Some(first), next).collect()
}

impl Branch {
    fn is_leaves(&self, tree: &Tree) -> bool {
        !self.is_chain && self.ranks.iter().all(|&rank| tree.children(rank).is_empty())
    }

    fn text(&self) -> String {
        if self.is_chain {
            self.ranks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" > ")
        } else {
            ranges_text(&self.ranks)
        }
    }
}
