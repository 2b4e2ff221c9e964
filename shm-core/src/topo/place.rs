//! Where a rank is: the part of the path that all its processors share.

use super::{Level, Topology};

/// The smallest object that holds all processors of a rank.
///
/// A rank that is bound to one processor has the whole path of it, one that may run anywhere the
/// empty path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place(Vec<Option<u16>>);

impl Place {
    /// The place of a rank that may run on `cores` (the kernel's numbers of processors).
    ///
    /// # Errors
    /// The first of `cores` that the topology does not have; or there are none.
    pub fn of(topology: &Topology, cores: &[usize]) -> Result<Self, String> {
        let path = |&core: &usize| {
            topology.path(core).ok_or_else(|| format!("it may run on processor {core}, which hwloc does not know"))
        };
        let mut paths = cores.iter().map(path);
        let mut common = paths.next().ok_or("it may run on no processor")??.to_vec();
        for path in paths {
            let path = path?;
            common.truncate(shared(&common, path));
        }
        Ok(Self(common))
    }

    /// The place of a rank of which nothing is known.
    #[must_use]
    pub fn anywhere() -> Self {
        Self(Vec::new())
    }

    /// What this rank and that at `other` share.
    #[must_use]
    pub fn distance(&self, other: &Self) -> Level {
        self.innermost(shared(&self.0, &other.0))
    }

    /// The innermost object that holds the rank.
    #[must_use]
    pub fn level(&self) -> Level {
        self.innermost(self.0.len())
    }

    /// The object of `level` that holds the rank, if there is one, told from others by its path.
    pub(super) fn within(&self, level: Level) -> Option<&[Option<u16>]> {
        let depth = Level::PATH.iter().position(|&known| known == level)?;
        self.0.get(depth)?.and(self.0.get(..=depth))
    }

    fn innermost(&self, depth: usize) -> Level {
        let here = self.0[..depth].iter().zip(Level::PATH);
        here.rev().find_map(|(object, level)| object.map(|_| level)).unwrap_or(Level::Node)
    }
}

/// How many entries, from the outermost on, are the same.
fn shared(one: &[Option<u16>], other: &[Option<u16>]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn place(topology: &Topology, cores: &[usize]) -> Place {
        Place::of(topology, cores).unwrap()
    }

    #[test]
    fn a_rank_is_in_the_smallest_object_that_covers_its_mask() {
        let topology = Topology::synthetic("pack:2 numa:2 l3:2 core:2 pu:2").unwrap();
        for (cores, level) in [
            (&[5][..], Level::Core),
            (&[4, 5], Level::Core),
            (&[0, 2], Level::L3),
            (&[0, 1, 2, 3, 4], Level::Numa),
            (&[0, 8], Level::Socket),
            (&[15, 16], Level::Node),
        ] {
            assert_eq!(place(&topology, cores).level(), level, "{cores:?}");
        }
        assert_eq!(Place::anywhere().level(), Level::Node);
        let unknown = Place::of(&topology, &[0, 32]).unwrap_err();
        assert!(unknown.contains("processor 32"), "{unknown}");
        assert!(Place::of(&topology, &[]).is_err());
    }

    #[test]
    fn ranks_are_as_far_as_the_smallest_object_that_holds_both() {
        let topology = Topology::synthetic("pack:2 numa:2 l3:2 core:2 pu:2").unwrap();
        let distance = |a: &[usize], b: &[usize]| place(&topology, a).distance(&place(&topology, b));
        assert_eq!(distance(&[0], &[0]), Level::Core);
        assert_eq!(distance(&[0], &[1]), Level::Core);
        assert_eq!(distance(&[0], &[2]), Level::L3);
        assert_eq!(distance(&[0], &[4]), Level::Numa);
        assert_eq!(distance(&[0], &[8]), Level::Socket);
        assert_eq!(distance(&[0], &[16]), Level::Node);
        // Bound to one core, and to the two L3 of its NUMA node.
        assert_eq!(distance(&[0], &[0, 1, 2, 3, 4]), Level::Numa);
        assert_eq!(distance(&[0], &(0..32).collect::<Vec<_>>()), Level::Node);
    }

    #[test]
    fn what_a_machine_lacks_brings_nobody_nearer() {
        let topology = Topology::synthetic("numa:2 core:4").unwrap();
        let distance = |a: usize, b: usize| place(&topology, &[a]).distance(&place(&topology, &[b]));
        assert_eq!((distance(0, 1), distance(0, 4)), (Level::Numa, Level::Node));
        assert_eq!(place(&topology, &[0, 1]).level(), Level::Numa);
    }

    #[test]
    fn what_spans_objects_of_an_outer_level_brings_nobody_nearer_than_those() {
        let topology = Topology::synthetic("pack:2 l3:1 numa:2 core:2").unwrap();
        let distance = |a: usize, b: usize| place(&topology, &[a]).distance(&place(&topology, &[b]));
        assert_eq!((distance(0, 1), distance(0, 2), distance(0, 4)), (Level::Numa, Level::Socket, Level::Node));
        let topology = Topology::synthetic("pack:2 core:2").unwrap();
        assert_eq!(place(&topology, &[0, 1]).level(), Level::Socket);
    }
}
