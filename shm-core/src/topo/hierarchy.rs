//! Groups of ranks at each level, and their leaders (Luo's dissertation, section 4.2.2).
//!
//! At the innermost level the ranks of one object are a group; each group has a leader, and the
//! leaders are the members of the groups of the next level. Levels that would hold only groups of one
//! bring no structure and are left out. The leader is the lowest rank, so that the tree from root 0,
//! the most frequent one, needs no exchange.

use std::collections::BTreeMap;
use std::fmt;

use super::{Level, Place};

/// The ranks of a communicator in groups, level by level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    places: Vec<Place>,
    tiers: Vec<Tier>,
}

/// One level of a hierarchy.
///
/// Its members are the leaders of the tier below, or all ranks in the innermost tier; each of them is
/// in exactly one group, which may be a group of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tier {
    /// What the members of a group share.
    pub level: Level,
    /// By the rank of their leaders, ascending.
    pub groups: Vec<Group>,
}

/// Ranks that talk to each other at one level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Ascending.
    members: Vec<usize>,
}

impl Group {
    /// Its ranks, ascending.
    #[must_use]
    pub fn members(&self) -> &[usize] {
        &self.members
    }

    /// The member that speaks for the group at the next level: the lowest rank.
    #[must_use]
    pub fn leader(&self) -> usize {
        self.members[0]
    }
}

impl Hierarchy {
    /// The hierarchy of ranks at `places`.
    #[must_use]
    pub fn new(places: Vec<Place>) -> Self {
        let mut tiers = Vec::new();
        let mut members: Vec<usize> = (0..places.len()).collect();
        for level in Level::ALL {
            let tier = Tier { level, groups: groups(&places, &members, level) };
            if tier.groups.len() < members.len() {
                members = tier.groups.iter().map(Group::leader).collect();
                tiers.push(tier);
            }
        }
        Self { places, tiers }
    }

    /// The hierarchy of some of these ranks, which are numbered anew in the order given: that of a
    /// communicator of `ranks`.
    ///
    /// # Panics
    /// One of `ranks` is not a rank of this hierarchy.
    #[must_use]
    pub fn of_ranks(&self, ranks: &[usize]) -> Self {
        Self::new(ranks.iter().map(|&rank| self.places[rank].clone()).collect())
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.places.len()
    }

    /// The levels with structure, the innermost first; none for a single rank. The last one has one
    /// group.
    #[must_use]
    pub fn tiers(&self) -> &[Tier] {
        &self.tiers
    }

    /// Where `rank` is.
    ///
    /// # Panics
    /// `rank` is not a rank of this hierarchy.
    #[must_use]
    pub fn place(&self, rank: usize) -> &Place {
        &self.places[rank]
    }

    /// How near two ranks are.
    ///
    /// # Panics
    /// One of them is not a rank of this hierarchy.
    #[must_use]
    pub fn distance(&self, one: usize, other: usize) -> Level {
        self.places[one].distance(&self.places[other])
    }
}

/// Puts `members` together that are in the same object of `level`; others stay alone.
fn groups(places: &[Place], members: &[usize], level: Level) -> Vec<Group> {
    let mut by_object: BTreeMap<&[Option<u16>], Vec<usize>> = BTreeMap::new();
    let mut alone = Vec::new();
    for &member in members {
        match places[member].within(level) {
            Some(object) => by_object.entry(object).or_default().push(member),
            None if level == Level::Node => by_object.entry(&[]).or_default().push(member),
            None => alone.push(vec![member]),
        }
    }
    let mut groups: Vec<_> = by_object.into_values().chain(alone).map(|members| Group { members }).collect();
    groups.sort_by_key(Group::leader);
    groups
}

impl fmt::Display for Hierarchy {
    /// `l3 8 groups of 8; socket 2 groups of 4; node 1 group of 2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tiers.is_empty() {
            return f.write_str("a single rank");
        }
        for (index, tier) in self.tiers.iter().enumerate() {
            let mut sizes = BTreeMap::<usize, usize>::new();
            for group in &tier.groups {
                *sizes.entry(group.members.len()).or_default() += 1;
            }
            let words = sizes.iter().rev().map(|(size, count)| match (count, size) {
                (1, _) => format!("1 group of {size}"),
                (_, 1) => format!("{count} alone"),
                _ => format!("{count} groups of {size}"),
            });
            let words: Vec<_> = words.collect();
            write!(f, "{}{} {}", if index > 0 { "; " } else { "" }, tier.level, words.join(", "))?;
        }
        Ok(())
    }
}
