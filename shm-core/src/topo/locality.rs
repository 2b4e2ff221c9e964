//! How the ranks of a job come to the same hierarchy: rank 0 asks hwloc and tells the others.
//!
//! hwloc takes milliseconds in each process that asks, and all processes of a node would ask the same
//! kernel at the same time. What every rank computes depends on rank 0's answer, on the masks that all
//! have exchanged, and on settings that are the same everywhere.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::{Hierarchy, Place, Topology};
use crate::error::{Error, Result};
use crate::settings::Settings;

/// What rank 0 tells when there is nothing to ask for.
const NOTHING: &str = "";
/// Begins a reason in place of a topology.
const FAILED: char = '!';

/// The hierarchy of a job, and where it comes from.
#[derive(Debug)]
pub(crate) struct Locality {
    hierarchy: Hierarchy,
    origin: String,
}

impl Locality {
    /// One line that `rank` of `size` tells the others.
    pub(crate) fn card(rank: usize, size: usize, settings: &Settings) -> String {
        if rank != 0 || size == 1 {
            return NOTHING.to_owned();
        }
        let topology = settings.topology.as_deref().map_or_else(Topology::of_this_machine, Topology::synthetic);
        match topology {
            Ok(topology) => topology.to_text(),
            Err(error) => format!("{FAILED}{}", error.to_string().replace(char::is_control, " ")),
        }
    }

    /// The hierarchy of ranks with these masks, from the card of rank 0.
    ///
    /// # Errors
    /// A topology is set that hwloc refuses. Whatever else is wrong makes one flat level.
    pub(crate) fn agree(card: &str, masks: &[&[usize]], settings: &Settings) -> Result<Self> {
        if card == NOTHING {
            return Ok(Self { hierarchy: flat(masks.len()), origin: "hwloc was not asked".to_owned() });
        }
        if let (Some(_), Some(reason)) = (&settings.topology, card.strip_prefix(FAILED)) {
            return Err(Error::Startup(format!("topology: {reason}")));
        }
        let outcome = match card.strip_prefix(FAILED) {
            Some(reason) => Err(reason.to_owned()),
            None => Topology::from_text(card)
                .ok_or_else(|| "rank 0's topology cannot be read".to_owned())
                .and_then(|topology| places(&topology, masks, settings.topology.is_some())),
        };
        Ok(match (outcome, &settings.topology) {
            (Ok(places), None) => Self { hierarchy: Hierarchy::new(places), origin: "hwloc".to_owned() },
            (Ok(places), Some(description)) => Self {
                hierarchy: Hierarchy::new(places),
                origin: format!("as if on {description:?}, one core after the other: topology is set"),
            },
            (Err(reason), _) => Self { hierarchy: flat(masks.len()), origin: format!("flat: {reason}") },
        })
    }

    pub(crate) fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Where the hierarchy comes from, or why it is flat.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }
}

/// Where the ranks are. On a machine that is not this one masks mean nothing: ranks get a core each.
fn places(topology: &Topology, masks: &[&[usize]], imagined: bool) -> std::result::Result<Vec<Place>, String> {
    if imagined {
        let cores = topology.one_per_core();
        return cores.iter().cycle().take(masks.len()).map(|&core| Place::of(topology, &[core])).collect();
    }
    // Ranks that are not bound have the same mask, and there may be many processors in it.
    let mut known: BTreeMap<&[usize], Place> = BTreeMap::new();
    for (rank, mask) in masks.iter().enumerate() {
        if let Entry::Vacant(place) = known.entry(mask) {
            place.insert(Place::of(topology, mask).map_err(|why| format!("rank {rank} has no place: {why}"))?);
        }
    }
    Ok(masks.iter().map(|mask| known[mask].clone()).collect())
}

fn flat(size: usize) -> Hierarchy {
    Hierarchy::new(vec![Place::anywhere(); size])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::topo::Level;

    fn set(description: &str) -> Settings {
        Settings { topology: Some(description.to_owned()), ..Settings::default() }
    }

    #[test]
    fn masks_and_rank_0s_topology_make_the_hierarchy() {
        let card = Topology::synthetic("pack:2 core:2").unwrap().to_text();
        let masks: [&[usize]; 5] = [&[3], &[0], &[1], &[2], &[0, 1]];
        let locality = Locality::agree(&card, &masks, &Settings::default()).unwrap();
        assert_eq!(locality.hierarchy().to_string(), "socket 1 group of 3, 1 group of 2; node 1 group of 2");
        assert_eq!(locality.origin(), "hwloc");
    }

    #[test]
    fn what_does_not_fit_is_flat_and_says_so() {
        let card = Topology::synthetic("pack:2 core:2").unwrap().to_text();
        let masks: [&[usize]; 2] = [&[0], &[7]];
        for (card, reason) in [
            (card.as_str(), "rank 1 has no place: it may run on processor 7"),
            ("!hwloc_topology_load failed", "load failed"),
            ("0:x", "cannot be read"),
        ] {
            let locality = Locality::agree(card, &masks, &Settings::default()).unwrap();
            assert_eq!(locality.hierarchy().to_string(), "node 1 group of 2");
            assert!(locality.origin().starts_with("flat: ") && locality.origin().contains(reason), "{locality:?}");
        }
    }

    #[test]
    fn a_set_topology_gives_each_rank_a_core_and_must_be_right() {
        let settings = set("pack:2 l3:2 core:2 pu:2");
        let masks: [&[usize]; 10] = [&[0]; 10];
        let locality = Locality::agree(&Locality::card(0, 10, &settings), &masks, &settings).unwrap();
        let hierarchy = locality.hierarchy();
        let distances = [1, 2, 4, 8].map(|rank| hierarchy.distance(0, rank));
        assert_eq!(distances, [Level::L3, Level::Socket, Level::Node, Level::Core]);
        assert!(locality.origin().contains("pack:2 l3:2 core:2 pu:2"));

        let wrong = set("core:2 core:2");
        let error = Locality::agree(&Locality::card(0, 2, &wrong), &masks[..2], &wrong).unwrap_err();
        assert!(error.to_string().contains("core:2 core:2"), "{error}");
    }

    #[test]
    fn only_rank_0_of_several_asks() {
        let settings = Settings::default();
        assert_eq!((Locality::card(1, 2, &settings), Locality::card(0, 1, &settings)), (String::new(), String::new()));
        let locality = Locality::agree("", &[&[0]], &settings).unwrap();
        assert_eq!((locality.hierarchy().size(), locality.origin()), (1, "hwloc was not asked"));
    }
}
