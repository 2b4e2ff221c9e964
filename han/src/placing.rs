//! Where the ranks of a world are: on which nodes, and on which machines these are.
//!
//! Nodes come from the launcher, or else from what each rank says of its machine. The ranks also agree here on what
//! must be the same everywhere, and on the job's secret, which travels on no other way than the launcher's own.

use std::collections::{BTreeMap, BTreeSet};

use shm_core::exchange::Exchange;
use shm_core::job::{Load, host_name, network_identity, node_identity};
use shm_core::settings::differences;
use shm_core::sys::{affinity, process};

use crate::config::{ChoosesBy, Config};
use crate::error::{Error, Result};

/// Bytes of a job's secret.
const SECRET_BYTES: usize = 16;

/// The ranks of a world over several nodes, the same on all of them but for `here`.
#[derive(Debug)]
pub(crate) struct Placing {
    /// By rank: its node, from 0 without gaps.
    pub(crate) nodes: Vec<usize>,
    /// By rank: its network of its machine, as a number that ranks have in common if they see the same one.
    pub(crate) networks: Vec<usize>,
    /// The ranks of this rank's node, ascending.
    pub(crate) here: Vec<usize>,
    /// By rank: how messages name it.
    pub(crate) names: Vec<String>,
    /// By rank: its process.
    pub(crate) pids: Vec<u32>,
    /// Random, and known to nobody else.
    pub(crate) secret: [u8; SECRET_BYTES],
    /// Whether this rank's machine has fewer cores than it has ranks, on all of its nodes together.
    pub(crate) crowded: bool,
    /// Whether ranks of other nodes are on this rank's machine: the same on all ranks of a node.
    pub(crate) has_neighbours: bool,
    /// Processes of those that may run on this rank's cores.
    pub(crate) neighbours: Vec<u32>,
    /// Whether any rank's machine has: the same on all ranks.
    pub(crate) crowded_somewhere: bool,
    /// Whether all ranks have the same network of the same machine, so that its loopback interface connects them.
    pub(crate) one_host: bool,
}

impl Placing {
    /// Number of nodes.
    pub(crate) fn node_count(&self) -> usize {
        self.nodes.iter().max().map_or(1, |last| last + 1)
    }
}

/// What is said of a rank whose words are not understood. They have the secret, so they are not shown.
const FOREIGN: &str = "a rank introduced itself in words of another build of han";

/// What each rank tells all others first.
struct Card {
    pid: u32,
    host: String,
    identity: String,
    network: String,
    cores: Vec<usize>,
    /// Cores' worth of time that its control groups allow, if they limit it.
    quota: Option<f64>,
    secret: [u8; SECRET_BYTES],
    chooses_by: ChoosesBy,
    settings: String,
}

/// Finds out where the ranks are; `None` if on one node. Collective over `exchange`.
pub(crate) fn find(exchange: &mut dyn Exchange, config: &Config) -> Result<Option<Placing>> {
    let told = exchange.nodes();
    if exchange.size() == 1 || told.as_ref().is_some_and(|nodes| nodes.iter().all(|node| *node == nodes[0])) {
        return Ok(None);
    }
    let cards = exchange.allgather(Card::own(config)?.to_text().as_bytes()).map_err(Error::startup)?;
    let cards: Vec<Card> = cards.iter().map(|bytes| Card::from_text(bytes)).collect::<Result<_>>()?;
    compare(cards.iter().map(|card| (card.settings.as_str(), &card.chooses_by)))?;
    let nodes = match told {
        Some(nodes) => numbered(&nodes),
        None => numbered(&cards.iter().map(|card| card.identity.as_str()).collect::<Vec<_>>()),
    };
    let rank = exchange.rank();
    let machine = |card: &Card| card.identity.split('/').next().map(str::to_owned);
    let own = machine(&cards[rank]);
    let crowded = |machine_of: &Option<String>| {
        is_crowded(&cards.iter().filter(|card| machine(card) == *machine_of).collect::<Vec<_>>())
    };
    let machines: BTreeSet<_> = cards.iter().map(machine).collect();
    let neighbours: Vec<&Card> =
        neighbours(&nodes, &cards.iter().map(machine).collect::<Vec<_>>(), rank).map(|other| &cards[other]).collect();
    let is_here = |card: &&&Card| card.cores.iter().any(|core| cards[rank].cores.contains(core));
    Ok(nodes.iter().any(|node| *node > 0).then(|| Placing {
        here: (0..nodes.len()).filter(|&other| nodes[other] == nodes[rank]).collect(),
        names: cards.iter().enumerate().map(|(rank, card)| card.name(rank)).collect(),
        networks: numbered(&cards.iter().map(|card| (machine(card), &card.network)).collect::<Vec<_>>()),
        pids: cards.iter().map(|card| card.pid).collect(),
        nodes,
        secret: cards[0].secret,
        crowded: crowded(&own),
        has_neighbours: !neighbours.is_empty(),
        neighbours: neighbours.iter().filter(is_here).map(|card| card.pid).collect(),
        crowded_somewhere: machines.iter().any(crowded),
        one_host: cards.iter().all(|card| machine(card) == own && card.network == cards[0].network),
    }))
}

/// Refuses ranks of one node that would choose differently. Collective over `exchange`.
pub(crate) fn agree(exchange: &mut dyn Exchange, config: &Config) -> Result<()> {
    let own = format!("{}\n{}", config.chooses_by().to_text(), config.agreed());
    let all = exchange.allgather(own.as_bytes()).map_err(Error::startup)?;
    let read = |bytes: &Vec<u8>| {
        let text = String::from_utf8_lossy(bytes);
        let (chooses_by, settings) = text.split_once('\n')?;
        Some((settings.to_owned(), ChoosesBy::from_text(chooses_by)?))
    };
    let all: Vec<_> = all.iter().map(read).collect::<Option<_>>().ok_or_else(|| Error::startup(FOREIGN))?;
    compare(all.iter().map(|(settings, chooses_by)| (settings.as_str(), chooses_by)))
}

/// Refuses ranks with different settings, and such as would choose differently for another reason.
fn compare<'a>(all: impl Iterator<Item = (&'a str, &'a ChoosesBy)>) -> Result<()> {
    let (settings, chooses_by): (Vec<_>, Vec<_>) = all.unzip();
    if let Some(rank) = settings.iter().position(|other| *other != settings[0]) {
        let (first, other) = differences(settings[0], settings[rank]);
        return Err(Error::startup(format!(
            "settings differ: rank 0 has {first}, rank {rank} has {other}: set HAN_SET, HAN_REPRODUCIBLE and HAN_TRACE \
             alike on all ranks"
        )));
    }
    ChoosesBy::compare(chooses_by)
}

/// The same groups, numbered in the order in which they first come.
fn numbered<T: Ord>(groups: &[T]) -> Vec<usize> {
    let mut numbers = BTreeMap::new();
    groups
        .iter()
        .map(|group| {
            let next = numbers.len();
            *numbers.entry(group).or_insert(next)
        })
        .collect()
}

/// The ranks of other nodes that are on the machine of `rank`.
fn neighbours<M: PartialEq>(nodes: &[usize], machines: &[M], rank: usize) -> impl Iterator<Item = usize> {
    (0..nodes.len()).filter(move |&other| nodes[other] != nodes[rank] && machines[other] == machines[rank])
}

/// Whether ranks of one machine share its cores, or more of them share a container than its control groups allow cores.
fn is_crowded(cards: &[&Card]) -> bool {
    let by_cores = |cards: &[&Card], quota| Load::new(cards.iter().map(|card| &card.cores), quota).is_crowded();
    // Of nodes that one container plays, all ranks have one identity.
    let mut containers = BTreeMap::<&str, Vec<&Card>>::new();
    cards.iter().for_each(|card| containers.entry(&card.identity).or_default().push(card));
    let tightest = |cards: &[&Card]| cards.iter().filter_map(|card| card.quota).reduce(f64::min);
    by_cores(cards, None) || containers.values().any(|inside| by_cores(inside, tightest(inside)))
}

impl Card {
    fn name(&self, rank: usize) -> String {
        format!("rank {rank} (pid {} on {})", self.pid, self.host)
    }

    fn own(config: &Config) -> Result<Self> {
        let secret = process::random_bytes().map_err(|e| Error::startup(format!("no random numbers: {e}")))?;
        let settings = config.agreed();
        let (identity, network) = (node_identity()?, network_identity());
        let (pid, host) = (std::process::id(), host_name());
        let (cores, quota) = (affinity::allowed_cores()?, affinity::cgroup_quota());
        let chooses_by = config.chooses_by();
        Ok(Self { pid, host, identity, network, cores, quota, secret, chooses_by, settings })
    }

    fn to_text(&self) -> String {
        let cores: Vec<String> = self.cores.iter().map(ToString::to_string).collect();
        let secret = u128::from_le_bytes(self.secret);
        let Self { pid, host, identity, network, settings, .. } = self;
        let (cores, chooses_by) = (cores.join(","), self.chooses_by.to_text());
        let quota = self.quota.map_or(String::new(), |quota| quota.to_string());
        format!("{pid}\n{host}\n{identity}\n{network}\n{cores}\n{quota}\n{secret:032x}\n{chooses_by}\n{settings}")
    }

    fn from_text(bytes: &[u8]) -> Result<Self> {
        std::str::from_utf8(bytes).ok().and_then(Self::parse).ok_or_else(|| Error::startup(FOREIGN))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.splitn(9, '\n');
        let mut line = || lines.next();
        let (pid, host) = (line()?.parse().ok()?, line()?.to_owned());
        let (identity, network) = (line()?.to_owned(), line()?.to_owned());
        let cores = line()?.split(',').map(|core| core.parse().ok()).collect::<Option<Vec<usize>>>()?;
        let quota = Some(line()?).filter(|text| !text.is_empty()).map(str::parse).transpose().ok()?;
        let secret = u128::from_str_radix(line()?, 16).ok()?.to_le_bytes();
        let chooses_by = ChoosesBy::from_text(line()?)?;
        Some(Self { pid, host, identity, network, cores, quota, secret, chooses_by, settings: line()?.to_owned() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn groups_are_numbered_as_they_come() {
        assert_eq!(numbered(&[7, 7, 3, 7, 9]), [0, 0, 1, 0, 2]);
        assert_eq!(numbered(&["b", "a", "b"]), [0, 1, 0]);
    }

    #[test]
    fn cores_are_shared_by_ranks_of_all_nodes_and_a_quota_by_those_of_a_container() {
        let crowded = |ranks: &[(&[usize], Option<f64>, &str)]| {
            let card = |&(cores, quota, container): &(&[usize], Option<f64>, &str)| {
                let (cores, identity) = (cores.to_vec(), container.to_owned());
                Card { cores, quota, identity, ..Card::own(&Config::default()).unwrap() }
            };
            let cards: Vec<_> = ranks.iter().map(card).collect();
            is_crowded(&cards.iter().collect::<Vec<_>>())
        };
        let both: &[usize] = &[0, 1];
        assert!(!crowded(&[(&[0], None, "a"), (&[1], None, "b")]));
        assert!(!crowded(&[(both, None, "a"), (both, None, "b")]));
        assert!(crowded(&[(&[0], None, "a"), (&[1], None, "a"), (&[0], None, "b")]));
        assert!(crowded(&[(both, None, "a"), (both, None, "b"), (both, None, "c")]));
        assert!(crowded(&[(both, Some(1.0), "a"), (both, Some(1.0), "a")]));
        assert!(!crowded(&[(both, Some(1.0), "a"), (both, Some(1.0), "b")]));
        assert!(crowded(&[(both, Some(0.5), "a"), (both, None, "b")]));
    }

    #[test]
    fn neighbours_are_ranks_of_other_nodes_on_one_machine() {
        let of = |nodes: &[usize], machines: &[&str], rank| neighbours(nodes, machines, rank).collect::<Vec<_>>();
        assert!(of(&[0, 0, 1, 1], &["a", "a", "b", "b"], 2).is_empty());
        assert_eq!(of(&[0, 0, 1, 1], &["a", "a", "a", "a"], 2), [0, 1]);
        assert_eq!(of(&[0, 1, 2], &["a", "b", "b"], 1), [2]);
        assert!(of(&[0, 1, 2], &["a", "b", "b"], 0).is_empty());
    }

    #[test]
    fn cards_survive_their_text() {
        let card = Card { quota: Some(1.5), ..Card::own(&Config::default()).unwrap() };
        let again = Card::from_text(card.to_text().as_bytes()).unwrap();
        assert_eq!(again.quota, card.quota);
        assert_eq!((&again.identity, &again.cores, again.secret), (&card.identity, &card.cores, card.secret));
        assert_eq!((&again.chooses_by, &again.settings), (&card.chooses_by, &card.settings));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_card_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Card::from_text(&bytes);
        }

        #[test]
        fn damaged_cards_are_read_or_refused(at in 0_usize..2000, with in any::<u8>(), keep in 0_usize..2000) {
            let mut bytes = Card::own(&Config::default()).unwrap().to_text().into_bytes();
            let length = bytes.len();
            bytes[at % length] = with;
            bytes.truncate(keep);
            let _ = Card::from_text(&bytes);
        }
    }
}
